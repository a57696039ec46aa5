"""Ray starts its workers through a shell that does not quote the interpreter's path: a path with a space cannot start any.

Where the environment lies in such a path, the command starts itself again through a link without one.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path

from hpo.engine.config import InputError

_SAFE = re.compile(r"[\w./+@%:=,-]+")


def is_startable(path: str) -> bool:
    """True if a shell takes the path as one word."""
    return _SAFE.fullmatch(path) is not None


def restart_in_startable_path(arguments: list[str]) -> None:
    """Replace this process by the same command run through a link to its environment, if the environment's path needs it.

    Raises
    ------
    InputError
        The folder for temporary files has such a path too.
    """
    if is_startable(sys.prefix) and is_startable(sys.executable):
        return
    link = Path(tempfile.gettempdir()) / f"hpo-{os.getuid()}-{hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]}"
    if not is_startable(str(link)):
        raise InputError.at("TMPDIR", "a path that a shell takes as one word, as Ray starts its workers from it", link.parent)
    _link_to(link, Path(sys.prefix))
    python = str(link / "bin" / Path(sys.executable).name)
    os.execv(python, [python, "-m", "hpo", *arguments])  # noqa: S606 - no shell: the arguments stay as they are


def _link_to(link: Path, target: Path) -> None:
    """Make ``link`` point to ``target``, atomically."""
    if link.is_symlink() and link.readlink() == target:
        return
    fresh = link.with_name(f"{link.name}.{os.getpid()}")
    fresh.symlink_to(target)
    fresh.replace(link)
