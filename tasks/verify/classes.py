"""Proofs for all sizes of a class at once: from the proof of its largest message.

A program for many sizes addresses grains of the message (docs/decisions/size-classes.md):

    address = base + offset + blocks * bytes + position(start) - position(origin)

The *frame* of an operand is everything but the grains that it accesses: memory, offset, blocks and
origin. In a frame, grain k has a place of its own, which in a shorter message is shorter, or empty,
and never farther from the offset. So if

- operands of different frames have room of their own, in the largest message, from the offset of
  each frame to the last grain that any operand accesses there, or their room is used in turn
  (:mod:`han.tasks.verify.turns`),
- operands in buffers of the user are in the frame of the message itself,
- both ends of a message, and all members of a collective, move the same grains,

then two operations access a common byte of a shorter message if and only if they access a common
grain of the largest one, and it is a byte of that grain. What waits for what is the same for all
sizes. Hence each byte of a shorter message has the history of a byte of the largest one: it is
written, read, combined and ordered as that byte is, for which this was proved.

This needs of positions (:func:`han.model.program.positions`): they rise with the number of the
grain, from 0 to the bytes of the message, and two are never farther apart than their grains are in
the largest message. Blocks that differ in size are proved for their own sizes only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from han.model.channel_layout import FLAG
from han.model.opcodes import FLAG_OPERATIONS, READS, WRITES
from han.model.program import Base, Code, Program
from han.tasks.lower import lower
from han.tasks.plan import Plan
from han.tasks.verify.address_spaces import AddressSpaces, Numbers
from han.tasks.verify.events import Events, Programs
from han.tasks.verify.pairs import Pairs
from han.tasks.verify.report import Report
from han.tasks.verify.story import Refuted
from han.tasks.verify.turns import Access, Sizes, out_of_order, out_of_turn
from han.tasks.verify.verifier import Progress, spec_of, verify

RUNS = 2  # back to back, as banks and rings are used again
OPERANDS = {code: (*READS.get(code, ()), *WRITES.get(code, ())) for code in Code}
OPERANDS[Code.COLL] = (0, 1)
READ, WRITTEN = 1, 2  # uses of an operand, by code and reference; neither: it is not known
USES = np.zeros((len(Code), 4), np.int64)
for _bit, _table in ((READ, READS), (WRITTEN, WRITES)):
    for _code, _refs in _table.items():
        USES[_code, [*_refs]] |= _bit


def verify_class(
    plan: Plan, *, in_place: bool = False, programs: Sequence[Program] | None = None,
    progress: Progress | None = None,
) -> Report:  # fmt: skip
    """Prove a plan for many sizes right for all of them.

    `programs` are those of all ranks; without them, the plan is lowered. The other arguments are
    those of :func:`verify`. Raises Refuted for what does not hold for the largest message, and
    Unproved where the proof of the largest one does not tell of others. Raises ValueError for a
    plan of one size, and for blocks that differ in size.
    """
    signature = plan.signature
    if not signature.grains or signature.varied:
        raise ValueError(f"{signature.describe()}: no plan for all sizes of equal blocks")
    classes = programs or [lower(plan, rank) for rank in range(plan.topology.size)]
    largest = plan.of_size(signature.nbytes)
    runs = [[one.at(signature.nbytes) for one in classes]] * RUNS
    report = verify([largest] * RUNS, in_place=in_place, programs=runs, progress=progress)
    _Frames(largest, runs, [classes] * RUNS, in_place).check()
    return replace(report, sizes=f"all up to {signature.bound} bytes, as one class")


class Unproved(Refuted):
    """The largest message is proved, but it does not stand for all sizes of its class."""


class _Frames:
    """The operands of all events, and their frames, in the largest message."""

    def __init__(self, plan: Plan, programs: Programs, classes: Programs, in_place: bool) -> None:
        plans = [plan] * len(programs)
        specs = [spec_of(plan.signature, plan.topology.size) for _ in plans]
        self.events = Events(plans, programs, AddressSpaces(plans, specs, in_place))
        self.events.resolve()
        self.pairs = Pairs(self.events)
        self.nbytes = plan.signature.nbytes
        self.grains, self.grain = classes[0][0].grains, classes[0][0].grain
        self.sizes = Sizes(self.nbytes, self.grain)
        tables = [p.terms for one in classes for p in one if p.terms is not None]
        firsts = np.cumsum([0, *(len(table) for table in tables)])[:-1]
        events = self.events
        self.terms = np.concatenate(tables)[
            firsts[events.run * events.size + events.rank] + events.row
        ]
        self.start, self.stop = (self.terms[name].astype(np.int64) for name in ("start", "stop"))
        self.sized = self.terms["each"] != 0

    def check(self) -> None:
        """Raise Refuted for the first condition that does not hold."""
        self._check_ends()
        rows, refs = self._operands()
        self._check_order(rows, refs)
        self._check_buffers(rows, refs)
        self._check_rooms(rows, refs)

    def _refuse(self, event: int, found: str, expected: str) -> None:
        where = self.events.story(event)
        raise Unproved(
            "the proof of the largest message holds for all sizes", where, found, expected
        )

    def _operands(self) -> tuple[Numbers, Numbers]:
        """Return the events and references of all operands with data."""
        found: list[tuple[int, int]] = []
        for code, refs in OPERANDS.items():
            there = np.flatnonzero((self.events.code == code) & (self.events.nbytes > 0))
            found += [(event, ref) for ref in refs for event in there.tolist()
                      if self.events.base[event, ref] != Base.NONE]  # fmt: skip
        rows, refs = np.array(found, np.int64).reshape(-1, 2).T
        return rows, refs

    def _check_ends(self) -> None:
        """Both ends of a message, its tests, and members of a collective, have the same grains."""
        received = np.flatnonzero(self.pairs.sent >= 0)
        pairs = [*zip(received.tolist(), self.pairs.sent[received].tolist(), strict=True)]
        tests = np.flatnonzero((self.pairs.start >= 0) & (self.stop > self.start))
        pairs += zip(tests.tolist(), self.pairs.start[tests].tolist(), strict=True)
        for members, _ in self.pairs.calls.values():
            pairs += [(members[0], other) for other in members[1:]]
        for one, other in pairs:
            for values in (self.start, self.stop, self.sized, self.terms["block"]):
                if values[one] != values[other]:
                    self._refuse(
                        one,
                        f"grains {self.start[one]} to {self.stop[one]}",
                        f"those of its peer, {self.start[other]} to {self.stop[other]}",
                    )

    def _check_order(self, rows: Numbers, refs: Numbers) -> None:
        """No grain lies before its frame's origin."""
        before = self.sized[rows] & (self.start[rows] < self.terms["origin"][rows, refs])
        for event in rows[before][:1].tolist():
            self._refuse(event, "a grain before the origin of its frame", "one from there on")

    def _check_buffers(self, rows: Numbers, refs: Numbers) -> None:
        """Operands in buffers of the user are where the message is."""
        users = np.isin(self.events.base[rows, refs], (Base.SEND, Base.RECV))
        offset, origin = (self.terms[name][rows, refs] for name in ("offset", "origin"))
        bad = users & ~(self.sized[rows] & (offset == 0) & (origin == 0))
        bad |= users & (self.stop[rows] > self.grains)
        for event in rows[bad][:1].tolist():
            found = "a place in a buffer that does not follow from the size"
            self._refuse(event, found, "blocks of the message's size, and a grain")

    def _check_rooms(self, rows: Numbers, refs: Numbers) -> None:
        """Frames have rooms of their own, are blocks behind each other, or are used in turn."""
        columns = self._columns(rows, refs)
        columns = columns[:, np.lexsort(columns[1::-1])]  # by memory and offset
        shared: list[list[Access]] = []  # by several streams
        for rooms in _overlapping(self._rooms(columns)):
            if len(rooms) > 1 or rooms[0].mixed:
                shared += self._check_turns(_inside(columns, rooms))
        if shared:
            self._refuse_late(out_of_order(shared, self.sizes, self.events, self.pairs))

    def _check_turns(self, here: Numbers) -> list[list[Access]]:
        """Check that a stream uses rooms with common bytes in turn; return what several use."""
        _, _, sized, _, _, _, events, uses = here
        if not sized.any():  # all sizes have the same bytes
            return []
        if not (sized.all() and uses.all()):
            found = f"operands of several frames in the bytes from {here[1].min()} on"
            self._refuse(int(events[-1]), found, "rooms of their own")
        accesses = [*self._accesses(here)]
        if len(np.unique(self.events.strand[events])) > 1:
            return [accesses]
        self._refuse_late(out_of_turn(accesses, self.sizes))
        return []

    def _accesses(self, here: Numbers) -> Iterator[Access]:
        for _, offset, _, blocks, origin, end, event, uses in here.T.tolist():
            until = max(event, int(self.pairs.test[event]))
            grains = int(self.start[event]), int(self.stop[event])
            reads, writes = bool(uses & READ), bool(uses & WRITTEN)
            yield Access(event, until, (offset, blocks, origin), *grains, end, reads, writes)

    def _refuse_late(self, bad: Access | None) -> None:
        if bad is not None:
            found = f"grains {bad.start} to {bad.stop} where other grains may be"
            self._refuse(bad.event, found, "rooms of their own, or such that are used in turn")

    def _columns(self, rows: Numbers, refs: Numbers) -> Numbers:
        """Return the columns of all operands, flags among them.

        They are memory, offset, whether sized, blocks, origin, end, event and uses (bits).
        """
        events, sized = self.events, self.sized[rows]
        blocks, origin = (
            np.where(sized, self.terms[name][rows, refs].astype(np.int64), 0)
            for name in ("blocks", "origin")
        )
        length = np.where(sized, (self.stop[rows] - origin) * self.grain, events.nbytes[rows])
        before = np.where(sized, blocks * self.nbytes, 0)
        inside = np.where(sized, (self.start[rows] - origin) * self.grain, 0)
        offset = events.at[rows, refs] - before - inside
        end = offset + before + length
        memory, uses = events.memory[rows, refs], USES[events.code[rows], refs]
        data = [memory, offset, sized, blocks, origin, end, rows, uses]
        flags = np.flatnonzero(np.isin(events.code, FLAG_OPERATIONS))
        at, none = events.at[flags, 0], np.zeros(len(flags), np.int64)
        found = [events.memory[flags, 0], at, none, none, none, at + FLAG, flags, none]
        return np.concatenate([data, found], axis=1).astype(np.int64)

    def _rooms(self, columns: Numbers) -> list[_Room]:
        """Return the rooms of all offsets, by memory and offset."""
        found: dict[tuple[int, int], _Room] = {}
        frames: defaultdict[tuple[int, int], dict[tuple[int, int, int], int]] = defaultdict(dict)
        for memory, offset, is_sized, blocks, origin, end, event in columns[:7].T.tolist():
            place, frame = (memory, offset), (is_sized, blocks, origin)
            room = found.get(place) or _Room(memory, offset, False, False, offset, event)
            found[place] = room._replace(sized=room.sized or bool(is_sized), end=max(room.end, end))
            several = frames[place]
            several[frame] = max(end, several.get(frame, 0))
            if len(several) > 1 and not self._are_blocks(offset, several):
                found[place] = found[place]._replace(mixed=True)
        return sorted(found.values())

    def _are_blocks(self, offset: int, frames: Mapping[tuple[int, int, int], int]) -> bool:
        """Return whether frames at an offset are blocks of the message's size behind each other."""
        return all(
            is_sized and not origin and end <= offset + (blocks + 1) * self.nbytes
            for (is_sized, blocks, origin), end in frames.items()
        )


class _Room(NamedTuple):
    """The bytes that all operands at one offset of a memory take; `event` has one of them."""

    memory: int
    offset: int
    sized: bool  # for some of them the size of the message decides
    mixed: bool  # of several frames, which are no blocks behind each other
    end: int
    event: int


def _inside(columns: Numbers, rooms: Sequence[_Room]) -> Numbers:
    """Return the operands, sorted by memory and offset, that are in rooms behind each other."""
    memory, low, high = rooms[0].memory, rooms[0].offset, max(room.end for room in rooms)
    first, last = np.searchsorted(columns[0], [memory, memory + 1])
    within = first + np.searchsorted(columns[1, first:last], [low, high])
    return columns[:, slice(*within)]


def _overlapping(rooms: Sequence[_Room]) -> Iterator[list[_Room]]:
    """Divide sorted rooms into groups that have no bytes in common."""
    group: list[_Room] = []
    end = 0
    for room in rooms:
        if group and (room.memory != group[0].memory or room.offset >= end):
            yield group
            group, end = [], 0
        group.append(room)
        end = max(end, room.end)
    if group:
        yield group
