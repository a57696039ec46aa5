"""Sweeps that keep their proxies in a library and learn from it: what is trained, tested, used, kept and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sweeps_here import Killed, config, sweep_here

from hpo.adapters.proxy_library import ProxyLibrary
from hpo.engine.config import InputError, parse_config
from hpo.engine.plan import plan_sweep
from hpo.engine.reuse import look_up, with_library

RULES = ("select", "prune")


def settings(library: Path, rule: str = "select", **changes: Any) -> dict[str, Any]:
    made = config(stopping={"rule": rule, "at": 0.2}, **changes.pop("top", {}))
    target = {**made["target"], **changes.pop("target", {})}
    return {**made, "target": target, "proxies": {**made["proxies"], "library": {"path": str(library), "data": "d", **changes}}}


def swept(folder: Path, made: dict[str, Any] | None, *, killed_at: str = "") -> tuple[dict[str, Any], list[str]]:
    """Return the result of a sweep and the names of the proxies it trained."""
    began: list[str] = []

    def before(name: str) -> None:
        if name == killed_at:
            raise Killed
        began.append(name)

    run = sweep_here(folder, made, before=before)
    return json.loads(run.result.read_text()), [name for name in began if name.startswith("proxy")]


@pytest.fixture(params=RULES)
def taught(request, tmp_path) -> tuple[Path, str, dict[str, Any], list[str]]:
    """Return a library that one sweep has filled, the rule, that sweep's result, and the proxies it trained."""
    return (tmp_path / "library", request.param, *swept(tmp_path / "first", settings(tmp_path / "library", request.param)))


def test_the_first_sweep_trains_its_proxies_and_keeps_them(taught):
    library, _, result, trained = taught
    (entry,), _ = ProxyLibrary(library).entries()
    assert len(trained) == 12
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
    assert second["flops_spent"]["proxies"] < first["flops_spent"]["proxies"] / 6
    assert second["saved_fraction"] > first["saved_fraction"]
    assert (second["winner"], second["transfer_pick"]) == (first["winner"], first["transfer_pick"])
    assert len(ProxyLibrary(library).entries()[0]) == 1  # nothing new was learned


def test_a_family_that_has_changed_is_not_used_and_the_sweeps_own_proxies_are_kept(taught, tmp_path, monkeypatch):
    library, rule, *_ = taught
    monkeypatch.setenv("SWEEPS_HERE_BEND", "0.5")  # the training code changes; nothing in the configuration does
    second, trained = swept(tmp_path / "second", settings(library, rule))
    assert len(trained) == 12
    assert not second["library"]["is_used"]
    assert second["library"]["drift"]["status"] == "drifted"
    assert second["library"]["kept_as"].endswith(".v2")
    monkeypatch.setenv("SWEEPS_HERE_BEND", "0.5")
    third, trained = swept(tmp_path / "third", settings(library, rule))
    assert len(trained) == 1
    assert (third["library"]["entry"], third["library"]["is_used"]) == (second["library"]["kept_as"], True)


def test_a_sweep_killed_among_the_proxies_it_trains_after_a_drift_goes_on_alike(taught, tmp_path, monkeypatch):
    library, rule, *_ = taught
    monkeypatch.setenv("SWEEPS_HERE_BEND", "0.5")
    whole, _ = swept(tmp_path / "whole", settings(library, rule))
    ProxyLibrary(library).remove(whole["library"]["kept_as"])
    with pytest.raises(Killed):
        swept(tmp_path / "killed", settings(library, rule), killed_at="proxy-1-04")
    for file in library.iterdir():
        file.unlink()  # what was found stays found, whatever becomes of the library
    resumed, _ = swept(tmp_path / "killed", None)
    assert resumed["library"]["drift"] == whole["library"]["drift"]
    assert resumed["winner"] == whole["winner"]
    assert resumed["flops_spent"]["proxies"] == whole["flops_spent"]["proxies"]
    assert resumed["library"]["kept_as"].endswith(".v1")


def test_other_data_match_nothing_and_it_is_said(tmp_path):
    library = tmp_path / "library"
    swept(tmp_path / "first", settings(library))
    plan = plan_sweep(parse_config(settings(library, data="e")))
    entry, said = look_up(plan, plan.config.proxies.library)
    assert entry is None
    assert "data d instead of e" in said


def test_an_entry_asked_for_must_match_unless_forced(tmp_path):
    library = tmp_path / "library"
    result, _ = swept(tmp_path / "first", settings(library))
    name = result["library"]["kept_as"]
    with pytest.raises(InputError, match=r"proxies\.library\.entry: expected .* found data d instead of e \(force: true"):
        swept(tmp_path / "refused", settings(library, data="e", entry=name))
    forced, trained = swept(tmp_path / "forced", settings(library, data="e", entry=name, force=True))
    assert len(trained) == 1
    assert forced["library"]["is_used"]
    assert "although it differs in: data d instead of e" in forced["library"]["said"]
    with pytest.raises(InputError, match="expected an entry 0123456789; found"):
        swept(tmp_path / "unknown", settings(library, entry="0123456789"))


def test_a_library_that_cannot_be_written_fails_no_sweep(tmp_path, monkeypatch):
    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("hpo.adapters.proxy_library.write_new_text", refuse)
    result, trained = swept(tmp_path / "run", settings(tmp_path / "library"))
    assert len(trained) == 12
    assert result["winner"] is not None
    assert result["library"]["kept_as"] is None


def test_data_without_a_name_are_refused_for_a_function_of_ones_own(tmp_path):
    made = settings(tmp_path / "library", data=None)
    with pytest.raises(InputError, match=r"proxies\.library\.data: expected a name of the training data"):
        swept(tmp_path / "run", made)


def test_a_dry_run_counts_one_proxy_where_the_library_has_them(tmp_path):
    library = tmp_path / "library"
    before, said = with_library(plan_sweep(parse_config(settings(library))))
    assert (len(before.proxies), said["library"]["entry"]) == (12, None)
    swept(tmp_path / "first", settings(library))
    after, said = with_library(plan_sweep(parse_config(settings(library))))
    assert len(after.proxies) == 1
    assert said["library"]["entry"].endswith(".v1")


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
