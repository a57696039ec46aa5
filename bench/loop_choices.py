"""Threads a trial, trials at a time, and ``torch.compile``: which default trains most on the cores that there are.

Every choice runs as so many processes at once, each its own trial with so many torch threads; what counts is the tokens that
all of them train a second, after as many warm-up steps as compiling needs. Choices take turns, round after round, so that a
busy machine disturbs all alike; the table has medians over rounds, and what compiling took.

    python -m bench.loop_choices --widths 36 48 128 --rounds 3
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

WARM_STEPS = 3


@dataclass(frozen=True)
class Choice:
    """Trials at a time, threads of each, and whether the model is compiled."""

    n_trials: int
    n_threads: int
    compiles: bool = False

    @property
    def in_words(self) -> str:
        """Name of the table's row."""
        trials = f"{self.n_trials} trial{'s' if self.n_trials > 1 else ''} × {self.n_threads} thread"
        return f"{trials}{'s' if self.n_threads > 1 else ''}{', compiled' if self.compiles else ''}"


CHOICES = (Choice(1, 1), Choice(1, 2), Choice(2, 1), Choice(2, 2), Choice(2, 1, compiles=True))


@dataclass(frozen=True)
class Size:
    """Width, context and sequences a batch of the model that is trained (depth 3)."""

    width: int
    seq_len: int
    batch: int
    head_dim: int


def train_for(size: Size, choice: Choice, seconds: float) -> dict[str, float]:
    """Train for about ``seconds`` in this process; return its tokens a second, the seconds before, and its parameters."""
    from proxies.loop import Trainer
    from proxies.runtime import small_steps
    from proxies.settings import read_settings

    run = read_settings(
        {
            "model": {"width": size.width, "depth": 3, "head_dim": size.head_dim},
            "data": {"seq_len": size.seq_len},
            "training": {"lr": 0.003, "n_steps": 10**6, "batch_sequences": size.batch, "device": "cpu"},
        }
    )
    with small_steps(choice.n_threads):
        trainer = Trainer(run)
        if choice.compiles:
            trainer.model.compile()
        began = time.perf_counter()
        for _ in range(WARM_STEPS):
            trainer.advance()
        warm_s, began, n = time.perf_counter() - began, time.perf_counter(), 0
        while (elapsed := time.perf_counter() - began) < seconds:
            trainer.advance()
            n += 1
    return {"tokens_a_second": n * run.batch_tokens / elapsed, "warm_s": warm_s, "n_params": float(run.model.n_params)}


def measure(sizes: Sequence[Size], n_rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Return, per size and choice, the medians over rounds of all its processes' tokens a second together.

    Raises
    ------
    RuntimeError
        A process failed; its last line follows.
    """
    found = []
    for size in sizes:
        rates: dict[Choice, list[float]] = {choice: [] for choice in CHOICES}
        last: dict[Choice, list[dict[str, float]]] = {}
        for _ in range(n_rounds):
            for choice in CHOICES:
                last[choice] = _at_once(size, choice, seconds)
                rates[choice].append(sum(one["tokens_a_second"] for one in last[choice]))
                _say(size, choice, rates[choice][-1])
        for choice in CHOICES:
            row = {"tokens_a_second": statistics.median(rates[choice]), "rounds": rates[choice]}
            about = {"warm_s": max(one["warm_s"] for one in last[choice]), "n_params": int(last[choice][0]["n_params"])}
            found.append({"size": asdict(size), "choice": asdict(choice), **row, **about})
    return found


def _say(size: Size, choice: Choice, rate: float) -> None:
    print(f"width {size.width}, {choice.in_words}: {rate:,.0f} tokens a second", file=sys.stderr, flush=True)


def _at_once(size: Size, choice: Choice, seconds: float) -> list[dict[str, float]]:
    """Run a choice's processes together."""
    given = json.dumps({"size": asdict(size), "choice": asdict(choice), "seconds": seconds})
    command = [sys.executable, "-m", "bench.loop_choices", "--one", given]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, **pipes) for _ in range(choice.n_trials)]
    told = [process.communicate() for process in started]
    for process, (_, err) in zip(started, told, strict=True):
        if process.returncode != 0:
            raise RuntimeError(f"{choice.in_words} failed: {err.strip().splitlines()[-1]}")
    return [json.loads(out.strip().splitlines()[-1]) for out, _ in told]


def choices_table(found: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table, one row a size and choice, rates against one trial on one thread."""
    lines = [
        "| parameters | tokens a step | choice | tokens a second, all trials | against one trial | before the first steps, s |"
    ]
    lines.append("|---" * 6 + "|")
    for one in found:
        size, choice = Size(**one["size"]), Choice(**one["choice"])
        base = next(o["tokens_a_second"] for o in found if o["size"] == one["size"] and Choice(**o["choice"]) == CHOICES[0])
        lines.append(
            f"| {one['n_params']:,} | {size.batch * size.seq_len} | {choice.in_words} | {one['tokens_a_second']:,.0f} "
            f"| {one['tokens_a_second'] / base:.2f} | {one['warm_s']:.1f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table or one JSON document."""
    parser = argparse.ArgumentParser(prog="bench.loop_choices", description="Threads a trial, and torch.compile.")
    parser.add_argument("--widths", type=int, nargs="+", default=[36, 48, 128])
    parser.add_argument("--seq-len", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8, help="sequences a step")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="that each process trains a round")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    if given.one is not None:
        told = json.loads(given.one)
        print(json.dumps(train_for(Size(**told["size"]), Choice(**told["choice"]), told["seconds"])))
        return 0
    sizes = [Size(width, given.seq_len, given.batch, max(1, width // 4)) for width in given.widths]
    found = measure(sizes, given.rounds, given.seconds)
    print(json.dumps(found, indent=1) if given.json else choices_table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
