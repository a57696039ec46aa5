"""A run's folder: what is logged, what survives, when it stops."""

from __future__ import annotations

import math
import resource
from pathlib import Path

import numpy as np
import pytest

from hpo.adapters.training_session import FolderSession, last_logged_step, latest_checkpoint, read_log, remove_checkpoints
from hpo.core.session import StopTraining


def _save(text: str = "state"):
    def save(folder: Path) -> None:
        (folder / "state").write_text(text)

    return save


def _report(session: FolderSession, first: int, last: int) -> None:
    for step in range(first, last + 1):
        session.report(step=step, loss=1.0 / step, tokens=10.0 * step)


def test_every_step_is_logged_exactly(tmp_path):
    with FolderSession(tmp_path) as session:
        for step in range(1, 4):
            session.report(step=step, loss=0.1 / step, tokens=7 * step, lr=1e-3 / step)
    log = read_log(tmp_path)
    assert log["step"].tolist() == [1, 2, 3]
    assert log["loss"].tolist() == [0.1, 0.05, 0.1 / 3]
    assert log["lr"].tolist() == [1e-3, 5e-4, 1e-3 / 3]
    assert log["tokens"].tolist() == [7, 14, 21]


def test_the_first_value_of_a_step_counts(tmp_path):
    with FolderSession(tmp_path) as session:
        session.report(step=1, loss=1.0)
        session.report(step=2, loss=2.0)
        session.report(step=1, loss=9.0)
        session.report(step=2, loss=9.0)
    assert read_log(tmp_path)["loss"].tolist() == [1.0, 2.0]


def test_a_quantity_reported_later_gets_its_column(tmp_path):
    with FolderSession(tmp_path) as session:
        session.report(step=1, loss=1.0)
        session.report(step=2, loss=0.9, val_loss=1.1)
        session.report(step=3, loss=0.8)
    log = read_log(tmp_path)
    np.testing.assert_array_equal(log["val_loss"], [math.nan, 1.1, math.nan])
    assert log["loss"].tolist() == [1.0, 0.9, 0.8]


def test_restore_cuts_the_log_to_the_checkpoint(tmp_path):
    with FolderSession(tmp_path, checkpoint_every_s=1e-9) as session:
        _report(session, 1, 5)
        assert session.checkpoint(_save("five"))
        _report(session, 6, 9)
    with FolderSession(tmp_path) as session:
        folder = session.restore()
        assert folder is not None
        assert (folder / "state").read_text() == "five"
        assert session.last_step == 5
        _report(session, 6, 7)
    assert read_log(tmp_path)["step"].tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_restore_without_a_checkpoint_empties_the_log(tmp_path):
    with FolderSession(tmp_path) as session:
        _report(session, 1, 5)
    with FolderSession(tmp_path) as session:
        assert session.restore() is None
        session.report(step=1, loss=3.0)
    assert read_log(tmp_path)["loss"].tolist() == [3.0]


def test_a_torn_last_line_is_dropped(tmp_path):
    with FolderSession(tmp_path) as session:
        _report(session, 1, 3)
    with (tmp_path / "log.csv").open("a") as file:
        file.write("4,40.0,0.2")
    assert last_logged_step(tmp_path) == 3
    with FolderSession(tmp_path) as session:
        assert session.last_step == 3
        session.report(step=4, loss=0.25)
    assert read_log(tmp_path)["loss"].tolist()[-1] == 0.25


def test_the_last_step_of_a_long_log_is_read_from_its_end(tmp_path):
    with FolderSession(tmp_path) as session:
        session.report(step=1, loss=1.0)
        assert last_logged_step(tmp_path) in (0, 1)  # not yet flushed, or flushed
        _report(session, 2, 900)
    assert (tmp_path / "log.csv").stat().st_size > 3 * 4096
    assert last_logged_step(tmp_path) == 900
    (tmp_path / "log.csv").write_text("step,tokens,loss\n")
    assert last_logged_step(tmp_path) == 0
    (tmp_path / "log.csv").write_text("step,tok")
    assert last_logged_step(tmp_path) == 0


def test_a_failed_save_leaves_the_old_checkpoint(tmp_path):
    with FolderSession(tmp_path, checkpoint_every_s=1e-9) as session:
        _report(session, 1, 1)
        session.checkpoint(_save("one"))
        _report(session, 2, 2)

        def fails(folder: Path) -> None:
            (folder / "state").write_text("half")
            raise OSError("disk full")

        with pytest.raises(OSError, match="disk full"):
            session.checkpoint(fails)
    latest = latest_checkpoint(tmp_path)
    assert latest is not None
    assert (latest / "state").read_text() == "one"
    assert [p.name for p in tmp_path.iterdir() if "checkpoint" in p.name] == ["checkpoint-1"]


def test_only_the_latest_checkpoint_is_kept(tmp_path):
    with FolderSession(tmp_path, checkpoint_every_s=1e-9) as session:
        for step in (1, 2, 3):
            session.report(step=step, loss=1.0)
            session.checkpoint(_save())
    assert [p.name for p in tmp_path.glob("checkpoint-*")] == ["checkpoint-3"]
    remove_checkpoints(tmp_path)
    assert latest_checkpoint(tmp_path) is None


def test_a_checkpoint_is_not_due_before_its_time(tmp_path):
    with FolderSession(tmp_path, checkpoint_every_s=3600) as session:
        _report(session, 1, 3)
        assert not session.checkpoint(_save())


def test_it_stops_at_the_stop_step_with_a_checkpoint(tmp_path):
    with FolderSession(tmp_path, stop_step=3, checkpoint_every_s=3600) as session:
        _report(session, 1, 2)
        assert not session.should_stop()
        _report(session, 3, 3)
        assert session.should_stop()
        assert session.checkpoint(_save())


def test_reporting_on_after_the_stop_raises(tmp_path):
    with FolderSession(tmp_path, stop_step=2) as session:
        _report(session, 1, 2)
        with pytest.raises(StopTraining, match="step 2"):
            session.report(step=3, loss=1.0)
    assert last_logged_step(tmp_path) == 2


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_non_finite_loss_is_logged_and_stops_the_run_without_a_checkpoint(tmp_path, loss):
    with FolderSession(tmp_path, checkpoint_every_s=1e-9) as session:
        session.report(step=1, loss=1.0)
        session.report(step=2, loss=loss)
        assert session.diverged
        assert session.should_stop()
        assert not session.checkpoint(_save())
    assert not np.isfinite(read_log(tmp_path)["loss"][-1])


def test_a_run_that_went_on_from_its_stop_stops_later(tmp_path):
    with FolderSession(tmp_path, stop_step=2) as session:
        _report(session, 1, 2)
        session.checkpoint(_save())
    with FolderSession(tmp_path, stop_step=4) as session:
        assert session.restore() is not None
        assert not session.should_stop()
        _report(session, 3, 4)
        assert session.should_stop()
    assert read_log(tmp_path)["step"].tolist() == [1, 2, 3, 4]


def test_a_pause_asks_to_stop_and_to_save(tmp_path, monkeypatch):
    monkeypatch.setattr("hpo.adapters.training_session._FLUSH_EVERY_S", 0.0)
    wishes = iter([False, True])
    with FolderSession(tmp_path, stop_step=9, checkpoint_every_s=3600, wants_pause=lambda: next(wishes)) as session:
        _report(session, 1, 1)
        assert not session.should_stop()
        _report(session, 2, 2)
        assert session.paused
        assert session.should_stop()
        assert session.checkpoint(_save())


def test_new_reports_are_passed_on_once(tmp_path):
    seen = []
    with FolderSession(tmp_path, on_report=lambda *report: seen.append(report)) as session:
        session.report(step=1, loss=1.0, tokens=8.0)
        session.report(step=1, loss=2.0)
        session.report(step=2, loss=0.5)
    assert seen == [(1, 1.0, 8.0), (2, 0.5, None)]


def test_a_run_that_repeats_steps_is_alive_saves_nothing_and_can_be_paused(tmp_path, monkeypatch):
    """A training function that never asks for its checkpoint begins anew; what it had logged counts."""
    with FolderSession(tmp_path, stop_step=5) as session:
        _report(session, 1, 5)
    wishes, steps = [False], []
    monkeypatch.setattr("hpo.adapters.training_session._FLUSH_EVERY_S", 0.0)
    with FolderSession(
        tmp_path, checkpoint_every_s=1e-9, on_step=lambda: steps.append(1), wants_pause=lambda: wishes[0]
    ) as session:
        for step in (1, 2):
            session.report(step=step, loss=9.0)
            assert not session.checkpoint(_save("of another step"))
        wishes[0] = True
        session.report(step=3, loss=9.0)
        assert session.should_stop()
    assert len(steps) == 3
    assert read_log(tmp_path)["loss"].tolist() == [1.0 / step for step in range(1, 6)]


def test_numpy_numbers_are_logged_as_numbers(tmp_path):
    with FolderSession(tmp_path) as session:
        session.report(step=1, loss=np.float32(0.5), lr=np.float64(0.25))
    assert (tmp_path / "log.csv").read_text() == "step,tokens,loss,lr\n1,,0.5,0.25\n"


@pytest.mark.parametrize(
    ("arguments", "name"), [({"stop_step": 0}, "stop_step"), ({"checkpoint_every_s": 0.0}, "checkpoint_every_s")]
)
def test_impossible_arguments_are_refused(tmp_path, arguments, name):
    with pytest.raises(ValueError, match=name):
        FolderSession(tmp_path, **arguments)


def test_step_zero_is_refused(tmp_path):
    with FolderSession(tmp_path) as session, pytest.raises(ValueError, match="step must be at least 1"):
        session.report(step=0, loss=1.0)


def test_a_folder_without_a_log_reads_as_empty(tmp_path):
    assert read_log(tmp_path)["loss"].size == 0
    assert last_logged_step(tmp_path) == 0


@pytest.mark.parametrize("kind", [int, float, np.int64, np.float32, np.array])
def test_a_step_may_be_a_number_of_any_library(tmp_path, kind):
    with FolderSession(tmp_path, stop_step=3) as session:
        for step in range(1, 4):
            session.report(step=kind(step), loss=1.0 / step)
    assert last_logged_step(tmp_path) == 3
    with FolderSession(tmp_path, stop_step=3) as session:
        assert session.last_step == 3
        assert session.should_stop()
        session.restore()


@pytest.mark.parametrize("step", [1.5, math.nan, math.inf, "two"])
def test_a_step_that_is_no_whole_number_is_refused(tmp_path, step):
    with FolderSession(tmp_path) as session, pytest.raises((ValueError, OverflowError)):
        session.report(step=step, loss=1.0)


def test_names_of_any_language_are_columns(tmp_path):
    with FolderSession(tmp_path) as session:
        session.report(step=1, loss=1.0, **{"précision": 0.5, "eval/top 5": 0.9, "损失": 2.0})
    with FolderSession(tmp_path) as session:
        session.report(step=2, loss=0.9, précision=0.6)
    log = read_log(tmp_path)
    assert log["précision"].tolist() == [0.5, 0.6]
    assert log["损失"][0] == 2.0
    assert last_logged_step(tmp_path) == 2


@pytest.mark.parametrize("name", ["top 1, top 5", "two\nlines", "", 'quoted "name"', "line\u2028separator"])
def test_a_name_that_would_break_the_log_is_refused_and_leaves_it_whole(tmp_path, name):
    with FolderSession(tmp_path) as session:
        session.report(step=1, loss=1.0)
        with pytest.raises(ValueError, match="name must be"):
            session.report(step=2, loss=0.9, **{name: 1.0})
    assert read_log(tmp_path)["loss"].tolist() == [1.0]


def test_a_value_that_is_no_number_is_named(tmp_path):
    with FolderSession(tmp_path) as session, pytest.raises(ValueError, match="note must be a number; found 'high'"):
        session.report(step=1, loss=1.0, note="high")


def test_a_save_that_fails_for_want_of_room_says_so_whatever_the_library_says(tmp_path):
    def torch_says(_folder: Path) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with FolderSession(tmp_path, stop_step=1) as session:
        session.report(step=1, loss=1.0)
        with pytest.raises(RuntimeError, match="unexpected pos"):
            session.checkpoint(torch_says)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            with pytest.raises(OSError, match="File too large"):
                session.checkpoint(torch_says)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]
