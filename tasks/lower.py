"""Lowering: a Plan becomes the Program of one rank.

Nothing here needs MPI, and a rank lowers only its own operations.
"""

from __future__ import annotations

from han.model.collectives import ROWS
from han.model.program import OwnBlocks, Program, Ref
from han.tasks.compositions import composition
from han.tasks.context import Context
from han.tasks.graph import Task
from han.tasks.outline import Outline
from han.tasks.own_sizes import blocks_of, sent_to, taken_from
from han.tasks.places import RECV, SEND, BlockPlaces, Places, TreePlaces
from han.tasks.plan import Plan
from han.tasks.prefixes import ScanPlaces
from han.tasks.stream import Builder


def lower(plan: Plan, rank: int) -> Program:
    """Lower the plan for one rank."""
    if plan.largest is not None:
        whole, signature = lower(plan.largest, rank), plan.signature
        if whole.own:
            return whole.of_own(_blocks(plan, rank))
        lengths = [signature.length(r) for r in range(len(signature.counts))]
        return whole.at(signature.nbytes, lengths)
    builder = Builder(plan, rank)
    found = places_of(plan, builder)
    for tasks in batches(plan):
        lower_batch(plan, builder, found, tasks)
    if found.alone:
        _deliver(plan, builder)
    return builder.program(plan.footprint())


def _blocks(plan: Plan, rank: int) -> OwnBlocks:
    """Return the blocks of a rank in a call whose ranks know only the sizes of their own ones."""
    signature, steps = plan.signature, plan.block_steps
    handed = None if steps is None else steps.handed
    givers = {} if handed is None else handed.givers(rank)
    same = signature.neighbours is not None and signature.neighbours.same
    return blocks_of(signature.counts, rank, same, givers)


def places_of(plan: Outline, builder: Builder) -> Places | ScanPlaces:
    """Return the places of a rank in the plan's steps."""
    if plan.signature.by_blocks:
        return BlockPlaces(plan, builder)
    if plan.nested_scan:
        return ScanPlaces(plan, builder)
    return composition(plan.choice.composition).places(plan, builder)


def operand_of(plan: Outline, rank: int, level: int) -> Ref:
    """Return where a rank's operand on a level is, in its own memory; any rank may ask."""
    return SEND if plan.signature.by_blocks else TreePlaces(plan, Builder(plan, rank)).where[level]


def batches(plan: Plan) -> list[list[Task]]:
    """Return the tasks that are lowered together.

    They are whole streams. Tasks are lowered one by one in lockstep, and where a segment passes
    through a stream twice: the second task waits for one of another stream, which waits for the
    first.
    """
    if plan.lockstep or plan.repeats:
        return [[task] for task in plan.stages]
    return list(map(list, plan.streams.values()))


def lower_batch(
    plan: Plan, builder: Builder, found: Places | ScanPlaces, tasks: list[Task]
) -> None:
    """Emit a rank's operations for tasks of one stream."""
    kind, level = tasks[0].stream
    for place in found.at(tasks):
        choice = plan.choice.levels[level].of(kind)
        plan.parts[level].lower(Context(builder.stream(kind, level), choice, *place))


def _deliver(plan: Plan, builder: Builder) -> None:
    """Copy the send buffer to the receive buffer if no level communicates, as on one rank."""
    signature = plan.signature
    if not (signature.reduces or signature.by_blocks) or signature.collective == "exscan":
        return
    kind = ROWS[signature.collective].task_kinds[0] if signature.by_blocks else "reduce"
    stream = builder.stream(kind, 0)
    if signature.own:
        stream.copy(
            RECV.behind(taken_from(0, 1)), SEND.behind(sent_to(0)), signature.nbytes, block=1
        )
    else:
        stream.copy(RECV, SEND, signature.nbytes)
