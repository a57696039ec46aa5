"""What a test needs to start another process: an environment in which it sees the checkout, and a free port."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def environment_of(repository: Path, **variables: str) -> dict[str, str]:
    """Return this process's environment for one that is to see the checkout and the tests' support, and more variables."""
    paths = [str(repository), str(repository / "tests" / "support"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables}


def free_port() -> int:
    """Return a local port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
