"""Whatever a file holds, what reads it succeeds or says in one line what is wrong: the targets of :mod:`bench.fuzz`."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bench import fuzz
from hpo.adapters.proxy_library import Entry
from hpo.core.curve import Curve
from hpo.core.model import CollapseModel
from hpo.core.proxy_key import ProxyKey
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule

ROOT = Path(__file__).resolve().parents[2]
QUIET = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
WORDS = (
    b"name: ", b"model: ", b"{", b"}", b"[", b"]", b"\n", b"  ", b"- ", b": ", b"&a ", b"*a", b"!!python/object ", b"<<: ",
    b"lr", b"parameters", b"type: float", b"low: 1", b".nan", b".inf", b"1e999", b"0x", b"9" * 30, b"2020-13-45", b"\x00",
    b"\xff\xfe", b"\xef\xbb\xbf", b'"\\ud800"', b"null", b"--- ", b"? ", b"#", b"%YAML", b"|", b">", b"'", b'"schema": 1',
    b'"references": []',
)  # fmt: skip
BYTES = st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(WORDS), max_size=30).map(b"".join))
LAUGHS = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(8)
)
OWN = yaml.safe_load("""
trainable: operator:add
target: {n_steps: 800, n_params: 40000, batch_tokens: 128, schedule: {name: constant}, warmup_fraction: 0.1}
search:
  space:
    parameters:
      lr: {type: float, low: 1.0e-3, high: 3.0e-2, log: true, points: 6}
      k: {type: categorical, choices: [a, b], when: {lr: 1}}
  candidates: 3
  first: [{lr: 0.002, k: a}]
proxies: {sizes: [{n_params: 10000, n_steps: 400}], settings: 3, replicates: 2}
stopping: {rule: select, at: 0.2, keep_max: 1, keep_min: 1, alpha: 0.1, margin: 0.1, min_references: 2}
resources: {cpu: 1, gpu: 0, flops_per_s: 1.0e9, max_concurrent: 2}
time_budget: 3h
""")
DEMO = yaml.safe_load((ROOT / "bench" / "demo.yaml").read_text(encoding="utf-8"))
STEPS = np.arange(1, 41)
MODEL = CollapseModel.fit(
    [Curve.from_points(STEPS, end * (STEPS / 40) ** -0.1, horizon=40, run_id=str(end)) for end in (2.0, 2.2, 2.5)]
).to_dict()
PROTOCOL = yaml.safe_load((ROOT / "bench" / "protocols" / "own_sweep_val.yaml").read_text(encoding="utf-8"))
KEY = ProxyKey.of([Recipe(schedule=schedule("linear"), warmup_fraction=0.1)], family="f", data="d", tokeniser="t")
ENTRY = Entry(fuzz.ENTRY, KEY, "now", "run", CollapseModel.from_dict(MODEL)).to_dict()
SPACE = OWN["search"]["space"]
DOCUMENTS = [
    *(("config", DEMO), ("config", OWN), ("model", MODEL), ("entry", ENTRY), ("protocol", PROTOCOL), ("space", SPACE)),
]
ODD = st.one_of(
    st.sampled_from([None, True, "", "x", "é\n", "select", "inf", [], {}, [1], [[]], ["a", {}], {"a": 1}, {1: 2}]),
    st.sampled_from([0, -1, 3, 0.5, 2.5, 1e308, -1e308, math.inf, math.nan, 10**30, 10**9]),
    st.sampled_from([{"name": "wsd", "shape": {}}, {"name": "step", "milestones": [[1]]}, {"type": "float"}]),
)


def places(document: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a nest of mappings and lists; of long lists that of the first few."""
    inner = document.items() if isinstance(document, dict) else enumerate(document[:3]) if isinstance(document, list) else ()
    for key, value in inner:
        yield (key,)
        yield from ((key, *rest) for rest in places(value))


def with_value(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(document)
    holder = changed
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    return changed


@pytest.mark.parametrize("target", sorted(fuzz.TARGETS))
@given(data=BYTES)
@example(data=b"[" * 20_000)
@example(data=b'{"a":' * 5_000)
@example(data=LAUGHS)
@example(data=b"a: &a [*a]\nname: *a\n")
@example(data=b'{"schema": ' + b"9" * 6000 + b"}")
@example(data=b"seed: 2020-13-45T99:99:99")
@example(data=b'name: "\\ud800"')
@example(data=b".:\n")
@QUIET
def test_any_bytes(target: str, data: bytes) -> None:
    fuzz.TARGETS[target](data)


@pytest.mark.parametrize(("target", "document"), DOCUMENTS, ids=["demo", "own", "model", "entry", "protocol", "space"])
@given(data=st.data())
@QUIET
def test_one_odd_value_in_a_sound_document(target: str, document: Any, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(list(places(document))))
    changed = with_value(document, place, data.draw(ODD))
    text = json.dumps(changed) if target in ("model", "entry") else yaml.safe_dump(changed, allow_unicode=True)
    fuzz.TARGETS[target](text.encode())


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("search", "space", "parameters", "lr", "points"), 10**9),
        (("search", "space", "parameters", "lr", "points"), 50_000),
        (("proxies", "replicates"), 10**9),
        (("training", "tpp"), 1e308),
        (("model", "width"), 10**11),
    ],
)
def test_a_sweep_without_end_is_refused_at_once(place: tuple[str, ...], value: float) -> None:
    fuzz.config(yaml.safe_dump(with_value(DEMO, place, value)).encode())


@given(
    steps=st.lists(st.one_of(st.floats(), st.floats(0, 50)), max_size=30),
    values=st.lists(st.one_of(st.floats(), st.floats(1, 5)), max_size=30),
)
@QUIET
def test_any_curve(steps: list[float], values: list[float]) -> None:
    pairs = list(zip(steps, values, strict=False))
    fuzz.curve(np.array(pairs, dtype=np.float64).tobytes())


@given(st.text(max_size=40))
@example("a.b.c=1")
@example("search.space.parameters.lr.points=.nan")
@example("model=*x")
@QUIET
def test_any_override(text: str) -> None:
    from hpo.engine.config import InputError, load_config

    said = ""
    try:
        load_config(ROOT / "bench" / "demo.yaml", [text])
    except InputError as error:
        said = str(error)
    assert "\n" not in said
