"""Our own ladder: sizes at matched tokens per parameter, timescale and schedule, and the contrasts that must break it.

All runs are on real text, the Python standard library's sources read byte by byte, four bytes at a time: with longer contexts
models of this size are still leaving the bigrams behind when training ends, and do not collapse (``LOG.md``). Batches grow as
√N, so the largest run has four times the steps of the smallest at sixteen times its parameters. The contrasts are made at one
middle size:

- ``tau``: the timescale four times longer and shorter, by the decay;
- ``tau_by``: one other timescale reached by the learning rate, by the decay and by the batch, which should be one curve;
- ``tpp``: four times more and fewer tokens per parameter;
- ``batch_tau``: the batch varied with the timescale kept (the decay moves); ``batch_decay``: with the decay kept (τ moves).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from bench.own_runs import OwnRun

SIZES = {16: 14, 36: 28, 76: 56}
"""Width → sequences a batch."""
MIDDLE = 36
N_HEADS, DEPTH, SEQ_LEN = 4, 3, 4
TPP, TAU, LR = 10.0, 0.3, 4e-3
HELD_OUT_SEQUENCES = 4096
SEEDS = (0, 1)
FAMILY = "own-ladder"


@dataclass(frozen=True)
class Comparison:
    """Runs to be checked together, by the names of groups, and whether they should collapse (None: that is the question)."""

    name: str
    title: str
    groups: tuple[str, ...]
    widths: tuple[int, ...]
    expected: bool | None


def ladder_runs() -> list[OwnRun]:
    """Return the runs in the order of training: one seed of the whole ladder, most contrasts, and what takes longest."""
    widths = sorted(SIZES)
    small = [_run("matched", width, seed=seed) for width in widths[:-1] for seed in SEEDS]
    first, *others = (_run("matched", widths[-1], seed=seed) for seed in SEEDS)
    *contrasts, longest = sorted(_contrasts(), key=lambda run: run.recipe.flops or 0.0)
    return [*small, first, *contrasts, *others, longest]


def _contrasts() -> list[OwnRun]:
    batch = SIZES[MIDDLE]
    base_decay = _run("matched", MIDDLE).settings["training"]["weight_decay"]
    return [
        *(_run("tau", MIDDLE, tau=TAU * factor, label=f"tau{TAU * factor:g}") for factor in (0.25, 4.0)),
        _run("tau_by", MIDDLE, tau=2 * TAU, label="by-decay"),
        _run("tau_by", MIDDLE, lr=LR / 2, decay=base_decay, label="by-lr"),
        _run("tau_by", MIDDLE, batch=2 * batch, decay=base_decay, label="by-batch"),
        *(_run("tpp", MIDDLE, tpp=TPP * factor, label=f"tpp{TPP * factor:g}") for factor in (0.25, 4.0)),
        *(_run("batch_tau", MIDDLE, batch=batch * k, label=f"batch{batch * k}-fixed-tau") for k in (4, 16)),
        *(
            _run("batch_decay", MIDDLE, batch=batch * k, decay=base_decay, label=f"batch{batch * k}-fixed-decay")
            for k in (4, 16)
        ),
    ]


def comparisons() -> list[Comparison]:
    """Return what is checked: neighbours, the whole ladder, and the contrasts."""
    widths, middle = sorted(SIZES), (MIDDLE,)
    pairs = [
        Comparison(f"w{a}-w{b}", f"neighbours: width {a} and {b}", ("matched",), (a, b), True) for a, b in pairwise(widths)
    ]
    return [
        *pairs,
        Comparison("ladder", "the whole ladder", ("matched",), tuple(widths), None),
        Comparison("seeds", "seeds of one size", ("matched",), middle, True),
        Comparison("tau", "τ a quarter, matched, fourfold", ("matched", "tau"), middle, False),
        Comparison("tau_by", "2τ by decay, by learning rate, by batch", ("tau_by",), middle, True),
        Comparison("tpp", "TPP a quarter, matched, fourfold", ("matched", "tpp"), middle, False),
        Comparison("batch_tau", "batch ×1, 4, 16 at one τ", ("matched", "batch_tau"), middle, True),
        Comparison("batch_decay", "batch ×1, 4, 16 at one λ", ("matched", "batch_decay"), middle, False),
    ]


def _run(
    group: str,
    width: int,
    *,
    seed: int = 0,
    tpp: float = TPP,
    tau: float | None = TAU,
    decay: float | None = None,
    lr: float = LR,
    batch: int | None = None,
    label: str = "",
) -> OwnRun:
    return OwnRun(
        run_id="-".join(part for part in ("ladder", f"w{width}", label, f"seed{seed}") if part),
        group=group,
        family=FAMILY,
        width=width,
        tpp=tpp,
        batch_sequences=SIZES[width] if batch is None else batch,
        lr=lr,
        tau=tau if decay is None else None,
        weight_decay=decay,
        seed=seed,
        model={"depth": DEPTH, "head_dim": width // N_HEADS},
        data={"seq_len": SEQ_LEN},
        training={"held_out_sequences": HELD_OUT_SEQUENCES},
        notes={"width": width},
    )
