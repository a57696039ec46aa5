"""Commands of ``hpo`` that are not about one sweep: planning a family, and what compute buys."""

from __future__ import annotations

import typer


def add_commands(app: typer.Typer) -> None:
    """Add ``plan``, ``fit-tau`` and ``efficiency`` to a Typer application."""
    from hpo.commands.efficiency import app as efficiency
    from hpo.commands.fit_tau import EXAMPLE as FIT_TAU_EXAMPLE
    from hpo.commands.fit_tau import fit_tau
    from hpo.commands.plan import EXAMPLE as PLAN_EXAMPLE
    from hpo.commands.plan import plan

    app.command("plan", epilog=PLAN_EXAMPLE)(plan)
    app.command("fit-tau", epilog=FIT_TAU_EXAMPLE)(fit_tau)
    app.add_typer(efficiency, name="efficiency")
