"""A PostgreSQL server of the tests' own, started as an unprivileged user: it refuses to run as root."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_SERVER_USER = "postgres"


def server_binaries() -> Path | None:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if versions:
        return versions[-1].parent
    found = shutil.which("initdb")
    return None if found is None else Path(found).resolve().parent


def start_server(binaries: Path, folder: Path, port: int) -> None:
    if os.geteuid() == 0:
        shutil.chown(folder, _SERVER_USER)
    data = str(folder / "data")
    as_server_user([str(binaries / "initdb"), "-D", data, "-U", "tester", "-A", "trust", "--no-sync"], check=True)
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    start = [str(binaries / "pg_ctl"), "-D", data, "-o", options, "-l", str(folder / "log"), "-w", "-t", "60", "start"]
    as_server_user(start, check=True)


def as_server_user(command: list[str], check: bool = False) -> None:
    """Run as an unprivileged user: PostgreSQL refuses to run as root."""
    user = _SERVER_USER if os.geteuid() == 0 else None
    result = subprocess.run(command, user=user, capture_output=True, text=True, cwd="/", timeout=120, check=False)
    if check and result.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {result.stderr or result.stdout}")
