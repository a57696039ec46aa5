"""Callbacks for training loops, alone and under torch.distributed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from optuna_studies import HORIZON, add_family, curve, steps

from hpo import CollapsePruner
from hpo.adapters.callbacks import EpochCallback, report_on_all_ranks

RANK = """
import sys
import optuna, torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from optuna_studies import HORIZON, add_family, curve, steps
from hpo import CollapsePruner
from hpo.adapters.callbacks import report_on_all_ranks
rank, file = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
trial = None
if rank == 0:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(pruner=CollapsePruner(total_steps=HORIZON))
    add_family(study)
    trial = study.ask()
model = DistributedDataParallel(nn.Linear(2, 1))
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for step, value in curve(3.6, steps()).items():
        optimiser.zero_grad()
        model(torch.ones(1, 2) * rank).sum().backward()
        optimiser.step()
        report_on_all_ranks(trial, step, value if rank == 0 else -1.0)
    print("end")
except optuna.TrialPruned:
    print("pruned", step)
finally:
    distributed.destroy_process_group()
"""


def test_two_ranks_get_one_decision_and_leave_together(repository: Path, tmp_path: Path) -> None:
    paths = [str(repository), str(repository / "tests" / "support"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", RANK]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "rendezvous")], env=environment, stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=50)[0].split() for rank in ranks]
    assert said[0] == said[1]
    assert said[0][0] == "pruned"
    assert 10 <= int(said[0][1]) <= 30


def test_alone_it_reports_and_stops(open_storage) -> None:
    study = optuna.create_study(storage=open_storage("memory"), pruner=CollapsePruner(total_steps=HORIZON))
    add_family(study)

    def run(trial: optuna.Trial) -> float:
        for step, value in curve(3.6, steps()).items():
            report_on_all_ranks(trial, step, value)
        return value

    study.optimize(run, n_trials=1)
    assert study.trials[-1].state == TrialState.PRUNED
    with pytest.raises(ValueError, match="trial"):
        report_on_all_ranks(None, 1, 3.0)


def test_an_epoch_callback_reports_the_monitored_value(open_storage) -> None:
    study = optuna.create_study(storage=open_storage("memory"), pruner=CollapsePruner(total_steps=20))
    trial = study.ask()
    callback = EpochCallback(trial, "val_loss")
    callback.on_epoch_end(0, {"loss": 9.0, "val_loss": 3.0})
    assert study.trials[0].intermediate_values == {1: 3.0}
    with pytest.raises(ValueError, match="monitor"):
        callback.on_epoch_end(1, {"loss": 9.0})
