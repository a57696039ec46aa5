"""The collapse model: references in, forecasts of final values out.

:class:`CollapseModel` is a value: its references (complete curves of cheaper or finished runs, reduced to the grid) and its
settings. References are grouped into families of one metric, one family label and one schedule; a forecast uses the family
its curve belongs to, aligned by generalised least squares (:mod:`hpo.core.posterior`) to the family's shape
(:mod:`hpo.core.shape`), or it abstains and says why. What is fitted follows from the references, so that the saved model
holds no matrix that a reader could not check.

With ``brownian_sd`` and ``covariance_weight`` at zero and ``surrogate_mean`` set, a forecast is the papers' surrogate with
early-align.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpo.core.curve import Curve
from hpo.core.forecast import Forecast, SweepForecast, abstained_forecast, completed_forecast, judged_forecast
from hpo.core.posterior import Prefix, align_jointly, draw_finals, probability_best
from hpo.core.prefix import prefix_of
from hpo.core.references import Family, Reference, families_of, is_reference
from hpo.core.shape import ShapeSettings, controls_of

FloatArray = NDArray[np.float64]
SCHEMA = 1


@dataclass(frozen=True)
class ModelSettings:
    """Settings of a :class:`CollapseModel`.

    Attributes
    ----------
    shape : ShapeSettings
        Priors of the shape.
    max_misfit : float
        A prefix whose standardised residuals have a root mean square above this is not judged (``bad_misfit``).
    n_draws : int
        Joint draws for P(best).
    """

    shape: ShapeSettings = field(default_factory=ShapeSettings)
    max_misfit: float = 4.0
    n_draws: int = 20_000

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict; infinity, which JSON lacks, is the string "inf"."""
        shape = {key: _json_number(value) for key, value in self.shape.to_dict().items()}
        return {"shape": shape, "max_misfit": _json_number(self.max_misfit), "n_draws": self.n_draws}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelSettings:
        """Return the settings of :meth:`to_dict`; ``ValueError`` on unknown keys."""
        try:
            shape = {key: _from_json(value) for key, value in data["shape"].items()}
            shape["effect_sd"] = tuple((str(k), float(v)) for k, v in shape["effect_sd"].items())
            rest = {key: _from_json(value) for key, value in data.items() if key != "shape"}
            return cls(shape=ShapeSettings(**shape), **rest)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"model settings are malformed: {error!r}") from error


class CollapseModel:
    """References and settings; immutable. Build it with :meth:`fit`."""

    def __init__(self, references: Sequence[Reference], settings: ModelSettings | None = None) -> None:
        self.settings = settings or ModelSettings()
        self.references = tuple(references)
        self.families = families_of(self.references, self.settings.shape)

    @classmethod
    def fit(cls, curves: Sequence[Curve], settings: ModelSettings | None = None) -> CollapseModel:
        """Return the model of all usable references among ``curves``.

        Used are complete curves whose values are finite, not diverging, inside the metric's domain, and whose first point
        lies in the first half of training; others are left out. Order does not matter to any forecast.
        """
        usable = sorted((c for c in curves if is_reference(c)), key=lambda c: c.run_id)
        return cls([Reference.of(c) for c in usable], settings)

    def family_of(self, curve: Curve) -> Family | None:
        """Return the family a curve belongs to, None if there is none."""
        matches = [f for f in self.families if f.accepts(curve.family, curve.metric, curve.recipe)]
        return max(matches, key=lambda f: len(f.references), default=None)

    def forecast(self, curve: Curve) -> Forecast:
        """Return the forecast of one run by itself."""
        return self._forecasts([curve])[0][0]

    def forecast_many(self, curves: Sequence[Curve], rng: np.random.Generator) -> SweepForecast:
        """Return forecasts of a sweep's runs made together, with P(best) from joint draws.

        Runs of one family share its shape's uncertainty; families are independent of each other.
        """
        forecasts, groups = self._forecasts(curves)
        draws = np.full((self.settings.n_draws, len(curves)), np.nan)
        for members, level, covariance, dof in groups:
            draws[:, members] = draw_finals(level, covariance, dof, rng, self.settings.n_draws)
        judged = [i for i, f in enumerate(forecasts) if f.is_judged]
        p_best = np.full(len(curves), np.nan)
        if judged:
            p_best[judged] = probability_best(draws[:, judged])
        return SweepForecast(tuple(forecasts), p_best, draws)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict with a ``schema`` number."""
        return {
            "schema": SCHEMA,
            "settings": self.settings.to_dict(),
            "references": [r.to_dict() for r in self.references],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CollapseModel:
        """Return the model of :meth:`to_dict`.

        Raises
        ------
        ValueError
            Not a model, a newer schema, or malformed content.
        """
        schema = data.get("schema") if isinstance(data, Mapping) else None
        if not isinstance(schema, int):
            raise ValueError("not a collapse model: it has no schema number")
        if schema > SCHEMA:
            raise ValueError(f"model schema {schema} is newer than this version reads ({SCHEMA}); upgrade collapse-hpo")
        references = data.get("references")
        if not isinstance(references, Sequence) or not isinstance(data.get("settings"), Mapping):
            raise ValueError("not a collapse model: references and settings are missing")
        return cls([Reference.from_dict(r) for r in references], ModelSettings.from_dict(data["settings"]))

    def _forecasts(self, curves: Sequence[Curve]) -> tuple[list[Forecast], list[_Group]]:
        """Return one forecast a curve, and the joint laws of the judged ones by group."""
        out: dict[int, Forecast] = {}
        trials: dict[tuple[int, tuple[str, ...]], list[_Trial]] = {}
        laws: list[_Group] = []
        for i, curve in enumerate(curves):
            status = self._abstains(curve)
            if status is not None:
                out[i] = abstained_forecast(status, curve)
            elif curve.final_loss is not None:
                out[i] = completed_forecast(curve, curve.final_loss)
                laws.append(([i], curve.metric.to_model([curve.final_loss]), np.zeros((1, 1)), np.inf))
            else:
                self._prepare(i, curve, out, trials)
        for (index, controls), group in trials.items():
            laws += self._align(self.families[index], controls, group, out)
        return [out[i] for i in range(len(curves))], laws

    def _abstains(self, curve: Curve) -> str | None:
        """Return the status under which a curve is not judged, None if it is."""
        if curve.nonfinite_step is not None:
            return "non_finite"
        if curve.fraction_seen is None:
            return "unknown_horizon"
        if curve.fraction_seen > 1.0 + 1e-6:
            return "past_horizon"
        if curve.is_complete:
            return None
        if not self.references:
            return "no_references"
        return "no_family" if self.family_of(curve) is None else None

    def _prepare(
        self, i: int, curve: Curve, out: dict[int, Forecast], trials: dict[tuple[int, tuple[str, ...]], list[_Trial]]
    ) -> None:
        """File a curve's prefix under its family and controls, or abstain."""
        family = self.family_of(curve)
        assert family is not None  # noqa: S101 - _abstains has checked
        shape = family.shape_for(controls_of(curve))
        prefix = prefix_of(curve, shape)
        if prefix is None:
            about = {"family": family.name, "n_references": len(family.references)}
            out[i] = abstained_forecast("too_few_points", curve, **about)
            return
        trials.setdefault((self.families.index(family), shape.controls), []).append((i, curve, prefix))

    def _align(self, family: Family, controls: tuple[str, ...], group: list[_Trial], out: dict[int, Forecast]) -> list[_Group]:
        """Fill in the forecasts of one group; return its joint law without those that fit too badly to be judged."""
        shape = family.fit(controls)
        aligned = align_jointly([prefix for _, _, prefix in group], shape.covariance)
        covariance = aligned.covariance * np.outer(*2 * [np.maximum(aligned.misfit, 1.0)])
        judged = []
        for k, (i, curve, _) in enumerate(group):
            misfit, sd = float(aligned.misfit[k]), float(np.sqrt(max(covariance[k, k], 0.0)))
            about = {"family": family.name, "n_references": len(family.references), "controls": controls, "misfit": misfit}
            if misfit > self.settings.max_misfit:
                out[i] = abstained_forecast("bad_misfit", curve, **about)
            else:
                out[i] = judged_forecast(curve, float(aligned.level[k]), sd, shape.dof, **about)
                judged.append(k)
        if not judged:
            return []
        return [([group[k][0] for k in judged], aligned.level[judged], covariance[np.ix_(judged, judged)], shape.dof)]


def _json_number(value: Any) -> Any:
    return "inf" if value == math.inf else value


def _from_json(value: Any) -> Any:
    return math.inf if value == "inf" else value


_Trial = tuple[int, Curve, Prefix]
_Group = tuple[list[int], FloatArray, FloatArray, float]
