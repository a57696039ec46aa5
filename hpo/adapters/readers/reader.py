"""What a reader is: it recognises logs of one format and returns them as tables.

A new format is one module with a :class:`Reader` and one line in :mod:`hpo.adapters.readers.registry`. A reader executes
nothing that is in a file. It raises ``ValueError`` with what it found; the registry adds the path.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hpo.adapters.curve_tables import CurveTable

HEAD_BYTES = 65_536
_GZIP, _UTF16 = b"\x1f\x8b", (b"\xff\xfe", b"\xfe\xff")
_MOST_UNPACKED = 1 << 32


@dataclass(frozen=True)
class Source:
    """A file or folder to read.

    Attributes
    ----------
    growing : bool
        True while a writer may be at work: a last line without its end is then left for later.
    """

    path: Path
    growing: bool = False

    @cached_property
    def head(self) -> bytes:
        """The first bytes of a file; empty for a folder."""
        if self.path.is_dir():
            return b""
        with self.path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        return self.whole[:HEAD_BYTES] if head.startswith((_GZIP, *_UTF16)) else head

    @cached_property
    def whole(self) -> bytes:
        """All bytes of a file: unpacked if they are gzip's, and UTF-8 if they were UTF-16 (as PowerShell writes)."""
        data = self.path.read_bytes()
        if data.startswith(_GZIP):
            data = _unpacked(data, self.path)
        return data.decode("utf-16", errors="replace").encode() if data.startswith(_UTF16) else data

    @cached_property
    def data(self) -> bytes:
        """All bytes of a file; of a growing one up to its last complete line."""
        data = self.whole
        return data[: data.rfind(b"\n") + 1] if self.growing else data

    @property
    def plain_path(self) -> Path:
        """The path without ``.gz`` at its end."""
        return plain_path(self.path)

    @property
    def opening(self) -> bytes:
        """The first bytes without a byte order mark and blanks."""
        return self.head.removeprefix(b"\xef\xbb\xbf").lstrip()

    @cached_property
    def is_text(self) -> bool:
        """True if the file begins as UTF-8 text without zero bytes."""
        if b"\0" in self.head:
            return False
        try:
            self.head.decode("utf-8")
        except UnicodeDecodeError as error:
            return len(self.head) == HEAD_BYTES and error.start > HEAD_BYTES - 4  # a character cut in two
        return True


def plain_path(path: Path) -> Path:
    """Return the path without ``.gz`` at its end."""
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def _unpacked(data: bytes, path: Path) -> bytes:
    """Return what gzip has packed, up to the end of the file where it is cut off."""
    out: list[bytes] = []
    left, size = data, 0
    while left.startswith(_GZIP):
        member = zlib.decompressobj(wbits=31)
        try:
            out.append(member.decompress(left, _MOST_UNPACKED - size))
        except zlib.error as error:
            raise ValueError(f"{path}: damaged gzip data ({error})") from None
        size += len(out[-1])
        if member.unconsumed_tail or size >= _MOST_UNPACKED:
            raise ValueError(f"{path}: unpacks to more than {_MOST_UNPACKED >> 30} GiB")
        left = member.unused_data
    return b"".join(out)


def nothing_in(_folder: Path) -> list[Path]:
    """Return no sources: the format is not looked for in folders."""
    return []


@dataclass(frozen=True)
class Reader:
    """One format.

    Attributes
    ----------
    name : str
        In words, for messages.
    recognises : callable
        True if the source is of this format, by its name or first bytes.
    read : callable
        Returns the table; ``ValueError`` says what is wrong.
    sources_in : callable
        Returns the sources of this format that lie directly in a folder, the folder itself included.
    """

    name: str
    recognises: Callable[[Source], bool]
    read: Callable[[Source], CurveTable]
    sources_in: Callable[[Path], list[Path]] = nothing_in


def parsed_json(text: str | bytes) -> Any:
    """Return a whole JSON document; the ``ValueError`` says on which line it is none."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno} is not JSON ({error.msg})") from None


def need(package: str, what: str) -> ValueError:
    """Return the error for a package that is not installed."""
    return ValueError(f"{what} are read with the package {package}, which is not installed: pip install {package}")
