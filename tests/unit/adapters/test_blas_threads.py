"""One BLAS thread while the core computes."""

from __future__ import annotations

import threading

import optuna
import pytest
from optuna_studies import add_family, attach, curve, first_stop, steps

import hpo.core.model
from hpo.adapters.blas_threads import OneBlasThread, in_one_blas_thread, loaded_openblas


def threads() -> set[int]:
    return {library.get() for library in loaded_openblas()}


@pytest.fixture(autouse=True)
def two_threads():
    """As where nobody has limited them; a BLAS that is not OpenBLAS, or of one thread only, has nothing to show."""
    before = [(library, library.get()) for library in loaded_openblas()]
    for library, _ in before:
        library.set(2)
    if threads() != {2}:
        pytest.skip("no OpenBLAS of several threads")
    yield
    for library, n_threads in before:
        library.set(n_threads)


def test_inside_it_is_one_and_afterwards_what_it_was():
    alone = OneBlasThread()
    with alone, alone:
        assert threads() == {1}
    assert threads() == {2}
    with pytest.raises(ZeroDivisionError), alone:
        _ = 1 / 0
    assert threads() == {2}


def test_the_last_of_several_threads_puts_it_back():
    alone, is_inside, may_leave = OneBlasThread(), threading.Event(), threading.Event()

    def other():
        with alone:
            is_inside.set()
            may_leave.wait(60)

    thread = threading.Thread(target=other)
    with alone:
        thread.start()
        is_inside.wait(60)
    assert threads() == {1}
    may_leave.set()
    thread.join()
    assert threads() == {2}


def test_a_function_runs_within_it():
    assert in_one_blas_thread(threads)() == {1}


def test_the_pruner_forecasts_in_one_thread_and_leaves_the_process_as_it_was(monkeypatch):
    seen: set[int] = set()
    forecast = hpo.core.model.CollapseModel.forecast

    def watched(self, *arguments, **named):
        seen.update(threads())
        return forecast(self, *arguments, **named)

    monkeypatch.setattr(hpo.core.model.CollapseModel, "forecast", watched)
    study = optuna.create_study()
    attach(study)
    add_family(study)
    assert first_stop(study, curve(4.0, steps())) > 0
    assert seen == {1}
    assert threads() == {2}
