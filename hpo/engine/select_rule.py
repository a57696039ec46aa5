"""The rule ``select``: everybody to the stopping fraction, one judgement of all, and the selected on to their end.

1. The proxies train to their end and every candidate to the stopping point, side by side.
2. The model is fitted on the proxies, and all candidates are judged together.
3. The selected candidates, and those that people keep, go on from their checkpoints to the end; one that people extended goes
   on to the fraction they named and is judged there again. Should all of them fail, the next best are tried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hpo.adapters.model_files import read_model, write_model
from hpo.adapters.training_session import remove_checkpoints
from hpo.core.decision import REASONS, StoppingSettings
from hpo.core.model import CollapseModel
from hpo.engine.context import Context
from hpo.engine.cost import spending
from hpo.engine.judging import Judgement, Verdict, judge
from hpo.engine.plan import Run
from hpo.engine.result import judged_runs
from hpo.engine.worker import Job


def run_select(context: Context) -> Judgement:
    """Train and judge by the rule, or go on with it; return the judgement.

    Raises
    ------
    SweepError
        No candidate could be trained to its end.
    """
    rule = _Select(context)
    rule.train_to_stop()
    return rule.train_selected(rule.judge())


class _Select:
    def __init__(self, context: Context) -> None:
        self._context, self._runs, self._plan = context, context.runs, context.plan
        self._stopping = stopping_settings(context)

    def train_to_stop(self) -> None:
        """Phase 1; proxies are the longer runs, so they start first."""
        context, runs = self._context, (*self._plan.proxies, *self._plan.candidates)
        if not context.folder.decisions.exists():  # what was not there when all were judged is left out
            jobs = [self._runs.job(run, run.stop_step) for run in runs]
            context.train(
                jobs, "1-to-stop", may_start=context.budget.may_explore, again=lambda run: self._runs.job(run, run.stop_step)
            )
        self._runs.save_curves(runs)
        for run in self._plan.proxies:
            remove_checkpoints(context.folder.trial(run.name))
        if not any(self._runs.has_status(run, "reached") for run in self._plan.candidates):
            context.give_up("no candidate could be trained to the stopping point")

    def judge(self) -> Judgement:
        """Phase 2; what was decided once stays decided."""
        context = self._context
        decided = context.folder.read_decisions()
        if decided:
            return Judgement.read(decided)
        model = CollapseModel.fit([self._runs.curve(run) for run in self._plan.proxies])
        write_model(context.folder.model, model)
        if self._plan.proxies:
            context.progress.say(f"model fitted on {len(model.references)} of {len(self._plan.proxies)} proxies")
        judgement = self._judge(model, judged_runs(self._runs), {})
        context.write_judgement(judgement, [verdict.run for verdict in judgement.verdicts])
        for verdict in judgement.verdicts:
            if self._plan.proxies and verdict.action == "continue" and verdict.forecast["final_loss"] is None:
                context.progress.say(f"{verdict.run} goes on because it could not be forecast: {REASONS[verdict.reason]}")
        return judgement

    def train_selected(self, judgement: Judgement) -> Judgement:
        """Phase 3; return the judgement, with what was judged again."""
        reserve = [self._context.candidates[verdict.run] for verdict in judgement.reserve]
        in_reserve: list[str] = []
        while True:
            going_on = [*self._going_on(judgement), *in_reserve]
            self._train(going_on)
            judged_again = self._judge_extended(judgement)
            if judged_again is not judgement or going_on != [*self._going_on(judgement), *in_reserve]:
                judgement = judged_again
            elif any(self._runs.final_loss(self._context.candidates[name]) is not None for name in going_on):
                return judgement
            elif reserve:
                in_reserve.append(reserve.pop(0).name)
                self._context.progress.say(f"no selected candidate reached its end; going on with {in_reserve[-1]}")
            else:
                self._context.give_up("no selected candidate could be trained to its end")

    def _train(self, names: Sequence[str]) -> None:
        """Train candidates to their ends, and those that were extended to theirs."""
        context, progress = self._context, self._context.progress
        runs = [context.candidates[name] for name in names]
        steps = {run.name: self._runs.steps(run) for run in (*self._plan.proxies, *self._plan.candidates)}
        progress.expect(spending(self._plan, steps | {run.name: run.n_steps for run in runs}).total)
        going_on = set(names)
        context.hand.is_out = lambda run: (
            run.name not in going_on | set(context.hand.until) and self._runs.has_status(run, "reached")
        )
        context.hand.look()
        extended = [context.candidates[name] for name in context.hand.until if name not in going_on]
        jobs = [self._runs.job(run, run.n_steps) for run in runs] + [self._job_again(run) for run in extended]
        context.train(jobs, "2-to-end", may_start=self._may_finish, again=self._job_again)
        self._runs.save_curves([*runs, *extended])

    def _going_on(self, judgement: Judgement) -> list[str]:
        """Return the names of the candidates that go on to their end, in order."""
        kept = [verdict.run for verdict in judgement.kept]
        by_hand = [run.name for run in self._plan.candidates if run.name in self._context.hand.kept - set(kept)]
        return [*kept, *by_hand]

    def _job_again(self, run: Run) -> Job:
        until = self._context.hand.until.get(run.name)
        if until is None or run.name in self._context.hand.kept:
            return self._runs.job(run, run.n_steps)
        return self._runs.job(run, max(run.stop_step, math.floor(until * run.n_steps)))

    def _may_finish(self, run: Run) -> bool:
        """The first may always; the others while there is time."""
        if self._context.budget.leaves_time_for(run.flops - run.flops_at(self._runs.steps(run))):
            return True
        others = [c for c in self._plan.candidates if c.name != run.name and self._runs.steps(c) > c.stop_step]
        return not any(self._runs.is_complete(c) or self._runs.outcome(c) is None for c in others)

    def _judge_extended(self, judgement: Judgement) -> Judgement:
        """Return the judgement with new verdicts on the candidates that have come as far as people extended them."""
        at = {}
        for verdict in judgement.verdicts:
            until = self._context.hand.until.get(verdict.run)
            if until is None or verdict.action != "stop":
                continue
            run, seen = self._context.candidates[verdict.run], verdict.numbers.get("fraction")
            step = math.floor(until * run.n_steps)
            is_new = seen is None or float(seen) < step / run.n_steps - 1e-6
            if is_new and step <= self._runs.steps(run) < run.n_steps:
                at[run.name] = step
        if not at:
            return judgement
        runs = [self._context.candidates[verdict.run] for verdict in judgement.verdicts]
        again = self._judge(read_model(self._context.folder.model), runs, at)
        last = max((verdict.rank or 0 for verdict in judgement.kept), default=-1)
        judgement = judgement.replaced([_ranked(v, last + 1 + k) for k, v in enumerate(again.verdicts) if v.run in at])
        self._context.write_judgement(judgement, at)
        return judgement

    def _judge(self, model: CollapseModel, runs: Sequence[Run], at: dict[str, int]) -> Judgement:
        """Return the judgement of candidates at their stopping point, or at a later step."""
        curves = [self._runs.curve(run, at.get(run.name, run.stop_step)) for run in runs]
        numbers = [self._context.numbers[run.name] for run in runs]
        return judge(model, curves, numbers, self._stopping, self._plan.config.seed)


def stopping_settings(context: Context) -> StoppingSettings:
    """Return the configuration's stopping block in the core's terms."""
    s = context.plan.config.stopping
    return StoppingSettings(
        min_fraction=min(s.at, 0.1),
        alpha=s.alpha,
        margin=s.margin,
        min_references=s.min_references,
        keep_min=s.keep_min,
        keep_max=s.keep_max,
    )


def _ranked(verdict: Verdict, rank: int) -> Verdict:
    """Return a verdict of a second judgement with its place after those of the first."""
    return replace(verdict, rank=None if verdict.rank is None else rank)
