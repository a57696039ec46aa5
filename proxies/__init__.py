"""Small language models whose loss curves collapse: a decoder-only torch family, its data and its training loop.

====================  =======================================================================================
``architecture``      one model's shape and its exact parameter and FLOP counts (no torch)
``families``          published families as data (no torch)
``parameterisation``  multipliers of SP, μP and CompleteP for every role a parameter can play (no torch)
``settings``          the three blocks of settings of a run, checked (no torch)
``parameter_groups``  AdamW groups by role: ``parameterise(model, rules, scale, …)`` for anybody's ``nn.Module``
``data``              text or tokens as batches that are a function of (data seed, step) (no torch)
``model``             the torch module
``optimiser``         AdamW with the parameterisation's groups
``runtime``           threads, denormals, allocator, device and precision of a run
``loop``              the training loop: log, checkpoint, resume bit for bit
``coordinate_check``  whether activations keep their scale in width and depth: ``python -m proxies coordinate-check``
``trainable``         ``train(settings, session)`` and ``recipe(settings)``: what the engine calls
====================  =======================================================================================

Importing this package, or any module marked "no torch" and ``trainable``, does not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proxies.parameter_groups import initialise, parameterise
    from proxies.parameterisation import Scale, forward_multipliers

__all__ = ["Scale", "forward_multipliers", "initialise", "parameterise"]
_HOMES = {
    "Scale": "parameterisation",
    "forward_multipliers": "parameterisation",
    "initialise": "parameter_groups",
    "parameterise": "parameter_groups",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for, so that importing this package loads no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        text = f"{__name__}.{name} needs torch, which is not installed: pip install 'collapse-hpo[sweep]'"
        raise ModuleNotFoundError(text, name="torch") from None
    return getattr(home, name)
