"""A folder of fitted models that later sweeps may learn from, one JSON file a model and version.

::

    LIBRARY/<id>.v<k>.json      the k-th model of one key; ids are those of :class:`hpo.core.proxy_key.ProxyKey`

Entries are written whole or not at all and never changed: a new model of the same key is a new version. Two processes that add
at once get different versions. A file that cannot be read as an entry is named, and in nobody's way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpo.adapters.atomic import write_new_text
from hpo.core.model import CollapseModel
from hpo.core.proxy_key import ProxyKey

SCHEMA = 1
_NAME = re.compile(r"(?P<id>[0-9a-f]{10})\.v(?P<version>[1-9][0-9]{0,5})")


@dataclass(frozen=True)
class Entry:
    """One model of a library.

    Attributes
    ----------
    name : str
        ``<id>.v<version>``.
    made : str
        When, in UTC.
    run : str
        The sweep whose proxies it is from.
    """

    name: str
    key: ProxyKey
    made: str
    run: str
    model: CollapseModel = field(repr=False)

    @property
    def version(self) -> int:
        """Which model of its key, from 1."""
        return int(self.name.rpartition(".v")[2])

    @property
    def sizes(self) -> list[float]:
        """Numbers of parameters of its references, rising, as far as known."""
        known = [r.recipe.n_params for r in self.model.references if r.recipe is not None and r.recipe.n_params is not None]
        return sorted(set(known))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready content of its file."""
        content = {"key": self.key.to_dict(), "made": self.made, "run": self.run, "model": self.model.to_dict()}
        return {"schema": SCHEMA, "name": self.name, **content}

    @classmethod
    def from_dict(cls, data: Any) -> Entry:
        """Return the entry of :meth:`to_dict`; ``ValueError`` if it is none, or of a newer schema."""
        schema = data.get("schema") if isinstance(data, Mapping) else None
        if isinstance(schema, bool) or not isinstance(schema, int) or "key" not in data:
            raise ValueError("expected an entry of a proxy library; found something else")
        if schema > SCHEMA:
            raise ValueError(f"schema {schema} is newer than this version reads ({SCHEMA}); upgrade collapse-hpo")
        name, made, run = (data.get(key) for key in ("name", "made", "run"))
        if not (isinstance(name, str) and _NAME.fullmatch(name) and isinstance(made, str) and isinstance(run, str)):
            raise ValueError("expected an entry with its name, and when and where it was made")
        try:
            return cls(name, ProxyKey.from_dict(data["key"]), made, run, CollapseModel.from_dict(data.get("model")))
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"malformed: {error!r}") from None


class ProxyLibrary:
    """The entries of a folder, which need not be there yet.

    Raises
    ------
    ValueError
        The path is no folder, or cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._names()

    def entries(self) -> tuple[list[Entry], list[str]]:
        """Return all entries, by name, and a line on each file that should be one and cannot be read."""
        found, unreadable = [], []
        for name in self._names():
            try:
                found.append(self.read(name))
            except FileNotFoundError:  # removed meanwhile
                continue
            except ValueError as error:
                unreadable.append(str(error))
        return found, unreadable

    def get(self, name: str) -> Entry:
        """Return the entry of that name, or of an id its last version; ``ValueError`` if there is none."""
        try:
            return self.read(self._full_name(name))
        except FileNotFoundError:
            raise ValueError(self._no_such(name)) from None

    def read(self, name: str) -> Entry:
        """Return the entry ``<id>.v<version>``.

        Raises
        ------
        FileNotFoundError
            There is none.
        ValueError
            It cannot be read as an entry; one line that names the file.
        """
        path = self._file(name)
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ValueError(f"{path}: expected a readable file; found {error.strerror}") from None
        except (ValueError, RecursionError):
            raise ValueError(f"{path}: expected an entry of a proxy library; found something that is not JSON") from None
        try:
            entry = Entry.from_dict(data)
        except ValueError as error:
            raise ValueError(f"{path}: {' '.join(str(error).split())[:300]}") from None
        if entry.name != name:
            raise ValueError(f"{path}: expected the entry {name}; found {entry.name}")
        return entry

    def add(self, key: ProxyKey, model: CollapseModel, made: str, run: str) -> Entry:
        """Keep a model as the next version of its key, and return it; the same model again is not kept twice.

        Raises
        ------
        OSError
            The folder cannot be written.
        ValueError
            The folder cannot be read.
        """
        content = model.to_dict()
        while True:
            versions = self._versions(key.id)
            for version in versions:
                try:
                    known = self.read(f"{key.id}.v{version}")
                except (ValueError, FileNotFoundError):
                    continue
                if known.model.to_dict() == content:
                    return known
            entry = Entry(f"{key.id}.v{max(versions, default=0) + 1}", key, made, run, model)
            try:
                text = json.dumps(entry.to_dict(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
                write_new_text(self._file(entry.name), text)
            except FileExistsError:
                continue
            return entry

    def remove(self, name: str) -> list[str]:
        """Delete an entry, or of an id all versions; return their names. ``ValueError`` if there is none.

        Raises
        ------
        OSError
            The folder cannot be written.
        """
        names = [one for one in self._names() if name in (one, one.partition(".")[0])]
        if not names:
            raise ValueError(self._no_such(name))
        for one in names:
            self._file(one).unlink(missing_ok=True)
        return names

    def _names(self) -> list[str]:
        try:
            stems = [path.name.removesuffix(".json") for path in self.path.iterdir() if path.name.endswith(".json")]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ValueError(f"{self.path}: expected the folder of a proxy library; found {error.strerror}") from None
        names = [name for name in stems if _NAME.fullmatch(name)]
        return sorted(names, key=lambda name: (name.partition(".")[0], int(name.rpartition(".v")[2])))

    def _versions(self, entry_id: str) -> list[int]:
        return [int(name.rpartition(".v")[2]) for name in self._names() if name.startswith(f"{entry_id}.")]

    def _full_name(self, name: str) -> str:
        if _NAME.fullmatch(name):
            return name
        versions = self._versions(name)
        if not versions:
            raise ValueError(self._no_such(name))
        return f"{name}.v{versions[-1]}"

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.json"

    def _no_such(self, name: str) -> str:
        known = self._names()
        there = f"{', '.join(known[:5])}{', …' if len(known) > 5 else ''}" if known else "no entries"
        return f"{self.path}: expected an entry {name}; found {there}"
