"""The lab: measures whole collectives and the stages of short pipelines on the running job.

Observations start in windows on one clock; where ranks share processors, calls are made in a row.
In a series one call repeats a few times; how the series of several calls follow each other is the
search's to say (:mod:`han.tuning.search.turns`). Caches are warm: calls repeat on the same buffers.
With `fresh`, a rank writes its data before each window.
Every result is that of the slowest rank, so all ranks take the same decisions.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mpi4py import MPI

from han.common.errors import ArgumentError
from han.measure import measured
from han.measure.bench_calls import Buffers, Call, Case
from han.measure.session import MOST_CALLS, REFERENCE, Session
from han.measure.tune.confirm import BUILT_IN, OTHER, Confirmation, confirm
from han.measure.tune.distinct import Distinct, Memory, Ready
from han.measure.tune.windows import Series, Windows, joined, observations, split, typical
from han.message import parsers
from han.model.collectives import ROWS
from han.model.program import Program
from han.ranks.clocks import identity, system
from han.ranks.discover import outnumber_processors
from han.runtime.state import Forced, State, forced
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice
from han.tasks.lower import lower
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tuning.costs.estimates import Estimate, estimate, of_series
from han.tuning.costs.model import is_single, lowered, missing, shared_out, told_apart
from han.tuning.costs.stages import Pipeline, Ranks, costs_of, pipeline_of_choice
from han.tuning.measured import LONGEST
from han.tuning.search.results import Cold, OutOfTime
from han.tuning.search.turns import Turns


class Lab(Session):
    """Measures on a communicator with the built-in choices and `config`'s levels; collective.

    With `shared`, on shared arrays; raises ArgumentError on all ranks if these are not mapped.
    """

    def __init__(
        self, comm: MPI.Intracomm, config: Any, case: Callable[[str, int], Case],
        fresh: bool = False, shared: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(comm, rounds=1)
        self.han = self.add_han(config)
        self.library = self.add_mpi()
        self.state: State = self.han._han
        if shared and not self.state.parts.planner.maps_arrays:
            raise ArgumentError("--shared: ranks do not map each other's shared arrays (han info)")
        self.rules = replace(self.state.parts.planner.rules, config=None, tuned=None)
        places = self.control.allgather((system(), frozenset(os.sched_getaffinity(0))))
        crowded = self.state.parts.conditions.oversubscribed or outnumber_processors(places)
        links = self.state.parts.topology.nodes > 1
        self.windows = Windows(self.control, self._offset, crowded=crowded, links=links)
        self._case, self._fresh, self._shared = case, fresh, shared
        self.together = len({name for name, _ in places}) < self.state.parts.topology.nodes
        self.tasks: dict[tuple[Signature, Choice], float] = {}  # seconds of short calls
        self._clocks, self._reading = len(set(self.control.allgather(identity()))), 0.0
        self._observed_series = 0
        self._buffers: Buffers | None = None
        self._ready: OrderedDict[tuple[Signature, Choice], Ready] = OrderedDict()
        self._whole_calls: dict[tuple[Signature, Choice], Pipeline] = {}  # of any size
        self._owes = False  # the next observation is made whatever the time
        self._begun = self._seconds = 0.0
        self.recall(self.memory())

    def memory(self) -> Memory:
        """Return the memory of a lab that has measured nothing."""
        return Memory(
            Distinct(self.control, self._program, partial(self._is_past, measured.TASK_SHARE))
        )

    def recall(self, memory: Memory) -> None:
        """Go on with what a memory knows, and add to it."""
        self.costs, self.errors, self.winners = memory.costs, memory.errors, memory.winners
        self._distinct = memory.distinct
        self._ready.clear()  # what is prepared has been measured

    # ---- time -------------------------------------------------------------------------------

    def give(self, seconds: float) -> None:
        """Set the time for the next call."""
        self._begun, self._seconds = time.monotonic(), seconds

    def limit(self, seconds: float) -> None:
        """Set the time for the next search alone; nothing is left over for a duel.

        One candidate is observed in any case.
        """
        self.give(seconds / measured.RACE_SHARE)
        self._owes = True

    def is_late(self) -> bool:
        """Whether the time that is left should go to candidates that were observed already."""
        return self._is_past(measured.FIRST_SHARE)

    def _is_past(self, share: float) -> bool:
        """Whether a share of the time is over by rank 0's clock; the same on all ranks."""
        return bool(self.control.bcast(time.monotonic() > self._begun + share * self._seconds))

    def _expect_time(self, share: float) -> None:
        """Raise OutOfTime on all ranks if a share of rank 0's time is over."""
        if self._is_past(share):
            raise OutOfTime

    def _offset(self) -> float:
        if self._clocks > 1 and self._observed_series % measured.READ_CLOCKS == 0:
            self._reading = self.state.parts.tracing.read_clock().offset * 1e-9
        self._observed_series += 1
        return self._reading

    def plan(self, signature: Signature, choice: Choice) -> Plan:
        """Plan a call with a choice."""
        own = self.state.parts
        return plan_of_choice(own.topology, signature, choice, own.config.memory)

    def pipeline(self, signature: Signature, choice: Choice) -> Pipeline:
        """Return the stages of a call with a choice, in short form."""
        key = replace(signature, count=0), choice
        if choice.segment is None and key in self._whole_calls:
            return replace(self._whole_calls[key], segment=signature.nbytes)
        found = told_apart(pipeline_of_choice(signature, choice, self.plan))
        if choice.segment is None and found.segment == signature.nbytes and found.count == 1:
            self._whole_calls[key] = found
        return found

    def distinct(self, signature: Signature, choices: Sequence[Choice]) -> Sequence[Choice]:
        """Return the choices without those that run the same programs as an earlier one."""
        return self._distinct.of(signature, choices)

    def grouping(self, signature: Signature) -> Callable[[Choice], Hashable | None]:
        """Return what choices have in common that run the same programs; None if unknown."""
        return self._distinct.grouping(signature)

    def _program(self, signature: Signature, choice: Choice) -> Program | None:
        unfit = self.rules.objection(signature, choice) is not None
        return None if unfit else lower(self.plan(signature, choice), self.state.parts.planner.rank)

    def buffers(self, signature: Signature) -> Buffers:
        """Return this rank's buffers for a call; those of the last size are kept."""
        case = self._case(signature.collective, signature.nbytes)
        if self._buffers is None or self._buffers.case != case:
            self._buffers = None  # frees the memory first
            self._buffers = Buffers(case, self.control.rank, self.control.size, self._shared)
            self._buffers.reset()
        return self._buffers

    def forced(self, signature: Signature, choice: Choice) -> Forced:
        """Prepare a call that runs a choice."""
        parser = getattr(parsers, ROWS[signature.collective].method.upper())
        arguments = self.buffers(signature).arguments()
        return forced(self.state, parser, arguments, choice, signature.mapped)

    def _ready_call(self, signature: Signature, choice: Choice) -> Ready:
        """Return a call that runs a choice; those of the last used choices are kept."""
        key = signature, choice
        if key not in self._ready:
            if self._ready and next(iter(self._ready))[0] != signature:
                self._ready.clear()  # frees their buffers
            made = self.forced(signature, choice)
            buffers = self.buffers(signature)
            self._ready[key] = Ready(made, buffers, *self._first(buffers, made.call))
            if len(self._ready) > measured.KEPT_CALLS:
                self._ready.popitem(last=False)
        self._ready.move_to_end(key)
        return self._ready[key]

    def _first(self, buffers: Buffers, call: Call) -> tuple[float, Cold]:
        """Run a call that was not run before; return about how many seconds it takes.

        Of a long call the first run tells it, and is returned as an observation too. The first run
        of a shorter one is mostly the making of what later runs find.
        """
        first = self.windows.observe(call, 1, 0.0, buffers.write if self._fresh else None)
        (seconds,) = first.usable
        if seconds > measured.SINGLE and (self.windows.busy or not first.is_disturbed):
            return seconds, Cold([seconds])
        return self._settled(buffers, call, seconds), Cold()

    def _settled(self, buffers: Buffers, call: Call, seconds: float) -> float:
        """Return about how many seconds a call takes whose first run took so many.

        Busy ranks are late for windows that are too wide or too narrow, so the width is found here.
        """
        for _ in range(measured.SETTLING if self.windows.busy and not self.in_rows else 1):
            before = seconds
            seconds = self._again(buffers, call, seconds)
            if seconds > measured.SETTLED * before:
                break
        return seconds

    def _again(self, buffers: Buffers, call: Call, seconds: float) -> float:
        """Return what a call takes at best that took so many seconds before.

        In a row, the mean of more calls: links carry the first messages after a pause at once.
        """
        clear = measured.BUSY_CLEAR if self.windows.busy else measured.CLEAR
        if seconds > clear:
            again = [self.windows.observe(call, 1, seconds)]
            if (
                again[0].is_disturbed and seconds < measured.SINGLE
            ):  # a program had a processor in both
                again += [self._series(buffers, call, seconds, 1)]
            seconds = min(seconds, *joined(again).usable)
        if seconds > clear:
            return seconds
        seconds = min(seconds, *self._series(buffers, call, seconds, measured.TIMED).usable)
        if self.in_rows and seconds * measured.TIMED_IN_ROW < measured.ROW:
            return estimate(
                self._series(buffers, call, seconds, measured.TIMED_IN_ROW).usable
            ).median
        return seconds

    def _series(self, buffers: Buffers, call: Call, expected: float, count: int = 0) -> Series:
        """Observe a call that takes about `expected` seconds, again if most was disturbed."""
        count = count or observations(expected, self.windows.busy, self.in_rows)
        before = buffers.write if self._fresh else None
        found: list[Series] = []
        while len(found) < measured.TRIES and sum(int(one.good.sum()) for one in found) < min(
            measured.FEWEST_OBSERVED, count
        ):
            found.append(self.windows.observe(call, count, expected, before))
            if self.windows.busy:
                break
        return joined(found)

    # ---- whole collectives ------------------------------------------------------------------

    def observe(self, signature: Signature, choice: Choice, limit: float) -> Sequence[float]:
        """Observe a whole collective a few times; once where it takes more than `limit` seconds."""
        if not self._owes:
            self._expect_time(measured.RACE_SHARE)
        self._owes = False
        ready = self._ready_call(signature, choice)
        if ready.told:
            told, ready.told = ready.told, Cold()
            if not limit < told[0] < measured.CONNECTED:
                return told
            ready.expected = self._settled(ready.buffers, ready.made.call, told[0])
            if ready.expected > measured.SINGLE:
                return [ready.expected] if ready.expected < told[0] else told
        hopeless = ready.expected > limit and not self.windows.busy
        series = self._series(ready.buffers, ready.made.call, ready.expected, int(hopeless))
        seconds = series.usable
        if self.windows.busy and estimate(seconds).median > measured.DOUBTED * ready.expected:
            seconds += self._series(ready.buffers, ready.made.call, ready.expected).usable
        elif not self.windows.busy and series.is_disturbed and ready.doubts < measured.DOUBTS:
            ready.doubts += 1
            return []
        ready.expected = self.tasks[signature, choice] = estimate(seconds).median
        return seconds

    def duel(
        self, signature: Signature, choices: Mapping[str, Choice], most: int = LONGEST
    ) -> dict[str, Estimate]:
        """Measure choices, the first as the reference, and the MPI library (``mpi``) in turns.

        There are at most `most` turns.
        Results are compared with the MPI library's first; raises WrongResultError on all ranks.
        """
        buffers = self.buffers(signature)
        calls: dict[str, Call] = {n: self.forced(signature, one).call for n, one in choices.items()}
        method = getattr(self.library, ROWS[signature.collective].method)
        calls[REFERENCE] = partial(method, *buffers.arguments())
        self.compare(buffers, calls)
        expected = {name: self._first(buffers, call)[0] for name, call in calls.items()}

        def visit(name: str, limit: float) -> Sequence[float]:
            return self._series(buffers, calls[name], expected[name]).usable

        turns = Turns(visit, next(iter(calls)), calls, drops=False)
        while (
            not turns.is_decided and turns.count < most and not (turns.count and self._is_past(1.0))
        ):
            turns.turn()
        return turns.estimates()

    def confirm(
        self, signature: Signature, built_in: Choice, other: Choice, expected: float
    ) -> Confirmation:
        """Compare a choice with the built-in one in rows of calls, each about `expected` seconds.

        Programs make calls in a row too. Then a choice also costs what it keeps busy after it has
        returned: links, and ranks that are late for the next call.
        """
        count = max(1, min(MOST_CALLS, int(measured.ROW / max(expected, 1e-6))))
        named = {BUILT_IN: built_in, OTHER: other}
        calls = {name: self.forced(signature, choice).call for name, choice in named.items()}

        def row(name: str) -> float:
            return float(self.slowest([self.batch(calls[name], count)])[0])

        for name in calls:
            row(name)
        return confirm(row, partial(self._is_past, 1.0))

    # ---- stages -----------------------------------------------------------------------------

    def learn(self, signature: Signature, choice: Choice) -> None:
        """Measure the stages of a call whose costs are not known yet, from short pipelines."""
        pipeline = self.pipeline(signature, choice)
        if not pipeline.steps or not missing(pipeline, self.costs):
            return
        if self._learn_stages(signature, choice, pipeline):
            return
        several = len(missing(pipeline, self.costs)) > 1  # others are compared with this one
        whole = self._whole(
            signature, choice, measured.ROWS_OF_FIRST if several else measured.ROWS_OF_COST
        )
        self.costs.enter(shared_out(pipeline, whole, self.costs, self.control.size))

    def _learn_stages(self, signature: Signature, choice: Choice, pipeline: Pipeline) -> bool:
        """Measure the stages of a call; False if it has one segment. Raises OutOfTime."""
        self._expect_time(measured.TASK_SHARE)
        if is_single(pipeline):
            return False
        counts = [pipeline.short, *([pipeline.longer] if pipeline.is_long else [])]
        seconds = [self._stages(signature, choice, pipeline, count) for count in counts]
        for stage, ranks in costs_of(pipeline, *seconds).items():
            self.costs.improve(stage, ranks)
        return True

    def _whole(
        self,
        signature: Signature,
        choice: Choice,
        rows: int = measured.ROWS_OF_COST,
        again: bool = False,
    ) -> float:
        """Return about how many seconds a call takes; a trace would only add time.

        A few observations are enough: the best predictions are measured once more. Rows of calls
        may vary by a half, so it takes some, until their interval is narrow.
        """
        ready = self._ready_call(signature, choice)
        if ready.told or again:
            ready.told = Cold()
            ready.expected = self._settled(ready.buffers, ready.made.call, ready.expected)
        if self.in_rows:
            series = partial(self._series, ready.buffers, ready.made.call, ready.expected)
            ready.expected = of_series(lambda: series().usable, rows)
        self.tasks[signature, choice] = ready.expected
        return ready.expected

    @property
    def in_rows(self) -> bool:
        """Whether the observations of a series are of calls in a row."""
        return self.windows.crowded and not self._fresh

    def learn_again(self, signature: Signature, choice: Choice) -> None:
        """Measure the stages of a call once more; keep the smaller costs."""
        pipeline = self.pipeline(signature, choice)
        stages = [stage for stage, _ in pipeline.stages()]
        if not stages or not all(map(self.costs.knows, stages)):
            return
        if self._learn_stages(signature, choice, pipeline):
            return
        before = self._ready_call(signature, choice).expected
        whole = min(before, self._whole(signature, choice, again=True))
        self.costs.enter(lowered(pipeline, whole, self.costs, self.control.size))

    def _stages(
        self, signature: Signature, choice: Choice, pipeline: Pipeline, segments: float
    ) -> list[Ranks]:
        """Return the seconds of each stage by rank, in a message of so many segments."""
        short = replace(signature, count=pipeline.nbytes(segments) // signature.element)
        made = self.forced(short, choice)
        buffers = self.buffers(short)
        expected, _ = self._first(buffers, made.call)
        stage_of = {str(task): k for task, k in made.plan.stages.items()}
        calls = min(measured.MOST_TRACED, observations(expected, self.windows.busy, self.in_rows))
        with self.han.trace() as trace:
            series = self._series(buffers, made.call, expected, calls)
        in_a_row = estimate(series.usable).median if self.in_rows else None
        mine = typical(split(trace.times, series, stage_of), in_a_row)
        ranks = self.control.allgather(mine)
        self.tasks[short, choice] = max(map(sum, ranks))
        return list(zip(*ranks, strict=True))
