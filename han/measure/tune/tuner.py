"""The tuner: searches input by input within a budget, and keeps what it has found."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from han.common.errors import ArgumentError, NoRuleError
from han.common.units import format_size, format_us
from han.config.machine import MachineModel
from han.config.rules import Use
from han.measure.measured import DUEL, FINAL, KEPT_CANDIDATES, LEAST_SECONDS
from han.measure.tune.confirm import Confirmation, simplified
from han.measure.tune.lab import Lab
from han.tasks.call import call_signature
from han.tasks.choice import Choice
from han.tasks.compositions import as_called
from han.tasks.outline import levels_of
from han.tasks.signature import Signature
from han.tuning.costs.estimates import Estimate
from han.tuning.measured import LARGE, REACH
from han.tuning.rules import RuleTable, use_of
from han.tuning.search import space
from han.tuning.search.limits import EVERYTHING, Limits
from han.tuning.search.results import Found
from han.tuning.search.space import Pruned
from han.tuning.search.strategies import STRATEGIES, run
from han.tuning.shapes.costs import usable
from han.tuning.tuned.points import Candidate, MeasuredCall, Point, key_of
from han.tuning.tuned.tasks import TaskCost
from han.tuning.tuned.uses import spell


@dataclass(frozen=True)
class Input:
    """One collective of one size."""

    collective: str
    nbytes: int

    def __str__(self) -> str:
        return f"{self.collective} of {format_size(self.nbytes)}"


@dataclass(frozen=True)
class Plans:
    """What to tune, and how. `budget` is in seconds; None: no limit.

    With `shared`, calls are on shared arrays. `limit` is in seconds for each search of a comparison
    of strategies; None: no limit.
    """

    inputs: tuple[Input, ...]
    strategy: str = "task+heuristic"
    budget: float | None = None
    limits: Limits = EVERYTHING
    machine: MachineModel | None = None
    dtype: str = "float64"
    op: str = "sum"
    shared: bool = False
    limit: float | None = None

    def signature(self, one: Input) -> Signature:
        """Return the call of an input; with `shared`, one on shared arrays."""
        call = call_signature(one.collective, one.nbytes, self.op, self.dtype)
        return replace(call, mapped=self.shared)


@dataclass
class Tuner:
    """Tunes inputs one after the other; collective."""

    lab: Lab
    plans: Plans
    done: dict[Input, Point] = field(default_factory=dict)
    pruned: dict[Pruned, None] = field(default_factory=dict)

    def run(self, keep: Callable[[Point, Sequence[Input]], None], known: set[Input]) -> bool:
        """Tune all inputs but the known ones; return whether the budget sufficed for all.

        `keep` is called after each input, with those that are left.
        """
        todo = [one for one in sparse_first(self.plans.inputs) if one not in known]
        end = None if self.plans.budget is None else time.monotonic() + self.plans.budget
        complete = True
        while todo:
            left = None if end is None else max(0.0, end - time.monotonic())
            if left is not None and self.lab.control.bcast(left == 0.0):
                return False
            one = todo.pop(0)
            point = self._tune(one, None if left is None else left / (1 + len(todo)))
            complete = complete and point.complete
            self.done[one] = point
            keep(point, todo)
        return complete

    def _tune(self, one: Input, seconds: float | None) -> Point:
        began = time.monotonic()
        plans, lab = self.plans, self.lab
        signature = plans.signature(one)
        lab.give(1e9 if seconds is None else max(LEAST_SECONDS, seconds))
        every = space.space_of(lab.rules, signature, plans.limits, lab.grouping(signature))
        found = run(STRATEGIES[plans.strategy], lab, signature, every, plans.machine)
        self.pruned |= dict.fromkeys(found.pruned)
        self.tell_unmeasured(signature, found)
        point = self._point(signature, found, every.candidates[0])
        seconds = self.lab.control.bcast(time.monotonic() - began)
        tried = len(found.measured)
        return replace(point, seconds=seconds, tried=tried, complete=found.complete)

    def tell_unmeasured(self, signature: Signature, found: Found) -> None:
        """Tell of the candidates that were not measured, with the reason."""
        for one in (result for result in found.results if result.measured is None):
            reason, group = "the time was over before it was measured", space.LATE
            if one.predicted is not None:
                reason = f"predicted to take {format_us(one.predicted * 1e6)} us"
                group = space.PREDICTED
            self.pruned[Pruned(self._spelled(signature, one.choice), reason, group)] = None

    def _spelled(self, signature: Signature, choice: Choice) -> str:
        call = f"{signature.collective} of {format_size(signature.nbytes)}"
        return f"{call}: {spell(self.use_of(signature, choice))}"

    def _point(self, signature: Signature, found: Found, base: Choice) -> Point:
        """Measure the best candidates in turns with the built-in choice and the MPI library."""
        best = [r.choice for r in found.measured[:FINAL]]
        named = {str(k): choice for k, choice in enumerate(dict.fromkeys([base, *best]))}
        times = self.lab.duel(signature, named, DUEL)
        final: Mapping[Choice, Estimate] = {c: times[name] for name, c in named.items()}
        default = final[base]
        others = sorted((c for c in best if c != base), key=lambda c: final[c].median)
        better = [c for c in others if final[c].median < default.median]
        better, final = self._confirmed(signature, base, better, final)
        others = [*better, *(c for c in others if c not in better)]
        seen = {r.choice: r.measured for r in found.measured if r.measured is not None}
        measured = {**seen, **final}
        rest = sorted(measured.keys() - {*others, base}, key=lambda c: measured[c].median)
        return Point(
            key=key_of(signature, self.lab.state.parts.topology),
            nbytes=signature.nbytes,
            keeps=not better,
            candidates=self._candidates(
                signature, [*others, *rest][:KEPT_CANDIDATES], measured, found
            ),
            default=default,
            library=times["mpi"],
            strategy=self.plans.strategy,
            made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )

    def _confirmed(
        self, signature: Signature, base: Choice, better: Sequence[Choice],
        times: Mapping[Choice, Estimate],
    ) -> tuple[list[Choice], Mapping[Choice, Estimate]]:  # fmt: skip
        """Return the choices from the first on that is faster than `base` beyond doubt, and times.

        What is not faster in calls back to back is left out. Before the first one comes a simpler
        one that is as fast.
        """
        call = f"{signature.collective} of {format_size(signature.nbytes)}"
        for k, one in enumerate(better):
            found = self.lab.confirm(signature, base, one, times[base].median)
            if found.is_better:
                refused = better[:k]
                simple, ratio = self._simplified(signature, (one, base, *refused), found, times)
                rest = [choice for choice in better[k:] if choice != simple]
                return [simple, *rest], {simple: times[one].scaled(ratio), **times}
            what = f"{call}: {spell(self.use_of(signature, one))}"
            self.pruned[Pruned(what, found.describe(), space.IN_A_ROW)] = None
        return [], times

    def _simplified(
        self, signature: Signature, choices: Sequence[Choice], found: Confirmation,
        times: Mapping[Choice, Estimate],
    ) -> tuple[Choice, float]:  # fmt: skip
        """Simplify the first choice towards the second; the others are not to be taken."""
        choice, base, *refused = choices

        def serves(one: Choice) -> bool:
            return one not in refused and self.lab.rules.objection(signature, one) is None

        def compare(one: Choice) -> Confirmation:
            return self.lab.confirm(signature, choice, one, times[choice].median)

        return simplified(choice, base, found, serves, compare)

    def _candidates(
        self, signature: Signature, choices: Sequence[Choice],
        measured: Mapping[Choice, Estimate], found: Found,
    ) -> tuple[Candidate, ...]:  # fmt: skip
        predicted = {r.choice: r.predicted for r in found.results}
        return tuple(
            Candidate(self.use_of(signature, c), measured[c], predicted.get(c)) for c in choices
        )

    def use_of(self, signature: Signature, choice: Choice) -> Use:
        """Return a choice as a rule writes it, for the levels on which the call communicates."""
        topology = self.lab.state.parts.topology
        active = levels_of(as_called(topology, signature, choice.composition), signature)
        return use_of(choice, {k: topology.names[k] for k in active})

    def tasks(self) -> tuple[TaskCost, ...]:
        """Return the costs of tasks that were measured since they were asked for the last time."""
        measured, self.lab.tasks = self.lab.tasks, {}
        topology = self.lab.state.parts.topology
        shape, flags = (topology.nodes, topology.ppn), (self.lab.in_rows, self.lab.together)
        found = [
            TaskCost(
                call.collective, call.nbytes, *shape, topology.names, self.use_of(call, choice),
                seconds, *flags,
            )
            for (call, choice), seconds in measured.items()
            if seconds > 0 and not call.mapped
        ]  # fmt: skip
        return tuple(usable(found))

    def key(self, one: Input) -> MeasuredCall:
        """Return the key of an input's point."""
        return key_of(self.plans.signature(one), self.lab.state.parts.topology)


def served(lab: Lab, plans: Plans, warn: Callable[[str], None]) -> tuple[Plans, tuple[Pruned, ...]]:
    """Return the plans without inputs for which han has no choice, and these by collective.

    `warn` is called with a line for each. Raises ArgumentError on all ranks if no input is left.
    """
    reasons: dict[str, str] = {}
    kept = []
    for call in plans.inputs:
        reason = _objection(lab.rules, plans.signature(call))
        if reason:
            reasons.setdefault(call.collective, reason)
        else:
            kept.append(call)
    pruned = tuple(Pruned(name, reason, space.LEFT) for name, reason in reasons.items())
    if plans.inputs and not kept:
        raise ArgumentError(f"nothing to tune: {'; '.join(map(str, pruned))}")
    for one in pruned:
        warn(f"# left out: {one}")
    return replace(plans, inputs=tuple(kept)), pruned


def _objection(rules: RuleTable, signature: Signature) -> str:
    """Return why han has no choice for a call on these ranks, or ""; the same on all ranks."""
    try:
        rules.decide(signature)
    except NoRuleError as error:
        return "; ".join(reason for _, reason in error.passed)
    return ""


def sparse_first(inputs: Sequence[Input]) -> list[Input]:
    """Return inputs in the order of the search: of each collective sizes far apart, then between.

    Costs of tasks are interpolated between sizes, and a budget that is spent early leaves no gap
    at the large sizes. Before the largest size comes one from which its costs are extrapolated:
    there tasks take a small part of the time.
    """
    found: list[Input] = []
    for name in dict.fromkeys(one.collective for one in inputs):
        mine = sorted({one for one in inputs if one.collective == name}, key=lambda i: i.nbytes)
        reach = mine[-1].nbytes
        near = [one for one in mine if max(LARGE, reach / REACH) <= one.nbytes < reach]
        below = [one for one in mine if one.nbytes * REACH <= reach]
        first = [mine[0], *(near[:1] or below[-1:])]
        found += dict.fromkeys([*first, *(mine[k] for k in _halves(len(mine)))])
    return found


def _halves(n: int) -> Iterator[int]:
    """Yield 0, n - 1, then the middle between any two neighbours, again and again."""
    yield 0
    yield n - 1
    gaps = deque([(0, n - 1)])
    while gaps:
        low, high = gaps.popleft()
        if high - low > 1:
            middle = (low + high) // 2
            yield middle
            gaps += [(low, middle), (middle, high)]
