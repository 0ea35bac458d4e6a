"""Checks of single operations: what they name exists, and addresses are inside their memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from han.model.channel_layout import EPOCH_SHIFT, FLAG, FLAGS, LINE, MAX_CHANNELS, SMALL
from han.model.opcodes import (
    ATTACHED,
    COMBINATIONS,
    FLAG_OPERATIONS,
    MESSAGES,
    READS,
    REQUESTS,
    WRITES,
)
from han.model.program import GIVEN, MAX_STREAMS, SHOWN, Area, Base, Code, Coll, PeerBase
from han.tasks.plan import Plan
from han.tasks.verify.address_spaces import Numbers
from han.tasks.verify.events import MOST, Events
from han.tasks.verify.story import Refuted

INT_MAX = (1 << 31) - 1
Mask = npt.NDArray[np.bool_]
SAYS = {Code.PULL: SHOWN, Code.PUSH: GIVEN}  # the bit with which a peer allows the access
# Operands that must not overlap (native/reductions.h); True: they may be the same.
APART = {
    Code.COPY: (((0, 1), True),),
    Code.PACK: (((0, 1), False),),
    Code.UNPACK: (((0, 1), False),),
    Code.REDUCE: (((0, 1), True), ((0, 2), True)),
    Code.ACCUMULATE: (((0, 2), False),),
    Code.REDUCE2: (
        *(((0, 1), True), ((0, 2), True)),
        *(((3, 1), False), ((3, 2), False), ((3, 0), False)),
    ),
}


@dataclass(frozen=True)
class Touch:
    """Operations of one code, and the reference through which they access their bytes."""

    events: Numbers
    ref: int
    write: bool


def check(events: Events) -> None:
    """Check every operation by itself and resolve its addresses; raises Refuted."""
    _check_numbers(events)
    _check_flags(events)
    _check_attached(events)
    _check_accumulated(events)
    _check_peers(events)
    touches = list(_touches(events))
    for touch in touches:
        _check_address(events, touch)
    events.resolve()
    _check_overlaps(events)
    _check_beside_flags(events, touches)
    _check_announced(events, touches)


def _refuse(
    events: Events, where: Numbers, bad: Mask, found: str, expected: str, subject: str = "memory"
) -> None:
    """Raise Refuted for the first event of `where` that is bad, if any."""
    if bad.any():
        raise Refuted(subject, events.story(int(where[bad][0])), found, expected)


def _where(events: Events, *codes: int) -> Numbers:
    found: Numbers = np.flatnonzero(np.isin(events.code, codes))
    return found


def _check_numbers(events: Events) -> None:
    """Check that requests and peers exist, and that operands fit into the room for one."""
    well = "programs are well formed"
    limits = [[p.requests for p in ps] for ps in events.programs]
    asks = _where(events, *REQUESTS)
    few = events.rows["slot"][asks] >= np.array(limits)[events.run[asks], events.rank[asks]]
    _refuse(events, asks, few, "a request that does not exist", "one of the program", well)
    talks = _where(events, *MESSAGES)
    peers = events.rows["peer"][talks]
    nobody = (peers < 0) | (peers >= events.size)
    _refuse(events, talks, nobody, "a rank that does not exist", "a peer's rank", well)
    _check_limits(events, talks, well)
    combines = _where(events, *COMBINATIONS)
    rooms = np.array([[p.operand for p in ps] for ps in events.programs])
    large = events.nbytes[combines] > rooms[events.run[combines], events.rank[combines]]
    _refuse(events, combines, large, "operands larger than the room for one", "smaller ones")


def _check_limits(events: Events, talks: Numbers, well: str) -> None:
    """Check that counts of the MPI library fit into ints, and that tags belong to the run."""
    counted = np.concatenate([talks, _where(events, Code.COLL)])
    foreign = np.array([not plan.signature.native for plan in events.plans])
    combines = _where(events, *COMBINATIONS)
    counted = np.concatenate([counted, combines[foreign[events.run[combines]]]])
    large = events.rows["n"][counted] > INT_MAX
    _refuse(events, counted, large, "a count above an int", f"at most {INT_MAX}", well)
    tags = events.rows["stream"][talks] >= MAX_STREAMS
    _refuse(events, talks, tags, "a tag that a run does not have", f"less than {MAX_STREAMS}", well)


def _check_flags(events: Events) -> None:
    """Check that flags are cache lines of a channel, and hold no values of the next run."""
    where = _where(events, *FLAG_OPERATIONS)
    base, offset = (events.rows[name][where, 0].astype(np.int64) for name in ("base", "off"))
    channel, area = np.divmod(base - Base.CHANNEL, len(Area))
    none = (channel < 0) | (channel >= len(events.places.channels)) | (area == Area.CELLS)
    _refuse(events, where, none, "a flag outside the channels", "one in a channel")
    room = np.where(area == Area.SMALL, SMALL, FLAGS * LINE)
    if len(where):
        room *= events.places.room[channel, events.rank[where]]
    off = (offset < 0) | (offset % LINE > 0) | (offset >= room)
    _refuse(events, where, off, "a flag at another place", "a line among the flags")
    high = events.rows["n"][where] >= 1 << EPOCH_SHIFT
    _refuse(events, where, high, "a flag's value of the next run", f"less than {1 << EPOCH_SHIFT}")


def _check_accumulated(events: Events) -> None:
    """Check that a rank accumulates in its own memory, so that it does so one at a time."""
    where = _where(events, Code.ACCUMULATE)
    base, offset = events.rows["base"][where], events.rows["off"][where]
    far = (base[:, 0] >= Base.CHANNEL) | (base[:, 0] != base[:, 1]) | (offset[:, 0] != offset[:, 1])
    _refuse(events, where, far, "an accumulation elsewhere", "one in the rank's own memory")


def _check_attached(events: Events) -> None:
    """Check that the peers of PULL and PUSH have the slot that is named, and show their buffers."""
    well = "programs are well formed"
    for event in _where(events, *ATTACHED).tolist():
        row, rank = events.rows[event], int(events.rank[event])
        channel, slot, peer = int(row["off"][2]), int(row["off"][3]), int(row["peer"])
        where, yes = np.array([event]), np.array([True])
        channels = events.places.channels
        home = events.topology.home(channels[channel], rank) if channel < len(channels) else ()
        if slot >= len(home) or home[slot] != peer:
            _refuse(events, where, yes, "a slot that is not the peer's", "the peer's slot", well)
        code = Code(int(row["code"]))
        ref, bit = ATTACHED[code], SAYS[code]
        if not events.programs[events.run[event]][peer].writes[channel] & bit:
            _refuse(events, where, yes, f"rank {peer} shows no addresses", "addresses", well)
        if row["base"][ref] not in (Base.SEND, Base.RECV, Base.SCRATCH):
            _refuse(events, where, yes, "memory that is not the peer's own", "its own", well)


def _check_peers(events: Events) -> None:
    """Check that only sources are in mapped buffers, and that their peers show addresses."""
    well = "programs are well formed"
    where = np.flatnonzero(events.peers.any(axis=1))
    may = np.zeros((len(where), 4), bool)
    for code in (Code.COPY, Code.REDUCE, Code.REDUCE2):
        may[np.ix_(events.code[where] == code, READS[code])] = True
    wrong = np.asarray((events.peers[where] & ~may).any(axis=1), bool)
    _refuse(events, where, wrong, "a peer's buffer", "only sources in mapped buffers", well)
    alone = np.array([not plan.signature.mapped for plan in events.plans])[events.run[where]]
    _refuse(events, where, alone, "a peer's buffer", "a call on mapped buffers")
    for event, ref in zip(*(k.tolist() for k in np.nonzero(events.peers)), strict=True):
        row, rank = events.rows[event], int(events.holder[event, ref])
        channel = PeerBase.of(int(row["base"][ref])).channel
        at, yes = np.array([event]), np.array([True])
        if rank < 0:
            _refuse(events, at, yes, "a slot that no rank has", "a peer's slot", well)
        if not events.programs[events.run[event]][rank].writes[channel] & SHOWN:
            _refuse(events, at, yes, f"rank {rank} shows no addresses", "addresses", well)
        if events.base[event, ref] not in (Base.SEND, Base.RECV):
            _refuse(events, at, yes, "memory that is not mapped", "a mapped buffer", well)


def _touches(events: Events) -> Iterator[Touch]:
    """Yield all accesses, by code and reference."""
    for table, write in ((READS, False), (WRITES, True)):
        for code, refs in table.items():
            moves = (events.nbytes > 0) | (code == Code.ISEND)  # also sends of 0 bytes
            where = np.flatnonzero((events.code == code) & moves)
            yield from (Touch(where, ref, write) for ref in refs)
    calls = np.flatnonzero((events.code == Code.COLL) & (events.nbytes > 0))
    for ref in (0, 1):
        used = calls[events.rows["base"][calls, ref] != Base.NONE]
        yield Touch(used, ref, ref == 0)


def _check_address(events: Events, touch: Touch) -> None:
    where = touch.events
    base = events.base[where, touch.ref]
    offset = np.minimum(events.rows["off"][where, touch.ref], MOST).astype(np.int64)
    nowhere = (base == Base.NONE) | (base >= events.places.bases)
    _refuse(events, where, nowhere, "an address relative to no base", "a base that exists")
    flags = (base >= Base.CHANNEL) & ((base - Base.CHANNEL) % len(Area) == Area.FLAGS)
    _refuse(events, where, flags, "data among the flags", "slots or cells")
    _check_own(events, touch, base, offset)
    for channel in range(len(events.places.channels)):
        first = Base.CHANNEL + len(Area) * channel
        for area, check in ((Area.SMALL, _outside_slots), (Area.CELLS, _outside_cells)):
            here = base == first + area
            bad = check(events, where[here], offset[here], channel)
            _refuse(events, where[here], bad, "an access beyond this run's part",
                    "the part that it has taken")  # fmt: skip


def _check_own(events: Events, touch: Touch, base: Numbers, offset: Numbers) -> None:
    """Check that accesses end inside buffers and scratch, and that send buffers are only read."""
    where, write = touch.events, touch.write
    run, rank = events.run[where], events.holder[where, touch.ref]
    ends = _lengths(events)[run, rank, np.minimum(base, Base.SCRATCH)]
    beyond = (base < Base.CHANNEL) & (offset + events.nbytes[where] > ends)
    _refuse(events, where, beyond, "an access beyond the end of a buffer or of the scratch",
            "an access inside it")  # fmt: skip
    bad = (base == Base.SEND) & ~events.places.one_buffer[run, rank] & write
    for k in np.flatnonzero(bad & (events.code[where] == Code.COLL)):
        bad[k] = call_of(events, int(where[k]))[2]
    _refuse(events, where, bad, "a write into the send buffer", "only reads")


def _lengths(events: Events) -> Numbers:
    """Return the bytes of send buffer, receive buffer and scratch, by run, rank and base."""
    lengths = np.zeros((len(events.plans), events.size, Base.SCRATCH + 1), np.int64)
    for run in range(len(events.plans)):
        spec, shared = events.places.specs[run], events.places.one_buffer[run]
        for rank in range(events.size):
            lengths[run, rank, Base.SEND] = spec.sends(rank)
            lengths[run, rank, Base.RECV] = spec.receives(rank, bool(shared[rank]))
        lengths[run, :, Base.SCRATCH] = [p.scratch for p in events.programs[run]]
    return lengths


def _check_announced(events: Events, touches: list[Touch]) -> None:
    """Check that programs announce the areas that they write, for which the executor waits."""
    flags = Touch(_where(events, Code.POST), 0, True)
    for touch in (*touches, flags):
        where = touch.events
        base = events.base[where, touch.ref] - Base.CHANNEL
        area = base % len(Area)
        if not touch.write or not (base >= 0).any():
            continue
        none = [0] * MAX_CHANNELS
        padded = [[[*p.writes, *none][:MAX_CHANNELS] for p in ps] for ps in events.programs]
        said = np.array(padded)
        bits = said[events.run[where], events.rank[where], np.maximum(base, 0) // len(Area)]
        silent = (base >= 0) & (area != Area.FLAGS) & ~(bits >> area & 1).astype(bool)
        _refuse(events, where, silent, "a write into an area that the program does not announce",
                "an announcement, so that the run waits until the area is free")  # fmt: skip


def _outside_slots(events: Events, where: Numbers, offset: Numbers, channel: int) -> Mask:
    slot, last = offset // SMALL, (offset + events.nbytes[where] - 1) // SMALL
    beyond = slot >= events.places.room[channel, events.rank[where]]
    return np.asarray(beyond | (slot != last), bool)


def _outside_cells(events: Events, where: Numbers, offset: Numbers, channel: int) -> Mask:
    run, rank = events.run[where], events.rank[where]
    slot, at = np.divmod(offset, np.array([_ring(p, events, channel) for p in events.plans])[run])
    taken = np.array([p.footprint()[channel] for p in events.plans])[run]
    beyond = slot >= events.places.room[channel, rank]
    return np.asarray(beyond | (at + events.nbytes[where] > taken), bool)


def _ring(plan: Plan, events: Events, channel: int) -> int:
    geometry = plan.geometries[events.places.channels[channel]]
    if geometry is None:
        raise ValueError(f"no channel at level {events.places.channels[channel]}")
    return geometry.ring


def call_of(events: Events, event: int) -> tuple[int, bool, bool]:
    """Return the kind of an MPI collective, and whether this rank gives and gets data."""
    row = events.rows[event]
    program = events.programs[events.run[event]][events.rank[event]]
    kind = int(row["off"][2]) % Coll.BLOCKING
    members = program.comms[row["off"][3]][1]
    if not 0 <= row["peer"] < len(members):
        raise ValueError(f"root {row['peer']} of {len(members)} members")
    leads = members[row["peer"]] == events.rank[event]
    if kind == Coll.BCAST:
        return kind, leads, not leads
    moves = kind != Coll.BARRIER
    return kind, moves, moves and (kind == Coll.ALLREDUCE or leads)


def _check_overlaps(events: Events) -> None:
    for code, pairs in APART.items():
        where = np.flatnonzero((events.code == code) & (events.nbytes > 0))
        memory, at, nbytes = events.memory[where], events.at[where], events.nbytes[where]
        for (x, y), equal in pairs:
            near = np.abs(at[:, x] - at[:, y]) < nbytes
            bad = (memory[:, x] == memory[:, y]) & near & ~((at[:, x] == at[:, y]) & equal)
            _refuse(events, where, bad, "operands that overlap", "operands that the kernels allow")


def _check_beside_flags(events: Events, touches: list[Touch]) -> None:
    """Check that no operation accesses data at the place of a flag in a small slot."""
    posts = _where(events, Code.POST)
    lines = np.unique(line(events, posts))
    for touch in touches:
        where = touch.events
        start = line(events, where, touch.ref)
        k = np.searchsorted(lines, start - FLAG, "right")
        hit = np.append(lines, np.iinfo(np.int64).max)[k] < start + events.nbytes[where]
        _refuse(events, where, hit, "data at the place of a flag", "another place")


def line(events: Events, where: Numbers, ref: int = 0) -> Numbers:
    """Return one number for the memory and the offset of each event's reference."""
    found: Numbers = (events.memory[where, ref] << 40) + events.at[where, ref]
    return found
