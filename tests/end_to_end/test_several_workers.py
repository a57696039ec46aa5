"""A trial that two processes train together: torch.distributed by gloo, in a worker group of Ray Train inside the trial."""

from __future__ import annotations

import json
import re

import pytest

from hpo.adapters.training_session import read_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

WATCHED = '''
"""The guide's training function, with a note of what each rank did; rank 1 dies once."""
import os, signal
from pathlib import Path

import torch.distributed as dist

import ddp


class Watched:
    def __init__(self, session, settings):
        self.session, self.rank, self.step, self.settings = session, dist.get_rank(), 0, settings
        self.notes = Path(settings["notes"])

    def note(self, line):
        with (self.notes / f"rank-{self.rank}").open("a") as mine:
            mine.write(line + "\\n")

    def restore(self):
        folder = self.session.restore()
        self.note("from the beginning" if folder is None else f"from {folder.name}")
        return folder

    def report(self, *, step, loss):
        if self.rank == 1 and step == self.settings["dies_at"] and not (self.notes / "died").exists():
            (self.notes / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self.step = step
        self.session.report(step=step, loss=loss)

    def checkpoint(self, save):
        return self.session.checkpoint(save)

    def should_stop(self):
        if self.session.should_stop():
            self.note(f"left at {self.step}")
        return self.session.should_stop()


def train(settings, session):
    assert dist.get_world_size() == 2
    ddp.train(settings, Watched(session, settings))
'''


def test_two_workers_report_stop_and_resume_as_one(hpo, repository):
    """The training function is that of docs/sweep.md."""
    guide = (repository / "docs" / "sweep.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n# ddp.py\n(.*?)```", guide, flags=re.DOTALL)
    assert block is not None
    (hpo.folder / "ddp.py").write_text(block[1])
    (hpo.folder / "watched.py").write_text(WATCHED)
    config = {
        "name": "two",
        "trainable": "watched:train",
        "target": {"n_params": 400, "n_steps": 60, "batch_tokens": 32, "notes": str(hpo.folder), "dies_at": 40},
        "search": {"space": {"parameters": {"lr": {"type": "float", "grid": [0.01]}}}},
        "stopping": {"at": 0.5},
        "resources": {"cpu": 0.5, "workers": 2},
        "checkpoint_every_s": 0.01,
    }
    code, out, err = hpo("sweep", hpo.write(config), "--out", hpo.run, "--json")
    assert code == 0, err
    log = read_log(hpo.run / "trials" / "trial-00")
    assert log["step"].tolist() == list(range(1, 61))
    assert (hpo.folder / "died").exists()
    assert "trial-00 starts again" in err
    ranks = [(hpo.folder / f"rank-{rank}").read_text().splitlines() for rank in (0, 1)]
    assert ranks[0] == ranks[1]  # both started, went on and left at the same steps
    first, to_stop, again, killed, last = ranks[0]
    assert (first, to_stop, again, last) == ("from the beginning", "left at 30", "from checkpoint-30", "left at 60")
    assert 30 < int(killed.removeprefix("from checkpoint-")) < 40  # what was saved before rank 1 died
    assert json.loads(out)["trials"][0]["state"] == "winner"
    assert log["loss"][-10:].mean() < log["loss"][:10].mean()
