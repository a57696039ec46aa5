"""The one door to logs of every format: find the files, recognise them, read them as tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from glob import glob, has_magic
from pathlib import Path

import pyarrow as pa

from hpo.adapters.curve_tables import CurveTable
from hpo.adapters.readers.delimited import DELIMITED
from hpo.adapters.readers.huggingface import HUGGING_FACE
from hpo.adapters.readers.json_document import JSON_DOCUMENT
from hpo.adapters.readers.json_lines import JSON_LINES
from hpo.adapters.readers.mlflow_store import MLFLOW_STORE
from hpo.adapters.readers.parquet import PARQUET
from hpo.adapters.readers.reader import Reader, Source, plain_path
from hpo.adapters.readers.tensorboard import TENSORBOARD
from hpo.adapters.readers.text_log import TEXT_LOG
from hpo.adapters.readers.wandb_offline import WANDB_OFFLINE

READERS: tuple[Reader, ...] = (
    PARQUET,
    TENSORBOARD,
    WANDB_OFFLINE,
    MLFLOW_STORE,
    HUGGING_FACE,
    JSON_DOCUMENT,
    JSON_LINES,
    TEXT_LOG,
    DELIMITED,
)
"""In the order in which they are asked; the last one takes any text."""

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
"""Files of a folder that are taken for logs by their name alone; of text logs, ``.log`` where there is nothing else."""
_LAST_SUFFIX = ".log"
_DEEPEST = 6


def find_files(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """Return the files that ``paths`` names: files, wildcards, and folders.

    A folder stands for the logs in it, that of a sweep for its ``curves``. One without any is searched for the logs of known
    frameworks below it.

    Raises
    ------
    ValueError
        A path, wildcard or folder that holds none.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise ValueError("paths must name at least one curve file; found none")
    found = [file for one in given for file in _files_of(Path(one))]
    return list(dict.fromkeys(found))


def _files_of(path: Path) -> list[Path]:
    if "\0" in str(path):
        raise ValueError(f"{str(path)!r}: no such file or folder")
    try:
        if path.is_dir():
            return _in_folder(path)
        if path.exists():
            return [path]
        matches = sorted(Path(match) for match in glob(str(path), recursive=True)) if has_magic(str(path)) else []  # noqa: PTH207
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from None
    if matches:
        return [file for match in matches for file in (_files_of(match) if match.is_dir() else [match])]
    raise ValueError(f"{path}: no {'file matches this wildcard' if has_magic(str(path)) else 'such file or folder'}")


def _in_folder(folder: Path) -> list[Path]:
    if (folder / "curves").is_dir() and (folder / "config.yaml").is_file():  # a sweep's: its other files are no curves
        return _in_folder(folder / "curves")
    files = sorted(file for file in folder.iterdir() if file.is_file())
    found = [source for reader in READERS for source in reader.sources_in(folder)]
    found += [file for file in files if plain_path(file).suffix.lower() in SUFFIXES and folder not in found]
    found = found or _deeper(folder, _DEEPEST) or [file for file in files if file.suffix.lower() == _LAST_SUFFIX]
    if not found:
        raise ValueError(
            f"{folder}: expected curve files ({', '.join(SUFFIXES)}) or logs of a framework in this folder; found none"
        )
    return list({source.resolve(): source for source in found}.values())


def _deeper(folder: Path, depth: int) -> list[Path]:
    """Return the logs of known frameworks below a folder; of links to one log the first counts."""
    found: list[Path] = []
    for below in sorted(one for one in folder.iterdir() if one.is_dir() and not one.name.startswith(".")):
        own = [source for reader in READERS for source in reader.sources_in(below)]
        found += own or (_deeper(below, depth - 1) if depth and not below.is_symlink() else [])
    return found


_ZIP = b"PK\x03\x04"


def read_table(path: Path, *, growing: bool = False) -> CurveTable:
    """Return the rows of one log; its format is told by its content.

    Parameters
    ----------
    growing : bool
        True while it is being written: an unfinished last line of text is left for later.

    Raises
    ------
    ValueError
        Missing or unreadable file, binary data, damaged content, or no rows: one line naming the file.
    """
    source = Source(path, growing)
    try:
        reader = _reader_of(source)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from None
    try:
        table = reader.read(source)
    except (pa.ArrowException, ValueError, OverflowError, RecursionError, OSError) as error:
        reason = " ".join((str(error).splitlines() or [type(error).__name__])[0].split())
        raise ValueError(f"{path}: expected {reader.name}; {reason[:200]}") from None
    if source.is_cut_off and not growing:
        table = replace(table, notes=(*table.notes, f"{path}: the packed file is cut off; read up to there"))
    if table.n_rows == 0:
        raise ValueError(f"{path}: no rows")
    return table


def _reader_of(source: Source) -> Reader:
    reader = next((one for one in READERS if one.recognises(source)), None)
    if reader is not None:
        return reader
    found = "a folder" if source.path.is_dir() else "an empty file" if not source.head.strip() else "binary data"
    if source.head.startswith(_ZIP):
        found = "a zip archive: unpack it first"
    raise ValueError(f"{source.path}: expected {', '.join(one.name for one in READERS)}; found {found}")
