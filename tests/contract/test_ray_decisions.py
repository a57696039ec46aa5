"""What the scheduler promises about its decisions, driven as Ray drives it but without a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna_studies import HORIZON, curve, first_stop, steps
from ray_runs import METRIC, Driver, controller, run, scheduler, teach, trial

from hpo import CollapsePruner, Recipe
from hpo.adapters.ray_scheduler import CollapseScheduler
from hpo.core.schedules import schedule

NAN, INF = float("nan"), float("inf")
FINALS = {f"t{i}": f for i, f in enumerate([3.3, 3.1, 3.2, 3.0, 3.25, 3.6, 2.95, 3.4, 3.05, 3.5, 2.9, 3.3])}


def test_a_hopeless_trial_is_stopped_and_a_better_one_goes_on() -> None:
    made = scheduler()
    teach(made)
    assert 10 <= run(made, trial("bad"), curve(3.6, steps())) <= 30
    assert run(made, trial("good"), curve(2.9, steps())) == 0
    assert made.decision("bad").reason == "cannot_win"
    assert made.decision("bad").forecast == pytest.approx(3.6, rel=0.02)


def test_it_decides_as_the_pruner_does_in_a_study() -> None:
    made = scheduler()
    study = optuna.create_study(pruner=CollapsePruner(total_steps=HORIZON))
    for i, final in enumerate(FINALS.values()):
        reports = curve(final, steps(), wiggle=0.002, seed=i)
        assert run(made, trial(f"t{i}"), reports) == first_stop(study, reports)


def test_maximising_the_negative_stops_at_the_same_step() -> None:
    answers = []
    for sign, mode in ((1.0, "min"), (-1.0, "max")):
        made = scheduler(mode=mode)
        teach(made, sign=sign)
        answers.append(run(made, trial("bad"), {s: sign * v for s, v in curve(3.6, steps()).items()}) > 0)
    assert answers == [True, True]


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_non_finite_report_stops_at_that_report(bad: float) -> None:
    made = scheduler()
    assert run(made, trial("bad"), {**curve(3.0, [1, 2]), 3: bad, 4: 3.0}) == 3
    assert made.decision("bad").reason == "non_finite"


@pytest.mark.parametrize("bad", [None, "missing", [1.0, 2.0], {}])
def test_a_result_without_a_number_is_passed_over(bad: object) -> None:
    made = scheduler()
    teach(made)
    reports = {**curve(2.9, steps()), 22: bad}
    assert run(made, trial("odd"), dict(sorted(reports.items()))) == 0
    assert run(made, trial("other"), curve(2.9, steps()), key="val_loss") == 0
    assert made.decision("other") is None


def test_non_finite_and_failed_trials_teach_nothing() -> None:
    numbers = []
    for with_bad in (False, True):
        made = scheduler()
        teach(made)
        if with_bad:
            run(made, trial("nan"), {**curve(2.0, steps()), 100: NAN})
            made.on_trial_add(controller(), trial("failed"))
            for step, value in curve(2.0, steps()).items():
                made.on_trial_result(controller(), trial("failed"), {"training_iteration": step, METRIC: value})
            made.on_trial_error(controller(), trial("failed"))
        run(made, trial("bad"), curve(3.2, steps()))
        decision = made.decision("bad")
        numbers.append((decision.reason, decision.step, decision.n_references, decision.incumbent))
    assert numbers[0] == numbers[1]


def test_a_trial_that_another_stopper_ended_early_is_neither_reference_nor_incumbent() -> None:
    made = scheduler()
    teach(made)
    run(made, trial("short"), curve(1.0, steps()[:8]))
    run(made, trial("next"), curve(3.2, steps()))
    assert made.decision("next").incumbent == pytest.approx(3.0, rel=0.01)
    assert made.decision("next").n_references == 6


def test_rays_own_stopping_criterion_hides_the_last_result_and_it_is_taken_at_the_end() -> None:
    made = scheduler()
    for i in range(4):
        one, reports = trial(f"t{i}"), curve(3.0 + 0.1 * i, steps(), wiggle=0.002, seed=i)
        made.on_trial_add(controller(), one)
        *before, last = reports.items()
        for step, value in before:
            made.on_trial_result(controller(), one, {"training_iteration": step, METRIC: value})
        made.on_trial_complete(controller(), one, {"training_iteration": last[0], METRIC: last[1], "done": True})
    assert run(made, trial("bad"), curve(3.6, steps())) > 0


def test_a_retry_that_repeats_its_steps_is_ignored_until_it_is_past_them() -> None:
    answers = []
    for repeats in (False, True):
        made = scheduler()
        teach(made)
        one, reports = trial("again"), curve(3.15, steps(1))
        made.on_trial_add(controller(), one)
        for step in range(1, 9):
            made.on_trial_result(controller(), one, {"training_iteration": step, METRIC: reports[step]})
        if repeats:
            made.on_trial_error(controller(), one)
            made.on_trial_error(controller(), one)
            made.on_trial_add(controller(), one)
            for step in range(1, 9):
                assert made.on_trial_result(controller(), one, {"training_iteration": step, METRIC: 99.0}) == "CONTINUE"
        stop = run(made, one, {s: v for s, v in reports.items() if s > 8})
        answers.append((stop, made.decision("again")))
    assert answers[0] == answers[1]


def test_a_stopped_trial_that_reports_again_is_told_again_and_ends_once() -> None:
    made = scheduler()
    teach(made)
    assert run(made, trial("bad"), curve(3.6, steps())) > 0
    assert made.on_trial_result(controller(), trial("bad"), {"training_iteration": 60, METRIC: 1.0}) == "STOP"
    made.on_trial_complete(controller(), trial("bad"), {})
    made.on_trial_error(controller(), trial("bad"))
    run(made, trial("next"), curve(3.2, steps()))
    assert made.decision("next").incumbent == pytest.approx(3.0, rel=0.01)


def test_shadow_mode_decides_and_stops_nothing() -> None:
    made = scheduler(stopping="shadow")
    teach(made)
    assert run(made, trial("bad"), curve(3.6, steps())) == 0
    assert run(made, trial("late"), dict(list(curve(3.6, steps()).items())[:6])) == 0
    assert made.decision("late").action == "stop"


def test_trials_of_another_family_or_schedule_are_not_judged_by_this_one() -> None:
    labels = scheduler(family=lambda config: config["kind"])
    teach(labels, kind="a")
    assert run(labels, trial("other", kind="b"), curve(3.6, steps())) == 0
    recipes = scheduler(recipe=lambda config: Recipe(schedule=schedule(config["schedule"])))
    teach(recipes, schedule="linear")
    assert run(recipes, trial("other", schedule="constant"), curve(3.6, steps())) == 0
    assert run(recipes, trial("same", schedule="linear"), curve(3.6, steps())) > 0


@pytest.mark.parametrize("name", ["total", "recipe", "family"])
@pytest.mark.parametrize("answer", ["raises", "nonsense"])
def test_a_users_function_that_fails_costs_the_judgement_of_its_trial_only(
    name: str, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = {"total": HORIZON, "recipe": None, "family": "all"}[name]

    def asked(config: Mapping[str, Any]) -> Any:
        if not config.get("odd"):
            return good
        if answer == "raises" or name == "family":  # any answer is a family's label
            raise KeyError("n_layers")
        return "many"

    made = scheduler(**{name: asked})
    teach(made)
    for odd in ("odd", "odder"):
        assert run(made, trial(odd, odd=True), curve(3.6, steps())) == 0
    assert run(made, trial("bad"), curve(3.6, steps())) > 0
    assert made.decision("odd").reason == "function_failed"
    warned = [record.getMessage() for record in caplog.records if "teaches nothing" in record.getMessage()]
    assert len(warned) == 1
    assert warned[0].startswith(f"{name} failed (")


def test_any_reported_key_may_be_the_time_and_horizons_may_differ() -> None:
    made = scheduler(time_attr="tokens", total=lambda config: 1000.0 * config["size"])
    for i in range(6):
        size, name = 1 + i % 3, trial(f"t{i}", size=1 + i % 3)
        made.on_trial_add(controller(), name)
        for step, value in curve(3.0 + 0.05 * i, steps(), wiggle=0.002, seed=i).items():
            made.on_trial_result(controller(), name, {"training_iteration": 1, "tokens": 10.0 * size * step, METRIC: value})
        made.on_trial_complete(controller(), name, {})
    bad = trial("bad", size=2)
    answers = [
        made.on_trial_result(controller(), bad, {"training_iteration": 1, "tokens": 20.0 * step, METRIC: value})
        for step, value in curve(3.6, steps()).items()
    ]
    assert "STOP" in answers[:7]


def test_the_budget_of_stops_is_one() -> None:
    made = scheduler(alpha=0.05)
    teach(made)
    rng = np.random.default_rng(0)
    stopped = [name for i in range(40) if run(made, trial(name := f"s{i}"), curve(3.0 + 0.6 * rng.random(), steps()))]
    assert len(stopped) > 10
    assert sum(made.decision(name).p_best for name in stopped) <= 0.05


@pytest.mark.parametrize("crash_at", [5, 260, 333, 404, 477])
def test_a_restored_scheduler_decides_as_if_there_had_been_no_crash(crash_at: int, tmp_path: Path) -> None:
    calm = Driver(FINALS, lambda: scheduler(log=tmp_path / "calm.jsonl"))
    before = calm.run()
    crashed = Driver(FINALS, lambda: scheduler(log=tmp_path / "crashed.jsonl"), crash_at)
    after = crashed.run()
    assert len(calm.stops) >= 3
    assert crashed.stops == calm.stops
    for name in FINALS:
        one, other = before.decision(name), after.decision(name)
        assert (one.reason, one.step, one.n_references) == (other.reason, other.step, other.n_references)
        assert one.forecast == pytest.approx(other.forecast, rel=1e-9)
    assert (tmp_path / "calm.jsonl").read_text().count("report") == (tmp_path / "crashed.jsonl").read_text().count("report")


def test_after_a_crash_without_checkpoints_no_step_counts_twice(tmp_path: Path) -> None:
    crashed = Driver(FINALS, lambda: scheduler(log=tmp_path / "log.jsonl"), crash_at=404, from_scratch=True)
    made = crashed.run()
    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    for name in FINALS:
        taken = [e["step"] for e in events if e["event"] == "report" and e["id"] == name]
        assert taken == [float(step) for step in range(1, int(crashed.stops.get(name, HORIZON)) + 1)]
        assert (made.decision(name).reason == "cannot_win") == (name in crashed.stops)


def test_a_log_cut_in_the_middle_of_a_line_loses_only_that_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    made = scheduler(log=path)
    teach(made)
    path.write_bytes(path.read_bytes()[:-9])
    again = scheduler(log=path)
    again.on_trial_add(controller(resumed=True), trial("taught0"))
    assert run(again, trial("bad"), curve(3.6, steps())) > 0
    kinds = [json.loads(line)["event"] for line in path.read_text().splitlines() if line.endswith("}")]
    assert kinds[0] == "start"
    assert "decision" in kinds


def test_another_experiments_log_is_not_taken_over(tmp_path: Path) -> None:
    teach(scheduler(log=tmp_path / "log.jsonl"))
    made = scheduler(log=tmp_path / "log.jsonl")
    run(made, trial("new"), curve(3.6, steps()[:6]))
    assert made.decision("new").reason == "no_references"


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = scheduler(log=tmp_path / "file" / "log.jsonl")
    with pytest.warns(RuntimeWarning, match="cannot be logged"):
        run(made, trial("one"), curve(3.0, steps()))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *(("total", x) for x in (0, -1, NAN, INF, True, "100")),
        *(("n_trials", x) for x in (0, -1, 2.5, True, "8")),
        *(("mode", x) for x in ("minimize", 1)),
        *(("metric", x) for x in ("", 3)),
        *(("min_fraction", x) for x in (0.0, 1.0)),
        ("time_attr", None),
        ("stopping", "audit"),
        ("alpha", 1.5),
        ("recipe", 3),
        ("family", "a"),
        ("log", 3),
    ],
)
def test_a_bad_argument_is_named(name: str, given: object) -> None:
    with pytest.raises(ValueError, match=name):
        CollapseScheduler(**{"metric": METRIC, "mode": "min", "total": 100, name: given})


@pytest.mark.parametrize("total", [np.int64(HORIZON), np.float32(HORIZON)])
def test_numpys_numbers_are_totals(total: Any) -> None:
    made = scheduler(total=total)
    run(made, trial("one"), curve(3.0, steps()))
    decision = made.decision("one")
    assert decision is not None
    assert decision.fraction == 1.0


def test_metric_and_mode_come_from_the_config_of_tune_and_must_not_differ() -> None:
    made = CollapseScheduler(total=100)
    with pytest.raises(ValueError, match="metric"):
        made.set_search_properties(None, None)
    assert made.set_search_properties("loss", "min")
    assert made.set_search_properties("loss", "min")
    assert not made.set_search_properties("accuracy", "max")


def test_a_kept_trial_goes_on_until_it_is_released() -> None:
    made = scheduler()
    teach(made)
    kept, reports = trial("kept"), curve(3.9, steps(), wiggle=0.002, seed=9)
    made.on_trial_add(controller(), kept)
    made.keep("kept")
    made.keep("unknown")
    stopped_at = 0
    for step, value in reports.items():
        if step == 50:
            made.release("kept")
        if made.on_trial_result(controller(), kept, {"training_iteration": step, METRIC: value}) == "STOP":
            stopped_at = step
            break
    assert 50 <= stopped_at <= 52


def test_what_was_learned_is_not_judged_and_counts_as_if_it_had_been_reported() -> None:
    taught, learned = scheduler(), scheduler()
    teach(taught)
    for i, final in enumerate(np.linspace(3.3, 3.0, 6)):
        one = trial(f"taught{i}")
        results = [{"training_iteration": s, METRIC: v} for s, v in curve(final, steps(), wiggle=0.002, seed=i).items()]
        learned.learn(controller(), one, results[:40])
        learned.learn(controller(), one, results)
        assert learned.decision(one.trial_id) is None
        learned.on_trial_complete(controller(), one, results[-1])
    bad = curve(3.9, steps(), wiggle=0.002, seed=9)
    assert 0 < run(taught, trial("bad"), bad) == run(learned, trial("bad"), bad)
