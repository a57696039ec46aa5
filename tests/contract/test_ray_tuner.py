"""Scheduler and search in a real `tune.Tuner` on a local Ray, and the guide's code as it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

from hpo.adapters.ray_scheduler import LOG_NAME, CollapseScheduler
from hpo.adapters.ray_search import CollapseSearch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore::ResourceWarning")]

ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # a driver that dies would leave their files open
    "TUNE_GLOBAL_CHECKPOINT_S": "0.1",  # so that what Ray restores is what it had
}


@pytest.fixture(scope="module", autouse=True)
def local_ray() -> Iterator[None]:
    import ray

    patch = pytest.MonkeyPatch()
    for name, value in ENVIRONMENT.items():
        patch.setenv(name, value)
    ray.init(
        address="local",
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=128 * 2**20,
        _node_ip_address="127.0.0.1",
    )
    yield
    ray.shutdown()
    patch.undo()


def tuner(folder: Path, trainable: Any, scheduler: CollapseScheduler, search: Any, n: int, **run: Any) -> Any:
    from ray import tune

    config = tune.TuneConfig(
        metric="loss", mode="min", scheduler=scheduler, search_alg=search, num_samples=n, reuse_actors=True
    )
    return tune.Tuner(
        trainable, tune_config=config, run_config=tune.RunConfig(name="e", storage_path=str(folder), verbose=0, **run)
    )


def make_trainable() -> Any:
    """A training function of 40 steps that ends at 3.0 + kind / 10, or is odd; nested, so that Ray sends it by value."""

    def train(config: dict[str, Any]) -> None:
        from ray import tune

        kind = config["kind"]
        for step in range(1, 41):
            value: Any = (3.0 + kind / 10) * (1 + 0.3 * ((step / 40) ** -0.4 - 1))
            if kind == 11 and step >= 2:
                value = float("nan")
            if kind == 12 and step % 2:
                tune.report({"other": 1.0})
                continue
            if kind == 13 and step >= 2:
                value = None
            tune.report({"loss": value})

    return train


def search_of(kinds: list[int], storage: Any = None) -> CollapseSearch:
    space = {"kind": optuna.distributions.IntDistribution(0, 13)}
    first = [{"kind": kind} for kind in kinds]
    return CollapseSearch(space, metric="loss", mode="min", points_to_evaluate=first, storage=storage)


def test_stopped_trials_are_pruned_bad_ones_end_and_nothing_is_left_running(tmp_path: Path) -> None:
    kinds = [3, 2, 1, 0, 9, 11, 12, 13, 8]
    search, scheduler = search_of(kinds), CollapseScheduler(total=40)
    results = tuner(tmp_path, make_trainable(), scheduler, search, len(kinds)).fit()
    assert not results.errors
    states = {t.params["kind"]: t for t in search._ot_study.trials}
    assert [states[k].state.name for k in (3, 2, 1, 0)] == ["COMPLETE"] * 4
    assert [states[k].state.name for k in (9, 11, 8, 13)] == ["PRUNED"] * 4
    assert states[12].state.is_finished()
    assert states[9].user_attrs["reason"] == "cannot_win"
    assert states[9].user_attrs["predicted_final"] == pytest.approx(3.9, rel=0.02)
    assert max(states[9].intermediate_values) == states[9].user_attrs["stopped_at"] <= 12
    assert states[11].user_attrs["reason"] == "non_finite"
    assert scheduler.decision(states[9].user_attrs["ray_trial"]).reason == "cannot_win"
    assert (tmp_path / "e" / LOG_NAME).is_file()


@pytest.mark.parametrize("has_log", [True, False])
def test_after_a_crash_and_restore_trials_are_judged_with_all_earlier_curves(tmp_path: Path, has_log: bool) -> None:
    from ray import tune

    flag = tmp_path / "crashed"

    class Crash(tune.Callback):
        def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any) -> None:
            if len(trials) == 5 and not flag.exists():
                flag.touch()
                raise RuntimeError("the driver dies here")

    kinds = [3, 2, 1, 0, 9, 8]
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "study")))
    scheduler = CollapseScheduler(total=40)
    with pytest.raises(Exception, match="the driver dies here"):
        tuner(tmp_path, make_trainable(), scheduler, search_of(kinds, storage), len(kinds), callbacks=[Crash()]).fit()
    if not has_log:
        (tmp_path / "e" / LOG_NAME).unlink()
    restored = tune.Tuner.restore(str(tmp_path / "e"), make_trainable(), resume_unfinished=True)
    assert not restored.fit().errors
    study = optuna.load_study(study_name=optuna.get_all_study_names(storage)[0], storage=storage)
    states = {t.params["kind"]: t for t in study.trials if t.user_attrs.get("reason") == "cannot_win"}
    assert 8 in states  # 9 too, unless Ray's last snapshot was made before it
    assert all(t.state.is_finished() for t in study.trials)
    events = [json.loads(line) for line in (tmp_path / "e" / LOG_NAME).read_text().splitlines()]
    judged = [e["n_references"] for e in events if e["event"] == "decision" and e["reason"] == "cannot_win"]
    assert min(judged) >= 4


def test_the_guides_blocks_run_as_one_script(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (repository / "docs" / "ray.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) >= 3
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), "docs/ray.md", "exec"), {"__name__": "guide"})
