"""How every command answers: one JSON document on stdout, or one line on stderr and an exit code."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import typer


def print_json(document: Any) -> None:
    """Print ``document`` on stdout; NaN and infinity, which JSON lacks, are refused."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False))


def fail(line: str, code: int) -> NoReturn:
    """Print one line on stderr and leave with ``code``."""
    typer.echo(f"hpo: {' '.join(line.split())}", err=True)
    raise SystemExit(code)
