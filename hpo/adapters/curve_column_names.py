"""Which column of a log is the step, the loss, the tokens and the learning rate: as told, or guessed from its name.

Names are compared in lower case, with everything but letters and digits read as ``_``: ``Train/Loss`` is ``train_loss``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

STEP_NAMES = (
    "step", "steps", "iteration", "iterations", "iter", "iters", "global_step", "train_step", "training_step",
    "train_global_step", "trainer_global_step", "num_updates", "training_iteration", "_step",
)  # fmt: skip
TOKEN_NAMES = (
    "tokens",
    "n_tokens",
    "num_tokens",
    "tokens_seen",
    "consumed_tokens",
    "num_input_tokens_seen",
    "total_tokens_seen",
)
EPOCH_NAMES = ("epoch", "epochs", "train_epoch")
TRAIN_NAMES = (
    "train_loss", "loss", "training_loss", "loss_train", "train_loss_step", "train_crossentropyloss", "train_ce_loss",
    "train_cross_entropy_loss", "train_cross_entropy", "lm_loss", "train_lm_loss", "training_loss_step", "loss_training",
    "total_loss", "loss_total", "loss_train_total", "train_loss_train_total",
)  # fmt: skip
VAL_NAMES = (
    "val_loss", "valid_loss", "validation_loss", "eval_loss", "loss_val", "loss_valid", "loss_validation", "loss_eval",
    "val_loss_epoch", "evaluation_loss", "lm_loss_validation",
)  # fmt: skip
RUN_NAMES = ("run", "run_name", "run name", "trial_id", "trial", "experiment")
"""Where there is no column ``run_id``."""
MOST_RUNS = 10_000
LR_NAMES = (
    "lr_at_step",
    "lr",
    "learning_rate",
    "train_lr",
    "train_learning_rate",
    "optim_learning_rate",
    "lr_adamw",
    "lr_adam",
)
LOSS = re.compile(r"loss(?![ _/-]?scale)|nll|cross.?entropy|perplexity|ppl", re.IGNORECASE)
SCORE = re.compile(
    r"(?:^|[_/ .-])(acc|accuracy|score|auc|f1|map|bleu|rouge|ssim|mean_average_precision)(?:$|[_/ .@-])", re.IGNORECASE
)
_UNIT = re.compile(r"\s*[\[(](?:nats?|bits|k|m|b|thousands|millions|billions|tokens|steps)[\])]$")
_IS_TRAIN = re.compile(r"train", re.IGNORECASE)
_IS_VAL = re.compile(r"val|eval|test|dev", re.IGNORECASE)


@dataclass(frozen=True)
class Columns:
    """Columns as told by the user; None is guessed.

    Attributes
    ----------
    step, loss, tokens, lr : str or None
        Names as they stand in the log, without regard to case.
    """

    step: str | None = None
    loss: str | None = None
    tokens: str | None = None
    lr: str | None = None


def plain(name: str) -> str:
    """Return the name as it is compared."""
    return re.sub(r"[^a-z0-9]+", "_", _UNIT.sub("", name.lower()))


def first_of(columns: Mapping[str, str], names: Iterable[str]) -> str | None:
    """Return the first of ``names`` that is a column; ``columns`` maps plain names to the log's own."""
    return next((columns[name] for name in names if name in columns), None)


def canonical(column: str) -> str:
    """Return ``train_loss`` or ``val_loss`` for a column that is one by its name, else the name itself."""
    name = plain(column)
    return "train_loss" if name in TRAIN_NAMES else "val_loss" if name in VAL_NAMES else column


def likeliest_loss(losses: list[str]) -> str | None:
    """Return the only loss, or the only training loss, or the only one that is no validation loss; None if it is unclear."""
    for chosen in (
        losses,
        [name for name in losses if _IS_TRAIN.search(name) and not _IS_VAL.search(name)],
        [name for name in losses if not _IS_VAL.search(name)],
    ):
        if len(chosen) == 1:
            return chosen[0]
    return None


def listed(columns: list[str], at_most: int = 12) -> str:
    """Return names for a message."""
    return ", ".join(columns[:at_most]) + (", …" if len(columns) > at_most else "") if columns else "none"
