"""The table of multipliers, entry by entry, and what stays fixed as models grow."""

from __future__ import annotations

import pytest

from proxies.architecture import Architecture
from proxies.parameterisation import ROLES, TABLE, RoleMultipliers, forward_multipliers, role_multipliers

SIGMA = 0.04


def shape(parameterisation: str, m_width: int = 4, m_depth: int = 2) -> Architecture:
    return Architecture(
        width=32 * m_width, depth=3 * m_depth, base_width=32, base_depth=3, parameterisation=parameterisation, init_std=SIGMA
    )


def test_every_parameterisation_has_a_rule_for_every_role() -> None:
    assert all(set(rules) == set(ROLES) for rules in TABLE.values())


@pytest.mark.parametrize(
    ("parameterisation", "role", "expected"),
    [
        ("sp", "embedding", RoleMultipliers(SIGMA, 1, 1, 1)),
        ("sp", "hidden_matrix", RoleMultipliers(SIGMA, 1, 1, 1)),
        ("sp", "block_norm", RoleMultipliers(SIGMA, 1, 0, 1)),
        ("mup", "embedding", RoleMultipliers(SIGMA, 1, 1, 1 / 4)),
        ("mup", "hidden_matrix", RoleMultipliers(SIGMA / 2, 1 / 4, 4, 1 / 4)),
        ("mup", "hidden_bias", RoleMultipliers(SIGMA, 1, 0, 1 / 4)),
        ("mup", "unembedding", RoleMultipliers(SIGMA, 1, 1, 1 / 4)),
        ("completep", "embedding", RoleMultipliers(SIGMA, 1, 1, 1 / 4)),
        ("completep", "tied_embedding", RoleMultipliers(SIGMA, 1, 1, 1 / 4)),
        ("completep", "hidden_matrix", RoleMultipliers(SIGMA / 2, 1 / 4, 4, 1 / 8)),
        ("completep", "hidden_bias", RoleMultipliers(SIGMA, 1, 0, 1 / 8)),
        ("completep", "block_norm", RoleMultipliers(SIGMA, 1, 0, 1 / 8)),
        ("completep", "final_norm", RoleMultipliers(SIGMA, 1, 0, 1 / 4)),
    ],
)
def test_role_multipliers_are_the_tables(parameterisation: str, role: str, expected: RoleMultipliers) -> None:
    assert role_multipliers(shape(parameterisation), role) == expected


@pytest.mark.parametrize(
    ("parameterisation", "residual", "unembedding", "attention"),
    [("sp", 1, 1, 16**-0.5), ("mup", 1, 1 / 4, 1 / 16), ("completep", 1 / 2, 1 / 4, 1 / 16)],
)
def test_forward_multipliers_are_the_tables(
    parameterisation: str, residual: float, unembedding: float, attention: float
) -> None:
    forward = forward_multipliers(shape(parameterisation))
    assert (forward.residual, forward.unembedding, forward.attention) == (residual, unembedding, attention)


@pytest.mark.parametrize("parameterisation", ["mup", "completep"])
@pytest.mark.parametrize("role", ROLES)
def test_at_the_base_shape_only_the_attention_scale_differs_from_sp(parameterisation: str, role: str) -> None:
    base, standard = shape(parameterisation, 1, 1), shape("sp", 1, 1)
    assert role_multipliers(base, role) == role_multipliers(standard, role)


@pytest.mark.parametrize("parameterisation", TABLE)
def test_decay_per_step_of_hidden_matrices_does_not_depend_on_width(parameterisation: str) -> None:
    products = {
        role_multipliers(shape(parameterisation, m), "hidden_matrix").lr
        * role_multipliers(shape(parameterisation, m), "hidden_matrix").weight_decay
        for m in (1, 2, 4, 8)
    }
    assert products == {1.0}
