"""A small sweep configuration."""

from __future__ import annotations

import copy
from typing import Any

import pytest

TINY: dict[str, Any] = {
    "name": "tiny",
    "model": {"width": 16, "depth": 1, "head_dim": 8, "ffn_ratio": 2.0},
    "data": {"seq_len": 32},
    "training": {"tokens": 100_000, "batch_sequences": 8},
    "search": {
        "space": {
            "parameters": {
                "lr": {"type": "float", "low": 3e-3, "high": 4.8e-2, "log": True, "points": 3},
                "tau": {"type": "float", "low": 0.1, "high": 0.8, "log": True, "points": 2},
            }
        }
    },
    "proxies": {"sizes": [{"width": 8}], "settings": 4},
    "stopping": {"at": 0.2, "keep_max": 1},
}


@pytest.fixture
def tiny() -> dict[str, Any]:
    """A configuration as read from YAML, free to change."""
    return copy.deepcopy(TINY)
