"""``solo``: single copy; ranks read each other's memory.

Data is copied once, from the sender's buffer to the receiver's. A rank leaves the call after its
peers have read its buffer. In reductions, every member combines its share of a piece from all
members' operands. Ranks read arrays that they map (``han/memory/arena.py``) in place. They read
other arrays by cross-memory attach; to combine these, they copy them first.

Source: HAN, section III (SOLO); Jocksch et al., section II (reduce-scatter, then allgather).
"""

from __future__ import annotations

from han.model.channel_layout import PAGE
from han.model.program import Ref
from han.model.topology import Topology
from han.submodules.parts.cells import COMBINED, COPIED, FLAGS, GATHERED, TAKEN, tasks_at
from han.submodules.parts.pieces import Piece
from han.submodules.solo.bcast import PARAMETERS, meet, misfit, pull, spread
from han.submodules.solo.blocks import BLOCKS
from han.submodules.solo.combine import Combiner
from han.submodules.solo.each import each
from han.submodules.solo.reads import Reads, reads_mapped, share_room
from han.tasks.choice import LevelChoice
from han.tasks.context import Context
from han.tasks.contract import Algorithm, Parameter, Question, Submodule, order_kept
from han.tasks.outline import Outline
from han.tasks.signature import Signature


class Solo(Submodule):
    """Copies data once, from the memory of one rank to that of another."""

    name = "solo"
    about = "one-sided: ranks read each other's memory, one copy (HAN's SOLO)"
    flags = FLAGS
    reads_peers = in_memory = True
    algorithms = {
        "pull": Algorithm(
            "read from the root or along a tree; members combine a share each",
            ordered="always",
            canonical=True,
        ),
        "spread": Algorithm(
            "read a share each from the root, then the shares of the others; reduce like pull",
            ordered="always",
            takes=("chunk", "block"),
            canonical=True,
        ),
        "split": Algorithm(
            "members combine a share each, then read the shares of the others",
            ("allreduce",),
            "always",
            takes=("chunk", "block"),
            canonical=True,
        ),
        "each": Algorithm(
            "every member reads and combines all operands",
            ("allreduce",),
            "always",
            takes=("chunk", "block"),
            canonical=True,
        ),
        "meet": Algorithm(
            "read from the root, which writes a share", ("bcast",), "always", takes=("chunk",)
        ),
        "blocks": Algorithm(
            "read blocks from their owners",
            tuple(BLOCKS),
            "always",
            takes=("chunk", "block"),
            canonical=True,
        ),
    }
    parameters = {
        "chunk": Parameter("size", "bytes that are worked on at a time", 64, 1 << 30),
        "block": Parameter("size", "bytes that are read and combined at a time", 64, 1 << 26),
        **PARAMETERS,
    }

    def supports(self, question: Question) -> str | None:
        """Return None if the algorithm can serve the call, else the reason."""
        if not question.topology.shared[question.level]:
            return "members of a group do not share memory"
        signature = question.signature
        if signature.own:
            return "not all ranks know the sizes of all blocks"
        if signature.by_blocks and question.topology.whole is None:
            return "blocks of other nodes are in no peer's send buffer"
        mapped = reads_mapped(question.topology, signature, question.level)
        alone = mapped and question.choice.algorithm != "meet"
        if not (alone or question.topology.attach):
            return "the ranks may not read each other's memory"
        if signature.in_place:
            return "in place, results would overwrite data that peers still read"
        if signature.reduces and signature.element > PAGE:
            return f"elements of {signature.element} bytes do not fit into a share of {PAGE} bytes"
        kept = order_kept(question, self.algorithms[question.choice.algorithm])
        return kept or misfit(question.choice)

    def footprint(self, plan: Outline, level: int) -> int:
        """Return how many bytes of each rank's ring a run takes, for the shares of a reduce."""
        tasks = tasks_at(plan, level).get("reduce")
        return 0 if tasks is None else 2 * share_room(plan, level, "reduce")

    def reads_mapped(
        self, topology: Topology, signature: Signature, level: int,
        choice: LevelChoice | None = None,
    ) -> bool:  # fmt: skip
        """Return whether members of a level map all buffers of peers that they read."""
        return reads_mapped(topology, signature, level)

    def lower(self, context: Context) -> None:
        """Emit this rank's copies, reductions and flags."""
        meets = context.choice.algorithm == "meet"
        context.builder.show(context.group.level, given=meets)
        kind = context.tasks[0].kind
        move = OTHERS.get((kind, context.choice.algorithm), MOVES[kind])
        move(Reads.of(context))


def _largest_share(solo: Reads) -> int:
    return max(stop - start for p in solo.pieces for start, stop in [solo.bounds(p, 0)])


def _combine_share(combiner: Combiner, piece: Piece, dst: Ref, ready: int) -> None:
    """Combine this rank's share of a piece into `dst`, after all members have posted `ready`."""
    solo = combiner.solo
    start, stop = solo.bounds(piece, solo.context.group.me)
    solo.await_all(ready, piece.index + 1)
    combiner.combine(start, stop - start, dst)


def _reduce(solo: Reads) -> None:
    """Combine a share at each member; the root collects the shares from two cells of each."""
    context, combiner = solo.context, Combiner.of(solo, _largest_share(solo))
    group, stream = context.group, context.stream
    for piece in solo.turns():
        solo.post(GATHERED, piece.index + 1)
        start, _ = solo.bounds(piece, group.me)
        if group.leads:
            dst = context.result.to(start)
        else:
            dst = solo.cell(group.me, piece)
            if piece.index >= 2:
                solo.await_(group.root, TAKEN, piece.index - 1)
        _combine_share(combiner, piece, dst, GATHERED)
        solo.post(COMBINED, piece.index + 1)
        if group.leads:
            for m in solo.others:
                start, stop = solo.bounds(piece, m)
                solo.await_(m, COMBINED, piece.index + 1)
                stream.copy(context.result.to(start), solo.cell(m, piece), stop - start)
            solo.post(TAKEN, piece.index + 1)
    solo.await_all(COMBINED)


def _allreduce(solo: Reads) -> None:
    """Combine a share of each piece, then read the shares of all other members."""
    context, combiner = solo.context, Combiner.of(solo, _largest_share(solo))
    group = context.group
    for piece in solo.turns():
        solo.post(COPIED, piece.index + 1)
        start, _ = solo.bounds(piece, group.me)
        _combine_share(combiner, piece, context.result.to(start), COPIED)
        solo.post(COMBINED, piece.index + 1)
        for m in solo.others:
            start, stop = solo.bounds(piece, m)
            solo.await_(m, COMBINED, piece.index + 1)
            at = context.result.to(start)
            solo.pull(at, at, stop - start, m)
    solo.post(TAKEN, solo.last)
    solo.await_all(TAKEN)


OTHERS = {("bcast", "spread"): spread, ("bcast", "meet"): meet, ("allreduce", "each"): each}
MOVES = {"bcast": pull, "reduce": _reduce, "allreduce": _allreduce, **BLOCKS}
