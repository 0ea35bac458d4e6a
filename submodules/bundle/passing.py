"""The messages of a reduce-scatter or an alltoall whose blocks others pass on.

In each phase a member packs what it sends to another one, unless it lies in one piece, and receives
into memory of its own. In a reduce-scatter it combines what has come with what it has of the same
blocks; in an alltoall it passes it on later, or has it for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, groupby
from typing import NamedTuple

from han.common.kept import kept
from han.model.program import Base, Ref
from han.submodules.bundle.rounds import PASSING, Round
from han.submodules.bundle.whole import Whole
from han.submodules.parts.lots import Lot
from han.tasks.bundles import Members, Shelf


class Place(NamedTuple):
    """Memory of this rank where blocks are."""

    memory: Ref
    shelf: Shelf

    @property
    def blocks(self) -> tuple[int, ...]:
        """The blocks, in their order there."""
        return tuple(self.shelf.blocks)


class Passing(Whole):
    """The messages of one task. A message holds bundles whole."""

    @kept
    def places(self) -> dict[int, Place]:
        """Where blocks are that this rank no longer has in its source."""
        return {}

    def _exchange(self) -> None:
        group = self.context.group
        script = PASSING[self.task.kind, self.context.choice.algorithm]
        phases = [*script(group.me, group.size, self.factors)]
        for number, phase in enumerate(phases):
            coming = {one.source: self._coming(number, one) for one in phase}
            requests = [
                self._receive_from(m, place.memory, place.blocks) for m, place in coming.items()
            ]
            for one in phase:
                blocks = self._blocks(one.sends)
                self._send_to(one.to, self._in_one_piece(blocks, (number, one.to)), blocks)
            for request in requests:
                self._complete(request)
            self._take_phase(number, coming, number == len(phases) - 1)
        self._deliver()

    def _blocks(self, numbers: Members) -> tuple[int, ...]:
        """Return the blocks of bundles."""
        return tuple(chain.from_iterable(map(self._bundle, numbers)))

    def _bundle(self, number: int) -> tuple[int, ...]:
        """Return the blocks of the bundle with a number."""
        return tuple(self.lots.moves.given(*divmod(number, self.context.group.size)))

    def _coming(self, number: int, one: Round) -> Place:
        """Return where the message of a phase comes."""
        return self._room_of(self._blocks(one.receives), (number, one.source))

    def _room_of(self, blocks: tuple[int, ...], key: object) -> Place:
        """Return memory of this task for blocks."""
        nbytes = len(blocks) * self.lots.signature.nbytes
        return Place(self.stream.room(nbytes, key), Shelf(Base.SCRATCH, blocks))

    # ---- what is sent -------------------------------------------------------------------------

    @kept
    def source(self) -> Place:
        """Where blocks are until they are combined."""
        return Place(self.context.source, self.lots.moves.source(self.context.group.me))

    def _await(self, lot: Lot) -> None:
        """Wait until other streams have brought a lot, if it is still in the source."""
        if lot.blocks[0] not in self.places:
            self.stream.begin_blocks(self.task, lot.blocks, lot.stop)

    def _at(self, lot: Lot) -> Ref:
        """Return where the blocks of a lot are now."""
        place = self.places.get(lot.blocks[0], self.source)
        return self.lots.on(place.memory, place.shelf, lot)

    def _in_one_piece(self, blocks: tuple[int, ...], key: object) -> Ref:
        """Return where blocks are in one piece: this rank may have to pack them."""
        runs = self._runs(blocks)
        for lot in runs:
            self._await(lot)
        if len(runs) == 1:
            return self._at(runs[0])
        packed = self._room_of(blocks, ("packed", key))
        for lot in runs:
            to = self.lots.on(packed.memory, packed.shelf, lot)
            self.lots.copy(to, self._at(lot), lot)
        return packed.memory

    def _runs(self, blocks: tuple[int, ...]) -> list[Lot]:
        """Return blocks as lots of those that lie behind each other now."""

        def start(item: tuple[int, int]) -> tuple[int, int]:
            number, block = item
            place = self.places.get(block, self.source)
            return id(place), place.shelf.at(block) - number

        runs = groupby(enumerate(blocks), start)
        return [self._whole(tuple([block for _, block in run])) for _, run in runs]

    # ---- what has come ------------------------------------------------------------------------

    def _take_phase(self, number: int, coming: Mapping[int, Place], last: bool) -> None:
        """Remember where blocks are that have come; places are told by member."""
        for place in coming.values():
            self.places.update(dict.fromkeys(place.blocks, place))

    def _deliver(self) -> None:
        """Copy all blocks of this rank's bundle to where it takes them."""
        self._keep(self.lots.to_keep(self.task, self.segment))
        me, moves = self.context.group.me, self.lots.moves
        for giver in range(self.context.group.size):
            blocks = tuple(moves.given(giver, me)) if giver != me else ()
            for lot in self._runs_of_result(blocks):
                self.stream.begin_blocks(self.task, lot.blocks, lot.stop)
                self.lots.copy(self.lots.result(lot), self._at(lot), lot)
                self.stream.end_blocks(self.task, lot.blocks, lot.stop)

    def _runs_of_result(self, blocks: tuple[int, ...]) -> list[Lot]:
        """Return blocks as lots that lie behind each other here, and in the result."""
        result = self.lots.moves.result(self.context.group.me)
        found = list[Lot]()
        for lot in self._runs(blocks) if blocks else ():
            starts = groupby(enumerate(lot.blocks), lambda one: result.at(one[1]) - one[0])
            found += [self._whole(tuple([block for _, block in run])) for _, run in starts]
        return found


class Sums(Passing):
    """The messages of a reduce-scatter: operands are combined in the order of members."""

    def _bundle(self, number: int) -> tuple[int, ...]:
        return tuple(self.lots.moves.given(self.context.group.me, number))

    def _take_phase(self, number: int, coming: Mapping[int, Place], last: bool) -> None:
        """Combine what has come; what this rank itself takes comes in the last phase."""
        me, ranks = self.context.group.me, self.context.group.ranks
        operands = dict[int, dict[int, Ref]]()  # by block and rank
        for member, place in coming.items():
            for block in place.blocks:
                there = self.lots.on(*place, self._whole((block,)))
                operands.setdefault(block, {})[ranks[member]] = there
        come = tuple(operands)
        into = self._room_of(() if last else come, ("sums", number))
        for block, found in operands.items():
            lot = self._whole((block,))
            self._await(lot)
            found[ranks[me]] = self._at(lot)
            if last:
                self.lots.fold(self.task, lot, found, 0)
            else:
                self.lots.combine(self.lots.on(*into, lot), lot, found, 0)
        if not last:
            self.places.update(dict.fromkeys(come, into))

    def _deliver(self) -> None:
        """Do nothing: results are where they are wanted."""
