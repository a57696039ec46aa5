from __future__ import annotations

import numpy as np
import pytest

from hpo.core.curve import Curve
from hpo.core.metric import Metric
from hpo.core.misfit import MisfitPrior, RowNoise, fit_misfit
from hpo.core.model import CollapseModel
from hpo.core.noise import CurveNoise, FamilyNoise, bin_noise
from hpo.core.shape import NODES, residuals_at_nodes

STEPS = np.arange(1, 101)
CLEAN = 1 + 0.3 * ((STEPS / 100) ** -0.4 - 1)
PRIOR = MisfitPrior(brownian_sd=0.01, scale_weight=1.0, covariance_weight=12.0, tail_dof=4.0)


def run(final: float, noise: float, rng: np.random.Generator, until: int = 100, name: str = "") -> Curve:
    values = final * CLEAN * np.exp(noise * rng.standard_normal(100))
    return Curve.from_points(STEPS[:until], values[:until], horizon=100, metric=Metric(end="last"), run_id=name)


def test_the_covariance_of_a_curves_noise_is_that_of_many_noisy_curves() -> None:
    rng, usual = np.random.default_rng(0), np.log(3.0 * CLEAN)
    curves = [run(3.0, 0.02, rng) for _ in range(3000)]
    rows = np.stack([residuals_at_nodes(c) for c in curves])[:, -60:]
    noise = FamilyNoise.of([CurveNoise.of(c) for c in curves[:200]], NODES[-60:])
    assert noise is not None
    seen = np.cov(rows, rowvar=False) / 0.02**2
    assert usual.size == 100
    np.testing.assert_allclose(np.diag(noise.rows), np.diag(seen), rtol=0.15)
    np.testing.assert_allclose(np.diag(noise.rows, 1), np.diag(seen, 1), rtol=0.15)
    np.testing.assert_allclose(np.diag(noise.rows, 20), np.diag(seen, 20), rtol=0.15)


def test_noise_is_not_taken_for_misfit() -> None:
    """Twenty runs that collapse exactly but for 2 % of noise: K stays far below the noise, and positive definite."""
    rng = np.random.default_rng(1)
    curves = [run(3.0, 0.02, rng) for _ in range(20)]
    usable = NODES >= 0.02
    rows = np.stack([residuals_at_nodes(c) for c in curves])[:, usable]
    errors = rows - rows.mean(axis=0)
    noise = FamilyNoise.of([CurveNoise.of(c) for c in curves], NODES[usable])
    assert noise is not None
    blind = fit_misfit(errors, 19.0, NODES[usable], PRIOR)
    seeing = fit_misfit(errors, 19.0, NODES[usable], PRIOR, RowNoise(noise.rows, noise.points))
    assert blind.scale > 0.02
    assert seeing.scale < 0.005
    assert np.linalg.eigvalsh(seeing.covariance).min() > 0


def test_misfit_beside_noise_is_found() -> None:
    rng = np.random.default_rng(2)
    age = -np.log(NODES[-95:])
    root = np.linalg.cholesky(np.minimum(age[:, None], age[None, :]))
    errors = 0.03 * rng.standard_normal((40, 95)) @ root.T + 0.02 * rng.standard_normal((40, 95))
    found = fit_misfit(errors, 40.0, NODES[-95:], PRIOR, RowNoise(np.eye(95), np.full(40, 0.02**2)))
    assert found.scale == pytest.approx(0.03, rel=0.25)
    assert np.sqrt(found.covariance[0, 0] / age[0]) == pytest.approx(0.03, rel=0.3)


def test_without_noise_nothing_changes() -> None:
    errors = 0.01 * np.random.default_rng(3).standard_normal((8, 60))
    nodes = np.linspace(0.02, 0.98, 60)
    plain = fit_misfit(errors, 7.0, nodes, PRIOR)
    none = fit_misfit(errors, 7.0, nodes, PRIOR, RowNoise(np.eye(60), np.zeros(8)))
    np.testing.assert_allclose(none.covariance, plain.covariance, rtol=1e-6, atol=1e-12)


def test_noisy_forecasts_are_calibrated_and_settled_ones_are_sharper() -> None:
    """A measured final value scatters by its own noise; what the run is worth does not."""
    hits, settled_hits, ratios = [], [], []
    for seed in range(40):
        rng = np.random.default_rng([4, seed])
        model = CollapseModel.fit([run(3.0 + 0.1 * i, 0.02, rng, name=str(i)) for i in range(8)])
        target = run(3.3, 0.02, rng)
        forecast = model.forecast(run(3.3, 0.02, rng, until=30))
        assert forecast.lower is not None
        assert forecast.upper is not None
        assert forecast.level is not None
        assert forecast.level_sd is not None
        settled = forecast.settled()
        assert settled.level_sd is not None
        assert settled.final_loss == forecast.final_loss
        hits.append(forecast.lower <= target.current_value <= forecast.upper)
        settled_hits.append(abs(forecast.level - np.log(3.3)) <= 2 * settled.level_sd)
        ratios.append(settled.level_sd / forecast.level_sd)
    assert np.mean(hits) >= 0.8
    assert np.mean(settled_hits) >= 0.85
    assert np.mean(ratios) < 0.7


def test_few_bins_of_a_prefix_borrow_the_noise_of_their_family() -> None:
    curve = run(3.0, 0.02, np.random.default_rng(5), until=3)
    use = np.ones(curve.fractions.size, dtype=bool)
    assert bin_noise(curve, use, np.zeros(use.sum()))[0] == pytest.approx(1e-12)
    assert bin_noise(curve, use, np.zeros(use.sum()), 0.02**2, 6.0)[0] == pytest.approx(0.02**2)


def test_references_keep_their_noise_in_the_models_file() -> None:
    rng = np.random.default_rng(6)
    model = CollapseModel.fit([run(3.0 + 0.1 * i, 0.02, rng, name=str(i)) for i in range(4)])
    again = CollapseModel.from_dict(model.to_dict())
    part = run(3.1, 0.02, rng, until=30)
    assert again.forecast(part) == model.forecast(part)
    without = model.to_dict()
    for reference in without["references"]:
        del reference["noise"]  # a file of an earlier version
    assert CollapseModel.from_dict(without).forecast(part).is_judged


@pytest.mark.parametrize("wrong", [{"point": -1.0}, {"variances": [1.0]}])
def test_malformed_noise_is_refused(wrong: dict[str, object]) -> None:
    model = CollapseModel.fit([run(3.0, 0.02, np.random.default_rng(7))])
    broken = model.to_dict()
    broken["references"][0]["noise"] |= wrong
    with pytest.raises(ValueError, match="noise"):
        CollapseModel.from_dict(broken)
