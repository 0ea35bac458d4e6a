"""``Comm.explain``: what a call would run, and why."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from han.common.errors import ArgumentError, ArgumentTypeError
from han.common.pictures import picture
from han.common.units import format_size, parse_size, plural
from han.message.dtypes import element_type, kernel, numpy_name, op_name
from han.message.unlocked import is_commutative
from han.model.collectives import carried
from han.tasks.choice import LEFT
from han.tasks.graph import TaskGraph, summarise
from han.tasks.inspect.traffic import Counted, describe
from han.tasks.plan import Plan
from han.tasks.signature import REDUCING, ROOTED, Signature
from han.tuning.rules import Decision

if TYPE_CHECKING:
    from han.runtime.state import State


@dataclass(frozen=True)
class Explanation:
    """What a call would run, and what instead: prints as text."""

    plan: Plan
    decision: Decision
    reads: str = ""  # how ranks read each other's memory, if they do
    counted: Counted | None = None  # on this rank; None where no such call is han's
    alternative: Plan | None = None
    rival: Plan | None = None
    tried: tuple[int, int] = (0, 0)  # calls that ran this way and the rival's, where there is one

    @property
    def graph(self) -> TaskGraph:
        """The graph of tasks."""
        return self.plan.graph

    @property
    def rule(self) -> str:
        """The rule that decided."""
        return self.decision.choice.rule

    def stages(self) -> list[str]:
        """The stages, HAN's composite tasks: ``["ib", "sbib", ..., "sb"]``."""
        return self.graph.stage_names()

    def _alone(self) -> str:
        """Say what a call without tasks does: its rank is alone, or it is not han's."""
        signature = self.plan.signature
        if self.decision.choice.composition == LEFT:
            return f"(none of han's: the MPI library's own {signature.collective})"
        copies = (signature.reduces or signature.by_blocks) and signature.nbytes
        return f"(none: the rank is alone{', send is copied to recv' if copies else ''})"

    def _rivalry(self) -> str:
        """``node: solo meet (chunk 4MiB), as 12 of 40 calls did``."""
        assert self.rival is not None
        usual, other = self.tried
        so_far = f", as {other} of {usual + other} calls did" if usual + other else ""
        return _on_levels(self.rival) + so_far

    def __repr__(self) -> str:
        """Return the text, so that an interpreter's prompt shows it."""
        return str(self)

    def _repr_html_(self) -> str | None:
        """Show text and task graph in a notebook; None where no picture can be made."""
        graph = picture("plan_svg", self.plan)
        return None if graph is None else f"<pre>{escape(str(self))}</pre>{graph}"

    def __str__(self) -> str:
        topology, choice = self.plan.topology, self.decision.choice
        size = "" if choice.segment is None else f" of {format_size(choice.segment)}"
        cut = f"{self.plan.segments}{size if self.plan.segments > 1 else ''}"
        active = self.plan.levels
        lines = [
            self.plan.signature.describe(),
            f"  rule      {choice.rule}",
            *(f"  passed    {rule}: {reason}" for rule, reason in self.decision.passed),
            f"  topology  {topology.describe()}",
        ]
        for k in range(topology.depth):
            what = choice.levels[k].describe() if k in active else "(one member: nothing to do)"
            lines.append(f"  level     {topology.names[k]} ({topology.symbols[k]}): {what}")
        if self.reads:
            lines.append(f"  reads     {self.reads}")
        lines += [
            f"  segments  {cut}, {choice.schedule}",
            f"  stages    {summarise(self.stages()) or self._alone()}",
            f"  traffic   {describe(self.plan)}",
        ]
        if self.counted is not None and self.counted.calls:
            lines.append(f"  counted   {self.counted.describe(self.plan.signature.nbytes)}")
        if self.alternative is not None:
            lines.append(
                "  or, where all buffers of all ranks are shared arrays: "
                + _on_levels(self.alternative)
            )
        if self.rival is not None:
            lines.append(f"  or, where trials find it quicker: {self._rivalry()}")
        return "\n".join(lines)


def _on_levels(plan: Plan) -> str:
    """``node: solo split (chunk 512KiB)``."""
    names, levels = plan.topology.names, plan.choice.levels
    return ", ".join(f"{names[k]}: {levels[k].describe()}" for k in plan.levels)


def explain(
    state: State,
    collective: str,
    nbytes: int | str,
    op: MPI.Op,
    dtype: Any,
    root: int,
    shared: bool = False,
) -> Explanation:
    """Explain a call; raises ArgumentError for what cannot be called."""
    signature = make_signature(collective, nbytes, op, dtype, root)
    mappable = _mappable(state)
    if shared and signature.nbytes and mappable:
        signature = replace(signature, mapped=True)
    if signature.rooted and not 0 <= root < state.size:
        raise ArgumentError(f"root {root} is not in 0..{state.size - 1}")
    planned = state.planner.planned(signature)
    if planned.left:
        return Explanation(planned.plan, planned.decision)
    plan, decision = planned.plan, planned.decision
    counted = sum(map(Counted.of, state.plans.counts(signature)), Counted())
    single_copy = any(decision.choice.levels[k].submodule == "solo" for k in plan.levels)
    reads = f"{mappable} where they are" if signature.mapped else "by cross-memory attach"
    return Explanation(
        plan,
        decision,
        reads if single_copy else "",
        counted,
        planned.alternative,
        planned.rival,
        state.plans.tried(signature),
    )


def _mappable(state: State) -> str:
    """Name the arrays that ranks can read where they are: "" where there are none."""
    mapping, windows = state.shared.mapping, len([*state.shared.windows])
    refused = mapping is not None and mapping.refused
    kinds = [] if refused else ["shared arrays"]
    if windows:
        kinds.append(f"arrays in {plural(windows, 'attached window')}")
    return " and ".join(kinds)


def _bytes(nbytes: int | str) -> int:
    """Take a number of bytes, or a size as in ``4MiB``."""
    try:
        return parse_size(nbytes) if isinstance(nbytes, str) else operator.index(nbytes)
    except ValueError as error:
        raise ArgumentError(f"nbytes {error}") from None
    except TypeError:
        raise ArgumentTypeError(f"nbytes: {nbytes!r} is no number of bytes") from None


def make_signature(
    collective: str, nbytes: int | str, op: MPI.Op = MPI.SUM, dtype: Any = "f8", root: int = 0
) -> Signature:
    """Make the Signature of a call on NumPy data; raises ArgumentError for unknown names."""
    collective = carried(collective)
    nbytes, element = _bytes(nbytes), element_type(dtype)
    if nbytes < 0:
        raise ArgumentError(f"nbytes {nbytes} is negative")
    if collective == "barrier":
        return Signature(collective)
    if collective not in REDUCING:
        return Signature(collective, nbytes, root=root if collective in ROOTED else 0)
    if nbytes % element.itemsize:
        raise ArgumentError(f"{nbytes} bytes are no whole number of {element.name}")
    name = op_name(op)
    return Signature(
        collective,
        nbytes // element.itemsize,
        element.itemsize,
        name or "user-defined",
        numpy_name(element),
        commutative=bool(name) or is_commutative(op),
        native=kernel(name, numpy_name(element)) is not None,
        root=root if collective == "reduce" else 0,
    )
