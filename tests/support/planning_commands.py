"""The planning commands, called in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import typer
from typer.testing import CliRunner

from hpo.commands import add_commands

Run = Callable[..., tuple[int, str, str]]


def planning_commands() -> Run:
    """Return a function that runs a command; it returns exit code, stdout, stderr."""
    app = typer.Typer(pretty_exceptions_enable=False)
    add_commands(app)

    def run(*arguments: object) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.stdout, result.stderr

    return run


def plan(hpo: Run, *arguments: object) -> dict[str, Any]:
    code, out, err = hpo("plan", *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)
