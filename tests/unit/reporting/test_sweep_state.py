from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpo.adapters.progress_log import Event
from hpo.reporting.sweep_state import SweepState

NOTHING = {"lower": None, "upper": None, "misfit": None, "n_references": None}


def run(name: str, role: str = "candidate", flops: float = 100.0, step: int = 0, **about: object) -> Event:
    known = {"number": 0, "settings": {"lr": 0.1}, "n_steps": 100, "stop_step": 20, "of": name, "counted": True}
    return {"event": "run", "time": 0.0, "name": name, "role": role, "flops": flops, "step": step, **known, **about}


def event(kind: str, name: str = "", time: float = 0.0, **about: object) -> Event:
    return {"event": kind, "name": name, "time": time, **about}


def trained(name: str, step: int, status: str = "reached", time: float = 0.0) -> list[Event]:
    ended = event("ended", name, time, step=step, status=status, message="", n_steps=100)
    return [event("started", name, time, until=step), event("reported", name, time, step=step, loss=2.0), ended]


def decided(name: str, action: str, **about: object) -> Event:
    return event("decided", name, action=action, reason="r", fraction=0.2, forecast=None, p_best=None) | NOTHING | about


def test_what_is_saved_is_what_stopped_candidates_were_spared_less_the_proxies() -> None:
    events = [run("p", "proxy", 30.0), run("a"), run("b"), run("c")]
    events += trained("p", 100) + trained("a", 20) + trained("b", 20)
    state = SweepState.of(events)
    assert state.saved_fraction == pytest.approx(-30 / 300)
    state.take(decided("a", "stop"))
    assert state.saved_fraction == pytest.approx((80 - 30) / 300)
    assert state.runs["a"].state == "stopped"


def test_a_candidate_that_diverged_is_not_counted_as_saved() -> None:
    state = SweepState.of([run("a"), run("b"), *trained("a", 40, "diverged")])
    assert state.saved_fraction == 0
    state.take(decided("b", "stop"))
    assert state.saved_fraction == pytest.approx(100 / 140)


def test_a_selected_candidate_goes_on_and_is_complete_at_its_end() -> None:
    state = SweepState.of([run("a"), *trained("a", 20)])
    assert state.runs["a"].state == "at its stop"
    state.take(decided("a", "continue", forecast=1.9, lower=1.8, upper=2.0, p_best=0.7))
    assert (state.runs["a"].state, state.runs["a"].forecast, state.runs["a"].p_best) == ("goes on", 1.9, 0.7)
    for one in trained("a", 100):
        state.take(one)
    assert state.runs["a"].state == "complete"


def test_the_measured_end_of_a_complete_run_is_not_taken_for_its_forecast() -> None:
    state = SweepState.of([run("a"), *trained("a", 20), decided("a", "continue", forecast=1.9, lower=1.8, upper=2.0)])
    state.take(decided("a", "continue", reason="complete", forecast=1.85, lower=1.85, upper=1.85))
    assert (state.runs["a"].forecast, state.runs["a"].lower, state.runs["a"].reason) == (1.9, 1.8, "r")


def test_a_sweep_on_another_metric_shows_that_metric_as_it_was_last_reported() -> None:
    state = SweepState.of([event("driver") | {"metric": "val_loss"}, run("a"), event("started", "a", until=20)])
    for step, judged, shown in ((5, None, None), (10, 3.0, 3.0), (12, None, 3.0), (15, 2.5, 2.5)):
        state.take(event("reported", "a", step=step, loss=1.0, judged=judged))
        assert state.runs["a"].loss == shown
    assert state.metric == "val_loss"


def test_a_new_driver_counts_no_step_twice_and_nothing_runs_without_one() -> None:
    begun = {"name": "s", "rule": "select", "at": 0.2, "total_flops": 200.0}
    before = [event("driver") | begun, run("a"), event("started", "a", until=20), event("reported", "a", step=10, loss=2.0)]
    state = SweepState.of([*before, event("driver", time=50.0) | begun])
    assert state.runs["a"].state == "waiting"
    for one in (run("a", step=8), event("started", "a", 60.0, until=20), event("reported", "a", 70.0, step=20, loss=1.9)):
        state.take(one)  # it goes on from its checkpoint at step 8
    assert state.done_flops == pytest.approx(20.0)
    assert state.seconds_left(70.0) == pytest.approx(10 / 10 * 180)  # 10 FLOPs in this driver's 10 seconds, 180 to go


def test_the_time_left_is_not_told_by_the_first_steps_of_a_worker_that_starts() -> None:
    state = SweepState.of([event("driver") | {"total_flops": 1000.0}, run("a"), event("started", "a", 1.0, until=20)])
    state.take(event("reported", "a", 11.0, step=5, loss=2.0))
    assert state.seconds_left(11.0) is None
    state.take(event("reported", "a", 12.0, step=20, loss=2.0))
    assert state.seconds_left(12.0) == pytest.approx(11 / 20 * 980)


def test_steps_of_a_copy_are_not_counted_again() -> None:
    state = SweepState.of([run("a"), *trained("a", 20), run("verify-a", step=20, of="a", counted=False)])
    assert state.done_flops == pytest.approx(20.0)
    state.take(event("started", "verify-a", until=100))
    state.take(event("reported", "verify-a", step=50, loss=1.5))
    assert state.done_flops == pytest.approx(50.0)
    assert [one.name for one in state.candidates] == ["a"]


def test_unknown_events_and_runs_change_nothing() -> None:
    state = SweepState.of([run("a"), event("novelty", "a"), event("reported", "b", step=3, loss=1.0)])
    assert state.runs["a"].step == 0
    assert list(state.runs) == ["a"]


SCALARS = st.one_of(
    st.none(), st.integers(-5, 200), st.floats(allow_nan=True), st.text(max_size=5), st.sampled_from(["a", "b"])
)
KEYS = (
    "name",
    "role",
    "number",
    "settings",
    "n_steps",
    "stop_step",
    "flops",
    "of",
    "step",
    "loss",
    "status",
    "action",
    "reason",
)
KINDS = ("driver", "run", "expect", "started", "reported", "decided", "ended", "said", "finished", "novelty")


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(KEYS), SCALARS)), max_size=12))
def test_no_event_of_whatever_form_breaks_the_state(found: list[tuple[str, dict[str, object]]]) -> None:
    state = SweepState.of([run("a"), *({**about, "event": kind, "time": 1.0} for kind, about in found)])
    assert "a" in state.runs
    state.ranked()
    _ = state.saved_fraction, state.fraction, state.counts, state.seconds_left(2.0)


def test_runs_are_ranked_by_what_matters_now() -> None:
    events = [run("p", "proxy"), *(run(name) for name in "abcdef")]
    events += trained("p", 100)
    for name in "abc":
        events += trained(name, 20)
    events += [decided("a", "stop", p_best=0.1), decided("b", "continue", p_best=0.6), decided("c", "continue", p_best=0.3)]
    events += [event("started", "e", until=20)]
    assert [one.name for one in SweepState.of(events).ranked()] == ["e", "b", "c", "a", "d", "f", "p"]
