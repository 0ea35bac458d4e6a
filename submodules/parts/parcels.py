"""What one rank does for the parcels of a call: it fills slots, carries parcels, empties slots.

What ranks of a node share lies behind the cells of ``pairs``: the slots that a rank fills, the
sizes that it expects, and the slots that it has brought for others. A rank that is alone has the
same in its own memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from han.common.kept import kept
from han.model.program import OWN_BLOCK, Base, Ref
from han.tasks.bundles import Ranks
from han.tasks.context import Context
from han.tasks.own_sizes import sent_to, taken_from
from han.tasks.parcels import HEAD, WORD, Parcel, Parcels


@dataclass(frozen=True)
class Courier:
    """One rank's part in the parcels of a call."""

    context: Context
    parcels: Parcels

    @classmethod
    def of(cls, context: Context) -> Courier | None:
        """Return the part of this rank; None if there are no parcels."""
        steps = context.builder.plan.block_steps
        found = None if steps is None else steps.parcels
        return None if found is None else cls(context, found)

    @kept
    def rank(self) -> int:
        """This rank."""
        return self.context.builder.rank

    @kept
    def place(self) -> tuple[int, int]:
        """This rank's node, and the lane that it carries; there may be no such lane."""
        return self.parcels.bundles.place(self.rank)

    @property
    def carries(self) -> bool:
        """Whether this rank carries a lane."""
        return self.place[1] < self.parcels.bundles.lanes

    @kept
    def leaving(self) -> list[Parcel]:
        """The parcels that this rank sends."""
        return self.parcels.leaving(*self.place) if self.carries else []

    @kept
    def coming(self) -> list[Parcel]:
        """The parcels that hold blocks of this rank, or that it carries."""
        node, number = self.place
        return self.parcels.coming(node, number % self.parcels.bundles.lanes)

    @kept
    def gives(self) -> bool:
        """Whether this rank sends blocks in any parcel."""
        return any(True for _ in self.parcels.given(self.rank))

    @property
    def expects(self) -> bool:
        """Whether this rank tells which sizes it expects in parcels."""
        return self.parcels.counted and self.rank in self.told

    @kept
    def told(self) -> Ranks:
        """The ranks of this lane that get blocks in parcels, in the order of the lane."""
        node, number = self.place
        lane = self.parcels.bundles.bundle(node, number % self.parcels.bundles.lanes)
        return tuple([r for r in lane if any(parcel.brings(r) for parcel in self.coming)])

    @property
    def alone(self) -> bool:
        """Whether this rank is alone in its node."""
        return len(self.parcels.bundles.nodes[self.place[0]]) == 1

    @property
    def hands_on(self) -> bool:
        """Whether the carrier of this rank's lane gets blocks for other ranks."""
        node, number = self.place
        return self.parcels.hands_on(node, number % self.parcels.bundles.lanes)

    @kept
    def carrier(self) -> int:
        """The rank that carries this rank's blocks."""
        node, number = self.place
        return self.parcels.carrier(node, number % self.parcels.bundles.lanes)

    # ---- memory -------------------------------------------------------------------------------

    def own(self) -> Ref:
        """Return the memory of a rank that shares its slots with nobody."""
        parcels = self.parcels
        brought = sum(parcel.slots for parcel in self.coming) * parcels.stride
        return self.context.builder.named_scratch("slots", parcels.brought_at + brought)

    def head(self, parcel: Parcel) -> Ref:
        """Return where the numbers of a parcel lie that this rank carries; the parcel is behind."""
        key = "parcel", self.number(parcel)
        return self.context.builder.named_scratch(key, HEAD + self.nbytes(parcel))

    def nbytes(self, parcel: Parcel) -> int:
        """Return the bytes of a parcel whose slots are all full."""
        return parcel.slots * self.parcels.stride

    def some(self, parcel: Parcel) -> Ref | None:
        """Return where the number of a parcel's blocks is; None if it is sent without any too."""
        return self.head(parcel) if self.parcels.counted else None

    def number(self, parcel: Parcel) -> int:
        """Return a number of a parcel, by which streams of this rank wait for each other."""
        return parcel.node * len(self.parcels.bundles.nodes) + parcel.to

    # ---- before parcels are sent --------------------------------------------------------------

    def fill(self, memory: Ref) -> None:
        """Put this rank's blocks into slots, and tell the sizes that it expects."""
        for parcel, first in self.parcels.given(self.rank):
            for k, target in enumerate(parcel.targets[self.rank]):
                slot, block = memory + (first + k) * self.parcels.stride, sent_to(target)
                self._tell(slot, block)
                self.context.stream.copy(
                    slot + WORD, self.context.source.behind(block), self._nbytes, block=block,
                    upto=self.parcels.room,
                )  # fmt: skip
        for parcel in self.coming if self.expects else ():
            sizes = memory + self._sizes_of(parcel)
            for k, source in enumerate(parcel.sources):
                self._tell(sizes + k * WORD, taken_from(source, self._size))

    def _tell(self, place: Ref, block: int) -> None:
        """Store the size of a block."""
        self.context.stream.copy(place, Ref(Base.TABLE, (block - 1) * OWN_BLOCK.itemsize), WORD)

    def _sizes_of(self, parcel: Parcel) -> int:
        return self.parcels.sizes_at + parcel.before * WORD

    def pack(self, source: int, memory: Ref) -> None:
        """Append the slots that a rank of this node has filled to the parcels that leave."""
        stride = self.parcels.stride
        for parcel, first in self.parcels.given(source):
            if self.carries and parcel.lane == self.place[1]:
                head, nbytes = self.head(parcel), len(parcel.targets[source]) * stride
                place = head + HEAD + parcel.starts[source] * stride
                self.context.stream.pack(place, memory + first * stride, head, nbytes, stride)

    def count(self, target: int, memory: Ref) -> None:
        """Count the small blocks that a rank of this bundle expects."""
        for parcel in self.coming if self.parcels.counted else ():
            sizes, nbytes = memory + self._sizes_of(parcel), len(parcel.sources) * WORD
            first = target == self.told[0]
            self.context.stream.tally(self.head(parcel), sizes, nbytes, self.parcels.stride, first)

    # ---- after they have come -----------------------------------------------------------------

    def unpack(self, parcel: Parcel, memory: Ref) -> None:
        """Put a parcel that has come into slots."""
        head, sender = self.head(parcel), self.parcels.carrier(parcel.node, parcel.lane)
        place, nbytes = self._brought(parcel, memory), self.nbytes(parcel)
        self.context.stream.unpack(place, head + HEAD, head, nbytes, self.parcels.stride, sender)

    def _brought(self, parcel: Parcel, memory: Ref) -> Ref:
        return memory + self.parcels.brought_at + parcel.first * self.parcels.stride

    def take(self, parcel: Parcel, memory: Ref, flag: tuple[Ref, int] | None = None) -> None:
        """Take this rank's small blocks out of the slots of a parcel, and compare their sizes.

        `flag`, and its value, say when the carrier has brought the parcel.
        """
        stream, room = self.context.stream, self.parcels.room
        for source in parcel.brings(self.rank):
            number = parcel.slot(source, self.rank)
            slot = self._brought(parcel, memory) + number * self.parcels.stride
            block = taken_from(source, self._size)
            if flag is not None:
                stream.wait(*flag, self.carrier, block=block, upto=room)
            stream.expect(slot, self._nbytes, source, block=block, upto=room)
            result = self.context.result.behind(block)
            stream.copy(result, slot + WORD, self._nbytes, block=block, upto=room)

    @property
    def _size(self) -> int:
        """The number of ranks."""
        return self.parcels.bundles.size

    @property
    def _nbytes(self) -> int:
        """The bytes of a block, as long as its size is not known."""
        return self.context.builder.signature.nbytes
