"""The fitted model as a JSON file: readable, without pickle, and never half written."""

from __future__ import annotations

import json
from pathlib import Path

from hpo.adapters.atomic import write_json
from hpo.core.model import CollapseModel


def write_model(path: Path, model: CollapseModel) -> None:
    """Write ``model`` to ``path`` in one step.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    write_json(path, model.to_dict())


def read_model(path: Path) -> CollapseModel:
    """Return the model in ``path``.

    Raises
    ------
    ValueError
        No such file, not a model, or one of a newer schema; one line that names the file.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: expected a model file; found {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{path}: expected a model file; found something that is not JSON") from None
    try:
        return CollapseModel.from_dict(data)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())[:300]}") from None
