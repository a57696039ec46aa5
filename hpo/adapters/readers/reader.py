"""What a reader is: it recognises logs of one format and returns them as tables.

A new format is one module with a :class:`Reader` and one line in :mod:`hpo.adapters.readers.registry`. A reader executes
nothing that is in a file. It raises ``ValueError`` with what it found; the registry adds the path.
"""

from __future__ import annotations

import bz2
import json
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hpo.adapters.curve_tables import CurveTable

HEAD_BYTES = 65_536
_GZIP, _UTF16 = b"\x1f\x8b", (b"\xff\xfe", b"\xfe\xff")
_PACKED: dict[bytes, tuple[str, Callable[[], Any]]] = {
    _GZIP: ("gzip", lambda: zlib.decompressobj(wbits=31)),
    b"BZh": ("bzip2", bz2.BZ2Decompressor),
    b"\xfd7zXZ\x00": ("xz", lzma.LZMADecompressor),
}
"""How a packed file begins, what packs so, and what unpacks it."""
_PACKED_SUFFIXES = (".gz", ".bz2", ".xz")
_CONTROLS = bytes(one for one in range(32) if one not in b"\t\n\f\r\x1b")
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
        return self.whole[:HEAD_BYTES] if head.startswith((*_PACKED, *_UTF16)) or _is_latin(head) else head

    @cached_property
    def whole(self) -> bytes:
        """All bytes of a file: unpacked, and UTF-8 if they were UTF-16 (as PowerShell writes) or Latin."""
        data = self._unpacked[0]
        if data.startswith(_UTF16):
            return data.decode("utf-16", errors="replace").encode()
        return data.decode("cp1252", errors="replace").encode() if _is_latin(data[:HEAD_BYTES]) else data

    @property
    def is_cut_off(self) -> bool:
        """True if what was read of the file is packed, and its end is missing."""
        return "_unpacked" in self.__dict__ and self._unpacked[1]

    @cached_property
    def _unpacked(self) -> tuple[bytes, bool]:
        data = self.path.read_bytes()
        kind = next((kind for start, kind in _PACKED.items() if data.startswith(start)), None)
        return (data, False) if kind is None else _unpacked(data, self.path, *kind)

    @cached_property
    def data(self) -> bytes:
        """All bytes of a file; of a growing one up to its last complete line."""
        data = self.whole
        return data[: data.rfind(b"\n") + 1] if self.growing else data

    @property
    def plain_path(self) -> Path:
        """The path without ``.gz`` and the like at its end."""
        return plain_path(self.path)

    @property
    def opening(self) -> bytes:
        """The first bytes without a byte order mark and blanks."""
        return self.head.removeprefix(b"\xef\xbb\xbf").lstrip()

    @cached_property
    def is_text(self) -> bool:
        """True if the file begins as UTF-8 text without zero bytes."""
        return b"\0" not in self.head and _is_utf8(self.head)


def _is_utf8(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return len(head) >= HEAD_BYTES and error.start > HEAD_BYTES - 4  # a character cut in two
    return True


def _is_latin(head: bytes) -> bool:
    """Return True for text of one byte a character: no UTF-8, and without control characters."""
    return bool(head) and not _is_utf8(head) and len(head.translate(None, _CONTROLS)) == len(head)


def plain_path(path: Path) -> Path:
    """Return the path without ``.gz`` and the like at its end."""
    return path.with_suffix("") if path.suffix.lower() in _PACKED_SUFFIXES else path


def _unpacked(data: bytes, path: Path, name: str, unpacker: Callable[[], Any]) -> tuple[bytes, bool]:
    """Return what is packed, up to the end of the file where it is cut off, and whether it is."""
    out: list[bytes] = []
    left, size, start, member = data, 0, data[:2], unpacker()
    while left.startswith(start):
        member = unpacker()
        try:
            out.append(member.decompress(left, _MOST_UNPACKED - size))
        except (zlib.error, OSError, lzma.LZMAError) as error:
            raise ValueError(f"{path}: damaged {name} data ({error})") from None
        size += len(out[-1])
        if size >= _MOST_UNPACKED:
            raise ValueError(f"{path}: unpacks to more than {_MOST_UNPACKED >> 30} GiB")
        left = member.unused_data
    return b"".join(out), not member.eof


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
