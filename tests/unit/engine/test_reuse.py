"""Sweeps that keep their proxies in a library and learn from it: what is trained, tested, used, kept and refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from sweeps_here import Killed, config, sweep_here

from hpo.adapters.proxy_library import ProxyLibrary
from hpo.engine.config import InputError, parse_config
from hpo.engine.plan import plan_sweep
from hpo.engine.reuse import look_up, with_library

RULES = ("select", "prune")


SPACE = {"parameters": {"lr": {"type": "float", "low": 1e-3, "high": 6e-2, "log": True, "points": 5}}}
N_PROXIES = 8


def settings(library: Path, rule: str = "select", **block: Any) -> dict[str, Any]:
    """Return a sweep of five candidates with eight proxies and a library, ``block`` being what is said of that."""
    made = config(stopping={"rule": rule, "at": 0.2}, search={"space": SPACE})
    sizes = {**made["proxies"], "settings": 4}
    return {**made, "proxies": {**sizes, "library": {"path": str(library), "data": "d", **block}}}


def swept(folder: Path, made: dict[str, Any] | None, *, killed_at: str = "") -> tuple[dict[str, Any], list[str]]:
    """Return the result of a sweep and the names of the proxies it trained."""
    began: list[str] = []

    def before(name: str) -> None:
        if name == killed_at:
            raise Killed
        began.append(name)

    run = sweep_here(folder, made, before=before)
    return json.loads(run.result.read_text()), [name for name in began if name.startswith("proxy")]


@pytest.fixture(scope="module", params=RULES)
def first(request, tmp_path_factory) -> tuple[Path, str, dict[str, Any], list[str]]:
    """Return a library that one sweep has filled, the rule, that sweep's result, and the proxies it trained."""
    folder = tmp_path_factory.mktemp(request.param)
    return (folder / "library", request.param, *swept(folder / "first", settings(folder / "library", request.param)))


@pytest.fixture
def taught(first, tmp_path) -> tuple[Path, str, dict[str, Any], list[str]]:
    """Return the same with a copy of the library, free to change."""
    shutil.copytree(first[0], tmp_path / "library")
    return (tmp_path / "library", *first[1:])


def test_the_first_sweep_trains_its_proxies_and_keeps_them(taught):
    library, _, result, trained = taught
    (entry,), _ = ProxyLibrary(library).entries()
    assert len(trained) == N_PROXIES
    assert (result["library"]["is_used"], result["library"]["drift"]) == (False, None)
    assert result["library"]["kept_as"] == entry.name
    assert "no entry of this sweep's kind" in result["library"]["said"]
    assert entry.key.family == "sweeps_here:train"
    assert entry.run == "first"


def test_the_next_trains_one_proxy_and_is_judged_by_the_library(taught, tmp_path):
    library, rule, first, _ = taught
    second, trained = swept(tmp_path / "second", settings(library, rule))
    assert len(trained) == 1
    assert second["library"]["is_used"]
    assert second["library"]["drift"]["status"] == "steady"
    assert second["flops_spent"]["proxies"] < first["flops_spent"]["proxies"] / 4
    assert second["saved_fraction"] > first["saved_fraction"]
    assert (second["winner"], second["transfer_pick"]) == (first["winner"], first["transfer_pick"])
    assert len(ProxyLibrary(library).entries()[0]) == 1  # nothing new was learned


def test_a_family_that_has_changed_is_not_used_and_the_sweeps_own_proxies_are_kept(taught, tmp_path, monkeypatch):
    library, rule, *_ = taught
    monkeypatch.setenv("SWEEPS_HERE_BEND", "0.5")  # the training code changes; nothing in the configuration does
    second, trained = swept(tmp_path / "second", settings(library, rule))
    assert len(trained) == N_PROXIES
    assert not second["library"]["is_used"]
    assert second["library"]["drift"]["status"] == "drifted"
    assert second["library"]["kept_as"].endswith(".v2")
    page = (tmp_path / "second" / "report.html").read_text()
    assert f"Entry {second['library']['entry']} of the proxy library was not used" in page
    third, trained = swept(tmp_path / "third", settings(library, rule))
    assert len(trained) == 1
    assert (third["library"]["entry"], third["library"]["is_used"]) == (second["library"]["kept_as"], True)


def test_a_sweep_killed_among_the_proxies_it_trains_after_a_drift_goes_on_alike(taught, tmp_path, monkeypatch):
    library, rule, *_ = taught
    monkeypatch.setenv("SWEEPS_HERE_BEND", "0.5")
    with pytest.raises(Killed):
        swept(tmp_path / "killed", settings(library, rule), killed_at="proxy-1-04")
    drift = json.loads((tmp_path / "killed" / "drift.json").read_text())
    for file in library.iterdir():
        file.unlink()  # what was found stays found, whatever becomes of the library
    resumed, trained = swept(tmp_path / "killed", None)
    assert "proxy-0-00" not in trained  # it was finished
    assert (resumed["library"]["drift"], resumed["library"]["is_used"]) == (drift, False)
    assert resumed["library"]["kept_as"].endswith(".v1")
    assert len(ProxyLibrary(library).entries()[0][0].model.references) == N_PROXIES


def test_other_data_match_nothing_and_it_is_said(taught):
    plan = plan_sweep(parse_config(settings(taught[0], data="e")))
    entry, said = look_up(plan, plan.config.proxies.library)
    assert entry is None
    assert "data d instead of e" in said


def test_an_entry_asked_for_must_match_unless_forced(taught, tmp_path):
    library, rule, result, _ = taught
    name = result["library"]["kept_as"]
    with pytest.raises(InputError, match=r"proxies[.]library[.]entry: expected .* found data d instead of e \(force: true"):
        swept(tmp_path / "refused", settings(library, rule, data="e", entry=name))
    with pytest.raises(InputError, match="expected an entry 0123456789; found"):
        swept(tmp_path / "unknown", settings(library, rule, entry="0123456789"))
    forced, trained = swept(tmp_path / "forced", settings(library, rule, data="e", entry=name, force=True))
    assert len(trained) == 1
    assert forced["library"]["is_used"]
    assert "although it differs in: data d instead of e" in forced["library"]["said"]


def test_a_library_that_cannot_be_written_fails_no_sweep(tmp_path, monkeypatch):
    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("hpo.adapters.proxy_library.write_new_text", refuse)
    result, trained = swept(tmp_path / "run", settings(tmp_path / "library"))
    assert len(trained) == N_PROXIES
    assert result["winner"] is not None
    assert result["library"]["kept_as"] is None


def test_data_without_a_name_are_refused_for_a_function_of_ones_own(tmp_path):
    made = settings(tmp_path / "library", data=None)
    with pytest.raises(InputError, match=r"proxies[.]library[.]data: expected a name of the training data"):
        swept(tmp_path / "run", made)


def test_a_dry_run_counts_one_proxy_where_the_library_has_them(taught, tmp_path):
    before, said = with_library(plan_sweep(parse_config(settings(tmp_path / "none"))))
    assert (len(before.proxies), said["library"]["entry"]) == (N_PROXIES, None)
    after, said = with_library(plan_sweep(parse_config(settings(taught[0]))))
    assert (len(after.proxies), said["library"]["entry"]) == (1, taught[2]["library"]["kept_as"])


def test_the_built_in_family_is_known_by_the_content_of_its_data(tiny, tmp_path):
    ids = []
    for name, text in (("a.txt", "some text " * 4000), ("b.txt", "some text " * 4000), ("c.txt", "other text" * 4000)):
        (tmp_path / name).write_text(text)
        tiny["data"] = {"path": str(tmp_path / name), "seq_len": 32}
        ids.append(plan_sweep(parse_config(tiny)).workload.identity())
    assert ids[0] == ids[1] != ids[2]
    family, data, tokeniser = ids[0]
    assert family.startswith("decoder-relu2-completep (ffn_ratio 2.0, tied False")
    assert data.startswith("40000 tokens, checksum ")
    assert data.endswith(" in sequences of 32")
    assert tokeniser == "bytes"
