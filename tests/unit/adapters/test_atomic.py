import json

import pytest

from hpo.adapters import atomic


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path):
    target = tmp_path / "deep" / "model.json"
    atomic.write_json(target, {"a": 1})
    atomic.write_json(target, {"a": 2, "τ": [1.5, None]})
    assert json.loads(target.read_text(encoding="utf-8")) == {"a": 2, "τ": [1.5, None]}
    assert [entry.name for entry in target.parent.iterdir()] == ["model.json"]


def test_a_failed_rename_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "a.txt"
    atomic.write_text(target, "old")

    def fail(self, other):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        atomic.write_text(target, "new")
    monkeypatch.undo()
    assert target.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("value", [float("nan"), {"a": [float("inf")]}])
def test_json_without_nan(tmp_path, value):
    with pytest.raises(ValueError, match="NaN"):
        atomic.write_json(tmp_path / "a.json", value)
    assert list(tmp_path.iterdir()) == []


def test_new_files_have_the_usual_permissions(tmp_path):
    atomic.write_text(tmp_path / "atomic", "")
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_appears_whole_or_not_at_all(tmp_path):

    def fill_and_fail():
        with atomic.new_folder(tmp_path / "run") as folder:
            (folder / "half").write_text("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fill_and_fail()
    assert list(tmp_path.iterdir()) == []
    with atomic.new_folder(tmp_path / "run") as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "file").write_text("x")
        assert not (tmp_path / "run").exists()
    assert (tmp_path / "run" / "sub" / "file").read_text() == "x"


def test_an_existing_folder_is_not_overwritten(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "kept").write_text("x")
    with pytest.raises(FileExistsError, match="run is there already"), atomic.new_folder(tmp_path / "run"):
        pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]
