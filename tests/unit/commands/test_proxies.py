"""``hpo proxies`` on a small library, and what it answers to bad input."""

from __future__ import annotations

import json

import pytest
from synthetic import recipe, surrogate_curve

from hpo.adapters.proxy_library import ProxyLibrary
from hpo.core.model import CollapseModel
from hpo.core.proxy_key import ProxyKey


@pytest.fixture
def library(tmp_path):
    """Write a library of one key in two versions; return its folder and their names."""
    key = ProxyKey.of([recipe()], family="family", data="wiki", tokeniser="bytes")
    names = []
    for final in (3.0, 2.5):
        curves = [
            surrogate_curve(recipe(tau=tau, n_params=n), final, run_id=f"r{tau}-{n:g}")
            for tau in (0.1, 0.4)
            for n in (1e6, 2e6)
        ]
        kept = ProxyLibrary(tmp_path / "library").add(key, CollapseModel.fit(curves), "2026-01-01T00:00:00+00:00", "spring")
        names.append(kept.name)
    return tmp_path / "library", names


def test_list_says_what_each_entry_is_about(hpo, library):
    folder, names = library
    code, out, err = hpo("proxies", "list", folder)
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[::2]] == names
    assert "4 runs (1e+06, 2e+06 parameters), of spring" in out
    assert "data wiki · tokeniser bytes · schedule linear, warm-up 0.1 · tpp 20" in out
    said = json.loads(hpo("proxies", "list", folder, "--json")[1])
    assert [entry["entry"] for entry in said["entries"]] == names
    assert said["unreadable"] == []


def test_list_names_what_it_cannot_read_and_lists_the_rest(hpo, library):
    folder, names = library
    (folder / f"{names[0]}.json").write_text("{")
    code, out, err = hpo("proxies", "list", folder)
    assert code == 0
    assert names[0] in err
    assert err.count("\n") == 1
    assert names[1] in out


def test_show_gives_the_runs_of_the_last_version_and_its_model(hpo, library, tmp_path):
    folder, names = library
    said = json.loads(hpo("proxies", "show", folder, names[0].split(".")[0], "--json")[1])
    assert said["entry"] == names[1]
    assert [run["final_loss"] for run in said["runs"]] == pytest.approx([2.5] * 4)
    code, out, _ = hpo("proxies", "show", folder, names[0], "-o", tmp_path / "model.json")
    assert code == 0
    assert "final 3.0000" in out
    assert len(json.loads((tmp_path / "model.json").read_text())["references"]) == 4


def test_remove_takes_one_version_or_all(hpo, library):
    folder, names = library
    assert hpo("proxies", "remove", folder, names[1])[:2] == (0, f"removed {names[1]}\n")
    assert json.loads(hpo("proxies", "remove", folder, names[0].split(".")[0], "--json")[1]) == {"removed": [names[0]]}
    assert hpo("proxies", "list", folder)[1] == f"{folder}: no entries\n"


@pytest.mark.parametrize("command", [["list"], ["show", "x"], ["remove", "x"]])
@pytest.mark.parametrize("kind", ["nothing", "file"])
def test_a_folder_that_is_none_is_one_line(hpo, tmp_path, command, kind):
    path = tmp_path / "there"
    if kind == "file":
        path.write_text("")
    code, out, err = hpo("proxies", command[0], path, *command[1:])
    assert (code, out) == (2, "")
    assert err.startswith("hpo: DIR: expected the folder of a library; found ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["show", "remove"])
def test_an_entry_that_is_not_there_is_one_line_naming_those_that_are(hpo, library, command):
    folder, names = library
    code, out, err = hpo("proxies", command, folder, "0123456789")
    assert (code, out) == (2, "")
    assert err == f"hpo: {folder}: expected an entry 0123456789; found {', '.join(names)}\n"
