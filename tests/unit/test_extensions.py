"""What CONTRIBUTING.md shows how to add, added: each example is its new file; a test makes the one entry in the registry."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from recorded import protocol_text, sweep_frame, write

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def added(tmp_path: Path) -> Iterator[Callable[[str], ModuleType]]:
    """Make a module of the example for a path, as if it lay there."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names: list[str] = []

    def add(path: str) -> ModuleType:
        block = re.search(rf"```python\n# {re.escape(path)}\n(.*?)```", text, flags=re.DOTALL)
        assert block is not None
        assert not (ROOT / path).exists(), "the example must be a new file"
        file = tmp_path / Path(path).name
        file.write_text(block[1], encoding="utf-8")
        name = path.removesuffix(".py").replace("/", ".")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = made = importlib.util.module_from_spec(spec)
        names.append(name)
        spec.loader.exec_module(made)
        return made

    yield add
    for name in names:
        del sys.modules[name]


def test_a_schedule(added: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    from hpo.adapters.schedule_names import parse_schedule, schedule_text
    from hpo.core import schedules
    from hpo.engine.config_blocks import as_schedule

    made = added("hpo/core/quadratic.py")
    monkeypatch.setitem(schedules.SHAPES, "quadratic", made.QUADRATIC)
    quadratic = schedules.schedule("quadratic", final_ratio=0.2)
    assert quadratic([0.1, 0.55, 1.0], warmup_fraction=0.1) == pytest.approx([1.0, 0.4, 0.2])
    assert schedules.schedule_from_dict(quadratic.to_dict()) == quadratic
    assert parse_schedule(schedule_text(quadratic)) == quadratic
    assert as_schedule({"name": "quadratic", "final_ratio": 0.2}) == quadratic
    assert not schedules.schedules_match(quadratic, schedules.schedule("linear", final_ratio=0.2))
    with pytest.raises(ValueError, match="no parameter 'power'"):
        schedules.schedule("quadratic", power=3)


def test_a_baseline(added: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from bench import replay
    from bench.methods import METHODS
    from bench.methods.view import Method
    from bench.protocol import load_protocol

    made = added("bench/methods/median_drop.py")
    monkeypatch.setitem(METHODS, "median_drop", Method("median_drop", made.predict))
    monkeypatch.setattr(replay, "ALL_METHODS", (*replay.ALL_METHODS, "median_drop"))  # follows from METHODS at import
    folder = write(tmp_path / "curves", sweep_frame())
    (tmp_path / "mine.yaml").write_text(protocol_text())
    summary = replay.replay(folder, load_protocol(tmp_path / "mine.yaml"), ["current_best", "median_drop"])["summary"]
    ours, theirs = (summary[name]["0.2"] for name in ("median_drop", "current_best"))
    assert ours["rho"] == theirs["rho"]  # the same order, since all are shifted alike
    assert ours["mae_pct"] < theirs["mae_pct"]


def test_a_reader(added: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from hpo.adapters.curve_files import read_runs
    from hpo.adapters.readers import registry

    made = added("hpo/adapters/readers/pipes.py")
    monkeypatch.setattr(registry, "READERS", (made.PIPES, *registry.READERS))
    (tmp_path / "run.pipes").write_text("#pipes\n1|3.5\n2|3.0\n")
    (run,) = read_runs(tmp_path / "run.pipes")
    assert np.array_equal(run.steps, [1, 2])
    assert np.array_equal(run.values, [3.5, 3.0])
    (tmp_path / "broken.pipes").write_text("#pipes\n1|3.5|9\n")
    with pytest.raises(ValueError, match=r"broken\.pipes: expected pipes"):
        read_runs(tmp_path / "broken.pipes")


def bowl(settings: dict[str, Any], session: Any) -> None:
    """Train at once: the loss falls to a bowl in the learning rate."""
    for step in range(1, settings["n_steps"] + 1):
        loss = (1 + abs(np.log10(settings["lr"] / 0.01))) * (step / settings["n_steps"]) ** -0.1
        session.report(step=step, loss=float(loss))
        if session.should_stop():
            return


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_decision_rule(added: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import hpo
    from hpo.engine.rules import RULES, Rule

    added("hpo/engine/half_rule.py")
    monkeypatch.setitem(RULES, "half", Rule("half", "hpo.engine.half_rule:run_half", has_rounds=False))
    target = {"n_steps": 100, "n_params": 100, "batch_tokens": 10}
    space = {"lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True, "points": 5}}
    run = tmp_path / "run"
    hpo.sweep(bowl, space, target=target, stopping="half", out=run)
    result = json.loads((run / "result.json").read_text())
    assert result["winner"]["lr"] == pytest.approx(0.01)
    assert sorted(trial["state"] for trial in result["trials"]) == ["complete", "complete", "stopped", "stopped", "winner"]
    hpo.sweep(bowl, space, target=target, stopping="half", out=run, resume=True)
    assert json.loads((run / "result.json").read_text())["winner"] == result["winner"]
