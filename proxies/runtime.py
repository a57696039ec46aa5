"""What a run asks of the machine: device, precision, threads, and a CPU process fit for many small steps.

Two things slow tiny models on a CPU. AdamW's moments of bytes that no longer occur decay into denormal numbers, which
processors handle in microcode: they are flushed to zero. And glibc returns the few megabytes that a step frees to the system
and faults them in again at the next: the allocator is told to keep them. Both leave results as they are, bar numbers below
1e-38.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from proxies.settings import TrainingSettings

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 1 << 28
"""Freed memory the process keeps for the next step."""
LARGEST_MMAP_THRESHOLD = 1 << 25
"""Larger blocks are mapped on their own; glibc refuses a higher threshold."""


def choose_device(training: TrainingSettings) -> torch.device:
    """Return the device of ``training``; ``ValueError`` if this machine lacks it."""
    return find_device(training.device)


def find_device(name: str) -> torch.device:
    """Return the device of that name ("auto": the GPU if there is one); ``ValueError`` if this machine lacks it."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"training.device must name a torch device; found {name!r}") from error
    count = {"cpu": 1, "cuda": torch.cuda.device_count()}.get(device.type, 0)
    if (device.index or 0) >= count:
        raise ValueError(f"training.device must be on this machine, which has {count} {device.type} devices; found {name!r}")
    return device


def autocast(training: TrainingSettings, device: torch.device) -> AbstractContextManager[object]:
    """Return the context of a forward pass in the precision of ``training``."""
    automatic = device.type == "cuda" and torch.cuda.is_bf16_supported()
    if training.dtype == "bfloat16" or (training.dtype == "auto" and automatic):
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


@contextmanager
def small_steps(threads: int) -> Iterator[None]:
    """Set this process up for small steps with ``threads`` torch threads; threads and denormals are restored on leaving."""
    before = torch.get_num_threads()
    keep_freed_memory()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)


def keep_freed_memory() -> bool:
    """Ask glibc to keep up to ``KEPT_BYTES`` of freed memory in this process; return False where there is no glibc."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
