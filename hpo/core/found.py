"""What an alignment of several runs has found: who is judged, their joint law, and what else is known of each.

The law may hold runs whose status is ``misleading``, until it is known whether what settings say mends that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hpo.core.curve import Curve
from hpo.core.forecast import Forecast, abstained_forecast, completed_forecast, judged_forecast
from hpo.core.posterior import Law


@dataclass(frozen=True)
class Found:
    """Outcome of an alignment: the law of the judged, the status of all, what else is known of them."""

    law: Law
    status: dict[int, str]
    about: dict[int, dict[str, Any]]

    @cached_property
    def ends(self) -> dict[int, float]:
        """Variance that the noise of each judged run's final value has in the law, by position."""
        return {i: self.about[i].get("end_sd", 0.0) ** 2 for i in self.law.members if i in self.about}

    def without_misleading(self) -> Found:
        """Return the same with nobody in the law whose curve misleads."""
        keep = [k for k, i in enumerate(self.law.members) if self.status[i] != "misleading"]
        return self if len(keep) == len(self.law.members) else replace(self, law=self.law.of_members(keep))

    def forecasts(self, curves: Sequence[Curve]) -> tuple[Forecast, ...]:
        """Return the runs' forecasts, in their order."""
        position = {i: k for k, i in enumerate(self.law.members)}
        sd = np.sqrt(np.maximum(np.diag(self.law.covariance), 0.0))
        out = []
        for i, curve in enumerate(curves):
            status, about = self.status[i], self.about.get(i, {})
            if status == "complete" and curve.final_loss is not None:
                out.append(completed_forecast(curve, curve.final_loss))
            elif status == "ok":
                k = position[i]
                out.append(judged_forecast(curve, float(self.law.level[k]), float(sd[k]), self.law.dofs[k], **about))
            else:
                out.append(abstained_forecast(status, curve, **about))
        return tuple(out)
