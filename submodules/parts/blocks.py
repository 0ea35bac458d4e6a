"""How blocks lie in cells or in small slots, and the pieces that they move in."""

from __future__ import annotations

from dataclasses import dataclass

from han.model.channel_layout import FLAG, INLINE, LINE, PAGE, RING_MIN
from han.model.collectives import SPREADING
from han.model.program import Ref
from han.submodules.parts.cells import CELLS, CHUNK
from han.submodules.parts.pieces import Piece, cut
from han.tasks.context import Context
from han.tasks.graph import Task
from han.tasks.outline import Outline
from han.tasks.signature import Signature

FEWEST = 2  # cells
LARGEST = RING_MIN // 2 // FEWEST  # bytes of a cell that every channel has room for


def _lines(nbytes: int) -> int:
    return -(-nbytes // LINE) * LINE


@dataclass(frozen=True)
class Layout:
    """Cells used in turn, each with a piece of every block that a rank shows.

    Where all fit into a page, they travel in the rank's small slot, beside its flag (`small`).
    """

    small: bool
    parts: int
    chunk: int
    stride: int
    cells: int
    pieces: int

    @classmethod
    def of(cls, plan: Outline, level: int, tasks: tuple[Task, ...]) -> Layout:
        """Fit the asked number of cells and their size into what a run may use."""
        geometry, choice = plan.geometries[level], plan.choice.levels[level]
        assert geometry is not None
        nbytes, element = plan.signature.nbytes, plan.signature.element
        parts = _parts(plan.signature, plan.topology.size)
        if len(tasks) == 1 and parts * nbytes <= PAGE and choice.get("inline", 1):
            return cls(True, parts, max(nbytes, element), nbytes, 1, 1)
        cells = max(FEWEST, choice.get("cells", CELLS))
        room = geometry.area // cells // parts // LINE * LINE
        packed = room < _lines(element)  # many ranks, large elements: as few cells as will do
        if packed:
            cells, room = FEWEST, geometry.area // FEWEST // parts
        most = max(_lines(t.nbytes) for t in tasks)
        wanted = min(choice.get("chunk", CHUNK), most, room)
        chunk = max(element, wanted // element * element)
        stride = chunk if packed else _lines(chunk)
        return cls(False, parts, chunk, stride, cells, len(cut(tasks, chunk, element)))

    @property
    def nbytes(self) -> int:
        """Bytes of all cells."""
        return 0 if self.small else min(self.cells, self.pieces) * self.parts * self.stride

    @property
    def recycled(self) -> bool:
        """Whether cells are used twice."""
        return self.pieces > self.cells

    @property
    def ahead(self) -> int:
        """How many pieces a rank may show before it has taken the one that is due.

        Where all ranks read from all, cells need no counters of readers. A rank that shows piece x
        has taken piece x - ahead - 1 from every peer. Each peer had shown that piece after it had
        taken piece x - 2 ahead - 2 from all ranks, so the cell of that piece is free.
        """
        return max(0, self.cells // 2 - 1)


def footprint(plan: Outline, level: int) -> int:
    """Return the bytes of each rank's ring that a run takes."""
    tasks = plan.streams.get((plan.signature.collective, level))
    return 0 if tasks is None else Layout.of(plan, level, tasks).nbytes


def misfit(signature: Signature, ranks: int) -> str | None:
    """Return the reason why cells may be too small for an element of each block, or None."""
    parts, element = _parts(signature, ranks), signature.element
    if parts * element <= LARGEST:
        return None
    return f"{parts} elements of {element} bytes do not fit into a cell of {LARGEST}"


def _parts(signature: Signature, ranks: int) -> int:
    """Return how many blocks a rank shows."""
    return ranks if signature.collective in SPREADING else 1


@dataclass(frozen=True)
class Blocks:
    """The blocks of one call as one rank addresses them: its own, and what others show."""

    context: Context
    layout: Layout
    signature: Signature

    @classmethod
    def of(cls, context: Context) -> Blocks:
        """Look at the blocks of the context's stream."""
        builder = context.builder
        tasks = builder.tasks_of(context.stream)
        layout = Layout.of(builder.plan, context.group.level, tasks)
        return cls(context, layout, builder.signature)

    def pieces(self) -> list[Piece]:
        """The stream's tasks in chunks."""
        context = self.context
        pieces = cut(context.tasks, self.layout.chunk, context.element, context.stream.sequence)
        context.stream.sequence += len(pieces)
        return pieces

    @property
    def me(self) -> int:
        """This rank's place."""
        return self.context.group.me

    @property
    def others(self) -> list[int]:
        """All other members, the next one first: members start their reads at different peers."""
        size = self.context.group.size
        return [(self.me + k) % size for k in range(1, size)]

    # ---- where things are -------------------------------------------------------------------

    def source(self, piece: Piece, block: int = 0) -> Ref:
        """A piece of a block that this rank sends."""
        return self.context.source + (self.signature.start(block) + piece.start)

    def result(self, piece: Piece, block: int = 0) -> Ref:
        """Where a piece of a block goes."""
        return self.context.result + (self.signature.start(block) + piece.start)

    def nbytes(self, piece: Piece, member: int) -> int:
        """Bytes of a piece of a member's block."""
        return piece.within(self.signature.length(member))

    def shown(self, member: int, piece: Piece, part: int = 0) -> Ref:
        """Where a member shows a piece of a block."""
        group, builder, layout = self.context.group, self.context.builder, self.layout
        slot = group.slots[member]
        if layout.small:
            beside = layout.parts * layout.stride <= INLINE
            return builder.small(group.level, slot) + (
                (FLAG if beside else LINE) + part * layout.stride
            )
        place = piece.index % layout.cells * layout.parts + part
        return builder.cells(group.level, slot) + place * layout.stride

    # ---- who says what ----------------------------------------------------------------------

    def _flag(self, member: int, kind: int) -> Ref:
        group, builder = self.context.group, self.context.builder
        if self.layout.small:
            return builder.small(group.level, group.slots[member])
        return builder.flag(group.level, group.slots[member], kind)

    def tell(self, kind: int, value: int) -> None:
        """Raise a flag of this rank."""
        self.context.stream.post(self._flag(self.me, kind), value)

    def wait(self, member: int, kind: int, value: int) -> None:
        """Wait for a flag of another rank."""
        rank = self.context.group.ranks[member]
        self.context.stream.wait(self._flag(member, kind), value, rank)

    def reused(self, piece: Piece) -> int:
        """How many pieces must have left before `piece` may enter its cell; 0: none."""
        return max(0, piece.index - self.layout.cells + 1)
