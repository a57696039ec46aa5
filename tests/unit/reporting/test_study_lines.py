"""What plot_forecasts draws: curves, forecasts and bands, from a study alone or with its pruner."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from optuna_studies import HORIZON, add, add_family, curve, running, steps

from hpo import CollapseModel, CollapsePruner, Curve, Metric, finish, plot_forecasts
from hpo.reporting.study_lines import StudyLines, TrialLine, study_lines

pytestmark = pytest.mark.usefixtures("quiet_optuna")


def stopped_study(
    direction: str = "minimize", sign: float = 1.0, storage: str | None = None, **options: object
) -> optuna.Study:
    """Return a study with a family of six trials and one that was stopped on the way to 3.6."""
    pruner = CollapsePruner(total_steps=HORIZON, **options)  # type: ignore[arg-type]
    study = optuna.create_study(direction=direction, pruner=pruner, storage=storage, study_name="curves")
    add_family(study, sign=sign)
    trial = study.ask()
    for step, value in curve(3.6, steps()).items():
        trial.report(sign * value, step)
        if trial.should_prune():
            finish(trial)
            study.tell(trial, state=TrialState.PRUNED)
            break
    return study


def stopped(found: StudyLines) -> TrialLine:
    (line,) = (x for x in found.lines if x.kind == "stopped")
    return line


def same(a: StudyLines, b: StudyLines) -> bool:
    """True if two studies would be drawn alike."""
    curves = [(x.fractions, x.normalised, [x.final, x.lower or 0.0, x.upper or 0.0]) for x in a.lines]
    others = [(x.fractions, x.normalised, [x.final, x.lower or 0.0, x.upper or 0.0]) for x in b.lines]
    close = all(np.allclose(p, q) for x, y in zip(curves, others, strict=True) for p, q in zip(x, y, strict=True))
    bands = zip(a.bands, b.bands, strict=True)
    return close and all(np.allclose(x.low, y.low) and np.allclose(x.high, y.high) for x, y in bands)


def test_finished_curves_end_at_one_and_stopped_ones_where_they_were_stopped() -> None:
    study = stopped_study()
    found = study_lines(study)
    finished = [x for x in found.lines if x.kind == "finished"]
    assert len(finished) == 6
    assert all(x.fractions[-1] == 1.0 and x.normalised[-1] == pytest.approx(1.0) for x in finished)
    said = study.trials[-1].user_attrs
    line = stopped(found)
    assert line.fractions[-1] == pytest.approx(said["stopped_fraction"])
    last = study.trials[-1].intermediate_values[said["stopped_at"]]
    assert line.normalised[-1] == pytest.approx(last / said["predicted_final"])
    assert (line.final, line.lower, line.upper) == (said["predicted_final"], said["predicted_lower"], said["predicted_upper"])


def test_hovering_says_where_and_why_a_trial_was_stopped() -> None:
    study = stopped_study()
    text = stopped(study_lines(study)).text
    said = study.trials[-1].user_attrs
    assert f"stopped at step {said['stopped_at']}" in text
    assert said["reason_text"] in text
    assert f"{said['predicted_final']:.6g}" in text


def test_the_band_holds_the_references() -> None:
    (band,) = study_lines(stopped_study()).bands
    assert band.n_references == 6
    assert np.all(band.low <= band.high)
    assert band.low[-1] == band.high[-1] == 1.0
    middle = np.array([0.3 * (t**-0.4 - 1) + 1 for t in band.fractions])
    later = band.fractions >= 0.1
    assert np.allclose(band.low[later], middle[later], rtol=0.02)


def test_a_study_loaded_without_its_pruner_is_drawn_alike(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = stopped_study(storage=url)
    loaded = optuna.load_study(study_name="curves", storage=url)
    try:
        assert not isinstance(loaded.pruner, CollapsePruner)
        assert same(study_lines(loaded), study_lines(study))
    finally:
        for one in (study, loaded):
            one._storage.remove_session()
            one._storage._backend.engine.dispose()  # type: ignore[attr-defined]


def test_maximising_the_negated_loss_has_the_same_intervals() -> None:
    up, down = (
        stopped(study_lines(stopped_study(d, s, transform="identity"))) for d, s in (("maximize", -1.0), ("minimize", 1.0))
    )
    assert up.final == pytest.approx(-down.final)
    assert (up.lower, up.upper) == (pytest.approx(-(down.upper or 0)), pytest.approx(-(down.lower or 0)))
    assert np.allclose(up.normalised, down.normalised)
    assert (up.lower or 0) < up.final < (up.upper or 0)


def test_accuracies_are_drawn_by_their_error() -> None:
    study = optuna.create_study(direction="maximize", pruner=CollapsePruner(total_steps=HORIZON))
    for seed in range(4):
        reports = {s: 1 - v / 10 for s, v in curve(1.0 + 0.1 * seed, steps(), wiggle=0.002, seed=seed).items()}
        add(study, reports)
    found = study_lines(study)
    assert "1 − value" in found.axis
    assert all(x.normalised[-1] == pytest.approx(1.0) and x.normalised[0] > 1.5 for x in found.lines)


def test_a_pruner_adds_its_model_and_running_trials() -> None:
    proxies = [
        Curve.from_points(*zip(*curve(f, steps()).items(), strict=True), horizon=HORIZON, metric=Metric("loss", end="last"))
        for f in (4.0, 4.1, 4.2)
    ]
    pruner = CollapsePruner(CollapseModel.fit(proxies), total_steps=HORIZON)
    study = optuna.create_study(pruner=pruner)
    add_family(study, 2)
    trial = running(study, {s: v for s, v in curve(3.0, steps()).items() if s <= 30})
    assert not trial.should_prune()
    found = study_lines(study)
    assert [band.n_references for band in found.bands] == [5]
    (line,) = (x for x in found.lines if x.kind == "running")
    assert line.final == pytest.approx(3.0, rel=0.02)


def test_families_have_bands_of_their_own() -> None:
    study = optuna.create_study(pruner=CollapsePruner(total_steps=HORIZON))
    add_family(study, 3, family="a")
    add_family(study, 4, family="b")
    assert [(b.name, b.n_references) for b in study_lines(study).bands] == [("a", 3), ("b", 4)]


def test_trials_stopped_by_others_are_drawn_at_their_last_value() -> None:
    study = stopped_study()
    add(study, {5: 9.0, 10: 8.0}, state=TrialState.PRUNED)
    add(study, {5: float("nan")}, state=TrialState.PRUNED)
    add(study, {}, state=TrialState.FAIL)
    found = study_lines(study, CollapsePruner(total_steps=HORIZON))
    (line,) = (x for x in found.lines if x.kind == "unjudged")
    assert line.final == 8.0
    assert line.fractions.size == 0
    assert (found.n_trials, found.n_stopped) == (10, 3)


def test_what_users_wrote_is_escaped() -> None:
    study = stopped_study()
    choices = optuna.distributions.CategoricalDistribution(["<b>"])
    study.add_trial(optuna.trial.create_trial(value=3.0, params={"name": "<b>"}, distributions={"name": choices}))
    assert "name = &lt;b&gt;" in study_lines(study).lines[-1].text


def test_several_objectives_and_nothing_to_draw_are_errors() -> None:
    with pytest.raises(ValueError, match="one objective; found 2"):
        study_lines(optuna.create_study(directions=["minimize", "minimize"]))
    pytest.importorskip("plotly", reason="Plotly absent: pip install plotly")
    with pytest.raises(ValueError, match="finished trial or one with a forecast"):
        plot_forecasts(optuna.create_study())


def test_without_plotly_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(ImportError, match=r"collapse-hpo\[plots\]"):
        plot_forecasts(stopped_study())


def test_the_figure_holds_what_was_found() -> None:
    pytest.importorskip("plotly", reason="Plotly absent: pip install plotly")
    study = stopped_study()
    found = study_lines(study)
    data = json.loads(plot_forecasts(study).to_json())
    named = {t.get("name"): t for t in data["data"]}
    stop = named["stopped by forecast (1)"]
    line = stopped(found)
    assert stop["y"] == [line.final]
    assert stop["error_y"]["array"] == [pytest.approx((line.upper or 0) - line.final)]
    assert stop["error_y"]["arrayminus"] == [pytest.approx(line.final - (line.lower or 0))]
    assert stop["text"] == [line.text]
    crosses = [t for t in data["data"] if t["mode"] == "markers" and t.get("xaxis") != "x2"]
    assert [(t["x"], t["marker"]["symbol"]) for t in crosses] == [([line.fractions[-1]], "x")]
    assert named["best so far"]["y"][-1] == min(t.value for t in study.trials if t.value is not None)
    assert "6 references: this study" in named
    layout = data["layout"]
    assert "units" in layout["yaxis2"]["title"]["text"]
    assert "fraction of training" in layout["xaxis"]["title"]["text"]


def test_the_ranges_leave_out_a_diverged_trial() -> None:
    pytest.importorskip("plotly", reason="Plotly absent: pip install plotly")
    study = stopped_study()
    add(study, dict.fromkeys(steps(), 1e30))
    low, high = plot_forecasts(study).layout.yaxis2.range
    assert 2.5 < low < 3.0
    assert 3.6 < high < 10


def test_many_trials_are_thinned_to_a_readable_number() -> None:
    pytest.importorskip("plotly", reason="Plotly absent: pip install plotly")
    study = optuna.create_study(pruner=CollapsePruner(total_steps=HORIZON))
    add_family(study, 400, every=25)
    data = json.loads(plot_forecasts(study).to_json())["data"]
    (curves,) = (t for t in data if t["mode"] == "lines" and t.get("line", {}).get("color") == "#7a7a7a")
    assert curves["text"].count("") == 300
    assert any(t.get("name") == "finished (400)" for t in data)
