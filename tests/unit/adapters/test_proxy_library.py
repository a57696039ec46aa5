"""A folder of fitted models: versions, two processes at once, and files that are none."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from synthetic import recipe, surrogate_curve

from hpo.adapters.proxy_library import Entry, ProxyLibrary
from hpo.core.model import CollapseModel
from hpo.core.proxy_key import ProxyKey

KEY = ProxyKey.of([recipe()], family="family", data="wiki", tokeniser="bytes")


def model(final: float = 3.0) -> CollapseModel:
    return CollapseModel.fit([surrogate_curve(recipe(tau=tau), final, run_id=f"r{tau}") for tau in (0.1, 0.2, 0.4)])


def add(folder: Path, final: float = 3.0, key: ProxyKey = KEY) -> Entry:
    return ProxyLibrary(folder).add(key, model(final), "2026-01-01T00:00:00+00:00", "run")


def add_four(folder: Path, first: float) -> None:
    for k in range(4):
        add(folder, first + 0.01 * k)


def test_a_model_is_kept_and_comes_back_with_its_key(tmp_path):
    kept = add(tmp_path / "new" / "library")
    found = ProxyLibrary(tmp_path / "new" / "library").get(kept.name)
    assert (found.key, found.made, found.run) == (KEY, kept.made, "run")
    assert found.model.to_dict() == model().to_dict()
    assert found.sizes == [1e6]


def test_a_new_model_of_one_key_is_a_new_version_and_an_id_means_the_last(tmp_path):
    names = [add(tmp_path, final).name for final in (3.0, 3.1)]
    assert names == [f"{KEY.id}.v1", f"{KEY.id}.v2"]
    assert ProxyLibrary(tmp_path).get(KEY.id).name == names[1]
    assert add(tmp_path, 3.0).name == names[0]  # the same again is not kept twice
    assert len(list(tmp_path.iterdir())) == 2


def test_two_processes_that_add_at_once_lose_nothing(tmp_path):
    spawn = multiprocessing.get_context("fork")
    at_work = [spawn.Process(target=add_four, args=(tmp_path, first)) for first in (1.0, 2.0, 3.0)]
    for one in at_work:
        one.start()
    for one in at_work:
        one.join(60)
    entries, unreadable = ProxyLibrary(tmp_path).entries()
    assert unreadable == []
    assert sorted(entry.version for entry in entries) == list(range(1, 13))
    assert len({entry.model.references[0].final_loss for entry in entries}) == 12
    assert len(list(tmp_path.iterdir())) == 12


def test_what_is_removed_is_gone(tmp_path):
    names = [add(tmp_path, final).name for final in (3.0, 3.1, 3.2)]
    library = ProxyLibrary(tmp_path)
    assert library.remove(names[1]) == [names[1]]
    assert library.remove(KEY.id) == [names[0], names[2]]
    assert library.entries() == ([], [])
    for gone in (names[0], KEY.id):
        with pytest.raises(ValueError, match=r"expected an entry .*; found no entries"):
            library.remove(gone)
        with pytest.raises(ValueError, match=r"expected an entry .*; found no entries"):
            library.get(gone)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "found something else"),
        ('{"schema": 99, "key": {}}', "newer than this version reads"),
        ('{"schema": 1, "key": {}, "name": "x"}', "when and where it was made"),
    ],
)
def test_a_file_that_is_no_entry_is_named_and_in_nobodys_way(tmp_path, text, said):
    kept = add(tmp_path)
    bad = tmp_path / f"{KEY.id}.v2.json"
    bad.write_text(text)
    (tmp_path / "notes.txt").write_text("mine")
    entries, unreadable = ProxyLibrary(tmp_path).entries()
    assert [entry.name for entry in entries] == [kept.name]
    (line,) = unreadable
    assert str(bad) in line
    assert said in line
    assert "\n" not in line
    assert add(tmp_path, 3.1).version == 3


def test_an_entry_under_another_name_is_refused(tmp_path):
    kept = add(tmp_path)
    (tmp_path / f"{kept.name}.json").rename(tmp_path / f"{KEY.id}.v7.json")
    with pytest.raises(ValueError, match=rf"expected the entry {KEY.id}\.v7; found {kept.name}"):
        ProxyLibrary(tmp_path).get(f"{KEY.id}.v7")


def test_a_path_that_is_a_file_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="expected the folder of a proxy library"):
        ProxyLibrary(tmp_path / "file")


def test_a_folder_that_is_not_there_yet_has_no_entries(tmp_path):
    assert ProxyLibrary(tmp_path / "later").entries() == ([], [])
