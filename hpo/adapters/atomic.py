"""Write files and folders so that a reader finds the old state or the new one, never a half.

Everything is written under a temporary name in the same folder, flushed to disk and renamed into place. A crash leaves
at most a hidden ``.name.*.tmp`` beside the target.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the file ``path`` by ``data`` in one step; missing parent folders are made.

    Raises
    ------
    OSError
        The folder cannot be written; the old file, if any, is untouched.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(target)
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(target.parent)


def write_new_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` (UTF-8) to a file that is not there yet, in one step; of two processes at it, one succeeds.

    Raises
    ------
    FileExistsError
        The file is there already, untouched.
    OSError
        The folder cannot be written.
    """
    target = Path(path)
    temporary = _temporary_name(target)
    write_bytes(temporary, text.encode("utf-8"))
    try:
        os.link(temporary, target)
    finally:
        temporary.unlink()
    _sync_folder(target.parent)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Replace the file ``path`` by ``text`` (UTF-8) in one step; see :func:`write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Replace the file ``path`` by ``value`` as indented JSON in one step; see :func:`write_bytes`.

    Raises
    ------
    ValueError
        A NaN or infinite number: JSON has none, so say ``None`` instead.
    TypeError
        Something that is not JSON-ready.
    """
    try:
        text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON values without NaN or inf ({error})") from None
    write_text(path, text + "\n")


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder to fill; it becomes ``path`` when the block ends, and vanishes if the block raises.

    Raises
    ------
    FileExistsError
        ``path`` is there already (an empty folder is taken over).
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(target)
    temporary.mkdir()
    try:
        yield temporary
        _sync_tree(temporary)
        _rename_folder(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync_folder(target.parent)


def _rename_folder(source: Path, target: Path) -> None:
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise FileExistsError(f"{target} is there already")
    source.rename(target)


def _temporary_name(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")


def _sync_tree(folder: Path) -> None:
    for entry in folder.rglob("*"):
        if entry.is_file():
            with entry.open("rb") as file:
                os.fsync(file.fileno())
        elif entry.is_dir():
            _sync_folder(entry)
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    """Flush the folder's own entries, so that the rename survives a power cut (where the system allows it)."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
