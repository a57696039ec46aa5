"""Inputs that nobody meant, against all that reads a file: a value, or one line that says what is wrong, never a traceback.

Each target of :data:`TARGETS` takes any bytes, hands them over as a file, and raises :class:`CrashError` if what reads them
does anything but succeed or raise its own one-line error. ``tests/property/test_inputs.py`` draws inputs for them, and
``python -m bench.fuzz_search`` searches for longer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from bench.protocol import load_protocol
from hpo.adapters.curve_files import read_runs
from hpo.adapters.model_files import read_model
from hpo.adapters.proxy_library import ProxyLibrary
from hpo.core.curve import Curve
from hpo.core.drift import drift_of
from hpo.core.model import CollapseModel
from hpo.core.proxy_key import differences
from hpo.engine.config import InputError, load_config
from hpo.engine.plan import plan_sweep
from search_spaces.loader import load_space

LONGEST = 1_000
"""Characters of an error's one line."""
HORIZON = 40.0
ENTRY = "0123456789.v1"


class CrashError(AssertionError):
    """What reads a file did something else than succeed or say in one line what is wrong."""


def config(data: bytes) -> None:
    """Check and plan a sweep."""
    _read(data, "sweep.yaml", lambda path: plan_sweep(load_config(path)), InputError)


def model(data: bytes) -> None:
    """Read a fitted model, and forecast a run with it."""

    def forecast(path: Path) -> None:
        read_model(path).forecast_many([_prefix()], np.random.default_rng(0))

    _read(data, "model.json", forecast, ValueError)


def entry(data: bytes) -> None:
    """Read an entry of a proxy library, say how it differs from a sweep's key, and test a run for drift from it."""

    def test(path: Path) -> None:
        found = ProxyLibrary(path.parent).read(path.stem)
        differences(found.key, replace(found.key, tpp=(1.0, 2.0)))
        drift_of(found.model, [_prefix(), *_references()])

    _read(data, f"{ENTRY}.json", test, ValueError)


def protocol(data: bytes) -> None:
    """Read a protocol of the bench."""
    _read(data, "protocol.yaml", load_protocol, ValueError)


def space(data: bytes) -> None:
    """Read a search space and draw from it."""
    _read(data, "space.yaml", lambda path: load_space(path).candidates(1, 0), ValueError)


def log(data: bytes) -> None:
    """Read a log of any format."""
    _read(data, "log", read_runs, ValueError)


def curve(data: bytes) -> None:
    """Take the bytes as the steps and values of a run: bin them, learn from them, forecast them."""
    numbers = np.frombuffer(data[: len(data) // 16 * 16], dtype=np.float64)
    steps, values = numbers[::2], numbers[1::2]

    def follow(_path: Path) -> None:
        made = Curve.from_points(steps, values, horizon=HORIZON)
        CollapseModel.fit([made, *_references()]).forecast_many([made, _prefix()], np.random.default_rng(0))

    with np.errstate(all="ignore"):
        _read(b"", "none", follow, ValueError)


TARGETS: dict[str, Callable[[bytes], None]] = {one.__name__: one for one in (config, model, entry, protocol, space, log, curve)}


def _read(data: bytes, name: str, act: Callable[[Path], object], expected: type[Exception]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            act(path)
        except expected as error:
            said = str(error)
            if not said or "\n" in said or len(said) > LONGEST:
                raise CrashError(f"not one line of at most {LONGEST} characters: {said!r}") from error
        except (Exception, RecursionError) as error:
            raise CrashError(f"{type(error).__name__}: {error}") from error


@cache
def _references() -> tuple[Curve, ...]:
    steps = np.arange(1, int(HORIZON) + 1)
    return tuple(
        Curve.from_points(steps, end * (steps / HORIZON) ** -0.1, horizon=HORIZON, run_id=f"r{end}") for end in (2.0, 2.2, 2.5)
    )


@cache
def _prefix() -> Curve:
    steps = np.arange(1, 13)
    return Curve.from_points(steps, 2.3 * (steps / HORIZON) ** -0.1, horizon=HORIZON, run_id="young")
