"""What surrounds every sweep: its display, the log of its progress, trackers, and the report at its end."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpo.adapters.tensorboard_tracker import TensorBoardTracker
    from hpo.adapters.wandb_tracker import WandbTracker
    from hpo.engine.plan import Plan
    from hpo.engine.progress import SweepProgress
    from hpo.engine.run_folder import RunFolder


@contextmanager
def displayed(plan: Plan, folder: RunFolder) -> Iterator[SweepProgress]:
    """Yield the progress to give to :func:`hpo.engine.sweep.run_sweep`: shown on stderr, logged, and tracked.

    However the sweep ends but for an interruption, ``report.html`` is written then; what is missing for it, or goes wrong with
    it, is said in one line and fails nothing.
    """
    from rich.console import Console

    from hpo.commands.report import report_after_sweep
    from hpo.engine.progress import SweepProgress
    from hpo.engine.trouble import SweepError
    from hpo.reporting.live_view import sweep_view

    with ExitStack() as stack:
        trackers = [_tracker(name, plan, folder) for name in plan.config.log_to]
        view = stack.enter_context(sweep_view(Console(stderr=True)))
        progress = SweepProgress([view, *trackers], folder.progress)
        for tracker in trackers:
            stack.callback(_close, tracker, progress)
        _begin(progress, plan)
        progress.say(f"run folder {folder.path}")
        try:
            yield progress
        except (SweepError, OSError) as error:
            progress.finished(error=str(error))
            report_after_sweep(folder, progress.say)
            raise
        progress.finished()
        report_after_sweep(folder, progress.say)


def _tracker(name: str, plan: Plan, folder: RunFolder) -> TensorBoardTracker | WandbTracker:
    from hpo.adapters.tensorboard_tracker import TensorBoardTracker
    from hpo.adapters.wandb_tracker import WandbTracker
    from hpo.engine.config import InputError

    try:
        if name == "tensorboard":
            return TensorBoardTracker(folder.path / "tensorboard")
        return WandbTracker(folder.path, plan.config.name)
    except ImportError as error:
        raise InputError.at("log_to", f"{name} to be installed (pip install 'collapse-hpo[logs]')", str(error)) from None
    except ValueError as error:
        raise InputError(f"log_to: {error}") from None


def _close(tracker: TensorBoardTracker | WandbTracker, progress: SweepProgress) -> None:
    try:
        tracker.close()
    except Exception as error:  # noqa: BLE001 - others' code; the sweep itself is done
        progress.say(f"{type(tracker).__name__} could not end well: {type(error).__name__}: {error}")


def _begin(progress: SweepProgress, plan: Plan) -> None:
    from hpo.engine.environment import environment
    from hpo.engine.sweep import expected_flops

    stopping = plan.config.stopping
    progress.begin(
        expected_flops(plan),
        name=plan.config.name,
        rule=stopping.rule,
        at=stopping.at,
        metric=plan.config.metric,
        pid=os.getpid(),
        host=socket.gethostname(),
        environment=environment(),
    )
