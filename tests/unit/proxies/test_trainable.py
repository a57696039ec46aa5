"""What the engine calls: recipes without torch, checks before a trial, and training through the two-argument contract."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpo.adapters.training_session import FolderSession, read_log
from proxies.architecture import Architecture
from proxies.trainable import check, recipe, train


def settings_of(**model: Any) -> dict[str, Any]:
    return {
        "model": {"width": 32, "depth": 3, "base_width": 32, "base_depth": 3, **model},
        "data": {"seq_len": 64},
        "training": {"lr": 0.01, "weight_decay": 0.2, "batch_sequences": 16, "n_steps": 2000},
    }


def test_planning_does_not_load_torch() -> None:
    code = (
        "import sys; from proxies.trainable import check, recipe, train; import proxies.families;"
        "s = {'model': {'width': 64, 'depth': 3}, 'training': {'lr': .01, 'n_steps': 10}};"
        "recipe(s); check(s); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tau_is_batch_over_lr_decay_and_tokens() -> None:
    made = recipe(settings_of())
    assert made.tau == pytest.approx(1024 / (0.01 * 0.2 * 2000 * 1024))


@pytest.mark.parametrize("parameterisation", ["sp", "mup", "completep"])
def test_tau_does_not_depend_on_width_or_depth(parameterisation: str) -> None:
    taus = {
        recipe(settings_of(width=w, depth=d, parameterisation=parameterisation)).tau for w, d in ((32, 3), (64, 3), (128, 12))
    }
    assert max(taus) == pytest.approx(min(taus), rel=1e-12)  # type: ignore[type-var]


def test_the_recipes_lr_and_decay_are_those_of_the_hidden_matrices() -> None:
    made = recipe(settings_of(width=128))
    assert (made.lr, made.weight_decay, made.base_lr, made.base_weight_decay) == (0.01 / 4, 0.2 * 4, 0.01, 0.2)


def test_the_recipe_counts_parameters_tokens_and_flops() -> None:
    architecture, made = Architecture(width=32, depth=3), recipe(settings_of())
    assert (made.n_params, made.n_tokens, made.n_steps) == (architecture.n_params, 2000 * 1024, 2000)
    assert made.flops == architecture.flops_per_token(64) * 2000 * 1024


def test_check_counts_an_epoch_of_the_data(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("x" * 40_000)
    assert check({**settings_of(), "data": {"path": str(path), "seq_len": 64}}) == (38_000 - 1) // 64 * 64


def test_check_refuses_missing_data() -> None:
    with pytest.raises(ValueError, match=r"^data\.path must be an existing file or folder; found nothing at nowhere$"):
        check({**settings_of(), "data": {"path": "nowhere"}})


def test_train_logs_every_step_of_the_default_text(tmp_path: Path) -> None:
    settings = settings_of(width=16, depth=1)
    settings["training"]["n_steps"] = 3
    with FolderSession(tmp_path / "run") as session:
        train(settings, session)
    log = read_log(tmp_path / "run")
    assert log["step"].tolist() == [1, 2, 3]
    assert {"tokens", "loss", "lr", "val_loss"} <= set(log)
