"""Where a sweep runs and with which versions: what a reader of its report needs to believe it or to repeat it."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hpo.engine.ray_cluster import available_cores

PACKAGES = ("collapse-hpo", "torch", "ray", "optuna", "numpy", "scipy", "pandas", "pyarrow", "pydantic", "plotly")


def environment() -> dict[str, str]:
    """Return what is known of this machine, in words; nothing of it names a person or a host."""
    gpus = _gpus()
    return {
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "CPU cores": str(available_cores()),
        "GPUs": ", ".join(gpus) if gpus else "none",
        **{name: found for name in PACKAGES if (found := _version(name))},
        "interpreter": sys.implementation.name,
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _gpus() -> list[str]:
    """Return the models of the NVIDIA GPUs that the kernel knows, without loading anything."""
    found = []
    for about in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        lines = about.read_text(encoding="utf-8", errors="replace").splitlines()
        found += [line.partition(":")[2].strip() for line in lines if line.startswith("Model")]
    return found
