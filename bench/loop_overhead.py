"""What the training loop costs over the bare work, and how near it is to matrix products: ``python -m bench.loop_overhead``.

One run, two models of the same settings in one process. The first trains through :func:`proxies.loop.run_loop` with a real
:class:`~hpo.adapters.training_session.FolderSession` (data, schedule, log on disk, checkpoints); at the end of every block of
steps the session stops the clock and lets the second model do a block of bare forward, backward, clip and step on tensors that
are ready. So the two alternate under the same load of the machine, and the answer is the median over blocks of their ratio.

The machine's own rate of matrix products is taken in between too, once for large squares and once at the model's own shapes;
``--profile`` says which operations the bare step spends its time in.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.matmul_rate import linear_gflops, matmul_gflops, step_profile
from hpo.adapters.training_session import FolderSession
from proxies.loop import Trainer, run_loop
from proxies.settings import RunSettings, read_settings

GOAL = 0.05
RATE_S = 0.1
"""Seconds that each rate of matrix products is measured after every block."""
WARM_BLOCKS = 2


@dataclass(frozen=True)
class LoopOverhead:
    """Medians over blocks: milliseconds a step of the loop and of the bare work, and the loop's excess as a fraction.

    Rates are in 10⁹ operations a second: of the loop (the model's FLOPs over its time), of large matrix products, and of
    products of the model's own shapes; ``matmul_share`` is the loop's over that of large ones. ``profile`` holds operations and
    their shares of the bare step's time.
    """

    n_params: int
    batch_tokens: int
    n_blocks: int
    steps_per_block: int
    loop_ms: float
    bare_ms: float
    overhead: float
    overhead_quartiles: tuple[float, float]
    checkpoint_ms: float
    loop_gflops: float
    matmul_gflops: float
    linear_gflops: float
    matmul_share: float
    profile: tuple[tuple[str, float], ...] = ()


class AlternatingSession(FolderSession):
    """A folder session that stops the clock after every block of steps and calls ``between`` before starting it again."""

    def __init__(self, folder: Path, steps_per_block: int, between: Callable[[], None]) -> None:
        super().__init__(folder)
        self.block_s: list[float] = []
        self._steps_per_block, self._between = steps_per_block, between
        self._started = time.perf_counter()

    def should_stop(self) -> bool:
        """Return what the folder session says; the end of a loop's turn, so blocks are cut here."""
        stop = super().should_stop()
        if self.last_step and self.last_step % self._steps_per_block == 0:
            self.block_s.append(time.perf_counter() - self._started)
            self._between()
            self._started = time.perf_counter()
        return stop


def measure(run: RunSettings, n_blocks: int, steps_per_block: int, *, profiled: bool = False) -> LoopOverhead:
    """Return the overhead of the loop for ``run``, whose ``n_steps`` must be at least ``n_blocks · steps_per_block``."""
    bare_s: list[float] = []
    rates: list[tuple[float, float]] = []
    bare = Trainer(run)
    step = bare_step(bare)

    def bare_block() -> None:
        started = time.perf_counter()
        for _ in range(steps_per_block):
            step()
        bare_s.append(time.perf_counter() - started)
        rates.append((matmul_gflops(RATE_S), linear_gflops(bare.model, run.batch_tokens, RATE_S)))

    with tempfile.TemporaryDirectory() as folder:
        session = AlternatingSession(Path(folder), steps_per_block, bare_block)
        with session:
            run_loop(run, session)
        checkpoint_ms = _checkpoint_ms(run, Path(folder))
    loop, bare_ms = (1e3 * np.array(times[WARM_BLOCKS:n_blocks]) / steps_per_block for times in (session.block_s, bare_s))
    ratio = loop / bare_ms - 1
    low, high = np.quantile(ratio, [0.25, 0.75])
    work = run.model.flops_per_token(run.data.seq_len) * run.batch_tokens / 1e6
    large, own = np.array(rates[WARM_BLOCKS:n_blocks]).T
    return LoopOverhead(
        n_params=run.model.n_params,
        batch_tokens=run.batch_tokens,
        n_blocks=len(loop),
        steps_per_block=steps_per_block,
        loop_ms=float(np.median(loop)),
        bare_ms=float(np.median(bare_ms)),
        overhead=float(np.median(ratio)),
        overhead_quartiles=(float(low), float(high)),
        checkpoint_ms=checkpoint_ms,
        loop_gflops=float(np.median(work / loop)),
        matmul_gflops=float(np.median(large)),
        linear_gflops=float(np.median(own)),
        matmul_share=float(np.median(work / loop / large)),
        profile=tuple(step_profile(step)) if profiled else (),
    )


def bare_step(trainer: Trainer) -> Callable[[], None]:
    """Return the least a step can be: forward, backward, clip, optimiser, on one batch that is ready."""
    model, optimiser = trainer.model, trainer.optimiser
    tokens, targets = trainer.batch(trainer.batches, 1)
    parameters, clip = list(model.parameters()), trainer.run.training.clip

    def step() -> None:
        loss = model(tokens, targets)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(parameters, clip)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and return 0 if the overhead is within the goal, 1 if not."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.loop_overhead", description="Cost of the training loop over the bare step."
    )
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--steps", type=int, default=10, help="steps a block")
    parser.add_argument("--batch", type=int, default=16, help="sequences a step")
    parser.add_argument("--profile", action="store_true", help="say which operations the bare step spends its time in")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    given = parser.parse_args(arguments)
    n_blocks = given.blocks + WARM_BLOCKS
    run = read_settings(_settings(given.width, given.depth, n_blocks * given.steps, given.batch))
    found = measure(run, n_blocks, given.steps, profiled=given.profile)
    print(json.dumps({**asdict(found), "goal": GOAL}) if given.json else _sentence(found))
    return 0 if found.overhead <= GOAL else 1


def _settings(width: int, depth: int, n_steps: int, batch: int) -> dict[str, Any]:
    return {
        "model": {"width": width, "depth": depth},
        "data": {"seq_len": 64},
        "training": {"lr": 0.003, "n_steps": n_steps, "batch_sequences": batch, "device": "cpu"},
    }


def _checkpoint_ms(run: RunSettings, folder: Path) -> float:
    trainer = Trainer(run)
    trainer.advance()
    started = time.perf_counter()
    trainer.save(folder)
    return 1e3 * (time.perf_counter() - started)


def _sentence(found: LoopOverhead) -> str:
    low, high = found.overhead_quartiles
    return (
        f"{found.n_params:,} parameters, {found.batch_tokens} tokens a step: "
        f"loop {found.loop_ms:.2f} ms, bare step {found.bare_ms:.2f} ms, overhead {100 * found.overhead:.1f} % "
        f"(quartiles {100 * low:.1f} to {100 * high:.1f} % over {found.n_blocks} blocks of {found.steps_per_block} steps; "
        f"goal {100 * GOAL:.0f} %); a checkpoint takes {found.checkpoint_ms:.0f} ms. "
        f"The loop makes {found.loop_gflops:.1f} GFLOP/s, {100 * found.matmul_share:.0f} % of this machine's "
        f"{found.matmul_gflops:.0f} in large matrix products ({found.linear_gflops:.0f} in products of the model's own shapes)"
        + "".join(f"\n{100 * share:5.1f} %  {name}" for name, share in found.profile)
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    raise SystemExit(main())
