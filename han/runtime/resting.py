"""What a freed communicator leaves to the next one of the same ranks.

A program that splits a communicator again and again gets the same ranks again and again. The parent
keeps the parts of children that were freed: shared memory, engines and plans, and the nest for
their own children. The first call of a new child of the same ranks takes them over, if all its
ranks tell that they have the same. A thread takes those that it left, as the turns of a thread come
in the same order on all ranks. What is kept is limited, and ends with the parent.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from han.runtime.measured import MOST_LEFT, MOST_RESTED, MOST_ROOM

Parts: TypeAlias = Any  # of a freed communicator: han.runtime.parts.Parts
Ranks = tuple[int, ...]
ChildKey = tuple[Ranks, int]  # the ranks of a child, and the thread that freed it
_LOCK = threading.RLock()  # of all nests, as limits hold across them; parts end outside of it


def do_all(acts: Iterable[Callable[[], object]]) -> None:
    """Do all of `acts`, also if some raise; then raise the first error."""
    left = iter(acts)
    try:
        for act in left:
            act()
    except BaseException:
        with contextlib.suppress(BaseException):
            do_all(left)
        raise


class Nest:
    """The parts that a parent keeps, by the ranks of the child; the oldest are dropped first.

    The limits hold for all that is in it, nests of freed children included.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[ChildKey, Parts] = OrderedDict()
        self._rooms: dict[ChildKey, int] = {}  # bytes of the parts that are kept
        self._room = 0  # in all
        self._outer: Nest | None = None  # the nest in which the parent's own parts are
        self._left: dict[int, float] = {}  # calls of objects of an unused child, by its handle
        self.open = True

    def __len__(self) -> int:
        """Return of how many sets of ranks it keeps parts."""
        return len(self._kept)

    def put(self, ranks: Ranks, parts: Parts) -> list[Parts]:
        """Keep the parts of a child, in place of older ones of the same ranks.

        Returns those that are kept no longer, which the caller drops: it may raise there. A nest
        that was closed meanwhile keeps nothing.
        """
        key, room = (ranks, threading.get_ident()), parts.room
        with _LOCK:
            if not self.open:
                return [parts]
            before = self._taken(key)
            self._kept[key], self._rooms[key] = parts, room
            self._room += room
            parts.nest._outer = self
            return [*([] if before is None else [before]), *self._dropped()]

    def _dropped(self) -> list[Parts]:
        """Take out the oldest parts beyond the limits."""
        found = []
        while len(self._kept) > 1 and (self.sets > MOST_RESTED or self.room > MOST_ROOM):
            oldest = next(iter(self._kept))
            found.append(self._kept[oldest])
            self._taken(oldest)
        return found if self._outer is None else found + self._outer._dropped()

    @property
    def sets(self) -> int:
        """Of how many sets of ranks it keeps parts."""
        inner: int = sum(parts.nest.sets for parts in self._kept.values())
        return len(self._kept) + inner

    @property
    def room(self) -> int:
        """The bytes of this rank's rings and scratch memory that it keeps."""
        inner: int = sum(parts.nest.room for parts in self._kept.values())
        return self._room + inner

    def take(self, ranks: Ranks) -> Parts | None:
        """Return the parts for a new child of these ranks, and keep them no longer; or None."""
        key = ranks, threading.get_ident()
        with _LOCK:
            if key not in self._kept:
                key = next((each for each in self._kept if each[0] == ranks), key)
            found = self._taken(key)
        if found is not None and not found.sound:
            found.drop()
            return None
        return found

    def _taken(self, key: ChildKey) -> Parts | None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._room -= self._rooms.pop(key)
            found.nest._outer = None
        return found

    def clear(self) -> None:
        """Give back all."""
        with _LOCK:
            kept = [*self._kept.values()]
            for key in [*self._kept]:
                self._taken(key)
        do_all(parts.drop for parts in reversed(kept))

    def close(self) -> None:
        """Give back all, and keep nothing more."""
        with _LOCK:
            self.open = False
        self.clear()

    # ---- children that are not used yet -----------------------------------------------------

    def used_often(self, child: int) -> bool:
        """Count a call of objects of an unused child; return whether to set the child up now.

        All its ranks make the same calls, so they come to the same conclusion.
        """
        with _LOCK:
            self._left[child] = self._left.get(child, 0) + 1
            return self._left[child] > MOST_LEFT

    def never_set_up(self, child: int) -> None:
        """Let `used_often` return False for a child, whose set-up failed on all ranks."""
        with _LOCK:
            self._left[child] = -math.inf

    def forget(self, child: int) -> None:
        """Count no calls of a child any more: it is set up or freed. Others get its handle."""
        with _LOCK:
            self._left.pop(child, None)
