"""Specifications: what the buffers of all ranks hold before and after each collective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from han.tasks.own_sizes import Ends, matrix_of, starts

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class Portion:
    """Bytes `start` to `stop` of a buffer, and what they hold.

    Byte k of a piece combines byte ``offset + k`` of the contributions of `ranks`, in this order.
    With one rank, it is a copy of that byte.
    """

    start: int
    stop: int
    ranks: Ranks
    offset: int = 0


@dataclass(frozen=True)
class Spec:
    """The buffers of a collective, rank by rank.

    `before` and `after` list the pieces of each rank's send and receive buffer. Bytes that no piece
    covers may hold anything. A rank's contribution is its whole send buffer. `shared`: send and
    receive buffer are the same. `synchronises`: no rank leaves before all ranks have entered.
    """

    collective: str
    before: tuple[tuple[Portion, ...], ...]
    after: tuple[tuple[Portion, ...], ...]
    shared: bool = False
    synchronises: bool = False

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.after)

    def sends(self, rank: int) -> int:
        """Return the bytes of a rank's send buffer."""
        return 0 if self.shared else _length(self.before[rank])

    def in_place(self) -> Spec:
        """Return the same with operands in the receive buffers: rank 0 of an exscan keeps its own.

        Otherwise its receive buffer has no bytes, so that no program may write there.
        """
        if self.collective != "exscan":
            return self
        return replace(self, after=(self.before[0], *self.after[1:]))

    def receives(self, rank: int, one_buffer: bool) -> int:
        """Return the bytes of a rank's receive buffer; `one_buffer`: it is the send buffer too."""
        return max(_length(self.after[rank]), _length(self.before[rank]) if one_buffer else 0)


def _length(pieces: tuple[Portion, ...]) -> int:
    return max((piece.stop for piece in pieces), default=0)


def _own(lengths: Sequence[int]) -> tuple[tuple[Portion, ...], ...]:
    """Return every rank's send buffer, which holds its contribution."""
    return tuple(_portion(0, n, (r,)) for r, n in enumerate(lengths))


def _portion(start: int, length: int, ranks: Ranks, offset: int = 0) -> tuple[Portion, ...]:
    return (Portion(start, start + length, ranks, offset),) if length and ranks else ()


def _joined(counts: Sequence[int]) -> tuple[Portion, ...]:
    """Return all contributions in rank order, contiguous."""
    placed = enumerate(zip(starts(counts), counts, strict=True))
    return tuple(p for r, (start, n) in placed for p in _portion(start, n, (r,)))


def bcast(size: int, nbytes: int, root: int) -> Spec:
    """Every rank gets the root's bytes."""
    before = tuple(_portion(0, nbytes, (root,)) if r == root else () for r in range(size))
    return Spec("bcast", before, (_portion(0, nbytes, (root,)),) * size, shared=True)


def reduce(size: int, nbytes: int, root: int) -> Spec:
    """The root gets the combination of all contributions."""
    everyone = tuple(range(size))
    after = tuple(_portion(0, nbytes, everyone) if r == root else () for r in range(size))
    return Spec("reduce", _own([nbytes] * size), after)


def allreduce(size: int, nbytes: int) -> Spec:
    """Every rank gets the combination of all contributions."""
    after = (_portion(0, nbytes, tuple(range(size))),) * size
    return Spec("allreduce", _own([nbytes] * size), after)


def barrier(size: int) -> Spec:
    """No rank leaves before all ranks have entered."""
    return Spec("barrier", ((),) * size, ((),) * size, synchronises=True)


def gatherv(counts: Sequence[int], root: int) -> Spec:
    """The root gets all contributions, in rank order."""
    after = tuple(_joined(counts) if r == root else () for r in range(len(counts)))
    return Spec("gather", _own(counts), after)


def allgatherv(counts: Sequence[int]) -> Spec:
    """Every rank gets all contributions, in rank order."""
    return Spec("allgather", _own(counts), (_joined(counts),) * len(counts))


def scatterv(counts: Sequence[int], root: int) -> Spec:
    """Each rank gets its part of the root's contribution."""
    size, places = len(counts), starts(counts)
    before = tuple(_portion(0, sum(counts), (root,)) if r == root else () for r in range(size))
    after = tuple(_portion(0, counts[r], (root,), places[r]) for r in range(size))
    return Spec("scatter", before, after)


def reduce_scatter(counts: Sequence[int]) -> Spec:
    """Each rank gets its part of the combination of all contributions."""
    size, places = len(counts), starts(counts)
    everyone = tuple(range(size))
    after = tuple(_portion(0, counts[r], everyone, places[r]) for r in range(size))
    return Spec("reduce_scatter", _own([sum(counts)] * size), after)


def alltoallv(counts: Sequence[Sequence[int]]) -> Spec:
    """Rank r gets part r of each contribution; ``counts[s][r]`` bytes go from s to r."""
    size = len(counts)
    after = []
    for r in range(size):
        places = starts([row[r] for row in counts])
        after.append(
            tuple(
                p
                for s in range(size)
                for p in _portion(places[s], counts[s][r], (s,), starts(counts[s])[r])
            )
        )
    return Spec("alltoall", _own([sum(row) for row in counts]), tuple(after))


def pairwise(counts: Sequence[int]) -> Spec:
    """Each rank gets its part of each contribution; `counts` are the rows of a matrix."""
    return alltoallv(matrix_of(counts))


def of_neighbours(counts: Sequence[int]) -> Spec:
    """Each rank gets the contributions of its neighbours, in rank order."""
    rows = matrix_of(counts)
    after = tuple(_joined([row[r] for row in rows]) for r in range(len(rows)))
    return Spec("alltoall", _own([max(row) for row in rows]), after)


def scan(size: int, nbytes: int) -> Spec:
    """Rank r gets the combination of the contributions of ranks 0 to r."""
    after = tuple(_portion(0, nbytes, tuple(range(r + 1))) for r in range(size))
    return Spec("scan", _own([nbytes] * size), after)


def exscan(size: int, nbytes: int) -> Spec:
    """Rank r gets the combination of the contributions of ranks 0 to r - 1; rank 0 gets nothing."""
    after = tuple(_portion(0, nbytes, tuple(range(r))) for r in range(size))
    return Spec("exscan", _own([nbytes] * size), after)


# Specifications by name, of (ranks, bytes, root). The bytes are those of a block in gather,
# scatter, allgather, reduce_scatter, alltoall and calls of own sizes; in the others those of the
# message.
SPECS: dict[str, Callable[[int, int, int], Spec]] = {
    "bcast": bcast,
    "reduce": reduce,
    "allreduce": lambda size, nbytes, root: allreduce(size, nbytes),
    "barrier": lambda size, nbytes, root: barrier(size),
    "gather": lambda size, nbytes, root: gatherv([nbytes] * size, root),
    "scatter": lambda size, nbytes, root: scatterv([nbytes] * size, root),
    "allgather": lambda size, nbytes, root: allgatherv([nbytes] * size),
    "reduce_scatter": lambda size, nbytes, root: reduce_scatter([nbytes] * size),
    "alltoall": lambda size, nbytes, root: alltoallv([[nbytes] * size] * size),
    "scan": lambda size, nbytes, root: scan(size, nbytes),
    "exscan": lambda size, nbytes, root: exscan(size, nbytes),
    "gatherv": lambda size, nbytes, root: pairwise(Ends("gatherv", root).alike(size, nbytes)),
    "scatterv": lambda size, nbytes, root: pairwise(Ends("scatterv", root).alike(size, nbytes)),
    "alltoallv": lambda size, nbytes, root: pairwise(Ends("alltoallv").alike(size, nbytes)),
}
# Specifications by name, of the bytes of each rank's block; of own sizes, of each pair's.
UNEVEN: dict[str, Callable[[Sequence[int]], Spec]] = {
    "allgather": allgatherv,
    "reduce_scatter": reduce_scatter,
    **dict.fromkeys(("gatherv", "scatterv", "alltoallv"), pairwise),
}
