"""The judge of running candidates: stops by marks, heeds people, and decides alike after a crash."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpo.core.model import CollapseModel
from hpo.engine.commands_file import CommandsFile
from hpo.engine.config import SweepConfig
from hpo.engine.hand import Hand
from hpo.engine.live_judge import LiveJudge, decisions_in
from hpo.engine.plan import Run, plan_sweep
from hpo.engine.run_folder import new_run_folder
from hpo.engine.runs_on_disk import RunsOnDisk
from hpo.engine.stop_marks import is_marked, unmark, why_stopped
from hpo.engine.thinning import thinned
from hpo.engine.worker import Outcome, forget_outcome, write_outcome

pytest.importorskip("ray")


@pytest.fixture
def runs(tiny, tmp_path: Path) -> RunsOnDisk:
    return _new_runs(tiny, tmp_path / "run")


def _new_runs(tiny: dict[str, Any], folder: Path) -> RunsOnDisk:
    config = SweepConfig.model_validate({**tiny, "stopping": "prune"})
    made = RunsOnDisk(plan_sweep(config), new_run_folder(folder, config))
    for run in made.plan.candidates:
        made.folder.trial(run.name).mkdir()
    return made


def _losses(run: Run, final: float) -> list[float]:
    t = np.arange(1, run.n_steps + 1) / run.n_steps
    noise = 1 + 0.002 * np.random.default_rng(int(100 * final)).normal(size=t.size)
    return [float(x) for x in final * (1 + 0.3 * (1 - t) ** 2 + 0.2 * np.exp(-20 * t)) * noise]


def _model(runs: RunsOnDisk) -> CollapseModel:
    """Return the model of proxies that were logged as workers log."""
    for k, run in enumerate(runs.plan.proxies):
        folder = runs.folder.trial(run.name)
        if not folder.exists():
            folder.mkdir()
            _log(folder, _losses(run, 4.0 + k / 10), run.n_steps)
    return CollapseModel.fit([runs.curve(run) for run in runs.plan.proxies])


def _log(folder: Path, losses: list[float], upto: int) -> None:
    path = folder / "log.csv"
    lines = path.read_text().count("\n") if path.exists() else 0
    with path.open("a") as file:
        file.write("" if lines else "step,tokens,loss\n")
        file.writelines(f"{s},,{losses[s - 1]!r}\n" for s in range(max(lines, 1), upto + 1))


class Driver:
    """Feeds a judge the reports that workers would have sent, logging what they would have logged."""

    def __init__(self, runs: RunsOnDisk) -> None:
        self.runs, self.model = runs, _model(runs)
        self.start()

    def start(self) -> None:
        """A new process over the same run folder."""
        self.hand = Hand(self.runs, CommandsFile(self.runs.folder.path))
        self.judge = LiveJudge(self.runs, self.hand, self.model)

    def train(self, run: Run, final: float, upto: float = 1.0, heeds: bool = True, tells: bool = True) -> str:
        """Train on from what is logged; returns how it ended."""
        folder = self.runs.folder.trial(run.name)
        losses, job = _losses(run, final), self.runs.job(run, run.n_steps)
        if tells:
            self.judge.started(run)
        done = self.runs.steps(run)
        for report in thinned(range(1, run.n_steps + 1), losses, run.n_steps, run.n_steps, job.n_reports, job.n_end_reports):
            if report.step > done and report.step <= upto * run.n_steps:
                _log(folder, losses, report.step)
                if tells:
                    self.judge.reported(run, report)
                if heeds and is_marked(folder):
                    write_outcome(folder, Outcome("stopped", report.step, 1.0, why_stopped(folder) or ""))
                    self.judge.ended(run)
                    return "stopped"
        if upto < 1:
            return "running"
        write_outcome(folder, Outcome("reached", run.n_steps, 1.0))
        if tells:
            self.judge.ended(run)
        return "reached"


@pytest.fixture
def driver(runs) -> Driver:
    return Driver(runs)


def _decisions(runs: RunsOnDisk) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in runs.folder.events.read_text().splitlines()]
    return [event for event in events if event["event"] == "decision"]


def test_what_cannot_beat_a_finished_candidate_is_marked_from_the_stopping_fraction_on(runs, driver):
    good, bad, *_ = runs.plan.candidates
    assert driver.train(good, 3.0) == "reached"
    assert driver.train(bad, 3.3) == "stopped"
    assert why_stopped(runs.folder.trial(bad.name)) == "cannot_win"
    assert runs.steps(bad) / bad.n_steps == pytest.approx(0.2, abs=0.03)


def test_before_there_is_a_model_nothing_is_judged_and_then_all_that_was_logged_is_known(runs, driver):
    good, bad, *_ = runs.plan.candidates
    driver.train(good, 3.0, tells=False)
    driver.train(bad, 3.3, upto=0.5, tells=False)
    driver.start()
    assert driver.train(bad, 3.3) == "stopped"
    assert runs.steps(bad) / bad.n_steps == pytest.approx(0.5, abs=0.03)


def test_a_kept_candidate_goes_on_and_an_extended_one_up_to_its_fraction(runs, driver):
    good, kept, extended, *_ = runs.plan.candidates
    driver.train(good, 3.0)
    driver.hand.kept.add(kept.name)
    driver.hand.until[extended.name] = 0.6
    assert driver.train(kept, 3.3) == "reached"
    assert driver.train(extended, 3.3) == "stopped"
    assert runs.steps(extended) / extended.n_steps == pytest.approx(0.6, abs=0.03)


def test_a_revived_candidate_goes_to_its_end_and_may_win(runs, driver):
    good, bad, third, *_ = runs.plan.candidates
    driver.train(good, 3.0)
    driver.train(bad, 3.3)
    unmark(runs.folder.trial(bad.name))
    forget_outcome(runs.folder.trial(bad.name))
    driver.hand.n_revived[bad.name] += 1
    driver.hand.kept.add(bad.name)
    assert driver.train(bad, 3.3) == "reached"
    assert driver.train(third, 3.25) == "stopped"
    assert set(decisions_in(runs.folder.events)) == {good.name, bad.name, third.name}


def test_a_new_driver_decides_as_if_nothing_had_happened(runs, driver, tiny, tmp_path):
    finals = (3.1, 3.4, 3.0, 3.2, 3.05, 3.5)
    for i, (run, final) in enumerate(zip(runs.plan.candidates, finals, strict=True)):
        if i == 3:
            driver.train(run, final, upto=0.15)
            driver.start()
        driver.train(run, final)
        if i in (2, 4):
            driver.start()
    other = _new_runs(tiny, tmp_path / "other")
    undisturbed = Driver(other)
    for run, final in zip(other.plan.candidates, finals, strict=True):
        undisturbed.train(run, final)
    stops = [[(d["id"], d["step"]) for d in _decisions(one) if d["pruned"]] for one in (runs, other)]
    assert stops[0] == stops[1]
    assert len(stops[0]) >= 3


def test_a_stop_that_a_crash_kept_from_the_worker_is_made_good(runs, driver):
    good, bad, *_ = runs.plan.candidates
    driver.train(good, 3.0)
    driver.train(bad, 3.3, upto=0.25, heeds=False)
    unmark(runs.folder.trial(bad.name))  # the crash came between the decision and the mark
    driver.start()
    assert why_stopped(runs.folder.trial(bad.name)) == "cannot_win"


def test_an_end_that_a_crash_kept_from_the_judge_is_learned_from_the_disk(runs, driver):
    good, bad, *_ = runs.plan.candidates
    driver.train(good, 3.0, upto=0.4)
    driver.train(good, 3.0, tells=False)
    driver.start()
    assert driver.train(bad, 3.3) == "stopped"


def test_a_diverging_candidate_ends_by_itself_and_is_no_reference(runs, driver):
    run = runs.plan.candidates[0]
    driver.judge.started(run)
    report = thinned([1], [math.nan], run.n_steps, run.n_steps, 100, 5)[0]
    driver.judge.reported(run, report)
    write_outcome(runs.folder.trial(run.name), Outcome("diverged", 1, 1.0))
    driver.judge.ended(run)
    assert not is_marked(runs.folder.trial(run.name))
    assert decisions_in(runs.folder.events)[run.name][-1]["reason"] == "non_finite"
