"""A session for a run that several processes train together: one decides and writes, the others follow.

Every rank of :mod:`torch.distributed` calls its session alike. Rank 0 has the run's own session, logs its losses and saves its
checkpoints; whether to stop is broadcast at each report, so that all ranks leave after the same step. What is broadcast is one
number over a group of its own on the CPU: it neither waits for a device nor mixes with the model's collectives.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hpo.adapters.training_session import checkpoint_of
from hpo.core.session import Session, StopTraining


class Ranks:
    """The processes of one run; made by all of them at the same point, once :mod:`torch.distributed` is set up."""

    def __init__(self) -> None:
        import torch.distributed

        self._group = torch.distributed.new_group(backend="gloo")

    def agree(self, value: int = 0) -> int:
        """Return rank 0's ``value`` on all ranks."""
        import torch

        told = torch.tensor([value], dtype=torch.int64)
        torch.distributed.broadcast(told, src=0, group=self._group)
        return int(told.item())


class LeadingSession:
    """What rank 0's training function is given: the run's own session, and the others are told.

    Parameters
    ----------
    session : Session
        The run's own.
    ranks : Ranks
        The others wait at the same calls.
    """

    def __init__(self, session: Session, ranks: Ranks) -> None:
        self._session, self._ranks = session, ranks
        ranks.agree(session.should_stop())

    def report(self, *, step: int, loss: float, tokens: float | None = None, **extra: float) -> None:
        """Log one step, and tell the others whether to go on."""
        self._session.report(step=step, loss=loss, tokens=tokens, **extra)
        self._ranks.agree(self._session.should_stop())

    def checkpoint(self, save: Callable[[Path], None]) -> bool:
        """Save if a checkpoint is due: on this rank only."""
        return self._session.checkpoint(save)

    def restore(self) -> Path | None:
        """Return the folder of the latest complete checkpoint, or None; all ranks get the same."""
        folder = self._session.restore()
        self._ranks.agree(0 if folder is None else int(folder.name.rpartition("-")[2]))
        self._ranks.agree(self._session.should_stop())
        return folder

    def should_stop(self) -> bool:
        """Return True once the run should end here."""
        return self._session.should_stop()


class FollowingSession:
    """What the other ranks' training functions are given: nothing is written, and rank 0 says when to stop.

    Parameters
    ----------
    folder : Path
        The run's, where its checkpoints are found.
    ranks : Ranks
        Rank 0 among them.
    """

    def __init__(self, folder: Path, ranks: Ranks) -> None:
        self._folder, self._ranks = folder, ranks
        self._stopped = bool(ranks.agree())

    def report(self, *, step: int, loss: float, tokens: float | None = None, **extra: float) -> None:
        """Hear whether to go on; rank 0's loss is the one that counts."""
        del loss, tokens, extra
        if self._stopped:
            raise StopTraining(f"asked to stop; reported step {step}")
        self._stopped = bool(self._ranks.agree())

    def checkpoint(self, save: Callable[[Path], None]) -> bool:
        """Save nothing: rank 0 does."""
        del save
        return False

    def restore(self) -> Path | None:
        """Return the folder that rank 0 restores from, or None."""
        step = self._ranks.agree()
        self._stopped = bool(self._ranks.agree())
        return None if step == 0 else checkpoint_of(self._folder, step)

    def should_stop(self) -> bool:
        """Return True once the run should end here."""
        return self._stopped
