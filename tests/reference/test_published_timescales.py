"""τ and TPP of published runs (method: arXiv 2509.25087 for the first; Llama-2's report for the others)."""

from __future__ import annotations

import pytest

from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule


@pytest.mark.parametrize(
    ("n_params", "n_tokens", "batch_tokens", "lr", "decay", "tau"),
    [
        (610e6, 48.5e9, 504 * 2048, 1.62e-2 * 256 / 2048, 0.1, 0.105),
        (7e9, 2e12, 4e6, 3e-4, 0.1, 0.067),
        (70e9, 2e12, 4e6, 1.5e-4, 0.1, 0.133),
    ],
)
def test_the_timescale_of_published_recipes(n_params, n_tokens, batch_tokens, lr, decay, tau):
    made = Recipe(
        schedule=schedule("linear"), n_params=n_params, n_tokens=n_tokens, batch_tokens=batch_tokens, lr=lr, weight_decay=decay
    )
    assert made.tau == pytest.approx(tau, rel=0.01)


@pytest.mark.parametrize(("n_params", "tpp"), [(7e9, 286), (13e9, 154), (34e9, 59), (70e9, 29)])
def test_tokens_per_parameter_of_llama_2(n_params, tpp):
    assert Recipe(schedule=schedule("cosine"), n_params=n_params, n_tokens=2e12).tpp == pytest.approx(tpp, rel=0.02)
