"""The stopping rules of a sweep; one line each here, one module each beside.

A rule trains the runs of a :class:`hpo.engine.context.Context`, decides which candidates go on, and returns the
:class:`hpo.engine.judging.Judgement`. It is called again on a resume and does only what is missing on disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpo.engine.context import Context
    from hpo.engine.judging import Judgement


@dataclass(frozen=True)
class Rule:
    """A named rule and where it lives.

    Attributes
    ----------
    home : str
        ``package.module:function``, imported when the rule is run: a configuration is checked without it.
    has_rounds : bool
        True where all candidates are judged together at the stopping fraction, which takes proxies; False where each is judged
        as it goes.
    """

    name: str
    home: str
    has_rounds: bool

    def run(self, context: Context) -> Judgement:
        """Run the rule, or go on with it; return its judgement."""
        module, _, function = self.home.partition(":")
        judgement: Judgement = getattr(import_module(module), function)(context)
        return judgement


RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("select", "hpo.engine.select_rule:run_select", has_rounds=True),
        Rule("prune", "hpo.engine.prune_rule:run_prune", has_rounds=False),
    )
}
"""Every rule by the name that ``stopping.rule`` takes."""


def known_rule(name: str) -> str:
    """Return the name of a rule; ``ValueError`` if there is none such."""
    if name not in RULES:
        raise ValueError(f"expected {' or '.join(map(repr, RULES))}; found {name[:80]!r}")
    return name
