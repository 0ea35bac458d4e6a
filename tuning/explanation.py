"""What a call runs, and why: the plan, the rule that decided, and other possible plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from han.common.pictures import picture
from han.common.units import format_size
from han.tasks.choice import LEFT
from han.tasks.compositions import describe as composed_of
from han.tasks.graph import summarise
from han.tasks.inspect.traffic import Counted, describe
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tuning.classes import stands_for
from han.tuning.costs.estimates import Estimate
from han.tuning.row import Row
from han.tuning.rules import Decision
from han.tuning.told import legend, measured_here, ways
from han.tuning.tuned.uses import spell

if TYPE_CHECKING:
    from han.tasks.task_graph import TaskGraph


@dataclass(frozen=True)
class Explanation:
    """The plan of a call, the rule that decided, and the other plans that it may run.

    ``str`` returns it as text.
    """

    plan: Plan
    decision: Decision
    reads: str = ""  # how ranks read each other's memory; "" if they do not
    counted: Counted | None = None  # on this rank; None if the call is left to the MPI library
    alternative: Plan | None = None
    rival: Plan | None = None
    tried: tuple[int, int] = (0, 0)  # calls that ran the plan, and calls that ran the rival
    sizes: tuple[int, int] | None = None  # the plan's class: more bytes than the first, to the last

    @property
    def graph(self) -> TaskGraph:
        """The task graph."""
        return self.plan.graph

    @property
    def rule(self) -> str:
        """The rule that decided."""
        return self.decision.choice.rule

    def stages(self) -> list[str]:
        """The stages, HAN's composite tasks: ``["ib", "sbib", ..., "sb"]``."""
        return self.plan.tasks.stage_names()

    def _alone(self) -> str:
        """Describe a call without tasks: it has one rank."""
        signature = self.plan.signature
        copies = (signature.reduces or signature.by_blocks) and signature.nbytes
        return f"(none: the rank is alone{', send is copied to recv' if copies else ''})"

    def _rivalry(self) -> str:
        """``node: solo meet (chunk 4MiB), which 12 of 40 calls ran``."""
        assert self.rival is not None
        usual, other = self.tried
        so_far = f", which {other} of {usual + other} calls ran" if usual + other else ""
        return _on_levels(self.rival) + so_far

    def _measured(self) -> list[str]:
        """The measurements behind the choice, if a tuned table has them."""
        tuned = self.decision.tuned
        return [] if tuned is None else described(tuned, self.plan.signature)

    def _passed(self) -> tuple[tuple[str, str], ...]:
        """The rules that were passed over, and measurements of another class of operations."""
        other = self.decision.other_class
        return (*(() if other is None else other()), *self.decision.passed)

    def _repr_html_(self) -> str | None:
        """Return text and task graph for a notebook; None if matplotlib is missing."""
        graph = picture("plan_svg", self.plan)
        return None if graph is None else f"<pre>{escape(str(self))}</pre>{graph}"

    def __str__(self) -> str:
        topology, choice = self.plan.topology, self.decision.choice
        composed = composed_of(topology, choice)
        moved = "" if choice.composition == LEFT else describe(self.plan)
        lines = [
            self.plan.signature.describe(),
            f"  in short  {self._in_short(moved)}",
            f"  rule      {choice.rule}",
            *(f"  row       {where}: {name}" for where, name in self.decision.rows),
            *(f"  measured  {line}" for line in self._measured()),
            *(f"  passed    {rule}: {reason}" for rule, reason in self._passed()),
            f"  topology  {topology.describe()}",
            *([f"  composed  {composed}"] if composed else []),
        ]
        if self.sizes is not None:
            above, most = map(format_size, self.sizes)
            lines.append(f"  class     one plan for all sizes above {above} and up to {most}")
        if choice.composition == LEFT:
            return "\n".join(lines)
        return "\n".join([*lines, *self._levels(), *self._moves(moved), *self._others()])

    def _in_short(self, moved: str) -> str:
        """Return a sentence: how the data moves, how often, and what was measured."""
        if self.decision.choice.composition == LEFT:
            return "han leaves this call to the MPI library"
        told = [ways(self.plan), *([moved] if moved.startswith("each byte") else [])]
        return "; ".join([*told, measured_here(self.decision.tuned, self.plan.signature)])

    def _levels(self) -> list[str]:
        """Return what each level runs."""
        topology, choice, lines = self.plan.topology, self.decision.choice, []
        for k in range(topology.depth):
            active = k in self.plan.levels
            what = choice.levels[k].describe() if active else "(one member: nothing to do)"
            lines.append(f"  level     {topology.names[k]} ({topology.symbols[k]}): {what}")
        return lines

    def _moves(self, moved: str) -> list[str]:
        """Return the segments, the stages with a legend, and how often data moves."""
        choice = self.decision.choice
        size = "" if choice.segment is None else f" of {format_size(choice.segment)}"
        cut = f"{self.plan.segments}{size if self.plan.segments > 1 else ''}"
        lines = [f"  reads     {self.reads}"] if self.reads else []
        lines += [
            f"  segments  {cut}, {choice.schedule}",
            f"  stages    {summarise(self.stages()) or self._alone()}",
            *(f"  legend    {line}" for line in legend(self.plan)),
            f"  traffic   {moved}",
        ]
        if self.counted is not None and self.counted.calls:
            signature = self.plan.signature
            nbytes = None if signature.own else signature.nbytes
            lines.append(f"  counted   {self.counted.describe(nbytes)}")
        return lines

    def _others(self) -> list[str]:
        """Return the other plans that the call may run."""
        lines = []
        if self.alternative is not None:
            other = _on_levels(self.alternative)
            lines.append(f"  or, where all buffers of all ranks are shared arrays: {other}")
        if self.rival is not None:
            lines.append(f"  or, where trials find it quicker: {self._rivalry()}")
        return lines

    __repr__ = __str__  # for the prompt of an interpreter


def _on_levels(plan: Plan) -> str:
    """``node: solo split (chunk 512KiB)``."""
    names, levels = plan.topology.names, plan.choice.levels
    return ", ".join(f"{names[k]}: {levels[k].describe()}" for k in plan.levels)


# ---- measurements behind a row ------------------------------------------------------------------


def described(row: Row, signature: Signature) -> list[str]:
    """Return the measurement behind the decision for a call, and that of the runner-up."""
    if row.predicted is not None:
        return [f"nothing on so many nodes and ranks; predicted {row.predicted.describe()}"]
    point = row.nearest(signature.nbytes)
    far = [f"elsewhere: {row.far}"] if row.far else []
    if point is None:
        return ["nothing: the row names no measurement", *_origin(row.source), *far]
    lines = [f"{point.best.describe()} {_at(point.nbytes, signature.nbytes)}"]
    if point.use is not None:
        lines.append(f"built-in {_beside(point.default, point.best)}")
        lines += _confirmations(point.gains)
    if point.runner_up is not None:
        one = point.runner_up
        lines.append(f"runner-up {spell(one.use)}: {_beside(one.timing, point.best)}")
    about = point.conditions.describe()
    lines += _origin(row.source, point.strategy, point.made, point.versions, about)
    return [*lines, *stands_for(about, signature), *far]


def _beside(timing: Estimate, best: Estimate) -> str:
    """Return a time, and how many times as long as the best one it is."""
    return f"{timing.describe()}, {timing.median / best.median:.2f} times as long"


def _at(measured: int, wanted: int) -> str:
    """Return the size that was measured and, if it is another one, the size that is wanted."""
    where = f"at {format_size(measured)}"
    return where if measured == wanted else f"{where}, for {format_size(wanted)}"


def _origin(source: str, strategy: str = "", made: str = "", *more: str) -> list[str]:
    """Return the line that says where a measurement is kept and how it was made, if known."""
    how = " ".join(text for text in (strategy, made) if text)
    told = [text for text in (f"in {source}" if source else "", how, *more) if text]
    return [", ".join(told)] if told else []


def _confirmations(gains: Sequence[float]) -> list[str]:
    """Return the line that says what runs of the bench have found, if there were any."""
    told = ", ".join(f"{gain:.2f}" for gain in gains)
    return [f"built-in {told} times as long by han bench --tuned"] if gains else []
