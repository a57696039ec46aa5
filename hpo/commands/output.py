"""How every command answers: one JSON document on stdout, or one line on stderr and an exit code."""

from __future__ import annotations

import json
import sys
from io import TextIOWrapper
from typing import Any, NoReturn

import typer


def speak_any_encoding() -> None:
    """Let stdout and stderr show what they cannot encode (τ under LANG=C) as a question mark instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def print_json(document: Any) -> None:
    """Print ``document`` on stdout, escaped where that is not UTF-8; NaN and infinity, which JSON lacks, are refused."""
    is_utf = (sys.stdout.encoding or "").lower().startswith("utf")
    typer.echo(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=not is_utf))


def fail(line: str, code: int) -> NoReturn:
    """Print one line on stderr and leave with ``code``."""
    typer.echo(f"hpo: {' '.join(line.split())}", err=True)
    raise SystemExit(code)
