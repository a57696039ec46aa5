"""The demo's candidates trained live by the peers' own engines, against our sweep of the same seed.

:mod:`bench.race` plays recorded curves; here everything is real: Ray's ASHA in a ``tune.Tuner``, Optuna's pruners in a study
that two processes work on, each training the very candidates, weights and data order of a verified sweep of ``hpo bench own-
demo``. Ours is that sweep, its look judged again by the present model. What counts is the first trial to *finish* with a loss
within so many per cent of the best candidate's, and the tokens trained by then over all candidates, in shares of training
them all.

    hpo bench own-demo && python -m bench.live_race
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.live_race_report import EVENTS, live_race_table, race_of_seed
from bench.own_demo import is_verified
from bench.sessions import WithoutCheckpoints
from hpo.adapters.atomic import write_json, write_text
from hpo.engine.plan import plan_sweep
from hpo.engine.run_folder import RunFolder

METRIC = "val_loss"
N_WORKERS = 2
PEERS = ("ray_asha", "optuna_hyperband", "optuna_median")
_DONE = "done"


@dataclass(frozen=True)
class Candidate:
    """A candidate's place in the plan, settings of its training function, and steps of the whole run."""

    number: int
    settings: dict[str, Any]
    n_steps: int


class PeerSession(WithoutCheckpoints):
    """A session that notes every evaluation in a file and hands it to a peer.

    Parameters
    ----------
    tell : callable
        ``tell(percent, value)`` of each evaluation, percent of training (1 to 100); True stops the run.
    """

    def __init__(self, candidate: Candidate, events: Path, tell: Callable[[int, float], bool]) -> None:
        self._candidate, self._events, self._tell = candidate, events, tell
        self.last: float | None = None
        self._stopped = False

    def report(self, *, step: int, loss: float, tokens: float | None = None, **extra: float) -> None:
        """Note and hand on a step that was evaluated; the last one ends the run, whatever the peer says."""
        del loss
        if METRIC not in extra:
            return
        self.last, ends = extra[METRIC], step >= self._candidate.n_steps
        line = {"candidate": self._candidate.number, "tokens": tokens, "ends": ends, METRIC: self.last, "at_s": time.time()}
        with self._events.open("a", encoding="utf-8") as events:
            events.write(json.dumps(line) + "\n")
        self._stopped = self._tell(max(1, 100 * step // self._candidate.n_steps), self.last) and not ends

    def should_stop(self) -> bool:
        """Return what the peer said last."""
        return self._stopped


def run_peer(peer: str, candidates: Sequence[Candidate], folder: Path) -> None:
    """Train the candidates under a peer's rule, unless ``folder`` holds that already; what an interrupted run left is removed.

    Raises
    ------
    ValueError
        Unknown peer.
    """
    if peer not in PEERS:
        raise ValueError(f"peers must be among {', '.join(PEERS)}; found {peer!r}")
    if (folder / _DONE).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    if peer == "ray_asha":
        _run_ray(candidates, folder / EVENTS)
    else:
        _run_optuna(peer, candidates, folder)
    write_text(folder / _DONE, "")


def _run_ray(candidates: Sequence[Candidate], events: Path) -> None:
    """ASHA with Ray's defaults, training as 100 iterations."""
    from ray import tune
    from ray.tune.schedulers import AsyncHyperBandScheduler

    from bench.scale_actors import private_ray

    def train(config: dict[str, Any]) -> None:
        def tell(percent: int, value: float) -> bool:
            tune.report({"percent": percent, METRIC: value})
            return False  # Ray ends the actor of a stopped trial

        _train(candidates[config["candidate"]], events, tell)

    rule = AsyncHyperBandScheduler(time_attr="percent", metric=METRIC, mode="min")
    space = {"candidate": tune.grid_search(list(range(len(candidates))))}
    with tempfile.TemporaryDirectory() as storage, private_ray(N_WORKERS):
        run = tune.RunConfig(name="race", storage_path=storage, verbose=0)
        tune.Tuner(train, param_space=space, tune_config=tune.TuneConfig(scheduler=rule), run_config=run).fit()


def _run_optuna(peer: str, candidates: Sequence[Candidate], folder: Path) -> None:
    """One study in a journal, its candidates queued in their order, and :data:`N_WORKERS` processes."""
    study = _study(peer, folder)
    for candidate in candidates:
        study.enqueue_trial({"candidate": candidate.number})
    workers = [get_context("spawn").Process(target=work, args=(peer, candidates, folder)) for _ in range(N_WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise ValueError(f"{folder}: expected workers that end; one of {peer} failed")


def work(peer: str, candidates: Sequence[Candidate], folder: Path) -> None:
    """Take candidates from a peer's study until none waits."""
    import optuna

    study = _study(peer, folder)

    def objective(trial: optuna.Trial) -> float:
        candidate = candidates[trial.suggest_int("candidate", 0, len(candidates) - 1)]

        def tell(percent: int, value: float) -> bool:
            trial.report(value, percent)
            return trial.should_prune()

        session = _train(candidate, folder / EVENTS, tell)
        if session.should_stop() or session.last is None:
            raise optuna.TrialPruned
        return session.last

    while study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,)):
        study.optimize(objective, n_trials=1)


def _study(peer: str, folder: Path) -> Any:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    from bench.peer_rules import OPTUNA_PRUNERS

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = JournalStorage(JournalFileBackend(str(folder / "study.journal")))
    sampler = optuna.samplers.RandomSampler(seed=0)
    pruner = OPTUNA_PRUNERS[peer]()
    return optuna.create_study(storage=storage, study_name=peer, pruner=pruner, sampler=sampler, load_if_exists=True)


def _train(candidate: Candidate, events: Path, tell: Callable[[int, float], bool]) -> PeerSession:
    from proxies import trainable

    session = PeerSession(candidate, events, tell)
    trainable.train(candidate.settings, session)
    return session


def candidates_of(run: Path) -> list[Candidate]:
    """Return the candidates of a sweep's run folder, in its order."""
    plan = plan_sweep(RunFolder(run.absolute()).read_config())
    return [Candidate(number, dict(one.settings), one.n_steps) for number, one in enumerate(plan.candidates)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, and write and print the table."""
    parser = argparse.ArgumentParser(prog="bench.live_race", description="The demo's candidates, trained live by peers.")
    parser.add_argument("--demo", type=Path, default=Path("runs/own-demo"), help="verified sweeps of hpo bench own-demo")
    parser.add_argument("--runs", type=Path, default=Path("runs/live-race"), help="what the peers trained; not trained again")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--play", type=int, nargs="*", default=[], help="seeds whose training is also played to all rules")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS)
    parser.add_argument("--out", type=Path, help="folder for live_race.md and live_race.json")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    for name, value in (("RAY_AUTH_MODE", "token"), ("RAY_AUTH_TOKEN", secrets.token_hex(32))):
        os.environ.setdefault(name, value)  # else Ray keeps a token in the home folder
    found: list[dict[str, Any]] = []
    for seed in sorted({*given.seeds, *given.play}):
        if not is_verified(given.demo / f"seed-{seed}"):
            parser.error(f"--demo {given.demo}: expected seed {seed} trained and verified, by hpo bench own-demo")
    for seed in given.seeds:
        demo = given.demo / f"seed-{seed}"
        for peer in given.peers:
            run_peer(peer, candidates_of(demo), given.runs / f"seed-{seed}" / peer)
            print(f"seed {seed}: {peer} has ended", file=sys.stderr, flush=True)
        found.append(race_of_seed(seed, demo, {peer: given.runs / f"seed-{seed}" / peer for peer in given.peers}))
    told: dict[str, Any] = {"live": found}
    text = live_race_table(found)
    if given.play:
        from bench.live_race_play import played  # loads Ray: only once the peers have their token
        from bench.race import race_table

        told["played"] = played(given.demo, given.play)
        text += "\n\nThe same training played to all rules, seeds " + ", ".join(map(str, given.play)) + ":\n\n"
        text += race_table(told["played"])
    if given.out is not None:
        write_json(given.out / "live_race.json", told)
        write_text(given.out / "live_race.md", text + "\n")
    print(json.dumps(told, indent=1, allow_nan=False) if given.json else text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
