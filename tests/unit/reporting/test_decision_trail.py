from __future__ import annotations

from hpo.adapters.progress_log import Event
from hpo.reporting.decision_trail import TrailLine, clock, reason_text, trail_of

NAME = "trial-03"


def event(kind: str, time: float, name: str = NAME, **about: object) -> Event:
    return {"event": kind, "time": time, "name": name, **about}


def decided(time: float, reason: str = "may_win", action: str = "continue", **about: object) -> Event:
    numbers = {"fraction": 0.2, "forecast": 2.0, "lower": 1.9, "upper": 2.1, "p_best": 0.3, "misfit": 1.25, "n_references": 6}
    return event("decided", time, action=action, reason=reason, **numbers | about)


def texts(*events: Event, **given: object) -> list[str]:
    known = {"events": events, "decisions": [], "of_rule": [], "commands": [], **given}
    return [line.text for line in trail_of(NAME, **known)]  # type: ignore[arg-type]


def test_a_decision_is_told_with_all_its_numbers() -> None:
    told = "go on: stopping it would spend more error than allowed, judged at 20 %, forecast 2.0000 (90 %: 1.9000 to 2.1000)"
    assert texts(decided(1.0)) == [f"{told}, P(best) 0.3, misfit 1.25, 6 references"]


def test_decisions_alike_in_a_row_are_one_with_their_number_and_the_last_numbers() -> None:
    found = texts(
        *(decided(float(i), fraction=0.2 + i / 100) for i in range(5)), decided(9.0, "cannot_win", "stop", fraction=0.3)
    )
    assert [text.split(", forecast")[0] for text in found] == [
        "go on: stopping it would spend more error than allowed, judged 5 times, last at 24 %",
        "stop: its forecast final value is worse than the best, judged at 30 %",
    ]


def test_a_run_whose_worker_died_starts_again() -> None:
    found = texts(event("started", 1.0, until=20), event("started", 2.0, until=20))
    assert found == ["trains, up to step 20", "its worker has died; starts again, up to step 20"]


def test_its_further_runs_are_told_apart() -> None:
    ended = {"status": "reached", "step": 100, "n_steps": 100, "message": ""}
    found = texts(event("ended", 1.0, "verify-trial-03", **ended), event("ended", 2.0, "seed-1-trial-03", **ended))
    assert found == ["verification: reached step 100, its end", "seed-1: reached step 100, its end"]


def test_how_it_ended_is_told_with_the_reason() -> None:
    ended = event("ended", 1.0, status="out_of_memory", step=7, n_steps=100, message="asked for 3 GB")
    assert texts(ended) == ["out of memory at step 7: asked for 3 GB"]
    ended = event("ended", 1.0, status="stopped", step=7, n_steps=100, message="time_budget")
    assert texts(ended) == ["stopped at step 7: the sweep's time was up"]


def test_what_people_asked_stands_at_its_time() -> None:
    asked = ({"time": "1970-01-01T00:00:05+00:00", "action": "extend", "until": 0.4}, {"text": "no forecast stops it"})
    found = texts(event("started", 1.0, until=20), event("started", 9.0, until=40), commands=[asked])
    assert found[1] == "by hand: extend to 40 % — no forecast stops it"


def test_without_a_log_the_decisions_files_tell_it() -> None:
    line = {"time": "1970-01-01T00:00:05+00:00", "action": "stop", "reason": "capped", "numbers": {"fraction": 0.2}}
    (trail,) = trail_of(NAME, events=[], decisions=[{**line, "forecast": {"final_loss": 2.0}}], of_rule=[], commands=[])
    assert trail == TrailLine(5.0, "stop: left out by keep_max although it might win, judged at 20 %, forecast 2.0000", True)


def test_the_end_of_a_complete_run_is_no_forecast() -> None:
    assert texts(decided(1.0, "complete", forecast=1.75)) == ["is complete, with a final loss of 1.7500"]


def test_unknown_reasons_and_times_are_shown_as_they_are() -> None:
    assert reason_text("some_new_reason") == "some new reason"
    assert clock(None) == ""
    assert clock(0.0) == "1970-01-01 00:00:00"
