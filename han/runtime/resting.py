"""What a freed communicator leaves to the next one of the same ranks.

A program that splits a communicator again and again gets the same ranks again and again. The parent
keeps the parts of a few children that were freed: shared memory, engine and plans, and the nest for
their own children. A new child of the same ranks takes them over in its first call, in which all
ranks tell what they have. What is kept is limited, and ends with the parent.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Protocol

from han.model.channel_layout import RING_MAX

MOST = 8  # sets of ranks of which a parent keeps parts
MOST_ROOM = RING_MAX  # bytes of a rank's own rings that it keeps, unless one set alone has more

Ranks = tuple[int, ...]
_LOCK = threading.Lock()  # of all nests, as limits hold across them; parts end outside of it


class Parts(Protocol):
    """The parts of a freed communicator."""

    @property
    def token(self) -> int:
        """Identifies them, the same on all ranks."""

    @property
    def sound(self) -> bool:
        """Whether this rank knows of no error, and of no rank that has left."""

    @property
    def room(self) -> int:
        """The bytes of this rank's rings."""

    @property
    def nest(self) -> Nest | None:
        """What its own children left; None if it had none."""

    def end(self) -> None:
        """Give back all that they hold; not collective."""


class Nest:
    """The parts that a parent keeps, by the ranks of the child; the oldest are dropped first.

    The limits hold for all that is in it, nests of freed children included.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Ranks, Parts] = OrderedDict()
        self._outer: Nest | None = None  # the nest in which the parent's own parts are
        self.open = True

    def __len__(self) -> int:
        """Return of how many sets of ranks it keeps parts."""
        return len(self._kept)

    def put(self, ranks: Ranks, parts: Parts) -> list[Parts]:
        """Keep the parts of a child, in place of older ones of the same ranks.

        Returns those that are kept no longer, which the caller ends: it may raise there. A nest
        that was closed meanwhile keeps nothing.
        """
        with _LOCK:
            if not self.open:
                return [parts]
            before = self._kept.pop(ranks, None)
            self._kept[ranks] = parts
            if parts.nest is not None:
                parts.nest._outer = self
            return [*([] if before is None else [before]), *self._dropped()]

    def _dropped(self) -> list[Parts]:
        """Take out the oldest parts beyond the limits."""
        found = []
        while len(self._kept) > 1 and (self.sets > MOST or self.room > MOST_ROOM):
            found.append(self._kept.popitem(last=False)[1])
        return found if self._outer is None else found + self._outer._dropped()

    @property
    def sets(self) -> int:
        """Of how many sets of ranks it keeps parts."""
        return len(self._kept) + sum(nest.sets for nest in self._nests)

    @property
    def room(self) -> int:
        """The bytes of this rank's rings that it keeps."""
        own = sum(parts.room for parts in self._kept.values())
        return own + sum(nest.room for nest in self._nests)

    @property
    def _nests(self) -> list[Nest]:
        return [parts.nest for parts in self._kept.values() if parts.nest is not None]

    def take(self, ranks: Ranks) -> Parts | None:
        """Return the parts for a new child of these ranks, and keep them no longer; or None."""
        with _LOCK:
            found = self._kept.pop(ranks, None)
            if found is not None and found.nest is not None:
                found.nest._outer = None
        if found is not None and not found.sound:
            found.end()
            return None
        return found

    def clear(self) -> None:
        """Give back all."""
        with _LOCK:
            kept = [*self._kept.values()]
            self._kept.clear()
        for parts in reversed(kept):
            parts.end()

    def close(self) -> None:
        """Give back all, and keep nothing more."""
        with _LOCK:
            self.open = False
        self.clear()
