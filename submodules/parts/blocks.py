"""Where blocks lie in cells or in small slots, and the pieces that they are moved in."""

from __future__ import annotations

from dataclasses import dataclass, field

from han.common.kept import kept
from han.model.channel_layout import FLAG, INLINE, LINE, PAGE, RING_MIN, lines
from han.model.collectives import SPREADING
from han.model.program import Ref
from han.model.topology import Topology
from han.submodules.measured import CELL_CHUNK, CELLS
from han.submodules.parts.cells import GATHERED, Waits
from han.submodules.parts.lots import groups_of
from han.submodules.parts.offload import Offload
from han.submodules.parts.pieces import Piece, numbered
from han.tasks.bundles import block_of
from han.tasks.context import Context
from han.tasks.graph import Task
from han.tasks.outline import Outline
from han.tasks.signature import Signature

FEWEST = 2  # cells of a ring
LARGEST = RING_MIN // 2 // FEWEST  # bytes of a cell that fits the smallest ring


@dataclass(frozen=True)
class BlockCells:
    """Cells used in turn; a cell holds one piece of every block that a rank shows to its peers.

    A cell has room for `parts` blocks. If all blocks for peers fit into a page, the rank puts them
    into its small slot instead (`small`), which has no room for its block for itself. The cells
    begin `offset` bytes behind those that other streams of the level have.
    """

    small: bool
    parts: int
    chunk: int
    stride: int
    cells: int
    pieces: int
    offset: int = 0

    @classmethod
    def of(cls, plan: Outline, level: int, tasks: tuple[Task, ...]) -> BlockCells:
        """Fit the configured number and size of cells into the part of the ring that a run has.

        The streams of a level have equal parts of it. Only the first one can use small slots, but
        in an allgather over nodes no rank gives in both.
        """
        geometry, choice = plan.geometry(level), plan.choice.levels[level]
        nbytes, grain = plan.signature.nbytes, plan.signature.grain
        parts, blocks = _shown(plan, tasks[0].kind)
        kinds = [kind for kind, k in plan.streams if k == level]
        turn, area = kinds.index(tasks[0].kind), geometry.area // len(kinds)
        peers = max(1, parts - 1)  # a cell has room for all, and so mostly a round size
        fits = len(tasks) == 1 and peers * blocks * nbytes <= PAGE
        own = not turn or plan.signature.collective == "allgather"
        if fits and choice.get("inline", 1) and own:
            return cls(True, peers, max(nbytes, grain) * blocks, nbytes * blocks, 1, 1)
        cells = max(FEWEST, choice.get("cells", CELLS))
        room = area // cells // parts // LINE * LINE
        packed = room < lines(grain)  # no room for whole lines: fewest cells, no padding
        if packed:
            cells, room = FEWEST, area // FEWEST // parts
        most = max(lines(t.nbytes * (blocks if t.nbytes == nbytes else 1)) for t in tasks)
        wanted = min(choice.get("chunk", CELL_CHUNK), most, room)
        chunk = max(grain, wanted // grain * grain)
        stride = chunk if packed else lines(chunk)
        pieces = groups_of(blocks, tasks, plan.signature, chunk)
        offset = turn * (area // LINE * LINE)
        return cls(False, parts, chunk, stride, cells, pieces, offset)

    @property
    def nbytes(self) -> int:
        """Bytes of all cells of a rank."""
        return 0 if self.small else min(self.cells, self.pieces) * self.parts * self.stride

    @property
    def recycled(self) -> bool:
        """Whether a run uses a cell more than once."""
        return self.pieces > self.cells

    @property
    def ahead(self) -> int:
        """How many pieces a rank may show beyond the one that it takes next.

        Where every rank reads from every peer, readers need not tell the writer when they are done.
        A rank that shows piece x has taken piece x - ahead - 1 from every peer. Each peer had shown
        that piece after it had taken piece x - 2 ahead - 2 from all ranks. Piece x uses that
        piece's cell or that of an earlier one, so its cell is free.
        """
        return max(0, self.cells // 2 - 1)


def footprint(plan: Outline, level: int) -> int:
    """Return the bytes of each rank's ring that a run takes."""
    layouts = [BlockCells.of(plan, k, t) for (_, k), t in plan.streams.items() if k == level]
    return max((one.offset + one.nbytes for one in layouts), default=0)


def misfit(signature: Signature, topology: Topology) -> str | None:
    """Return the reason why one element of each block may not fit into a cell, or None."""
    parts, element = _parts(signature, topology), signature.element
    most = LARGEST if topology.whole is not None else LARGEST // 2
    if parts * element <= most:
        return None
    return f"{parts} elements of {element} bytes do not fit into a cell of {most}"


def _parts(signature: Signature, topology: Topology) -> int:
    """Return how many blocks a rank shows at a time: one for every rank if each has its own."""
    spreads = signature.collective in SPREADING and topology.whole is not None
    return topology.size if spreads else 1


def _shown(plan: Outline, kind: str) -> tuple[int, int]:
    """Return how many blocks a rank shows at a time, and one behind the other in a step."""
    blocks = 1 if plan.block_steps is None else plan.block_steps.most_given(kind)
    return _parts(plan.signature, plan.topology), blocks


@dataclass(frozen=True)
class Blocks:
    """The blocks of one call, as one rank addresses them in its buffers and in all ranks' cells."""

    context: Context
    layout: BlockCells
    signature: Signature
    _rooms: dict[int, Ref] = field(default_factory=dict)  # by member
    _operands: dict[int, tuple[Ref, ...]] = field(default_factory=dict)  # by cell
    _own_cells: dict[int, dict[int, Ref]] = field(default_factory=dict)  # by cell

    @classmethod
    def of(cls, context: Context) -> Blocks:
        """Return the blocks of the context's stream."""
        builder = context.builder
        tasks = builder.tasks_of(context.stream)
        layout = BlockCells.of(builder.plan, context.group.level, tasks)
        return cls(context, layout, builder.signature)

    def pieces(self) -> list[Piece]:
        """Cut the context's tasks into pieces, numbered on from the stream's earlier ones."""
        return numbered(self.context, self.layout.chunk)

    @kept
    def me(self) -> int:
        """This rank's position in the group."""
        return self.context.group.me

    @kept
    def offload(self) -> Offload:
        """The messages in place of copies."""
        return Offload(self.context)

    # ---- addresses --------------------------------------------------------------------------

    def source(self, piece: Piece, block: int = 0) -> Ref:
        """Return where a piece of a block is in this rank's send buffer."""
        return self._block(self.context.source, block).to(piece.start)

    def result(self, piece: Piece, block: int = 0) -> Ref:
        """Return where a piece of a block goes in this rank's receive buffer."""
        return self._block(self.context.result, block).to(piece.start)

    def _block(self, buffer: Ref, number: int) -> Ref:
        if not number:
            return buffer
        return block_of(buffer, number, self.signature)

    def nbytes(self, piece: Piece, member: int) -> int:
        """Return the bytes of a piece of a member's block."""
        if not self.signature.counts:
            return piece.nbytes
        return piece.within(self.signature.length(member))

    def shown(self, member: int, piece: Piece, peer: int | None = None) -> Ref:
        """Return where a member shows a piece of its block to its peers, or to one of them."""
        part = 0 if peer is None else peer - (peer > member)
        return self.cell(member, piece.index, part).holding(piece.start)

    def cell(self, member: int, index: int, part: int = 0) -> Ref:
        """Return where the cell of a member for piece `index` begins, or its part."""
        layout, room = self.layout, self._rooms.get(member) or self._room(member)
        return room + (index % layout.cells * layout.parts + part) * layout.stride

    def _room(self, member: int) -> Ref:
        """Return where the cells of a member begin, or the data of its small slot."""
        layout = self.layout
        if layout.small:
            beside = layout.parts * layout.stride <= INLINE
            room = self.context.small(member) + (FLAG if beside else LINE)
        else:
            room = self.context.cells(member) + layout.offset
        self._rooms[member] = room
        return room

    # ---- flags ------------------------------------------------------------------------------

    def _flag(self, member: int, kind: int) -> Ref:
        if self.layout.small:
            return self.context.small(member)
        return self.context.flag(member, kind)

    @kept
    def shows(self) -> tuple[tuple[int, Ref, int], ...]:
        """All other members, the flag that each posts when it has shown a piece, and its rank."""
        others = self.context.others
        return tuple(zip(others, *self.waits.of(others, GATHERED), strict=True))

    @kept
    def waits(self) -> Waits:
        """Waits for the flags of other members."""
        return Waits(self.context, self._flag)

    def operands(self, piece: Piece) -> tuple[Ref, ...]:
        """Return where all members show a piece of this rank's block, which has its own in place.

        They are the same for all pieces that go through one cell, but for what the cell holds.
        """
        turn = piece.index % self.layout.cells
        found = self._operands.get(turn)
        if found is None:
            own = self._block(self.context.source, self.me)
            found = self._operands[turn] = tuple(
                own if m == self.me else self.shown(m, piece, self.me)
                for m in range(self.context.group.size)
            )
        return found

    def own_cells(self, piece: Piece) -> dict[int, Ref]:
        """Return where this rank shows a piece of its block for each peer; see `operands`."""
        turn = piece.index % self.layout.cells
        found = self._own_cells.get(turn)
        if found is None:
            shown = {m: self.shown(self.me, piece, m) for m in self.context.others}
            found = self._own_cells[turn] = shown
        return found

    @kept
    def sources(self) -> tuple[Ref, ...]:
        """The blocks of this rank's send buffer."""
        source = self.context.source
        return tuple([self._block(source, m) for m in range(self.context.group.size)])

    @kept
    def results(self) -> tuple[Ref, ...]:
        """The blocks of this rank's receive buffer."""
        result = self.context.result
        return tuple([self._block(result, m) for m in range(self.context.group.size)])

    def wait_for_all(self, piece: Piece) -> None:
        """Wait until all other members have shown a piece."""
        self.waits.wait(self.context.others, GATHERED, piece.index + 1)

    def post(self, kind: int, value: int) -> None:
        """Post a value in a flag of this rank."""
        self.context.stream.post(self._flag(self.me, kind), value)

    def read_before_reuse(self, piece: Piece) -> int:
        """Return how many pieces must have been read before `piece` may enter its cell; 0: none."""
        return max(0, piece.index - self.layout.cells + 1)
