"""The tasks of lanes inside a node, by the halves of an exchange.

A recursive exchange or a cyclic shift reduce-scatters: each member ends with the shares of its
lanes, which are cut at cache lines. When the lanes have combined the shares of all nodes, the same
exchange allgathers them. A piece of a task is a piece of every share.

A member that does not see the whole result does not know what others have read. So, where banks of
cells are used more than once, all members count all stages and steps, and a member waits for its
readers before it writes a bank again.

Source: Jocksch et al., section 2.1.2 (reduce-scatter in shared memory, exchange between nodes,
allgather in shared memory).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from han.model.channel_layout import LINE
from han.model.program import Ref
from han.submodules.exchange.layout import (
    BANKS,
    COUNTS,
    HALF_CHUNK,
    LEAST_AREA,
    Layout,
    Partition,
)
from han.submodules.exchange.node import Exchange, exchange_pieces
from han.submodules.exchange.parted import Collecting, Dealing, Gathering, Scattering
from han.submodules.exchange.patterns import by_halves, misfit_of_any, pattern_of
from han.submodules.exchange.script import Script
from han.submodules.parts.cells import COMBINED, READ, RELEASED
from han.submodules.parts.pieces import Piece
from han.tasks.choice import LevelChoice
from han.tasks.context import Context
from han.tasks.contract import Question
from han.tasks.graph import Task
from han.tasks.lanes import inner_levels, lanes_at
from han.tasks.outline import Outline
from han.tasks.shares import shares as shares_of

KINDS = ("reduce_scatter", "scatter", "gather", "allgather")
STREAMS = 2  # of a level: shares are made, and gathered
Half = Scattering | Gathering | Dealing | Collecting
Spans = tuple[tuple[int, int], ...]


def _half(kind: str, choice: LevelChoice, members: int, root: int, lanes: int) -> Half:
    """Return the pattern of a kind of tasks."""
    each = -(-lanes // members)
    if kind == "scatter":
        return Dealing(members, each, root)
    if kind == "gather":
        return Collecting(members, each, root)
    whole = pattern_of(by_halves(choice), members, whole=False)
    half = Scattering if kind == "reduce_scatter" else Gathering
    return half(members, each, whole)


def _sizes(plan: Outline | Question, level: int) -> list[int]:
    """Return how many members the groups of a level have."""
    units = plan.topology.units.get(level, {}).values()
    return sorted({len(of_domain) for of_domain in units} - {1})


def _unit(grain: int) -> int:
    return grain if LINE % grain else LINE


def unfit(question: Question) -> str | None:
    """Return the reason why members cannot exchange shares through cells, or None."""
    level, choice, element = question.level, question.choice, question.signature.element
    if not question.topology.shared[level]:
        return "members of a group do not share memory"
    exchange = by_halves(choice)
    sizes = _sizes(question, level)
    reason = misfit_of_any(exchange, sizes)
    if reason is not None:
        return reason
    lanes = lanes_at(question.topology, level, choice)
    taken = max(
        (
            _layout(kind, choice, members, lanes, element, _unit(element)).nbytes
            for kind in KINDS
            for members in sizes
        ),
        default=0,
    )
    if taken * STREAMS <= LEAST_AREA:
        return None
    return (
        f"shares of {lanes} lanes take {taken} bytes of cells for elements of {element} bytes; "
        f"half of the smallest ring has {LEAST_AREA // STREAMS}"
    )


# ---- layout -------------------------------------------------------------------------------------


def _layout(
    kind: str, choice: LevelChoice, members: int, lanes: int, grain: int, chunk: int,
    pieces: int = BANKS, root: int = 0,
) -> Layout:  # fmt: skip
    """Return the layout of pieces with up to `chunk` bytes of each share."""
    half = _half(kind, choice, members, root, lanes)
    partition = Partition("recursive", half.blocks, grain, chunk)
    return Layout(half, partition, chunk * lanes, pieces, small=False)


@dataclass(frozen=True)
class Cut:
    """How the tasks of a level are cut into shares, the same on all ranks.

    `chunk` is the most bytes of a share in a piece, `pieces` how many a stream has at most.
    """

    plan: Outline
    level: int
    lanes: int
    chunk: int
    pieces: int

    @classmethod
    def of(cls, plan: Outline, level: int) -> Cut:
        """Fit the bytes of a piece into the part of the ring that a stream has."""
        key = "exchanged shares", level
        found: Cut = plan.layouts.get(key) or plan.layouts.setdefault(key, cls._fit(plan, level))
        return found

    @classmethod
    def _fit(cls, plan: Outline, level: int) -> Cut:
        geometry, choice = plan.geometries[level], plan.choice.levels[level]
        assert geometry is not None, "supports() lets only levels with shared memory pass"
        view, unit = plan.topology, _unit(plan.signature.grain)
        lanes = lanes_at(view, level, choice)
        below = (k for k in inner_levels(view) if k < level)
        cut = lanes * prod(lanes_at(view, k, plan.choice.levels[k]) for k in below)
        kinds = _kinds(plan, level)
        tasks = plan.streams[kinds[0], level]  # those of other kinds have the same bytes
        longest = [-(-task.nbytes // (unit * cut)) * unit for task in tasks]
        layouts = [
            _layout(kind, choice, n, lanes, plan.signature.grain, unit)
            for kind in kinds
            for n in _sizes(plan, level)
        ]
        least = max(one.nbytes for one in layouts)
        values = max(one.values for one in layouts)
        wanted = min(choice.get("chunk", HALF_CHUNK) // lanes, max(longest))
        wanted = max(wanted, plan.signature.nbytes * values >> COUNTS)
        most = geometry.area // STREAMS // least * unit
        chunk = max(unit, min(wanted, most) // unit * unit)
        return cls(plan, level, lanes, chunk, sum(max(1, -(-share // chunk)) for share in longest))

    def layout(self, kind: str, members: int, root: int = 0) -> Layout:
        """Return the layout of a stream's cells for a group of so many members."""
        choice, grain = self.plan.choice.levels[self.level], self.plan.signature.grain
        size = self.lanes, grain, self.chunk, self.pieces
        return _layout(kind, choice, members, *size, root)

    @property
    def nbytes(self) -> int:
        """Bytes of a stream's cells: the most of any kind of tasks in any group."""
        return max(
            (
                self.layout(kind, members).nbytes
                for kind in _kinds(self.plan, self.level)
                for members in _sizes(self.plan, self.level)
            ),
            default=0,
        )


def _kinds(plan: Outline, level: int) -> list[str]:
    return [kind for kind, k in plan.streams if k == level]


def footprint(plan: Outline, level: int) -> int:
    """Return how many bytes of each rank's ring of cells a run takes."""
    kinds = _kinds(plan, level)
    return len(kinds) * Cut.of(plan, level).nbytes if kinds else 0


# ---- operations ---------------------------------------------------------------------------------


class _Key(NamedTuple):
    """A piece's bytes of each share: from byte `at` on, in a task of `nbytes` bytes."""

    nbytes: int
    at: int


class _Shares(Exchange):
    """One member's part in a half of an exchange, piece by piece."""

    def __init__(self, context: Context) -> None:
        self.cut = Cut.of(context.builder.plan, context.group.level)
        self.keys: dict[int, _Key] = {}  # by number of a piece
        self.spans: dict[_Key, Spans] = {}
        self.by_key: dict[_Key, Script] = {}
        self.base = 0
        super().__init__(context)
        lanes: dict[int, list[int]] = {}
        for lane, owner in enumerate(context.owners):
            lanes.setdefault(owner, []).append(lane)
        half, self.lane_of = self.layout.pattern, dict[int, int]()  # of each block
        for member, of_member in lanes.items():
            self.lane_of |= dict(zip(half.finished(member, 0), of_member, strict=False))

    def laid_out(self) -> Layout:
        """Return the layout of the group's cells."""
        group = self.context.group
        return self.cut.layout(self.stream.kind, group.size, group.root)

    @property
    def recycled(self) -> bool:
        """Whether a bank of cells is used more than once."""
        return self.layout.pieces > BANKS

    def pieces(self) -> list[Piece]:
        """Cut each task into pieces of all its shares."""
        found, index = list[Piece](), self.stream.sequence
        for task in self.context.tasks:
            shares = shares_of(task.nbytes, self.context.grain, self.cut.lanes)
            starts = range(0, max(1, *(stop - start for start, stop in shares)), self.cut.chunk)
            for at in starts:
                nbytes = sum(stop - start for start, stop in self._spans(task, at))
                first, last = at == 0, at == starts[-1]
                found.append(Piece(index, task, task.start, task.stop, first, last, nbytes))
                self.keys[index] = _Key(task.nbytes, at)
                index += 1
        self.stream.sequence = index
        return found

    def _spans(self, task: Task, at: int) -> Spans:
        """Return which bytes of a task each block has in a piece; a member may lack shares."""
        key = _Key(task.nbytes, at)
        found = self.spans.get(key)
        if found is None:
            shares = shares_of(task.nbytes, self.context.grain, self.cut.lanes)
            each = [(0, 0)] * self.layout.pattern.blocks
            for block, lane in self.lane_of.items():
                start, stop = shares[lane]
                each[block] = min(start + at, stop), min(start + at + self.cut.chunk, stop)
            found = self.spans[key] = tuple(each)
        return found

    def script(self, piece: Piece) -> Script:
        """Return what this member does with a piece."""
        key = self.keys[piece.index]
        found = self.by_key.get(key)
        if found is None:
            spans = self._spans(piece.task, key.at)
            found = Script.of(self.layout, self.group.me, spans, self.steps)
            self.by_key[key] = found
        return found

    def _region(self, member: int, piece: Piece, stage: int) -> Ref:
        return super()._region(member, piece, stage) + self.base


class _Scatter(_Shares):
    """A reduce-scatter, or the scatter of a broadcast."""

    def targets(self, cell: Ref) -> tuple[Ref, Ref | None]:
        """Return the result only: nobody reads it here."""
        return self.context.result, None

    def tells(self, worked: bool, final: bool) -> bool:
        """Return whether others wait for a stage: readers, or those who use a bank again."""
        return self.recycled or (worked and not final)

    def _meet(self, piece: Piece, stage: int) -> None:
        self._combine(piece, stage)

    def await_readers(self, piece: Piece) -> None:
        """Wait until all readers have combined what was in the bank before."""
        done = (piece.index - BANKS) * self.values
        last: dict[int, int] = {}
        for stage in range(1, self.pattern.stages + 1):
            last |= dict.fromkeys(self.pattern.readers(self.group.me, stage), stage)
        for member, stage in last.items():
            self.wait_until(member, COMBINED, done + stage)


class _Gather(_Shares):
    """An allgather, or the gather of a reduce.

    The root of a broadcast has all shares. It shows them as others do, and takes none.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        signature = self.builder.signature
        self.base = self.cut.nbytes
        rank = self.group.ranks[self.group.me]
        self.has_all = signature.collective == "bcast" and rank == signature.root

    def tells_taken(self, last: bool) -> bool:
        """Return whether others wait for a step: takers, or those who use a bank again."""
        return self.recycled or not last

    def combine_and_take(self, piece: Piece) -> None:
        """Take what others show."""
        self.awaited.clear()
        for step in self.steps:
            (self._pass_on if self.has_all else self._take)(piece, step)

    def _pass_on(self, piece: Piece, step: int) -> None:
        """Show what others would read in this member's cells after a step."""
        last = step == self.pattern.gathers
        for _, parts in self.script(piece).takes[step - 1]:
            for run in () if last else parts:
                cell = self.cell(self.group.me, piece, 0, run, 1)
                self.stream.copy(cell, self._own(piece, run), run.stop - run.start)
        if self.tells_taken(last):
            self.post(piece, step)

    def await_readers(self, piece: Piece) -> None:
        """Wait until all takers have copied what was in the bank before."""
        done = (piece.index - BANKS) * self.values
        last: dict[int, int] = {}
        for step in self.steps:
            last |= dict.fromkeys(self.pattern.takers(self.group.me, step), step)
        for member, step in last.items():
            self.wait_until(member, READ, done + step)

    def counter(self, member: int, piece: Piece, stage: int) -> tuple[Ref, int]:
        """Return a member's flag, and its value once it shows its shares, or has done a step."""
        level, slot = self.group.level, self.group.slots[member]
        if not stage:
            return self.builder.flag(level, slot, RELEASED), piece.index + 1
        value = piece.index * self.values + stage
        return self.builder.flag(level, slot, READ), value


def lower(context: Context) -> None:
    """Emit this rank's operations for each task."""
    if context.tasks[0].kind in ("reduce_scatter", "scatter"):
        exchange_pieces(context, _Scatter(context))
        return
    exchange, stream = _Gather(context), context.stream
    for piece in exchange.pieces():
        if piece.first:
            stream.begin(piece.task)
        exchange.show(piece)
        exchange.combine_and_take(piece)
        if piece.last:
            stream.end(piece.task)
