"""Check one rank's Program, read from a file, against the memory that it may access.

The executor trusts a Program. One from a file may hold any number, so all numbers are checked
before it runs: operations in ``native/memory/program_check.c``, other fields here. Whether the
Program is *right* depends on the Programs of all ranks, which ``tasks/verify`` examines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from han import _native
from han.model.channel_layout import Geometry
from han.model.collectives import KINDS, ROWS
from han.model.opcodes import SIZED
from han.model.program import Program
from han.model.topology import Topology
from han.tasks.outline import geometries
from han.tasks.signature import Signature
from han.tasks.size_classes import exact

SPARE = 1 << 20  # bytes of scratch beyond a few messages for each rank


@dataclass(frozen=True)
class Ground:
    """What the Program of one rank may access: channels as (members, layout), and its buffers."""

    signature: Signature
    topology: Topology
    rank: int
    channels: tuple[tuple[int, Geometry], ...]


def ground(topology: Topology, signature: Signature, rank: int, memory: int) -> Ground:
    """Return what a rank's Program may access; `memory` as in ``make_plan``."""
    channels = [
        (len(topology.home(level, rank)), geometry)
        for level, geometry in enumerate(geometries(topology, memory))
        if geometry is not None
    ]
    return Ground(signature, topology, rank, tuple(channels))


def check(program: Program, where: Ground) -> None:
    """Raise ValueError unless a Program keeps to its memory, requests, peers and streams."""
    problem = _problem(program, where) or _misfit(program, where.signature, where.topology.size)
    if problem is not None:
        raise ValueError(problem)
    _check_operations(program, where)
    if program.terms is not None:  # the executor computes the operations of other sizes
        least = exact(where.signature, where.signature.element)
        _check_operations(program.at(least.nbytes), replace(where, signature=least))


def _check_operations(program: Program, where: Ground) -> None:
    signature, comms = where.signature, program.comms
    blocks = where.topology.size if signature.by_blocks else 1
    taken = zip(where.channels, program.footprint, strict=True)
    _native.check_program(
        code=program.code.tobytes(),
        streams=tuple((s.start, s.stop) for s in program.streams),
        channels=tuple((members, g.ring, part) for (members, g), part in taken),
        comms=tuple(len(ranks) for _, ranks in comms),
        ranks=where.topology.size,
        tasks=len(program.tasks),
        requests=program.requests,
        count=signature.count * blocks,
        element=signature.element,
        native=signature.native,
        operand=program.operand,
        lengths=_lengths(program, where),
    )


def _misfit(program: Program, signature: Signature, size: int) -> str | None:
    """Return what is wrong with the terms of a Program for many sizes, or None.

    Terms that pass keep every operation within the memory that it has for the largest message.
    """
    terms, grains = program.terms, signature.grains
    grain = signature.grain if grains else 0
    blocks = size if signature.varied else 0
    if program.blocks != blocks:
        return f"it has {program.blocks} blocks that differ in size, not {blocks}"
    if (program.grains, program.grain) != (grains, grain):
        return f"its message has {program.grains} grains of {program.grain} bytes"
    if terms is None:
        return None
    sized = terms["each"] != 0
    if not np.array_equal(sized, np.isin(program.code["code"], SIZED)):
        return "an operation on data is the same for all sizes"
    if (terms["block"] > max(blocks - 1, 0)).any() or (terms["blocks"] >= max(size, 1)).any():
        return "an operation moves a block that does not exist"
    start, stop = terms["start"][:, None], terms["stop"][:, None]
    before = (terms["origin"] > start) & (terms["blocks"] == 0)
    outside = (stop > grains).any() or (terms["origin"] > grains).any()
    if before.any() or (start > stop).any() or outside:
        return "an operation leaves the message"
    same = program.at(signature.nbytes).code
    return None if np.array_equal(same, program.code) else "its operations are of another size"


def _problem(program: Program, where: Ground) -> str | None:
    """Return what is wrong with the fields of a Program other than operations, or None."""
    topology, channels = where.topology, len(where.channels)
    if program.rank != where.rank:
        return f"it is for rank {program.rank}, not {where.rank}"
    if any(s.kind not in KINDS or s.level >= topology.depth for s in program.streams):
        return "it has a stream of an unknown kind or level"
    if (len(program.footprint), len(program.writes)) != (channels, channels):
        return f"it is not for {channels} channels"
    for _, ranks in program.comms:
        if program.rank not in ranks or max(ranks) >= topology.size:
            return f"it has a communicator of ranks {list(ranks)}"
    nbytes = where.signature.nbytes
    if program.scratch > 4 * nbytes * topology.size + SPARE or program.operand > nbytes:
        return f"it asks for {program.scratch} bytes of scratch, {program.operand} for an operand"
    return None


def _lengths(program: Program, where: Ground) -> tuple[int, int, int]:
    """Return the bytes of the send buffer, the receive buffer and the scratch."""
    signature, size = where.signature, where.topology.size
    at_root = signature.root == where.rank
    amounts = {"": 0, "once": signature.length(where.rank), "each": signature.start(size)}
    row = ROWS[signature.collective]
    send = amounts[row.send] * (at_root or row.at_root != "send")
    recv = amounts[row.recv] * (at_root or row.at_root != "recv")
    return send, recv, program.scratch
