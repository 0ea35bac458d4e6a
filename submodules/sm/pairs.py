"""The algorithm ``pairs`` of ``sm``: blocks whose sizes only their sender and their receiver know.

A sender tells its receiver the size of a block and where it begins in the send buffer. It puts a
small block beside that or into a cell. A large one stays: the receiver reads it by cross-memory
attach. Where one rank receives all blocks, it says where they belong, and their senders write
large ones there, all at a time. Both know how large a block is. A rank whose memory a peer reads or
writes leaves after that.

Source: Jain et al., section III (cells), for blocks of any size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from han.common.kept import kept
from han.model.program import ALL, Ref
from han.submodules.parts.cells import COPIED, GATHERED, READ, RELEASED, TAKEN, Members
from han.submodules.parts.parcels import Courier
from han.submodules.sm.handing import Handing
from han.submodules.sm.pair_cells import DATA, FACTS, START, PairCells, tell
from han.tasks.bundles import Moves
from han.tasks.context import Context
from han.tasks.graph import Task
from han.tasks.own_sizes import sent_to, taken_from


def pairs(context: Context) -> None:
    """Emit this rank's copies of the blocks that members give to each other."""
    for task in context.tasks:
        context.stream.label(task)
        one = OTHERS.get(context.builder.signature.collective, _Read)(context)
        if task.kind == "scatter":
            one.hand_on(task)
        else:
            one.give()
            one.pack(task)
            one.keep()
            one.take()
            one.leave()
        context.stream.end(task)


@dataclass(frozen=True)
class _Pairs(ABC):
    """One rank's blocks in a group."""

    context: Context

    @kept
    def moves(self) -> Moves:
        """What members give to each other."""
        assert self.context.moves is not None, "calls by blocks have moves"
        return self.context.moves

    @kept
    def cells(self) -> PairCells:
        """The cells of all members."""
        return PairCells.of(self.context.builder.plan, self.context.group.level)

    @kept
    def takers(self) -> Members:
        """The members to which this one gives a block."""
        me, members = self.context.group.me, range(self.context.group.size)
        return tuple(m for m in members if m != me and self.moves.given(me, m))

    @kept
    def givers(self) -> Members:
        """The members of which this one takes a block, the next one first."""
        return tuple(m for m in self.context.others if self.moves.given(m, self.context.group.me))

    def give(self) -> None:
        """Put small blocks where their takers find them, and say where the others are."""
        stream, me, cells = self.context.stream, self.context.group.me, self.cells
        for m in self.takers:
            block = self._sent(m)
            tell(self.context, cells.told(self.context, me, m), block)
            source = self.context.source.behind(block)
            for place, above, upto in self._places(me, m):
                stream.copy(place, source, self.nbytes, block=block, above=above, upto=upto)
        if self.takers:
            self.context.builder.show(self.context.group.level)
        if self.courier is not None:
            self.courier.fill(self._slots(me))
        if self.takers:
            stream.post(cells.flag(self.context, me), 1)
        if self.courier is not None and (cells.small or not self.takers):
            stream.post(self.context.flag(me, GATHERED), 1)

    def _places(self, giver: int, taker: int) -> list[tuple[Ref, int, int]]:
        """Return where a small block lies, and for which sizes: above some bytes, up to others."""
        context, inside, room = self.context, self.cells.inside, self.cells.room
        beside = self.cells.told(context, giver, taker) + DATA, 0, inside
        cell = self.cells.of_pair(context, giver, taker) + DATA, inside, room
        return [one for one in (beside, cell) if one[2] > one[1]]

    def pack(self, task: Task) -> None:
        """Pack the parcels that this rank carries to other nodes, and count what is expected."""
        courier = self.courier
        if courier is None or not courier.carries:
            return
        sources = {source for parcel in courier.leaving for source in parcel.targets}
        counted = courier.coming if courier.parcels.counted else []
        targets = courier.told if counted else ()
        for member, rank in enumerate(self.context.group.ranks):
            if rank in sources or rank in targets:
                self._wait_to_be_gathered(member)
            if rank in sources:
                courier.pack(rank, self._slots(member))
            if rank in targets:
                courier.count(rank, self._slots(member))
        for parcel in (*courier.leaving, *counted):
            self.context.stream.end_blocks(task, (courier.number(parcel),), 1)

    def _wait_to_be_gathered(self, member: int) -> None:
        """Wait until a member has filled its slots."""
        if member != self.context.group.me:
            rank = self.context.group.ranks[member]
            self.context.stream.wait(self.context.flag(member, GATHERED), 1, rank)

    def hand_on(self, task: Task) -> None:
        """Hand on blocks that have come from other nodes, by themselves or in parcels."""
        steps = self.context.builder.plan.block_steps
        if steps is not None and steps.handed is not None:
            Handing(self.context, steps.handed, self.cells).carry_out(task)
        elif self.courier is not None and self.courier.hands_on:
            self._unpack(task, self.courier)

    def _unpack(self, task: Task, courier: Courier) -> None:
        """Show the slots of parcels that have come, or take blocks from those of a carrier."""
        stream = self.context.stream
        carrier = self.context.group.ranks.index(courier.carrier)
        slots, flag = self._slots(carrier), self.context.flag(carrier, TAKEN)
        for k, parcel in enumerate(courier.coming, 1):
            if carrier != self.context.group.me:
                courier.take(parcel, slots, (flag, k))
                continue
            stream.begin_blocks(task, (courier.number(parcel),), 1)
            courier.unpack(parcel, slots)
            stream.post(flag, k)
            courier.take(parcel, slots)

    @kept
    def courier(self) -> Courier | None:
        """This rank's part in parcels to other nodes; None if there are none."""
        return Courier.of(self.context)

    def _slots(self, member: int) -> Ref:
        """Return where the slots of a member begin."""
        ranks = self.context.builder.plan.geometry(self.context.group.level).ranks
        return self.context.cells(member) + self.cells.slots(ranks)

    def keep(self) -> None:
        """Copy this rank's block for itself."""
        me, context = self.context.group.me, self.context
        if self.moves.given(me, me):
            block, to = self._sent(me), context.result.behind(self._taken(me))
            context.stream.copy(to, context.source.behind(block), self.nbytes, block=block)

    def take(self) -> None:
        """Copy or read what other members give to this one."""
        stream, group = self.context.stream, self.context.group
        for m in self.givers:
            rank, block = group.ranks[m], self._taken(m)
            stream.wait(self.cells.flag(self.context, m), 1, rank)
            told = self.cells.told(self.context, m, group.me)
            stream.expect(told + FACTS, self.nbytes, rank, block=block)
            result = self.context.result.behind(block)
            for place, above, upto in self._places(m, group.me):
                stream.copy(result, place, self.nbytes, block=block, above=above, upto=upto)
            self._take_large(m, block)
        if self.givers:
            stream.post(self.context.flag(group.me, READ), 1)

    @abstractmethod
    def _take_large(self, member: int, block: int) -> None:
        """Take a block of another member that fits into no cell."""

    @abstractmethod
    def leave(self) -> None:
        """Wait until peers need this rank's memory no more."""

    def _wait_if_large(self, member: int, flag: int, block: int) -> None:
        """Wait for a flag of another member, if a block is large."""
        self.context.stream.wait(
            self.context.flag(member, flag), 1, self.context.group.ranks[member], block=block,
            above=self.cells.room, upto=ALL,
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """The bytes of a block, as long as its size is not known."""
        return self.context.builder.signature.nbytes

    def _sent(self, member: int) -> int:
        return sent_to(self.context.group.ranks[member])

    def _taken(self, member: int) -> int:
        return taken_from(self.context.group.ranks[member], self.context.builder.plan.topology.size)


class _Read(_Pairs):
    """Receivers read large blocks."""

    def _take_large(self, member: int, block: int) -> None:
        told = self.cells.told(self.context, member, self.context.group.me)
        self.context.stream.pull(
            self.context.result.behind(block), self.context.source, self.nbytes,
            self.context.peer(member), block=block, above=self.cells.room, upto=ALL,
            from_=told + START,
        )  # fmt: skip

    def leave(self) -> None:
        """Wait until large blocks have been read."""
        for m in self.takers:
            self._wait_if_large(m, READ, self._sent(m))


class _Written(_Pairs):
    """Senders write large blocks into the receive buffer of the only receiver."""

    def give(self) -> None:
        """Put a small block into a cell; the receiver says where the others belong."""
        super().give()
        me = self.context.group.me
        for m in self.givers:
            tell(self.context, self._place(me, m), self._taken(m))
        if self.givers:
            self.context.builder.show(self.context.group.level, given=True)
            self.context.stream.post(self.context.flag(me, RELEASED), 1)

    def _place(self, receiver: int, sender: int) -> Ref:
        """Return where the receiver says where a block belongs."""
        return self.context.cells(receiver) + sender * DATA

    def _take_large(self, member: int, block: int) -> None:
        self._wait_if_large(member, COPIED, block)

    def leave(self) -> None:
        """Write a large block to where it belongs."""
        stream, me = self.context.stream, self.context.group.me
        for m in self.takers:
            block, place = self._sent(m), self._place(m, me)
            rank, large = self.context.group.ranks[m], self.cells.room
            self._wait_if_large(m, RELEASED, block)
            stream.expect(place + FACTS, self.nbytes, rank, block=block, above=large, upto=ALL)
            stream.push(
                self.context.result, self.context.source.behind(block), self.nbytes,
                self.context.peer(m), block=block, above=large, upto=ALL, from_=place + START,
            )  # fmt: skip
        if self.takers:
            stream.post(self.context.flag(me, COPIED), 1)


OTHERS: dict[str, type[_Pairs]] = {"gatherv": _Written}
