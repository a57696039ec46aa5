"""The methods that a replay compares; one line each here, one module each beside."""

from __future__ import annotations

from bench.methods import collapse, current_best, multi_power_law, power_law, random, surrogate, transfer
from bench.methods.view import Method

METHODS = {
    method.name: method
    for method in (
        Method("random", random.predict, looks=False, learns=False),
        Method("current_best", current_best.predict, learns=False),
        Method("transfer", transfer.predict, looks=False),
        Method("power_law", power_law.predict, learns=False),
        Method("multi_power_law", multi_power_law.predict, looks=False),
        Method("multi_power_law_aligned", multi_power_law.predict_aligned),
        Method("surrogate", surrogate.predict),
        Method("shape", collapse.predict_shape),
        Method("landscape", collapse.predict_landscape),
    )
}
"""Every method by name. ``looks``: it needs the targets' prefixes; ``learns``: it needs references."""

ALIASES = {"hpo": "landscape"}
"""Names under which another method's results are repeated: ``hpo`` is whatever the product does by default."""
