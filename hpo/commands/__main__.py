"""``python -m hpo.commands``: the commands of this package alone."""

from __future__ import annotations

import typer

from hpo.commands import add_commands

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
add_commands(app)

if __name__ == "__main__":
    app()
