from __future__ import annotations

import io

import pytest
from rich.console import Console

from hpo.adapters.progress_log import Event
from hpo.reporting.live_view import LiveView, PlainLines, summary, sweep_view

N = 200


def large_sweep() -> list[Event]:
    """Events of a sweep of 200 candidates: 2 run, 100 have stopped, one has failed, the others wait."""
    events: list[Event] = [{"event": "driver", "name": "large", "rule": "select", "at": 0.2, "total_flops": 1e4}]
    for i in range(N):
        about = {"role": "candidate", "number": i, "settings": {"lr": 0.001 * (i + 1), "kind": "[bold]x[/bold]"}}
        steps = {"n_steps": 100, "stop_step": 20, "flops": 100.0, "step": 0, "of": f"trial-{i:03d}", "counted": True}
        events.append({"event": "run", "name": f"trial-{i:03d}", **about, **steps})
    for i in range(100):
        name, forecast = f"trial-{i:03d}", {"forecast": 2.0 + i, "lower": 1.9 + i, "upper": 2.1 + i, "fraction": 0.2}
        events.append({"event": "ended", "name": name, "status": "reached", "step": 20, "n_steps": 100, "message": ""})
        events.append(
            {"event": "decided", "name": name, "action": "stop", "reason": "not_selected", "p_best": 0.001 * i} | forecast
        )
    failed = {"status": "failed", "step": 7, "n_steps": 100, "message": "no such luck [/red]"}
    events.append({"event": "ended", "name": "trial-100", **failed})
    for i in (101, 102):
        events.append({"event": "started", "name": f"trial-{i}", "until": 20})
        events.append({"event": "reported", "name": f"trial-{i}", "step": 10, "loss": 3.25})
    return [{"time": float(k), **event} for k, event in enumerate(events)]


def rendered(width: int, height: int, metric: str = "loss") -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None)
    view = LiveView(console, lambda: "its driver is gone")
    for event in large_sweep():
        view.state.take({"metric": metric, "judged": 2.125} | event)
    with console.capture() as capture:
        console.print(view)
    return capture.get().rstrip("\n").split("\n")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 12), (140, 50)])
def test_200_trials_fit_the_terminal_those_that_run_first_and_the_rest_is_counted(width: int, height: int) -> None:
    lines = rendered(width, height)
    assert len(lines) <= height - 1
    assert max(map(len, lines)) <= width
    head = next(i for i, line in enumerate(lines) if line.startswith("trial "))
    names = [line.split()[0] for line in lines[head + 1 : -1]]
    assert names[:3] == ["trial-101", "trial-102", "trial-099"]
    stopped = sum("stopped" in line for line in lines[head + 1 : -1])
    assert f"{100 - stopped} stopped" in lines[-1]
    assert "its driver is gone" in "\n".join(lines)


def test_a_row_says_fraction_loss_forecast_probability_state_and_reason() -> None:
    lines = rendered(140, 20)
    running = next(line for line in lines if line.startswith("trial-101"))
    assert all(part in running for part in ("lr 0.102, kind [bold]x[/bold]", "10%", "3.2500", "running"))
    stopped = next(line for line in lines if line.startswith("trial-099"))
    assert all(part in stopped for part in ("20%", "101.0000", "0.1000", "0.099", "stopped", "not selected"))


@pytest.mark.parametrize(("width", "metric"), [(80, "val_loss"), (140, "held_out/a_very_long_name_of_a_metric")])
def test_the_metric_that_is_judged_heads_its_column_whatever_the_loss(width: int, metric: str) -> None:
    lines = rendered(width, 24, metric)
    assert max(map(len, lines)) <= width
    assert metric[:8] in next(line for line in lines if line.startswith("trial "))
    running = next(line for line in lines if line.startswith("trial-101"))
    assert "2.1250" in running
    assert "3.2500" not in running


def test_a_long_setting_takes_no_room_from_the_numbers() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=112, height=20, color_system=None)
    view = LiveView(console)
    for event in large_sweep():
        long = {"settings": {"kind": "x" * 300}} if event["event"] == "run" else {}
        view.state.take({**event, **long})
    with console.capture() as capture:
        console.print(view)
    stopped = next(line for line in capture.get().splitlines() if line.startswith("trial-099"))
    assert all(part in stopped for part in ("20%", "101.0000", "0.1000", "0.099", "stopped"))


def test_the_head_says_what_is_done_and_saved_and_how_many_runs_are_where() -> None:
    text = "\n".join(rendered(100, 24))
    assert "large: 200 candidates, 0 proxies, judged at 20%" in text
    assert "20% done" in text
    assert "saved so far: 40% of a full sweep" in text
    assert "2 running · 100 stopped · 1 failed · 97 waiting" in text


def test_a_terminal_gets_the_table_and_a_pipe_gets_lines() -> None:
    assert isinstance(sweep_view(Console(file=io.StringIO(), force_terminal=True)), LiveView)
    assert isinstance(sweep_view(Console(file=io.StringIO())), PlainLines)


def piped(events: list[Event]) -> list[str]:
    text = io.StringIO()
    view = PlainLines(Console(file=text, width=200))
    for event in events:
        view(event)
    return text.getvalue().splitlines()


def test_a_piped_sweep_says_stops_with_their_forecasts_and_failures_with_their_settings() -> None:
    lines = piped(large_sweep())
    assert "trial-005: stops, not selected; forecast 7.0000 (6.9000 to 7.1000), P(best) 0.005" in lines
    failed = "trial-100: step 7 of 100, failed (no such luck [/red]) with lr 0.101, kind [bold]x[/bold]"
    assert any(line.startswith(failed) for line in lines)


def reports(times: list[float]) -> list[Event]:
    start = large_sweep()[: N + 1]
    begun: list[Event] = [{"event": "started", "time": float(N + 1), "name": "trial-000", "until": 20}]
    told = [
        {"event": "reported", "name": "trial-000", "step": i + 1, "loss": 3.0, "time": N + 1 + t} for i, t in enumerate(times)
    ]
    return [{**event, "time": float(N)} if event["event"] == "driver" else event for event in start] + begun + told


def test_a_piped_sweep_is_never_silent_for_long_while_trials_report() -> None:
    lines = piped(reports([float(second) for second in range(60)]))
    assert len(lines) in (3, 4)
    assert lines[0].startswith("trial-000: step ")
    assert "of 20, loss 3.0000; sweep" in lines[0]


def test_reports_close_together_are_not_all_said() -> None:
    assert piped(reports([step / 100 for step in range(99)])) == []


def test_a_trial_whose_worker_died_starts_again() -> None:
    begun = {"event": "started", "name": "trial-150", "until": 20, "time": 1e4}
    assert piped([*large_sweep()[: N + 1], begun, {**begun, "time": 1e4 + 1}]) == ["trial-150 starts again"]


def test_the_clock_of_a_finished_sweep_stands_still() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=140, height=20, color_system=None)
    view = LiveView(console)
    for event in [*large_sweep(), {"event": "finished", "error": None, "time": 492.0}]:
        view.state.take(event)
    console.print(view)
    assert "8:12 in all" in console.file.getvalue()


def test_a_finished_sweep_is_summed_up_as_such() -> None:
    view = PlainLines(Console(file=io.StringIO()))
    for event in [*large_sweep(), {"event": "finished", "error": None, "time": 1e4}]:
        view.state.take(event)
    assert summary(view.state, 1e4)[0] == "finished"
