"""What the run folder says about the runs of a plan: how far each came, how it ended, its curve."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyarrow import parquet

from hpo.adapters.atomic import new_folder
from hpo.adapters.curve_files import RecordedRun, write_run
from hpo.adapters.training_session import last_logged_step, read_log
from hpo.core.curve import Curve
from hpo.core.metric import Metric
from hpo.engine.config import SweepConfig
from hpo.engine.config_blocks import TrialResources
from hpo.engine.plan import Plan, Role, Run
from hpo.engine.run_folder import RunFolder
from hpo.engine.stop_marks import unmark
from hpo.engine.worker import OUTCOME_NAME, Job, Outcome, forget_outcome, read_outcome

TRAIN_LOSS = Metric("train_loss")
REPORTS_OF_A_CANDIDATE = 100
"""Of a whole run; they go to the study. A report costs the driver a few milliseconds."""
REPORTS_FOR_PROGRESS = 40
REPORTS_OF_AN_END = 5
"""Of a candidate's last per cent under the rule prune, where the final loss is the mean of what was reported."""
REVIVABLE = ("stopped", "failed", "out_of_memory")
"""How a run ended that can go on all the same."""


class RunsOnDisk:
    """Reads the folders of a plan's runs.

    Parameters
    ----------
    plan : Plan
        Whose runs.
    folder : RunFolder
        Where they live.
    """

    def __init__(self, plan: Plan, folder: RunFolder) -> None:
        self.plan, self.folder = plan, folder

    def job(self, run: Run, stop_step: int, name: str | None = None) -> Job:
        """Return the job that trains ``run`` up to ``stop_step``, in the folder ``name`` (by default its own)."""
        is_candidate, config = run.role == "candidate" and name is None, self.plan.config
        is_judged_live = is_candidate and not config.stopping.has_rounds
        return Job(
            name=name or run.name,
            settings=run.settings,
            folder=self.folder.trial(name or run.name),
            stop_step=stop_step,
            n_steps=run.n_steps,
            trainable=self.plan.workload.trainable,
            checkpoint_every_s=config.checkpoint_every_s,
            pause_file=self.folder.pause,
            n_reports=REPORTS_OF_A_CANDIDATE if is_candidate else REPORTS_FOR_PROGRESS,
            n_end_reports=REPORTS_OF_AN_END if is_judged_live else 0,
            metric=config.metric,
            hang_s=config.hang_timeout_s,
            function=self.plan.workload.function,
            share=share_of(config, run.role),
        )

    def steps(self, run: Run) -> int:
        """Return how many steps of ``run`` are logged."""
        return last_logged_step(self.folder.trial(run.name))

    def outcome(self, run: Run) -> Outcome | None:
        """Return how the run's last part ended, None if it never did."""
        return read_outcome(self.folder.trial(run.name))

    def ended_at(self, run: Run) -> float:
        """Return when the run's last part ended, in seconds since 1970; infinity if it has not."""
        path = self.folder.trial(run.name) / OUTCOME_NAME
        return path.stat().st_mtime if path.exists() else math.inf

    def forget_ending(self, run: Run) -> None:
        """Let a run that was stopped or failed go on: from its latest checkpoint, when it next gets a worker."""
        unmark(self.folder.trial(run.name))
        if self.has_status(run, *REVIVABLE):
            forget_outcome(self.folder.trial(run.name))

    def copy(self, run: Run, name: str) -> None:
        """Begin the folder ``name`` with what the run has, log and checkpoint, unless it is there; it can go on from there."""
        folder = self.folder.trial(name)
        if folder.exists():
            return
        with new_folder(folder) as made:
            shutil.copytree(self.folder.trial(run.name), made, dirs_exist_ok=True)
            unmark(made)
            if self.has_status(run, *REVIVABLE):
                forget_outcome(made)

    def has_status(self, run: Run, *statuses: str) -> bool:
        """Return True if the run's last part ended in one of these ways."""
        outcome = self.outcome(run)
        return outcome is not None and outcome.status in statuses

    def is_complete(self, run: Run, name: str | None = None) -> bool:
        """Return True if the run was trained to its end."""
        outcome = read_outcome(self.folder.trial(name or run.name), run.n_steps)
        return outcome is not None and outcome.status == "reached"

    def curve(self, run: Run, until_step: int | None = None, name: str | None = None) -> Curve:
        """Return the run's curve so far, or up to ``until_step``."""
        return self.recorded(run, until_step, name).curve()

    def final_loss(self, run: Run, name: str | None = None) -> float | None:
        """Return the final loss of a run that was trained to its end, else None."""
        return self.curve(run, name=name).final_loss if self.is_complete(run, name) else None

    def final_losses(self, runs: Iterable[Run]) -> dict[str, float]:
        """Return the final losses of those of ``runs`` that were trained to their end, by name."""
        return {run.name: loss for run in runs if (loss := self.final_loss(run)) is not None}

    def recorded(self, run: Run, until_step: int | None = None, name: str | None = None) -> RecordedRun:
        """Return what was logged of the run so far, or up to ``until_step``.

        Of a metric that is not reported every step, the steps that have it, and those whose loss was not finite.
        """
        log = read_log(self.folder.trial(name or run.name))
        values, is_told = judged_values(log, self.plan.config.metric)
        kept = is_told & (log["step"] <= (run.n_steps if until_step is None else until_step))
        return RecordedRun(
            run_id=run.name,
            steps=log["step"][kept],
            values=values[kept],
            metric=metric_of(self.plan.config),
            horizon=float(run.n_steps),
            family=self.plan.workload.family,
            group=run.role,
            tokens=log["tokens"][kept],
            learning_rates=log["lr"][kept] if "lr" in log else None,
            recipe=run.recipe,
            settings=dict(run.searched),
        )

    def save_curves(self, runs: Sequence[Run]) -> None:
        """Bring the curves of ``runs`` in ``curves/`` up to date."""
        for run in runs:
            path = self.folder.curves / f"{run.name}.parquet"
            if self.steps(run) > 0:
                recorded = self.recorded(run)
                if _rows_in(path) < recorded.steps.size:
                    write_run(path, recorded)

    def lack_metric(self, runs: Iterable[Run]) -> bool:
        """Return True if runs have logged steps, and none of them the metric that is judged."""
        logged = [run for run in runs if self.steps(run) > 0]
        return bool(logged) and not any(np.isfinite(self.recorded(run).values).any() for run in logged)


def metric_of(config: SweepConfig) -> Metric:
    """Return the metric that a sweep judges by."""
    return TRAIN_LOSS if config.metric == "loss" else Metric(config.metric, end="last")


def judged_values(log: Mapping[str, NDArray[np.float64]], metric: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return a metric's column of a run's log, NaN where it was not reported, and which steps tell something.

    Those that have a value, and those whose loss was not finite.
    """
    values = log["loss"] if metric == "loss" else log.get(metric, np.full(log["step"].shape, np.nan))
    return values, ~np.isnan(values) | ~np.isfinite(log["loss"])


def share_of(config: SweepConfig, role: Role) -> TrialResources:
    """Return what a run of this role takes."""
    own = None if config.proxies is None or role == "candidate" else config.proxies.resources
    return config.resources if own is None else own


def _rows_in(path: Path) -> int:
    return int(parquet.read_metadata(path).num_rows) if path.exists() else 0
