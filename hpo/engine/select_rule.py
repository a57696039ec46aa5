"""The rule ``select``: everybody to the stopping fraction, a judgement of all, and the selected on to their end.

1. The proxies train to their end and every candidate to the stopping point, side by side. (Of proxies that a library may
   replace only one; should the runs not follow what it knows, the others are trained then: :mod:`hpo.engine.reuse`.)
2. The model is fitted on the proxies, and all candidates are judged together. With rungs, those selected train on to the next
   one from their checkpoints and are judged again, as long as there is something to decide (:mod:`hpo.core.rungs`).
3. The selected candidates, and those that people keep, go on from their checkpoints to the end; one that people extended goes
   on to the fraction they named and is judged there again. Should all of them fail, the next best are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from hpo.adapters.model_files import read_model
from hpo.adapters.training_session import remove_checkpoints
from hpo.core.decision import REASONS, StoppingSettings
from hpo.core.model import CollapseModel
from hpo.engine.context import Context
from hpo.engine.cost import spending
from hpo.engine.judging import Judgement, Look, Verdict, judge, transfer_scores
from hpo.engine.plan import Plan, Run
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
    return rule.train_selected(rule.climb(rule.judge()))


class _Select:
    def __init__(self, context: Context) -> None:
        self._context, self._runs, self._plan = context, context.runs, context.plan
        self._stopping = stopping_settings(context.plan)
        self._rungs = context.plan.config.stopping.rungs

    def train_to_stop(self) -> None:
        """Phase 1; proxies are the longer runs, so they start first."""
        context, runs = self._context, (*self._context.reuse.proxies, *self._plan.candidates)
        is_judged = context.folder.decisions.exists()
        if not is_judged:  # what was not there when all were judged is left out
            self._train_first(runs, "1-to-stop")
            self._train_one_at_least()
        self._runs.save_curves(runs)
        if self._runs.lack_metric(runs):
            metric = context.plan.config.metric
            context.give_up(f"no run has reported {metric} (metric: {metric} takes session.report(…, {metric}=…))")
        if not is_judged and self._nobody_reached():
            context.give_up("no candidate could be trained to the stopping point")

    def _train_first(self, runs: Sequence[Run], phase: str) -> None:
        """Train proxies to their end and candidates to the stopping point."""
        jobs = [self._runs.job(run, run.stop_step) for run in runs]
        again = lambda run: self._runs.job(run, run.stop_step)  # noqa: E731 - of a candidate that is revived meanwhile
        self._context.train(jobs, phase, may_start=self._context.budget.may_explore, again=again)
        for run in self._plan.proxies:
            remove_checkpoints(self._context.folder.trial(run.name))

    def _train_one_at_least(self) -> None:
        """Train a candidate to the stopping point where the time budget let none begin, those first that proxies favour."""
        finals = self._runs.final_losses(self._plan.proxies)
        scores = transfer_scores(self._plan.candidates, self._plan.proxies, finals)
        for run in sorted(self._plan.candidates, key=lambda run: scores.get(run.name, (0.0, 0.0))):
            if self._nobody_reached():
                self._context.train([self._runs.job(run, run.stop_step)], "1-one-at-least")

    def _nobody_reached(self) -> bool:
        return not any(self._runs.has_status(run, "reached") for run in self._plan.candidates)

    def _model(self) -> CollapseModel:
        """Return the model that judges: a library's, once the candidates and a proxy follow it, else that of the proxies."""
        context, reuse = self._context, self._context.reuse
        if reuse.is_open:
            seen = [self._runs.curve(run, run.stop_step) for run in (*reuse.proxies, *judged_runs(self._runs))]
            context.progress.say(reuse.test(seen))
            context.add_runs(run for run in reuse.proxies if self._runs.outcome(run) is None)
        if reuse.entry is not None and reuse.model is None:
            self._train_first(reuse.proxies, "1-proxies")
            self._runs.save_curves(reuse.proxies)
        return context.learn()

    def judge(self) -> Judgement:
        """Phase 2; what was decided once stays decided."""
        context = self._context
        decided = context.folder.read_decisions()
        if decided:
            return Judgement.read(decided)
        model = self._model()
        judgement = self._by_hand(self._judge(model, judged_runs(self._runs), {}, Look(n_later=len(self._rungs))).verdicts)
        context.write_judgement(judgement, [verdict.run for verdict in judgement.verdicts])
        for verdict in judgement.verdicts:
            if self._plan.proxies and verdict.action == "continue" and verdict.forecast["final_loss"] is None:
                context.progress.say(f"{verdict.run} goes on because it could not be forecast: {REASONS[verdict.reason]}")
        return judgement

    def climb(self, judgement: Judgement) -> Judgement:
        """Phase 2 at the rungs; return the judgement after the last. What was decided once stays decided."""
        for number, fraction in list(enumerate(self._rungs, start=1))[judgement.look :]:
            going = [self._context.candidates[verdict.run] for verdict in judgement.kept]
            if len(going) <= self._stopping.keep_min:
                break
            to_rung = partial(self._job_to, fraction)  # what people revive goes no further yet: the others wait here
            self._context.hand.is_out = self._is_out_but(run.name for run in going)
            jobs = [to_rung(run) for run in going]
            self._context.train(jobs, f"1-to-rung-{number}", may_start=self._has_time, again=to_rung)
            self._runs.save_curves(going)
            there = {run.name for run in going if self._runs.steps(run) >= run.step_at(fraction)}
            there |= {run.name for run in going if self._runs.has_status(run, "diverged")}
            if there:
                judgement = self._judge_at_rung(judgement, number, there)
        return judgement

    def _job_to(self, fraction: float, run: Run) -> Job:
        return self._runs.job(run, run.step_at(fraction))

    def _judge_at_rung(self, judgement: Judgement, number: int, there: Collection[str]) -> Judgement:
        """Return the judgement with new verdicts on the candidates that have come to a rung."""
        rung = self._rungs[number - 1]
        look = Look(number, len(self._rungs) - number, there, judgement.error_spent)
        at = {name: self._context.candidates[name].step_at(rung) for name in there}
        runs = [self._context.candidates[verdict.run] for verdict in judgement.verdicts]
        again = self._judge(read_model(self._context.folder.model), runs, self._steps_judged(judgement) | at, look)
        judgement = judgement.replaced(self._by_hand(again.verdicts).verdicts)
        self._context.write_judgement(judgement, there)
        self._context.progress.say(f"at {rung:.0%} of training {len(judgement.kept)} of {len(there)} candidates go on")
        return judgement

    def train_selected(self, judgement: Judgement) -> Judgement:
        """Phase 3; return the judgement, with what was judged again."""
        reserve = [self._context.candidates[verdict.run] for verdict in judgement.reserve]
        in_reserve: list[str] = []
        while True:
            going_on = [*self._going_on(judgement), *in_reserve]
            self._train(going_on)
            self._context.hand.look(at_once=True)
            judged_again = self._judge_extended(self._kept_since(judgement))
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
        context.hand.is_out = self._is_out_but(names)
        context.hand.look(at_once=True)
        extended = [context.candidates[name] for name in context.hand.until if name not in going_on]
        jobs = [self._runs.job(run, run.n_steps) for run in runs] + [self._job_again(run) for run in extended]
        context.train(jobs, "2-to-end", may_start=self._may_finish, again=self._job_again)
        self._runs.save_curves([*runs, *extended])

    def _by_hand(self, verdicts: Sequence[Verdict]) -> Judgement:
        """Return the judgement in which those that people keep go on."""
        kept = self._context.hand.kept
        return Judgement(tuple(_kept_by_hand(v) if v.run in kept and v.is_by_forecast else v for v in verdicts))

    def _kept_since(self, judgement: Judgement) -> Judgement:
        """Return the judgement with new verdicts on those that people keep, or have revived, since they were stopped."""
        news = [v for v in judgement.verdicts if v.is_by_forecast and v.run in self._context.hand.kept]
        if not news:
            return judgement
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        judgement = judgement.replaced([replace(_kept_by_hand(v), time=now) for v in news])
        self._context.write_judgement(judgement, [v.run for v in news])
        return judgement

    def _is_out_but(self, names: Iterable[str]) -> Callable[[Run], bool]:
        """Return whether a run ended at its stopping point and goes on neither by judgement nor because people wished it."""
        going_on, hand = set(names), self._context.hand
        return lambda run: run.name not in going_on | hand.kept | set(hand.until) and self._runs.has_status(run, "reached")

    def _going_on(self, judgement: Judgement) -> list[str]:
        """Return the names of the candidates that go on to their end, in order."""
        kept = [verdict.run for verdict in judgement.kept]
        by_hand = [run.name for run in self._plan.candidates if run.name in self._context.hand.kept - set(kept)]
        return [*kept, *by_hand]

    def _job_again(self, run: Run) -> Job:
        until = self._context.hand.until.get(run.name)
        if until is None or run.name in self._context.hand.kept:
            return self._runs.job(run, run.n_steps)
        return self._runs.job(run, max(run.stop_step, run.step_at(until)))

    def _has_time(self, run: Run) -> bool:
        """Return True while there is time to train ``run`` to its end from where it is."""
        return self._context.budget.leaves_time_for(run.flops - run.flops_at(self._runs.steps(run)))

    def _may_finish(self, run: Run) -> bool:
        """The first may always; the others while there is time."""
        if self._has_time(run):
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
            step = run.step_at(until)
            is_new = seen is None or float(seen) < step / run.n_steps - 1e-6
            if is_new and step <= self._runs.steps(run) < run.n_steps:
                at[run.name] = step
        if not at:
            return judgement
        runs = [self._context.candidates[verdict.run] for verdict in judgement.verdicts]
        again = self._judge(read_model(self._context.folder.model), runs, self._steps_judged(judgement) | at, Look())
        last = max((verdict.rank or 0 for verdict in judgement.kept), default=-1)
        look = {verdict.run: verdict.look for verdict in judgement.verdicts}
        new = [v for v in again.verdicts if v.run in at]
        judgement = judgement.replaced([_placed(v, last + 1 + k, look[v.run]) for k, v in enumerate(new)])
        self._context.write_judgement(judgement, at)
        return judgement

    def _steps_judged(self, judgement: Judgement) -> dict[str, int]:
        """Return at which step each candidate was last judged, by name."""
        at = {}
        for verdict in judgement.verdicts:
            run, fraction = self._context.candidates[verdict.run], verdict.numbers.get("fraction")
            at[run.name] = run.stop_step if fraction is None else run.step_at(float(fraction))
        return at

    def _judge(self, model: CollapseModel, runs: Sequence[Run], at: Mapping[str, int], look: Look) -> Judgement:
        """Return the judgement of candidates at their stopping point, or at a later step."""
        self._context.hand.look(at_once=True)
        curves = [self._runs.curve(run, at.get(run.name, run.stop_step)) for run in runs]
        numbers = [self._context.numbers[run.name] for run in runs]
        return judge(model, curves, numbers, self._stopping, self._plan.config.seed, look)


def stopping_settings(plan: Plan) -> StoppingSettings:
    """Return the configuration's stopping block in the core's terms."""
    s = plan.config.stopping
    return StoppingSettings(
        min_fraction=min(s.at, 0.1),
        alpha=s.alpha,
        margin=s.margin,
        min_references=s.min_references,
        keep_min=s.keep_min,
        keep_max=s.keep_max,
    )


def _kept_by_hand(verdict: Verdict) -> Verdict:
    return replace(verdict, action="continue", reason="kept_by_hand")


def _placed(verdict: Verdict, rank: int, look: int) -> Verdict:
    """Return a verdict of a second judgement with its place after those of the first, at the look that was made before."""
    return replace(verdict, rank=None if verdict.rank is None else rank, look=look)
