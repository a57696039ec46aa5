"""The Optuna study of a sweep: one trial a candidate, reported and told by the driver only, each thing once.

The study is the record that other tools read (dashboards, importances, samplers). A trial's intermediate values are its
thinned losses; a stopped trial is PRUNED and says what its final loss would have been; the ones trained to the end are
COMPLETE. On a resume everything that is already there stays as it is.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hpo.adapters.storage_patience import is_of_storage, persistently
from hpo.engine.config import InputError
from hpo.engine.trouble import OutsideError, in_a_line
from search_spaces import SearchSpace

if TYPE_CHECKING:
    import optuna

Ending = Literal["COMPLETE", "PRUNED", "FAIL"]
_CANDIDATE = "candidate"


class StudyRecord:
    """The study and its open trials, by candidate number.

    Every method raises :class:`~hpo.engine.trouble.OutsideError` where the storage fails for longer than a restart takes.

    Parameters
    ----------
    study : optuna.Study
        New, or as an earlier driver left it.
    space : SearchSpace
        Of the candidates.
    points : sequence of dict
        Every candidate's point; trials are asked for those that have none yet.
    again : collection of int
        Candidates that get a new trial where the one that they have is FAIL.
    """

    def __init__(
        self,
        study: optuna.Study,
        space: SearchSpace,
        points: Sequence[Mapping[str, Any]],
        again: Collection[int] = (),
    ) -> None:
        from optuna.trial import Trial, TrialState

        self._study = study
        self._numbers: dict[int, int] = {}
        self._open: dict[int, Trial] = {}
        self._last_steps: dict[int, int] = {}
        waiting = set()
        for frozen in study.get_trials(deepcopy=False):
            candidate = frozen.user_attrs.get(_CANDIDATE)
            if frozen.state == TrialState.WAITING:
                waiting.add(candidate)
            elif candidate is not None and not (candidate in again and frozen.state == TrialState.FAIL):
                self._numbers[candidate] = frozen.number
                self._last_steps[candidate] = max(frozen.intermediate_values, default=0)
                if frozen.state == TrialState.RUNNING:
                    self._open[candidate] = Trial(study, frozen._trial_id)
        for candidate, point in enumerate(points):
            if candidate not in self._numbers:
                if candidate not in waiting:
                    study.enqueue_trial(dict(point), user_attrs={_CANDIDATE: candidate})
                self._ask(candidate)
        for trial in self._open.values():
            space.suggest(trial)  # a trial that has its parameters already keeps them

    def number(self, candidate: int) -> int:
        """Return the number of the candidate's trial in the study."""
        return self._numbers[candidate]

    def report(self, candidate: int, step: int, loss: float) -> None:
        """Add an intermediate value, unless the trial is closed or has come beyond this step: it repeats what it did."""
        trial = self._open.get(candidate)
        if trial is not None and step > self._last_steps[candidate]:
            _write(lambda: trial.report(loss, step))
            self._last_steps[candidate] = step

    def annotate(self, candidate: int, attributes: Mapping[str, Any]) -> None:
        """Set user attributes of a trial that is still open; None values are left out."""
        trial = self._open.get(candidate)
        if trial is not None:
            for key, value in attributes.items():
                if value is not None:
                    _write(partial(trial.set_user_attr, key, value))

    def close(self, candidate: int, ending: Ending, value: float | None = None) -> None:
        """Tell the study how the trial ended; only the first call for a trial counts."""
        from optuna.trial import TrialState

        trial = self._open.pop(candidate, None)
        if trial is not None:
            _write(lambda: self._study.tell(trial, values=value, state=TrialState[ending], skip_if_finished=True))

    def _ask(self, candidate: int) -> None:
        trial = self._study.ask()
        if trial.user_attrs.get(_CANDIDATE) != candidate:
            raise InputError.at("storage", "a study with this sweep's trials only", f"trial {trial.number} of another origin")
        self._numbers[candidate], self._open[candidate], self._last_steps[candidate] = trial.number, trial, 0


def open_study(name: str, storage: str | None, journal: Path, *, resume: bool) -> optuna.Study:
    """Return the study ``name``: in the run's own journal file, or in any Optuna ``storage`` URL.

    Raises
    ------
    InputError
        The storage cannot be opened, or has a study of that name already and this is not a resume.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler, pruner = optuna.samplers.RandomSampler(seed=0), optuna.pruners.NopPruner()  # every candidate is enqueued
    if storage is None:
        _mend(journal)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        try:
            where = optuna.storages.get_storage(storage or optuna.storages.JournalStorage(JournalFileBackend(str(journal))))
            if resume and name in optuna.get_all_study_names(where):
                return optuna.load_study(study_name=name, storage=where, sampler=sampler, pruner=pruner)
            return optuna.create_study(study_name=name, storage=where, sampler=sampler, pruner=pruner, direction="minimize")
        except optuna.exceptions.DuplicatedStudyError:
            raise InputError.at("name", f"a name that is new in {storage}", name) from None
        except Exception as error:  # noqa: BLE001 - whatever a database driver raises, it is the URL that is wrong
            raise InputError.at("storage", "an Optuna storage URL that can be opened", str(error).splitlines()[0]) from None


def _write(write: Callable[[], object]) -> None:
    """Write to the study, with patience; what its storage raises in the end is trouble outside, but a full disk stays one."""
    try:
        persistently(write)
    except Exception as error:
        if isinstance(error, OSError) or not is_of_storage(error):
            raise
        raise OutsideError(f"the storage failed: {in_a_line(error)}") from error


def _mend(journal: Path) -> None:
    """Cut off a last line that a crash left unfinished: Optuna cannot read a journal with one. Its driver is gone."""
    if not journal.exists():
        return
    with journal.open("rb+") as file:
        text = file.read()
        if text and not text.endswith(b"\n"):
            file.truncate(text.rfind(b"\n") + 1)


def finite_or_none(value: float | None) -> float | None:
    """Return ``value`` if it is a finite number, else None: what JSON and user attributes can hold."""
    return value if value is not None and math.isfinite(value) else None
