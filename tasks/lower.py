"""Lowering: a Plan becomes the Program of one rank.

Nothing here needs MPI, and a rank lowers only its own operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from han.model.program import Base, Program, Ref
from han.model.topology import Group
from han.tasks.context import Context
from han.tasks.graph import Task
from han.tasks.outline import Outline
from han.tasks.plan import Plan
from han.tasks.stream import Builder


def lower(plan: Plan, rank: int) -> Program:
    """Lower the plan for one rank."""
    if plan.largest is not None:
        lengths = [plan.signature.length(r) for r in range(len(plan.signature.counts))]
        return lower(plan.largest, rank).at(plan.signature.nbytes, lengths)
    builder = Builder(plan, rank)
    groups = _groups(plan, rank)
    where = _operands(plan, builder, groups)
    for tasks in _batches(plan):
        _, level = tasks[0].stream
        group = groups[level]
        if group is not None and group.size > 1:
            _lower_batch(plan, builder, tasks, group, where[level])
    _deliver(plan, builder, groups)
    return builder.program(plan.footprint())


def _groups(plan: Outline, rank: int) -> dict[int, Group | None]:
    topology, signature = plan.topology, plan.signature
    if signature.by_blocks:
        return {k: topology.everyone(k, rank, signature.root) for k in plan.levels}
    return {k: topology.group(k, rank, signature.root) for k in range(topology.depth)}


def _operands(
    plan: Outline, builder: Builder, groups: Mapping[int, Group | None]
) -> dict[int, Ref]:
    """Return where this rank's operand on each level is: its send buffer, or its partial result.

    A leader reduces into its receive buffer where it has one (Jain, section III-E), so that no
    level needs a copy of its own.
    """
    if plan.signature.collective == "bcast":
        return dict.fromkeys(groups, Ref(Base.RECV))
    if plan.signature.by_blocks:
        return dict.fromkeys(groups, Ref(Base.SEND))
    where, here = {}, Ref(Base.SEND)
    for level, group in groups.items():
        where[level] = here
        if group is None or not group.leads:
            break
        if group.size > 1 and here.base == Base.SEND:
            here = builder.accumulator()
    builder.acc = here
    return where


def operand_of(plan: Outline, rank: int, level: int) -> Ref:
    """Return where a rank's operand on a level is, in its own memory; any rank may ask."""
    return _operands(plan, Builder(plan, rank), _groups(plan, rank))[level]


def _batches(plan: Plan) -> list[list[Task]]:
    """Return the tasks that are lowered together: in lockstep one by one, else whole streams."""
    if plan.lockstep:
        return [[task] for task in plan.stages]
    return list(map(list, plan.streams.values()))


def _lower_batch(
    plan: Plan, builder: Builder, tasks: Sequence[Task], group: Group, operand: Ref
) -> None:
    kind, level = tasks[0].stream
    choice = plan.choice.levels[level].of(kind)
    result = Ref(Base.RECV)
    source = result if kind == "bcast" else operand
    if kind == "reduce":
        result = builder.acc
    context = Context(tuple(tasks), group, builder.stream(kind, level), choice, source, result)
    plan.parts[level].lower(context)


def _deliver(plan: Plan, builder: Builder, groups: Mapping[int, Group | None]) -> None:
    """Copy the send buffer to the receive buffer if no level communicates, as on one rank."""
    signature = plan.signature
    moves = signature.reduces or signature.by_blocks
    if not moves or any(g is not None and g.size > 1 for g in groups.values()):
        return
    stream = builder.stream(signature.collective if signature.by_blocks else "reduce", 0)
    stream.copy(Ref(Base.RECV), Ref(Base.SEND), signature.nbytes)
