"""What the engine calls: ``train(settings, session)``, and ``recipe(settings)``, which plans a run without torch.

``settings`` is JSON-ready and has three blocks, ``model``, ``data`` and ``training``; their keys and defaults are the fields of
:class:`~proxies.architecture.Architecture`, :class:`~proxies.settings.DataSettings` and
:class:`~proxies.settings.TrainingSettings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpo.core.recipe import Recipe
from hpo.core.session import Session
from proxies.data import training_batches
from proxies.parameterisation import role_multipliers
from proxies.settings import read_settings


def train(settings: Mapping[str, Any], session: Session) -> None:
    """Train the model of ``settings``, reporting every step to ``session``, until the last step or until it says stop.

    Raises
    ------
    ValueError
        Settings or data that cannot work; one line naming the path of the value.
    """
    run = read_settings(settings)
    from proxies.loop import run_loop

    run_loop(run, session)


def recipe(settings: Mapping[str, Any]) -> Recipe:
    """Return the recipe of ``settings``: sizes, tokens, the learning rate and decay that reach the hidden matrices, FLOPs.

    Raises
    ------
    ValueError
        As :func:`train` for settings; the data are not opened.
    """
    run = read_settings(settings)
    hidden = role_multipliers(run.model, "hidden_matrix")
    n_tokens = run.training.n_steps * run.batch_tokens
    return Recipe(
        schedule=run.training.schedule,
        n_params=run.model.n_params,
        n_tokens=n_tokens,
        batch_tokens=run.batch_tokens,
        lr=run.training.lr * hidden.lr,
        weight_decay=run.training.weight_decay * hidden.weight_decay,
        warmup_fraction=run.training.warmup_fraction,
        base_lr=run.training.lr,
        base_weight_decay=run.training.weight_decay,
        flops_exact=run.model.flops_per_token(run.data.seq_len) * n_tokens,
    )


def check(settings: Mapping[str, Any]) -> int:
    """Return how many training tokens an epoch of ``settings`` has; ``ValueError`` if settings or data cannot work.

    For an engine that wants to refuse bad input before it starts a single trial; does not load torch.
    """
    windows = training_batches(read_settings(settings)).windows
    n_windows, length = windows.shape
    return int(n_windows * (length - 1))
