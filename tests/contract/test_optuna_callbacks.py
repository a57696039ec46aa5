"""Callbacks for training loops, alone and under torch.distributed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from child_processes import environment_of
from optuna.trial import TrialState
from optuna_studies import HORIZON, add_family, curve, steps

from hpo import CollapsePruner
from hpo.adapters import callbacks
from hpo.adapters.callbacks import EpochCallback, report_on_all_ranks, state_total_steps

RANK = """
import sys
import optuna, torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from optuna_studies import HORIZON, add_family, curve, steps
from hpo import CollapsePruner
from hpo.adapters.callbacks import report_on_all_ranks
rank, file, urls = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
optuna.logging.set_verbosity(optuna.logging.ERROR)
model = DistributedDataParallel(nn.Linear(2, 1))
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)


def opened(url):
    if url == "memory":
        return optuna.storages.InMemoryStorage()
    if "://" in url:
        return optuna.storages.get_storage(url)
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(url))


def live_trial(url):
    study = optuna.create_study(storage=opened(url), pruner=CollapsePruner(total_steps=HORIZON))
    add_family(study)
    return study.ask()


for url in urls:
    trial = live_trial(url) if rank == 0 else None
    try:
        for step, value in curve(3.6, steps()).items():
            optimiser.zero_grad()
            model(torch.ones(1, 2) * rank).sum().backward()
            optimiser.step()
            report_on_all_ranks(trial, step, value if rank == 0 else -1.0)
        print("end")
    except optuna.TrialPruned:
        print("pruned", step)
distributed.destroy_process_group()
"""


FAILING_RANK = """
import sys
from torch import distributed
from hpo.adapters.callbacks import report_on_all_ranks
rank, file = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
try:
    report_on_all_ranks(None, 1, 3.0)
except (ValueError, RuntimeError) as error:
    print(type(error).__name__, error)
finally:
    distributed.destroy_process_group()
"""


def said_by_ranks(code: str, repository: Path, rendezvous: Path, *urls: str) -> list[str]:
    """Return what each of two processes printed."""
    commands = [[sys.executable, "-c", code, str(rank), str(rendezvous), *urls] for rank in range(2)]
    environment = environment_of(repository)
    ranks = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for command in commands]
    return [rank.communicate(timeout=240)[0] for rank in ranks]


def test_when_rank_0_cannot_report_no_rank_waits_for_it(repository: Path, tmp_path: Path) -> None:
    first, second = said_by_ranks(FAILING_RANK, repository, tmp_path / "rendezvous")
    assert first.startswith("ValueError trial must be the live trial on rank 0")
    assert second.startswith("RuntimeError rank 0 could not report: ValueError")


def one_decision_on_two_ranks(repository: Path, folder: Path, *urls: str) -> None:
    first, second = (said.splitlines() for said in said_by_ranks(RANK, repository, folder / "rendezvous", *urls))
    assert first == second
    assert len(first) == len(urls)
    for said in first:
        assert said.startswith("pruned ")
        assert 10 <= int(said.removeprefix("pruned ")) <= 30


def test_two_ranks_get_one_decision_and_leave_together(repository: Path, tmp_path: Path) -> None:
    one_decision_on_two_ranks(repository, tmp_path, "memory", str(tmp_path / "journal"), f"sqlite:///{tmp_path / 'study.db'}")


@pytest.mark.slow
def test_two_ranks_get_one_decision_from_postgresql(repository: Path, tmp_path: Path, postgresql_url: str) -> None:
    one_decision_on_two_ranks(repository, tmp_path, postgresql_url)


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
    callback.on_epoch_end(1, {"loss": 9.0})
    assert study.trials[0].intermediate_values == {1: 3.0}


def test_the_length_of_training_is_stated_once_and_only_if_it_has_an_end(open_storage) -> None:
    trial = optuna.create_study(storage=open_storage("memory")).ask()
    for endless in (float("inf"), 0, -1):
        state_total_steps(trial, endless)
        assert "total_steps" not in trial.user_attrs
    state_total_steps(trial, 160.0)
    state_total_steps(trial, 200)
    assert trial.user_attrs["total_steps"] == 160
    state_total_steps(None, 160)


def test_an_unknown_callback_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'JaxCallback'"):
        callbacks.JaxCallback  # noqa: B018 - the access is what is tested
