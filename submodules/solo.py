"""``solo``: one-sided, single copy: ranks read each other's memory.

What is sent is copied once, from where it is to where it is wanted. Nobody leaves before the
others have read what they need of it. Reductions are split: every member combines its share of a
piece from everybody's operands. Arrays that all ranks of the node map (``han/arena.py``) are
operands where they are; others are read by cross-memory attach, which takes a copy more to combine.

Source: HAN, section III (SOLO); Jocksch et al., section II (reduce-scatter, then allgather).
"""

from __future__ import annotations

from dataclasses import dataclass

from han.geometry import LINE, PAGE
from han.program import PEER_SLOTS, Base, PeerBase, Ref
from han.submodules.base import Algorithm, Parameter, Question, order_kept
from han.submodules.cells import (
    COMBINED,
    COPIED,
    FLAGS,
    GATHERED,
    READ,
    RELEASED,
    TAKEN,
    tasks_at,
)
from han.submodules.pieces import Piece, cut, share
from han.tasks.lower import Context, operand_of
from han.tasks.plan import Plan, active_levels
from han.tasks.signature import Signature
from han.tasks.stream import Peer
from han.topology import Topology

KiB = 1024
CHUNK = 512 * KiB
BLOCK = 64 * KiB  # what is read to be combined stays in a near cache


class Solo:
    """Single copy from the memory of other ranks."""

    name = "solo"
    about = "one-sided: ranks read each other's memory, one copy (HAN's SOLO)"
    flags = FLAGS
    algorithms = {
        "pull": Algorithm("read from the root; members combine a share each", ordered="always"),
        "split": Algorithm(
            "members combine a share each, then read the others'", ("allreduce",), "always"
        ),
    }
    parameters = {
        "chunk": Parameter("size", "bytes that are worked on at a time", 64, 1 << 30),
        "block": Parameter("size", "bytes that are read and combined at a time", 64, 1 << 26),
    }

    def supports(self, question: Question) -> str | None:
        """Return None, or the reason why it cannot serve."""
        if not question.topology.shared[question.level]:
            return "members of a group do not share memory"
        signature = question.signature
        mapped = reads_mapped(question.topology, signature, question.level)
        if not (mapped or question.topology.attach):
            return "the ranks may not read each other's memory"
        if signature.reduces and signature.element > PAGE:
            return f"elements of {signature.element} bytes do not fit into a share of {PAGE}"
        return order_kept(question, self.algorithms[question.choice.algorithm])

    def footprint(self, plan: Plan, level: int) -> int:
        """Return how many bytes of each rank's ring of cells a run takes: shares of a reduce."""
        tasks = tasks_at(plan, level).get("reduce")
        return 0 if tasks is None else 2 * _share_room(plan, level)

    def lower(self, context: Context) -> None:
        """Emit this rank's operations."""
        context.builder.show(context.group.level)
        kind = context.tasks[0].kind
        {"bcast": _bcast, "reduce": _reduce, "allreduce": _allreduce}[kind](_Solo.of(context))


def reads_mapped(topology: Topology, signature: Signature, level: int) -> bool:
    """Whether all that members of a level read of each other is in memory that they map.

    What leaders reduce towards a root is in memory of their own from the second level on.
    """
    if not signature.mapped or not topology.shared[level]:
        return False
    crowd = max(len(topology.home(level, r)) for r in range(topology.size))
    own = signature.collective == "reduce" and level != active_levels(topology)[0]
    return not own and crowd <= PEER_SLOTS


def _chunk(plan: Plan, level: int) -> int:
    """Bytes of a piece: a reduce's two shares of it must fit into what a run may take."""
    element = plan.signature.element
    chunk = plan.choice.levels[level].get("chunk", CHUNK)
    geometry = plan.geometries[level]
    if geometry is not None:
        chunk = min(chunk, geometry.area - 4 * (LINE + element))
    return max(element, chunk // element * element)


def _share_room(plan: Plan, level: int) -> int:
    """Bytes of the largest share of a piece: of a group of two."""
    unit = max(LINE, plan.signature.element)
    return -(-(_chunk(plan, level) // 2 + unit) // LINE) * LINE


@dataclass(frozen=True)
class _Solo:
    """One stream of a member, its pieces, and how it addresses the others."""

    context: Context
    pieces: list[Piece]
    members: range
    mapped: bool  # operands are read where they are

    @classmethod
    def of(cls, context: Context) -> _Solo:
        plan, level = context.builder.plan, context.group.level
        pieces = cut(context.tasks, _chunk(plan, level), context.element, context.stream.sequence)
        context.stream.sequence += len(pieces)
        mapped = reads_mapped(plan.topology, plan.signature, level)
        return cls(context, pieces, range(context.group.size), mapped)

    @property
    def others(self) -> list[int]:
        """Everyone else, the next one first: not all start at the same place."""
        me, size = self.context.group.me, self.context.group.size
        return [(me + k) % size for k in range(1, size)]

    def flag(self, member: int, kind: int) -> Ref:
        """A member's flag."""
        group = self.context.group
        return self.context.builder.flag(group.level, group.slots[member], kind)

    def tell(self, kind: int, value: int) -> None:
        """Raise a flag of this rank."""
        self.context.stream.post(self.flag(self.context.group.me, kind), value)

    def await_(self, member: int, kind: int, value: int) -> None:
        """Wait for a flag of another rank."""
        rank = self.context.group.ranks[member]
        self.context.stream.wait(self.flag(member, kind), value, rank)

    def pull(self, dst: Ref, src: Ref, nbytes: int, member: int) -> None:
        """Read from a member's memory."""
        group, builder = self.context.group, self.context.builder
        if self.mapped:
            self.context.stream.copy(dst, self.there(src, member), nbytes)
            return
        peer = Peer(group.ranks[member], builder.channel(group.level), group.slots[member])
        self.context.stream.pull(dst, src, nbytes, peer)

    def there(self, src: Ref, member: int) -> Ref:
        """Address a place in a member's buffer that this rank maps."""
        group = self.context.group
        channel = self.context.builder.channel(group.level)
        return PeerBase(src.base, channel, group.slots[member]).ref(src.offset)

    def operand(self, member: int) -> Ref:
        """Where a member's operand is, in its own memory."""
        plan, group = self.context.builder.plan, self.context.group
        return operand_of(plan, group.ranks[member], group.level)

    def cell(self, member: int, piece: Piece) -> Ref:
        """Where a member puts its share of a piece of a reduce."""
        group, builder = self.context.group, self.context.builder
        room = _share_room(builder.plan, group.level)
        return builder.cells(group.level, group.slots[member]) + piece.index % 2 * room

    def bounds(self, piece: Piece, member: int) -> tuple[int, int]:
        """The bytes of a piece that a member combines."""
        return share(piece.nbytes, self.context.element, member, len(self.members))

    def begin(self, piece: Piece) -> None:
        """Begin a task with its first piece."""
        if piece.first:
            self.context.stream.begin(piece.task)

    def end(self, piece: Piece) -> None:
        """End a task with its last piece."""
        if piece.last:
            self.context.stream.end(piece.task)


def _bcast(solo: _Solo) -> None:
    """Read from the root, which waits until all have."""
    context, last = solo.context, solo.pieces[-1].index + 1
    group = context.group
    for piece in solo.pieces:
        solo.begin(piece)
        if group.leads:
            solo.tell(RELEASED, piece.index + 1)
        else:
            solo.await_(group.root, RELEASED, piece.index + 1)
            at = context.source + piece.start
            solo.pull(context.result + piece.start, at, piece.nbytes, group.root)
        solo.end(piece)
    if not group.leads:
        solo.tell(READ, last)
    for m in solo.others if group.leads else ():
        solo.await_(m, READ, last)


@dataclass(frozen=True)
class _Combiner:
    """Combines a share of a piece from everybody's operands, in their order."""

    solo: _Solo
    operands: list[Ref]
    room: tuple[Ref, Ref]  # for what is read
    partial: Ref
    block: int

    @classmethod
    def of(cls, solo: _Solo) -> _Combiner:
        context = solo.context
        element, builder = context.element, context.builder
        block = max(element, context.choice.get("block", BLOCK) // element * element)
        most = max(stop - start for p in solo.pieces for start, stop in [solo.bounds(p, 0)])
        size = min(block, most + LINE + element)
        partial = len(solo.members) > 2
        if solo.mapped:
            rooms = [builder.scratch(size)] if partial else [Ref(Base.NONE)]
        else:
            rooms = [builder.scratch(size) for _ in range(3 if partial else 1)]
        rooms = (rooms * 3)[:3]
        operands = [solo.operand(m) for m in solo.members]
        return cls(solo, operands, (rooms[0], rooms[1]), rooms[2], min(block, size))

    def combine(self, piece: Piece, dst: Ref, ready: int) -> None:
        """Put this rank's share of a piece at `dst`; operands are there when `ready` is told."""
        solo = self.solo
        start, stop = solo.bounds(piece, solo.context.group.me)
        for m in solo.others:
            solo.await_(m, ready, piece.index + 1)
        step = max(solo.context.element, self.block // solo.context.element * solo.context.element)
        for at in range(start, stop, step):
            self._block(piece.start + at, min(step, stop - at), dst + (at - start))

    def _block(self, at: int, nbytes: int, dst: Ref) -> None:
        """Combine some bytes; `dst` may lie over our own operand, so it is written last."""
        context = self.solo.context
        total = None
        for m in self.solo.members:
            here = context.source + at
            if m != context.group.me:
                here = self._fetch(m, at, nbytes)
            if total is not None:
                last = m == self.solo.members[-1]
                target = dst if last else self.partial
                context.stream.reduce(target, total, here, nbytes)
                here = target
            total = here

    def _fetch(self, member: int, at: int, nbytes: int) -> Ref:
        """Return where this rank finds bytes of a member's operand."""
        if self.solo.mapped:
            return self.solo.there(self.operands[member] + at, member)
        self.solo.pull(self.room[member % 2], self.operands[member] + at, nbytes, member)
        return self.room[member % 2]


def _reduce(solo: _Solo) -> None:
    """Combine a share each; the root collects them. Two cells a member take turns."""
    context, combiner = solo.context, _Combiner.of(solo)
    group, stream = context.group, context.stream
    for piece in solo.pieces:
        solo.begin(piece)
        solo.tell(GATHERED, piece.index + 1)
        start, _ = solo.bounds(piece, group.me)
        if group.leads:
            dst = context.result + (piece.start + start)
        else:
            dst = solo.cell(group.me, piece)
            if piece.index >= 2:
                solo.await_(group.root, TAKEN, piece.index - 1)
        combiner.combine(piece, dst, GATHERED)
        solo.tell(COMBINED, piece.index + 1)
        if group.leads:
            for m in solo.others:
                start, stop = solo.bounds(piece, m)
                solo.await_(m, COMBINED, piece.index + 1)
                at = context.result + (piece.start + start)
                stream.copy(at, solo.cell(m, piece), stop - start)
            solo.tell(TAKEN, piece.index + 1)
        solo.end(piece)
    _await_all(solo, COMBINED)


def _allreduce(solo: _Solo) -> None:
    """Combine a share each, then read the others'."""
    context, combiner = solo.context, _Combiner.of(solo)
    group = context.group
    for piece in solo.pieces:
        solo.begin(piece)
        solo.tell(COPIED, piece.index + 1)
        start, _ = solo.bounds(piece, group.me)
        combiner.combine(piece, context.result + (piece.start + start), COPIED)
        solo.tell(COMBINED, piece.index + 1)
        for m in solo.others:
            start, stop = solo.bounds(piece, m)
            solo.await_(m, COMBINED, piece.index + 1)
            at = context.result + (piece.start + start)
            solo.pull(at, at, stop - start, m)
        solo.end(piece)
    solo.tell(TAKEN, solo.pieces[-1].index + 1)
    _await_all(solo, TAKEN)


def _await_all(solo: _Solo, kind: int) -> None:
    """Wait until nobody reads from this rank's memory any more."""
    for m in solo.others:
        solo.await_(m, kind, solo.pieces[-1].index + 1)
