"""A log that is being written, of any format: read again after every change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpo.adapters.curve_files import RecordedRun

STALE_S = 3600.0
_DEEPEST_FILES = 10_000

Stamp = tuple[tuple[str, int, int], ...]


def growing(path: str, read: Callable[[], RecordedRun], poll_s: float) -> Iterator[RecordedRun]:
    """Yield the run after every change of its log; ends when the log has not changed for an hour.

    A log that is being written may be unreadable for a moment; the next look then reads it.
    """
    seen: Stamp | None = None
    taken, changed = True, time.monotonic()
    while time.monotonic() - changed < STALE_S:
        now = _stamp(path)
        if now != seen:
            seen, taken, changed = now, False, time.monotonic()
        run = None if taken else _if_readable(read)
        if run is not None:
            taken = True
            yield run
        time.sleep(poll_s)


def _if_readable(read: Callable[[], RecordedRun]) -> RecordedRun | None:
    try:
        return read()
    except ValueError:
        return None


def _stamp(path: str) -> Stamp:
    """Return sizes and times of the files of a log; a folder's files below it included."""
    from hpo.adapters.readers.registry import find_files

    try:
        files = [file for source in find_files(path) for file in (_below(source) if source.is_dir() else [source])]
        return tuple((str(file), (about := file.stat()).st_size, about.st_mtime_ns) for file in files)
    except (OSError, ValueError):
        return ()


def _below(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())[:_DEEPEST_FILES]
