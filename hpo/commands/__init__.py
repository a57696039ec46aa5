"""Commands of ``hpo`` beside the sweep itself: watch and report one; do curves collapse, monitor a run, plan a family."""

from __future__ import annotations

import typer


def add_commands(app: typer.Typer) -> None:
    """Add every command of this package to a Typer application."""
    from hpo.commands.check import EPILOG as CHECK_EXAMPLE
    from hpo.commands.check import check
    from hpo.commands.efficiency import app as efficiency
    from hpo.commands.fit_tau import EXAMPLE as FIT_TAU_EXAMPLE
    from hpo.commands.fit_tau import fit_tau
    from hpo.commands.monitor import EPILOG as MONITOR_EXAMPLE
    from hpo.commands.monitor import monitor
    from hpo.commands.plan import EXAMPLE as PLAN_EXAMPLE
    from hpo.commands.plan import plan
    from hpo.commands.plan_proxies import EXAMPLE as PLAN_PROXIES_EXAMPLE
    from hpo.commands.plan_proxies import plan_proxies
    from hpo.commands.proxies import app as proxies
    from hpo.commands.report import EPILOG as REPORT_EXAMPLE
    from hpo.commands.report import report
    from hpo.commands.watch import EPILOG as WATCH_EXAMPLE
    from hpo.commands.watch import watch

    app.command("watch", epilog=WATCH_EXAMPLE)(watch)
    app.command("report", epilog=REPORT_EXAMPLE)(report)
    app.command("check", epilog=CHECK_EXAMPLE)(check)
    app.command("monitor", epilog=MONITOR_EXAMPLE)(monitor)
    app.command("plan", epilog=PLAN_EXAMPLE)(plan)
    app.command("plan-proxies", epilog=PLAN_PROXIES_EXAMPLE)(plan_proxies)
    app.command("fit-tau", epilog=FIT_TAU_EXAMPLE)(fit_tau)
    app.add_typer(efficiency, name="efficiency")
    app.add_typer(proxies, name="proxies")
