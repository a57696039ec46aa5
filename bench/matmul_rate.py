"""How fast this machine multiplies matrices, and where a training step's time goes: the measure of the loop's speed."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

SIDE = 768
"""Of the square matrices: large enough for the best rate."""


def matmul_gflops(seconds: float = 0.2, side: int = SIDE) -> float:
    """Return the mean rate of float32 matrix products over about ``seconds``, in 10⁹ operations a second.

    With the threads torch has now; a mean, so that a busy machine slows it as it slows a training loop.
    """
    a, b, out = (torch.randn(side, side) for _ in range(3))
    return 2.0 * side**3 * _repeats_a_second(lambda: torch.mm(a, b, out=out), seconds) / 1e9


def linear_gflops(model: nn.Module, n_tokens: int, seconds: float = 0.2) -> float:
    """Return the mean rate at the shapes of ``model``'s own matrices: passes over all of them, forward products only.

    What the loop could reach if nothing but these products were left; small matrices are slower than large ones.
    """
    weights = [p.detach() for p in model.parameters() if p.dim() == 2]
    inputs = {w.shape[1]: torch.randn(n_tokens, w.shape[1]) for w in weights}
    work = sum(2.0 * n_tokens * w.numel() for w in weights)

    def once() -> None:
        for w in weights:
            torch.mm(inputs[w.shape[1]], w.t())

    return work * _repeats_a_second(once, seconds) / 1e9


def _repeats_a_second(act: Callable[[], object], seconds: float) -> float:
    started, n = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < seconds or n == 0:
        act()
        n += 1
    return n / elapsed


def step_profile(step: Callable[[], None], n_steps: int = 10, n_kept: int = 10) -> list[tuple[str, float]]:
    """Return the operations that a step spends most of its own time in, and their shares of it, largest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(n_steps):
            step()
    spent = {event.key: float(event.self_cpu_time_total) for event in profile.key_averages()}
    total = sum(spent.values())
    return [(name, own / total) for name, own in sorted(spent.items(), key=lambda item: -item[1])[:n_kept]]
