"""What a freed communicator leaves to the next one of the same ranks.

A program that splits a communicator again and again gets the same ranks again and again. The parent
keeps the parts of a few children that were freed: shared memory, engine and plans. A new child of
the same ranks takes them over in its first call, in which all ranks tell what they have.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

MOST = 8  # sets of ranks of which a parent keeps parts

Ranks = tuple[int, ...]


class Parts(Protocol):
    """The parts of a freed communicator."""

    @property
    def token(self) -> int:
        """Identifies them, the same on all ranks."""

    @property
    def sound(self) -> bool:
        """Whether this rank knows of no error, and of no rank that has left."""

    def end(self) -> None:
        """Give back all that they hold; not collective."""


class Nest:
    """The parts that a parent keeps, by the ranks of the child; the oldest are dropped first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Ranks, Parts] = OrderedDict()
        self.open = True

    def __len__(self) -> int:
        """Return of how many sets of ranks it keeps parts."""
        return len(self._kept)

    def put(self, ranks: Ranks, parts: Parts) -> None:
        """Keep the parts of a child, in place of older ones of the same ranks."""
        before = self._kept.pop(ranks, None)
        self._kept[ranks] = parts
        if before is None and len(self._kept) > MOST:
            _, before = self._kept.popitem(last=False)
        if before is not None:
            before.end()

    def take(self, ranks: Ranks) -> Parts | None:
        """Return the parts for a new child of these ranks, and keep them no longer; or None."""
        found = self._kept.pop(ranks, None)
        if found is not None and not found.sound:
            found.end()
            return None
        return found

    def close(self) -> None:
        """Give back all, and keep nothing more."""
        self.open = False
        while self._kept:
            self._kept.popitem()[1].end()
