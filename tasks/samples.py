"""Programs of large messages from those of two smaller ones.

Most of what a large message needs is repetition: the same operations for later pieces. Two smaller
messages, the samples, differ by a period: the bytes after which operations, cells and requests are
the same again. So in each stream the longer sample repeats a group of operations once more than the
shorter one. The program of the large message repeats it as often as its size needs, as a loop. The
time to lower a message does not grow with its size.

Samples that do not show such a group are an answer too: then the message is lowered as it is. So it
is where a parameter may make a period that samples are too short to show.
"""

from __future__ import annotations

from dataclasses import replace

from han.model.channel_layout import PAGE, RING_MAX
from han.model.collectives import SPREADING
from han.model.loops import period, repeated, roll, unroll
from han.model.program import Program
from han.tasks.lower import lower
from han.tasks.plan import Plan

UNIT = 512 << 10  # bytes; most periods divide them
FIRST = (3, 6, 12)  # units of the first sample; more where its period is too long to be seen
MORE = 2  # samples at most that follow the first one, each a period longer
MANY = 400  # operations of a program that takes longer to lower than samples
GAIN = 3  # a message has so many times the bytes of the first sample at least
LONGEST = 256 << 20  # bytes of a message; pieces of longer ones grow, as a flag counts 2^23 at most
SMALLEST = PAGE  # bytes of a size of a parameter; smaller ones may change the period
SEEN = 3  # times that a size of a parameter fits into the first sample, so that its end is seen


def lower_with_loops(plan: Plan, rank: int) -> Program:
    """Lower the plan for one rank as :func:`lower` does, with loops if it is large."""
    program = from_samples(plan, rank)
    return roll(lower(plan, rank)) if program is None else program


def from_samples(plan: Plan, rank: int) -> Program | None:
    """Return the program of one rank with loops, if the message is large and samples tell it."""
    program = _of_samples(plan, rank) if _periodic(plan) else None
    return None if program is None else replace(program, footprint=_footprint(plan))


def lower_as_run(plan: Plan, rank: int) -> tuple[Program, bool]:
    """Return the operations that a rank carries out, without loops, and whether samples told them.

    Proofs examine these: a program from samples is what runs, whatever :func:`lower` would return.
    """
    program = from_samples(plan, rank)
    return unroll(program or roll(lower(plan, rank))), program is not None


def _footprint(plan: Plan) -> tuple[int, ...]:
    """Return the plan's footprint, which all ranks find alike, whatever their samples are.

    A run's cells are in half of a ring, so a message of some MiB in segments uses all of them.
    """
    nbytes, unit = plan.signature.nbytes, _unit(plan)
    size = nbytes % unit + -(-RING_MAX // unit) * unit
    return (plan if plan.segments == 1 or size > nbytes else _smaller(plan, size)).footprint()


def _periodic(plan: Plan) -> bool:
    """Whether all parts say that larger messages only need more of the same operations."""
    signature, levels = plan.signature, plan.levels
    apart = plan.lockstep or plan.largest is not None or not signature.grains
    apart |= signature.grain > PAGE  # few elements make a message that does not use all cells
    apart |= signature.nbytes > LONGEST or any(size < SMALLEST for size in _sizes(plan))
    return bool(levels) and not apart and all(plan.parts[level].periodic for level in levels)


def _sizes(plan: Plan) -> list[int]:
    """List the sizes that the choice's parameters have."""
    return [
        int(value)
        for level in plan.levels
        for one in plan.choice.levels[level].each
        for name, value in one.parameters
        if plan.parts[level].parameters[name].kind == "size" and not isinstance(value, tuple)
    ]


def _of_samples(plan: Plan, rank: int) -> Program | None:
    """Return the program if it is large and samples tell it, else None."""
    nbytes, unit, grain = plan.signature.nbytes, _unit(plan), plan.signature.grain
    largest = max((size for size in _sizes(plan) if size < nbytes), default=0)
    for units in FIRST:
        size = nbytes % unit + units * unit
        if nbytes < GAIN * size:
            return None
        if size < SEEN * largest:
            continue
        first = _sample(plan, rank, size)
        if len(first.code) * nbytes < MANY * size:
            return None
        length = period(first) * grain
        rest = (nbytes - size) % length if length else 0
        if rest:
            first = _sample(plan, rank, size + rest)
        if length:
            return _of_longer_ones(plan, rank, first, length)
    return None


def _unit(plan: Plan) -> int:
    """Return a part of the message: whole segments if there are several, else whole grains.

    It has about UNIT bytes in all buffers.
    """
    signature, segment, whole = plan.signature, plan.choice.segment, plan.signature.grain
    if segment is not None and segment < signature.nbytes:
        whole *= max(1, segment // whole)
    size = plan.topology.size if signature.collective in SPREADING else 1
    return max(1, UNIT // size // whole) * whole


def _of_longer_ones(plan: Plan, rank: int, first: Program, length: int) -> Program | None:
    """Return the program from two samples of which the second one has `length` bytes more."""
    shorter, size = first, first.grains * first.grain
    for _ in range(MORE):
        longer = _sample(plan, rank, size + length)
        program = repeated(shorter, longer, (plan.signature.nbytes - size) // length)
        if program is not None:
            return program
        shorter, size = longer, size + length
    return None


def _sample(plan: Plan, rank: int, nbytes: int) -> Program:
    """Lower a smaller message for one rank."""
    return lower(_smaller(plan, nbytes), rank)


def _smaller(plan: Plan, nbytes: int) -> Plan:
    """Return the plan of a smaller message that does the same as the plan."""
    whole = plan.signature
    count, grains = nbytes // whole.element, nbytes // whole.grain
    return plan.alike(whole.changed(count=count, grains=grains, bound=nbytes))
