"""Checks of a plan that was read from a file: what its names and numbers refer to must exist.

They come first, because all later code uses the numbers as indices. Whether the programs are right
is examined by ``verify``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from han.common.errors import ArgumentError
from han.model.collectives import FLAT, KINDS, REPLACING, TREE, UNEVEN
from han.model.element_types import DTYPES, OPS, PAIRS, WIDE, element_type, kernel
from han.model.opcodes import FLAG_OPERATIONS, PEERS, REQUESTS
from han.model.program import (
    AREAS,
    CHANNELS,
    PEER,
    PEER_CHANNEL_SHIFT,
    PEER_CHANNELS,
    Code,
    Coll,
    Program,
)
from han.model.topology import MAX_LEVELS, Topology, number_domains
from han.tasks.call import USERS
from han.tasks.plan import Plan
from han.tasks.signature import Signature

# Names of types that NumPy does not accept: derived types (han.message), and byte strings.
OTHER_TYPES = re.compile(r"\d+ of \d+ bytes|(str|bytes|void|byte)\d*")
COLLS = [kind + how for kind in range(Coll.BARRIER + 1) for how in (0, Coll.BLOCKING)]


class Rule(NamedTuple):
    """A number in operations, called `what`: at least `least`, and less than `limit`.

    `codes` are those of the operations that use it; empty: all. `values` are by operation.
    """

    what: str
    codes: tuple[Code, ...]
    values: npt.NDArray[np.integer]
    limit: int
    least: int = 0


def problems(plan: Plan, programs: Sequence[Program]) -> Iterator[str]:
    """Yield each name or number that refers to nothing, with its place in the file."""
    yield from _signature(plan.signature, plan.topology.size)
    for program in programs:
        place = f"programs.{program.rank}"
        for found in (_parts(plan, program), _rows(plan, program), _calls(program)):
            yield from (f"{place}.{text}" for text in found)


def check_topology(topology: Topology, levels: int) -> None:
    """Raise ValueError unless each part has one entry for each level, and one for each rank."""
    parts = {
        "symbols": topology.symbols, "domains": topology.domains, "homes": topology.homes,
    }  # fmt: skip
    for name, part in parts.items():
        if len(part) != topology.depth:
            raise ValueError(f"topology.{name}: {len(part)} for {topology.depth} levels")
    for name, rows in (("domains", topology.domains), ("homes", topology.homes)):
        if any(len(row) != topology.size for row in rows):
            raise ValueError(f"topology.{name}: one number for each of {topology.size} ranks")
    for name, row in (("sockets", topology.sockets), ("rails", topology.rails)):
        if len(row) != topology.size:
            raise ValueError(f"topology.{name}: one number for each of {topology.size} ranks")
    if any(number_domains(row) != row for row in topology.homes):
        raise ValueError("topology.homes: domains are 0, 1 ... in the order of their first ranks")
    if levels != topology.depth:
        raise ValueError(f"choice.levels: {levels} for {topology.depth} levels")


def check_counts(signature: Signature, size: int) -> None:
    """Raise ValueError if a call cannot have uneven blocks, or has not one count for each rank."""
    counts = signature.counts
    if not counts:
        return
    if signature.collective not in UNEVEN or len(counts) != size:
        raise ValueError(f"signature.counts: {len(counts)} for {signature.collective} of {size}")
    if max(counts) != signature.count:
        raise ValueError(f"signature.counts: the largest is {max(counts)}, not {signature.count}")


def check_message(signature: Signature, moved: int) -> None:
    """Raise ValueError if all operations together move less than the message.

    It comes before the message is cut, as a wrong size could make too many segments.
    """
    if signature.nbytes > moved * signature.element:
        raise ValueError(f"signature.count: {signature.nbytes} bytes, more than all programs move")


def check_segments(signature: Signature, segment: int | None, tasks: int, size: int) -> None:
    """Raise ValueError for far more segments than tasks, before the planner makes their graph."""
    least = 0 if segment is None else signature.nbytes // (2 * max(segment, signature.element))
    if size > 1 and least > tasks:
        raise ValueError(f"choice.segment: {segment} makes {least} segments for {tasks} tasks")


def _signature(signature: Signature, size: int) -> Iterator[str]:
    if signature.root >= size:
        yield f"signature.root: {signature.root} is not in 0..{size - 1}"
    if signature.in_place and signature.collective not in REPLACING:
        yield f"signature.in_place: {signature.collective} cannot be in place"
    if signature.device:
        yield "signature.device: a call with memory of a device has no plan"
    if not signature.reduces:
        return
    known = (*OPS, *PAIRS, USERS)
    if signature.op not in known:
        yield f"signature.op: unknown {signature.op!r}; known: {', '.join(known)}"
    if not _is_type(signature.dtype):
        yield f"signature.dtype: unknown {signature.dtype!r}; known: {', '.join(DTYPES)}"
    if signature.native and kernel(signature.op, signature.dtype) is None:
        yield f"signature.native: han has no kernel for {signature.op} on {signature.dtype}"


def _is_type(name: str) -> bool:
    if name in DTYPES or name in WIDE or OTHER_TYPES.fullmatch(name):
        return True
    try:
        element_type(name)
    except ArgumentError:
        return False
    return True


def _parts(plan: Plan, program: Program) -> Iterator[str]:
    """Yield problems of the fields of a program other than operations."""
    topology = plan.topology
    for k, stream in enumerate(program.streams):
        if stream.kind not in KINDS:
            yield f"streams.{k}.kind: unknown {stream.kind!r}; known: {', '.join(KINDS)}"
        if stream.level >= topology.depth:
            yield f"streams.{k}.level: {stream.level} is not in 0..{topology.depth - 1}"
    channels = len(plan.footprint())
    for name in ("footprint", "writes"):
        if len(getattr(program, name)) != channels:
            yield f"{name}: {len(getattr(program, name))} numbers for {channels} channels"
    for k, (_, ranks) in enumerate(program.comms):
        if program.rank not in ranks or max(ranks) >= topology.size:
            yield f"comms.{k}: {list(ranks)}: expected ranks below {topology.size}, with this rank"


def _rules(plan: Plan, program: Program) -> tuple[Rule, ...]:
    rows, size = program.code, plan.topology.size
    channels = len(plan.footprint())
    bases = CHANNELS + AREAS * channels
    own = np.where(rows["base"] >= PEER, 0, rows["base"])
    return (
        Rule("base", (), own.max(axis=1, initial=0), bases),
        Rule("peer's buffer", (), _peers_channel(rows).max(axis=1, initial=-1), channels, -1),
        Rule("base of a flag", FLAG_OPERATIONS, rows["base"][:, 0], bases, CHANNELS),
        Rule("stream", (), rows["stream"], MAX_LEVELS * len(TREE) + len(FLAT)),
        Rule("stream to wait for", (Code.AWAIT,), rows["peer"], len(program.streams)),
        Rule("rank", PEERS, rows["peer"], size),
        Rule("request", REQUESTS, rows["slot"], program.requests),
        Rule("task", (), rows["task"], max(1, len(program.tasks))),
        Rule("communicator", (Code.COLL,), rows["off"][:, 3], len(program.comms)),
    )


def _peers_channel(rows: npt.NDArray[np.void]) -> npt.NDArray[np.integer]:
    """Return the channel that each reference to a peer's buffer names; -1 for others."""
    base = rows["base"].astype(np.int64)
    return np.where(base >= PEER, (base >> PEER_CHANNEL_SHIFT) % PEER_CHANNELS, -1)


def _rows(plan: Plan, program: Program) -> Iterator[str]:
    for what, codes, values, limit, least in _rules(plan, program):
        bad = (values < least) | (values >= limit)
        if codes:
            bad &= np.isin(program.code["code"], codes)
        for k in np.flatnonzero(bad)[:1].tolist():
            has = f"expected {least}..{limit - 1}" if limit > least else "there is none"
            yield f"code.{k}: {Code(int(program.code['code'][k])).name}: {what} {values[k]}: {has}"


def _calls(program: Program) -> Iterator[str]:
    """Yield problems of MPI collectives; `_rows` has checked their communicators before."""
    for k in np.flatnonzero(program.code["code"] == Code.COLL).tolist():
        row = program.code[k]
        kind, root = int(row["off"][2]), int(row["peer"])
        members = program.comms[int(row["off"][3])][1]
        if kind not in COLLS:
            yield f"code.{k}: COLL: kind {kind}: expected one of {COLLS}"
        if root >= len(members):
            yield f"code.{k}: COLL: root {root} of {len(members)} members"
