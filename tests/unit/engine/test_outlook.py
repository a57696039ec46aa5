"""What a configured sweep is expected to find, and the command that looks for better."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml
from synthetic import surrogate_curve

from hpo.core.model import CollapseModel
from hpo.engine.config import InputError, parse_config
from hpo.engine.cost import estimate
from hpo.engine.outlook import advice, configured_outlook, design_space
from hpo.engine.plan import plan_sweep


@pytest.fixture
def ladder(tiny):
    """A sweep whose proxies are large enough to be looked at."""
    tiny["model"] = {"width": 128, "depth": 2, "head_dim": 16}
    tiny["proxies"] = {"sizes": [{"width": 64}, {"width": 96}], "settings": 4}
    return tiny


def written(tmp_path, config):
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def test_the_configured_outlook_costs_what_the_estimate_says(ladder):
    plan = plan_sweep(parse_config(ladder))
    expected = estimate(plan, 1).spending
    found = configured_outlook(plan)
    assert found["kept"] == 1
    assert found["flops"]["proxies"] == pytest.approx(expected.proxies)
    assert found["flops"]["total"] == pytest.approx(expected.total, rel=1e-3)
    assert found["break_even_trials"] == expected.break_even_trials


def test_a_cap_that_costs_the_best_is_answered_by_what_would_find_it(ladder):
    found = configured_outlook(plan_sweep(parse_config(ladder)))
    assert found["p_best"] < 0.9
    assert found["better"]["p_best"] > 0.9
    assert found["better"]["kept"] > 1


def test_a_sweep_without_proxies_has_no_outlook(ladder):
    del ladder["proxies"]
    assert configured_outlook(plan_sweep(parse_config({**ladder, "stopping": "prune"}))) is None


def test_the_built_in_family_offers_sizes_of_its_own(ladder):
    del ladder["proxies"]
    _, sizes = design_space(plan_sweep(parse_config({**ladder, "stopping": "prune"})), None)
    widths = [size["width"] for size in sizes]
    assert widths == sorted(widths, reverse=True)
    assert all(width % 16 == 0 and width < 128 for width in widths)


def test_a_dry_run_says_what_the_sweep_will_find(tmp_path, ladder, hpo):
    path = written(tmp_path, ladder)
    out = hpo("sweep", path, "--dry-run")[1]
    assert "expected to find  the best of 6 with P" in out
    assert json.loads(hpo("sweep", path, "--dry-run", "--json")[1])["outlook"]["p_best"] < 1


def test_a_stop_before_any_point_is_one_line(tmp_path, ladder, hpo):
    code, out, err = hpo("sweep", written(tmp_path, ladder), "--dry-run", "--set", "stopping.at=1e-5")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "stopping.at: expected a fraction past the first point" in err


def test_plan_proxies_writes_a_sweep_with_the_best_design(tmp_path, ladder, hpo):
    path, better = written(tmp_path, ladder), tmp_path / "better.yaml"
    code, out, err = hpo("plan-proxies", path, "--p-best", "0.8", "-o", better, "--json")
    best = json.loads(out)["best"]
    assert (code, err.splitlines()) == (0, [f"{better}: go on with: hpo sweep {better}"])
    config = yaml.safe_load(better.read_text())
    assert config["proxies"]["sizes"] == best["sizes"]
    assert config["stopping"]["at"] == best["stop_at"]
    assert config["stopping"]["alpha"] == pytest.approx(0.2)
    again = json.loads(hpo("sweep", better, "--dry-run", "--json")[1])["outlook"]
    assert again["flops"]["total"] == pytest.approx(best["flops"]["total"], rel=0.1)
    assert again["p_best"] == pytest.approx(best["p_best"], abs=0.1)


def test_a_budget_is_a_cap_that_the_written_sweep_keeps(tmp_path, ladder, hpo):
    path, better = written(tmp_path, {**ladder, "stopping": {"at": 0.1, "rungs": [0.2]}}), tmp_path / "better.yaml"
    free = json.loads(hpo("plan-proxies", path, "--p-best", "0.9", "--json")[1])["best"]["flops"]
    budget = 0.5 * (free["total"] + free["at_most"])
    code, out, _ = hpo("plan-proxies", path, "--p-best", "0.9", "--budget", f"{budget:g}", "-o", better, "--json")
    best = json.loads(out)["best"]
    assert (code, best["flops"]["at_most"] <= budget * 1.001) == (0, True)
    stopping = yaml.safe_load(better.read_text())["stopping"]
    assert (stopping["keep_max"], stopping["rungs"]) == (best["keep_max"], [])


def test_plan_proxies_shows_a_design_for_each_stop_and_the_configured_one(tmp_path, ladder, hpo):
    out = hpo("plan-proxies", written(tmp_path, ladder))[1]
    for words in ("best", "as configured", "break-even", "assuming", "50%"):
        assert words in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--p-best", "1"), "--p-best: expected a probability inside (0, 1); found 1"),
        (("--budget", "-1"), "--budget must be finite and above 0"),
        (("--budget", "1e3"), "--budget: expected at least the"),
        (("--model", "nowhere.json"), "nowhere.json: expected a model file"),
        (("--set", "model.width=7"), "head_dim"),
    ],
)
def test_bad_input_is_one_line(tmp_path, ladder, hpo, arguments, words):
    code, out, err = hpo("plan-proxies", written(tmp_path, ladder), *arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert words in err


def finished(plan, shrink=1.0, shorten=1.0, n=6):
    """Return a model of ``n`` runs of a plan's own candidates, smaller or shorter than planned."""
    runs = []
    for k, planned in enumerate(plan.candidates[:n]):
        recipe = planned.recipe
        tokens = recipe.n_tokens * shrink * shorten
        # the batch falls with the tokens: tau stays
        small = replace(
            recipe,
            n_params=recipe.n_params * shrink,
            n_tokens=tokens,
            batch_tokens=recipe.batch_tokens * shrink * shorten,
            flops_exact=None,
        )
        runs.append(surrogate_curve(small, final=3 + 0.1 * k, run_id=str(k)))
    return CollapseModel.fit(runs)


def test_a_model_of_runs_far_from_the_target_does_not_count(ladder):
    ladder["search"]["candidates"] = 6
    plan = plan_sweep(parse_config(ladder))
    near, _ = design_space(plan, finished(plan))
    assert (len(near.known.runs), near.known.notes) == (6, ())
    far, _ = design_space(plan, finished(plan, shrink=0.02, shorten=0.1))
    assert far.known.runs == ()
    assert "the model's runs are too far" in far.known.source
    assert "6 of the model's 6 runs do not count" in far.known.notes[0]
    assert "parameters, tpp " in far.known.notes[0]
    document = advice(plan, finished(plan, shorten=0.1), p_best=0.8)
    assert document["best"]["sizes"]
    assert any("do not count" in note for note in document["notes"])


def test_without_sizes_a_far_model_is_refused_with_the_reason(ladder):
    plan = plan_sweep(parse_config(ladder))
    with pytest.raises(InputError, match="found 6 of the model's 6 runs do not count, too far from the target: it takes tpp"):
        design_space(
            replace(plan, config=plan.config.model_copy(update={"proxies": None})),
            finished(plan, shorten=0.1),
            only_configured=True,
        )
