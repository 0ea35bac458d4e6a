"""Who sends blocks to whom, in calls with neighbours."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from han.common.kept import kept

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class Neighbours:
    """The ranks to which each rank sends a block, in order; `same`: to all of them one block."""

    targets: tuple[Ranks, ...]
    same: bool = False

    @classmethod
    def of(cls, targets: Sequence[Sequence[int]], same: bool = False) -> Neighbours:
        """Return those of all ranks, as MPI names them: several times, or negative for nobody.

        A rank that is named several times gets as many copies, which others do not get.
        """
        rows = [[rank for rank in row if rank >= 0] for row in targets]
        once = all(len({*row}) == len(row) for row in rows)
        return cls(tuple([tuple(sorted({*row})) for row in rows]), same and once)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        shared = ", one block for all" if self.same else ""
        return f"<{self.edges} edges {self.digest}{shared}>"

    @kept
    def digest(self) -> str:
        """A text that identifies the edges, the same on all ranks."""
        numbers = array("q", [n for row in self.targets for n in (len(row), *row)])
        return hashlib.blake2b(numbers.tobytes(), digest_size=8).hexdigest()

    @kept
    def edges(self) -> int:
        """The number of blocks."""
        return sum(map(len, self.targets))

    @kept
    def _sets(self) -> tuple[frozenset[int], ...]:
        return tuple(map(frozenset, self.targets))

    def has(self, source: int, target: int) -> bool:
        """Return whether a rank sends a block to another one, or to itself."""
        return target in self._sets[source]

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield all edges."""
        return ((s, t) for s, row in enumerate(self.targets) for t in row)
