"""Which candidates are suspect: told once, found again after a crash, and no decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpo.adapters.model_files import write_model
from hpo.core.model import CollapseModel
from hpo.engine.config import SweepConfig
from hpo.engine.plan import Run, plan_sweep
from hpo.engine.run_folder import new_run_folder
from hpo.engine.runs_on_disk import RunsOnDisk
from hpo.engine.smoke_detector import SmokeDetector, Suspicion
from hpo.engine.thinning import Report, thinned

JUMP_AT = 0.6


def losses_of(run: Run, final: float, jump: float = 0.0) -> list[float]:
    t = np.arange(1, run.n_steps + 1) / run.n_steps
    noise = 1 + 0.002 * np.random.default_rng(int(100 * final)).normal(size=t.size)
    return [float(x) for x in final * (1 + 0.3 * (1 - t) ** 2 + 0.2 * np.exp(-20 * t)) * noise * np.exp(jump * (t > JUMP_AT))]


def log(folder: Path, losses: list[float]) -> None:
    folder.mkdir(exist_ok=True)
    lines = [f"{step},,{loss!r}\n" for step, loss in enumerate(losses, start=1)]
    (folder / "log.csv").write_text("step,tokens,loss\n" + "".join(lines))


@pytest.fixture
def runs(tiny: dict[str, Any], tmp_path: Path) -> RunsOnDisk:
    """A sweep whose proxies are done and whose model is fitted."""
    config = SweepConfig.model_validate(tiny)
    made = RunsOnDisk(plan_sweep(config), new_run_folder(tmp_path / "run", config))
    for k, run in enumerate(made.plan.proxies):
        log(made.folder.trial(run.name), losses_of(run, 4.0 + k / 10))
    write_model(made.folder.model, CollapseModel.fit([made.curve(run) for run in made.plan.proxies]))
    return made


class Told:
    """A detector, what it told, and the reports of a worker to feed it."""

    def __init__(self, runs: RunsOnDisk) -> None:
        self.runs, self.told = runs, list[tuple[str, Suspicion]]()
        self.detector = SmokeDetector(runs, lambda run, why: self.told.append((run.name, why)))

    def train(self, run: Run, losses: list[float], since: int = 0) -> None:
        for report in self.reports(run, losses):
            if report.step > since:
                log(self.runs.folder.trial(run.name), losses[: report.step])
                self.detector.reported(run, report)
        self.detector.ended(run)

    def reports(self, run: Run, losses: list[float]) -> list[Report]:
        job = self.runs.job(run, run.n_steps)
        return thinned(range(1, len(losses) + 1), losses, run.n_steps, run.n_steps, job.n_reports, job.n_end_reports)


def test_a_run_that_jumps_is_told_once_with_its_onset_and_a_healthy_one_is_not(runs: RunsOnDisk) -> None:
    told, (faulty, healthy, *_) = Told(runs), runs.plan.candidates
    told.train(faulty, losses_of(faulty, 3.0, 0.03))
    told.train(healthy, losses_of(healthy, 3.1))
    ((name, why),) = told.told
    assert name == faulty.name
    assert (why.kind, why.onset, why.detected_at) == ("step", pytest.approx(JUMP_AT, abs=0.02), pytest.approx(0.61, abs=0.03))
    found = told.detector.suspicion(faulty)
    assert found is not None
    assert found.size_pct == pytest.approx(3.0, abs=1.0)
    assert found.cost_pct == pytest.approx(3.0, abs=1.0)
    assert told.detector.suspicion(healthy) is None
    assert len(told.told) == 1


@pytest.mark.parametrize("until", [0.5, 0.8])
def test_after_a_crash_the_mark_is_found_again_in_the_log(runs: RunsOnDisk, until: float) -> None:
    faulty = runs.plan.candidates[0]
    losses = losses_of(faulty, 3.0, 0.03)
    n_before = round(until * faulty.n_steps)
    Told(runs).train(faulty, losses[:n_before])
    again = Told(runs)
    again.train(faulty, losses, since=n_before)
    ((_, why),) = again.told
    assert why.onset == pytest.approx(JUMP_AT, abs=0.02)
    assert Told(runs).detector.suspicion(faulty) == again.detector.suspicion(faulty)


def test_without_a_model_or_before_it_nothing_is_suspect(runs: RunsOnDisk) -> None:
    faulty = runs.plan.candidates[0]
    kept = runs.folder.model.read_bytes()
    runs.folder.model.unlink()
    told = Told(runs)
    losses = losses_of(faulty, 3.0, 0.03)
    told.train(faulty, losses[: round(0.2 * faulty.n_steps)])
    assert told.detector.suspicion(faulty) is None
    runs.folder.model.write_bytes(kept)  # now it is fitted, and the run goes on
    told.train(faulty, losses, since=round(0.2 * faulty.n_steps))
    assert [name for name, _ in told.told] == [faulty.name]


def test_a_loss_that_is_not_finite_is_no_suspicion_but_an_ending_of_its_own(runs: RunsOnDisk) -> None:
    run, told = runs.plan.candidates[0], Told(runs)
    losses = losses_of(run, 3.0)
    losses[round(0.7 * run.n_steps)] = float("nan")
    told.train(run, losses)
    assert told.told == []


def test_a_detector_that_fails_says_so_once_and_ends_nothing(runs: RunsOnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    told, (first, second, *_) = Told(runs), runs.plan.candidates
    told.detector = SmokeDetector(runs, lambda run, why: told.told.append((run.name, why)), said.append)
    told.train(first, losses_of(first, 3.0, 0.03))

    def failing(*_: Any, **__: Any) -> None:
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr("hpo.engine.smoke_detector.Monitor.update", failing)
    told.train(second, losses_of(second, 3.1, 0.03))
    assert told.detector.suspicion(second) is None
    assert [name for name, _ in told.told] == [first.name]
    assert said == ["trials are no longer watched for faults: LinAlgError: SVD did not converge"]
    assert told.detector.suspicion(first) is not None
