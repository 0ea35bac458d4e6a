"""Calls whose ranks know only the sizes of the blocks that they send or receive.

Gatherv, Scatterv and Alltoallv are such calls. Both ranks of a pair know the size of its block. So
one plan serves all calls: each pair finds by itself whether its block is small or large.

The blocks of a rank have numbers: 1 to n are those to ranks 0 to n - 1, the next n those from them.
Number 0 is an empty block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isqrt

from han.model.program import OwnBlocks
from han.tasks.neighbours import Neighbours
from han.tasks.signature import Signature

SMALL = 32 << 10  # bytes; a larger block is read where it is, if ranks can read each other's memory


def own_sizes(
    collective: str, root: int = 0, singly: bool = False, neighbours: Neighbours | None = None
) -> Signature:
    """Return the signature of all calls of a collective in which ranks know their own sizes."""
    return Signature(
        collective, SMALL, root=root, varied=True, own=True, singly=singly, neighbours=neighbours
    )


def one_for_all(signature: Signature) -> Signature:
    """Return the signature that calls of all sizes have, where ranks know their own sizes."""
    return signature.changed(count=SMALL) if signature.own and not signature.grains else signature


@dataclass(frozen=True)
class Ends:
    """Between which ranks a call has blocks."""

    collective: str
    root: int = 0
    neighbours: Neighbours | None = None

    @classmethod
    def of(cls, signature: Signature) -> Ends:
        """Return those of a call."""
        return cls(signature.collective, signature.root, signature.neighbours)

    def meet(self, source: int, target: int) -> bool:
        """Return whether a rank may send a block to another one, or to itself."""
        if self.neighbours is not None:
            return self.neighbours.has(source, target)
        ends = {"gatherv": target == self.root, "scatterv": source == self.root}
        return ends.get(self.collective, True)

    def alike(self, size: int, nbytes: int) -> tuple[int, ...]:
        """Return what each of `size` ranks sends to each where all blocks are of one size."""
        pairs = [(source, target) for source in range(size) for target in range(size)]
        return tuple([nbytes * self.meet(*pair) for pair in pairs])


def sent_to(rank: int) -> int:
    """Return the number of the block to a rank."""
    return 1 + rank


def taken_from(rank: int, size: int) -> int:
    """Return the number of the block from a rank."""
    return 1 + size + rank


def matrix_of(counts: Sequence[int]) -> list[list[int]]:
    """Return what each rank sends to each, by rank, in bytes."""
    size = isqrt(len(counts))
    return [[*counts[rank * size : (rank + 1) * size]] for rank in range(size)]


def blocks_of(
    counts: Sequence[int], rank: int, same: bool = False, givers: Mapping[int, int] | None = None
) -> OwnBlocks:
    """Return the blocks of a rank in one call, whose buffers hold them in the order of ranks.

    `same`: all blocks that a rank sends are one. `givers`: who hands the blocks of some ranks on.
    """
    rows = matrix_of(counts)
    sends, takes = rows[rank], [row[rank] for row in rows]
    columns = [[row[k] for row in rows] for k in range(len(rows))]
    sent = [[0] * len(rows) if same else starts(row) for row in rows]
    to, of = ([starts(column)[rank] for column in columns], [one[rank] for one in sent])
    for source, giver in (givers or {}).items():
        of[source] = starts(columns[giver])[source]
    return OwnBlocks([0, *sends, *takes], [0, *sent[rank], *starts(takes)], [0, *to, *of])


def starts(counts: Sequence[int]) -> list[int]:
    """Return where blocks of some sizes begin that lie one behind the other."""
    return [0, *accumulate(counts)][:-1]
