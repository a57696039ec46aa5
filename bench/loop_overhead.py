"""What the training loop costs over the bare work: ``python -m bench.loop_overhead [--json]``.

One run, two models of the same settings in one process. The first trains through :func:`proxies.loop.run_loop` with a real
:class:`~hpo.adapters.training_session.FolderSession` (data, schedule, log on disk, checkpoints); at the end of every block of
steps the session stops the clock and lets the second model do a block of bare forward, backward, clip and step on tensors that
are ready. So the two alternate under the same load of the machine, and the answer is the median over blocks of their ratio.
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

from hpo.adapters.training_session import FolderSession
from proxies.loop import Trainer, run_loop
from proxies.settings import RunSettings, read_settings

GOAL = 0.05
WARM_BLOCKS = 2


@dataclass(frozen=True)
class LoopOverhead:
    """Medians over blocks: milliseconds a step of the loop and of the bare work, and the loop's excess as a fraction."""

    n_params: int
    batch_tokens: int
    n_blocks: int
    steps_per_block: int
    loop_ms: float
    bare_ms: float
    overhead: float
    overhead_quartiles: tuple[float, float]
    checkpoint_ms: float


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


def measure(run: RunSettings, n_blocks: int, steps_per_block: int) -> LoopOverhead:
    """Return the overhead of the loop for ``run``, whose ``n_steps`` must be at least ``n_blocks · steps_per_block``."""
    bare_s: list[float] = []
    step = bare_step(Trainer(run))

    def bare_block() -> None:
        started = time.perf_counter()
        for _ in range(steps_per_block):
            step()
        bare_s.append(time.perf_counter() - started)

    with tempfile.TemporaryDirectory() as folder:
        session = AlternatingSession(Path(folder), steps_per_block, bare_block)
        with session:
            run_loop(run, session)
        checkpoint_ms = _checkpoint_ms(run, Path(folder))
    loop, bare = (1e3 * np.array(times[WARM_BLOCKS:n_blocks]) / steps_per_block for times in (session.block_s, bare_s))
    ratio = loop / bare - 1
    low, high = np.quantile(ratio, [0.25, 0.75])
    return LoopOverhead(
        n_params=run.model.n_params,
        batch_tokens=run.batch_tokens,
        n_blocks=len(loop),
        steps_per_block=steps_per_block,
        loop_ms=float(np.median(loop)),
        bare_ms=float(np.median(bare)),
        overhead=float(np.median(ratio)),
        overhead_quartiles=(float(low), float(high)),
        checkpoint_ms=checkpoint_ms,
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
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    given = parser.parse_args(arguments)
    n_blocks = given.blocks + WARM_BLOCKS
    run = read_settings(_settings(given.width, given.depth, n_blocks * given.steps))
    found = measure(run, n_blocks, given.steps)
    print(json.dumps({**asdict(found), "goal": GOAL}) if given.json else _sentence(found))
    return 0 if found.overhead <= GOAL else 1


def _settings(width: int, depth: int, n_steps: int) -> dict[str, Any]:
    return {
        "model": {"width": width, "depth": depth},
        "data": {"seq_len": 64},
        "training": {"lr": 0.003, "n_steps": n_steps, "batch_sequences": 16, "device": "cpu"},
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
        f"goal {100 * GOAL:.0f} %); a checkpoint takes {found.checkpoint_ms:.0f} ms"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    raise SystemExit(main())
