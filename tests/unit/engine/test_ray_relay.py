"""What Ray says of a failed trial, before and after it has been copied to the storage."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("ray")

from hpo.engine.ray_relay import _error_of


def test_an_error_is_read_where_it_is_written_first(tmp_path):
    (tmp_path / "error.txt").write_text("RuntimeError: no such luck\n")
    for written, copied, found in (
        (str(tmp_path / "error.txt"), None, "no such luck"),
        (str(tmp_path / "nowhere.txt"), "RuntimeError: from the storage", "from the storage"),
        (None, None, ""),
    ):
        trial = SimpleNamespace(error_file=written, get_error=lambda copied=copied: copied)
        assert found in _error_of(trial)
        assert bool(found) == bool(_error_of(trial))
