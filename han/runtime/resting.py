"""What a freed communicator leaves to the next one of the same ranks.

A program that splits a communicator again and again gets the same ranks again and again. The parent
keeps the parts of a few children that were freed: shared memory, engine and plans, and the nest for
their own children. A new child of the same ranks takes them over in its first call. All ranks have
told what they have, either when they made the child, or in its first call. What is kept is limited,
and ends with the parent.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from han.model.channel_layout import RING_MAX
from han.ranks.agreement import MORE, NOTHING

MOST = 64  # sets of ranks of which a parent keeps parts
PLACE = 2  # numbers that say where a rank is among the children: color and key of a Split
MOST_TOLD = MORE - PLACE  # tokens of parts that a rank tells when it makes a child
OLDEST_TOLD = MOST_TOLD // 2  # of them of the oldest parts: sets in rotation come back in order
SCORE_MOST, SCORE_LEAST, SCORE_UNUSED = 8, 4, 3  # see Nest.promise
MOST_LEFT = 8  # calls of objects that a child leaves to mpi4py before it is set up
MOST_ROOM = 2 * RING_MAX  # bytes of a rank's memory that it keeps, unless one set alone has more

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
        """The bytes of this rank's rings and scratch memory, which stay the same."""

    @property
    def nest(self) -> Nest | None:
        """What its own children left; None if it had none."""

    def revoke(self, error: BaseException) -> None:
        """Let the ranks that take them over, or have done so, raise PeerError; not collective."""

    def end(self) -> None:
        """Give back all that they hold; not collective."""


class Nest:
    """The parts that a parent keeps, by the ranks of the child; the oldest are dropped first.

    The limits hold for all that is in it, nests of freed children included.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Ranks, Parts] = OrderedDict()
        self._nests: dict[Ranks, Nest] = {}  # those of the parts that have one
        self._promised = 0  # parts
        self._room = 0  # bytes of the parts that are kept or promised
        self._outer: Nest | None = None  # the nest in which the parent's own parts are
        self._offered: set[Ranks] = set()  # told to other ranks, which may count on them
        self._due: dict[int, tuple[Ranks, Parts] | None] = {}  # by handle of an unused child
        self._score = 0  # how often children were used lately
        self._left: dict[int, float] = {}  # calls of objects of an unused child, by its handle
        self.open = True

    def __len__(self) -> int:
        """Return of how many sets of ranks it keeps parts."""
        return len(self._kept)

    def put(self, ranks: Ranks, parts: Parts) -> list[Parts]:
        """Keep the parts of a child, in place of older ones of the same ranks.

        Returns those that are kept no longer, which the caller ends: it may raise there. A nest
        that was closed meanwhile keeps nothing. Parts that are offered stay; the new ones are not
        kept then.
        """
        with _LOCK:
            if not self.open or ranks in self._offered:
                return [parts]
            before = self._taken(ranks)
            self._kept[ranks] = parts
            self._room += parts.room
            if parts.nest is not None:
                self._nests[ranks] = parts.nest
                parts.nest._outer = self
            return [*([] if before is None else [before]), *self._dropped()]

    def _dropped(self) -> list[Parts]:
        """Take out the oldest parts beyond the limits."""
        found = []
        while len(self._kept) > 1 and (self.sets > MOST or self.room > MOST_ROOM):
            oldest = next((ranks for ranks in self._kept if ranks not in self._offered), None)
            if oldest is None:
                break
            found.append(self._kept[oldest])
            self._taken(oldest)
        return found if self._outer is None else found + self._outer._dropped()

    @property
    def sets(self) -> int:
        """Of how many sets of ranks it keeps or has promised parts."""
        own = len(self._kept) + self._promised
        return own + sum(nest.sets for nest in self._nests.values())

    @property
    def room(self) -> int:
        """The bytes of this rank's rings and scratch memory that it keeps or has promised."""
        return self._room + sum(nest.room for nest in self._nests.values())

    def take(self, ranks: Ranks) -> Parts | None:
        """Return the parts for a new child of these ranks, and keep them no longer; or None."""
        with _LOCK:
            found = None if ranks in self._offered else self._taken(ranks)
        if found is not None and not found.sound:
            found.end()
            return None
        return found

    def _taken(self, ranks: Ranks) -> Parts | None:
        found = self._kept.pop(ranks, None)
        if found is not None:
            self._room -= found.room
            nest = self._nests.pop(ranks, None)
            if nest is not None:
                nest._outer = None
        return found

    # ---- children whose ranks agreed when they made them ------------------------------------

    def offer(self) -> tuple[int, ...]:
        """Return tokens of some parts, MOST_TOLD numbers; keep these parts until `promise`.

        They are the newest and the oldest ones: those of a program that uses one set of ranks after
        the other again and again. The numbers are 0 unless most of the last children were used. A
        rank that has told others of an error keeps no parts, so nothing about errors is asked.
        """
        if self._score < SCORE_LEAST or not self._kept:
            return NOTHING[PLACE:]
        with _LOCK:
            kept = self._kept
            newest = [*islice(reversed(kept), MOST_TOLD - OLDEST_TOLD)]
            oldest = islice(kept, min(OLDEST_TOLD, len(kept) - len(newest)))
            self._offered = set(told := [*newest, *oldest])
            tokens = [kept[ranks].token for ranks in told]
        return (*tokens, *NOTHING[PLACE + len(tokens) :])

    def promise(self, child: int, me: int, rows: Sequence[Sequence[int]]) -> None:
        """Promise parts to a child, by its handle, if all its ranks have them.

        `rows` holds by rank its color and key, and the tokens that it offered, so the ranks of the
        child come to the same conclusion; `me` is this rank. A child that is never used keeps parts
        from others. Therefore a score counts which are used, and each promise lowers it meanwhile.
        """
        if not self._offered:
            self._due[child] = None
            return
        ranks = [rank for rank, row in enumerate(rows) if row[0] == rows[me][0]]
        ranks.sort(key=lambda rank: rows[rank][1])
        key = tuple(ranks)
        with _LOCK:
            parts = self._kept.get(key)
            agreed = parts is not None and all(parts.token in rows[r][PLACE:] for r in ranks)
            promised = self._taken(key) if agreed else None
            self._due[child] = None if promised is None else (key, promised)
            if promised is not None:
                self._score -= 1
                self._count(promised, 1)
            self._offered = set()

    def _count(self, promised: Parts, one: int) -> None:
        self._promised += one
        self._room += one * promised.room

    def withdraw(self) -> None:
        """Offer nothing any more: the step failed, or this rank is in no child."""
        with _LOCK:
            self._offered = set()

    def due(self, child: int) -> Parts | None:
        """Return the parts that were promised to a child, which is used now; or None."""
        with _LOCK:
            self._left.pop(child, None)
            if child not in self._due:
                return None
            promised = self._due.pop(child)
            self._score = min(self._score + 1 + (promised is not None), SCORE_MOST)
            if promised is not None:
                self._count(promised[1], -1)
        return None if promised is None else promised[1]

    def reclaim(self, child: int) -> None:
        """Keep again what was promised to a child that is freed without a call."""
        with _LOCK:
            self._left.pop(child, None)
            if child not in self._due:
                return
            self._score = max(self._score - SCORE_UNUSED, 0)
            promised = self._due.pop(child)
            if promised is not None:
                self._count(promised[1], -1)
        for one in self.put(*promised) if promised is not None else ():
            one.end()

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

    def clear(self) -> None:
        """Give back all."""
        with _LOCK:
            kept = [*self._kept.values()]
            for ranks in [*self._kept]:
                self._taken(ranks)
        for parts in reversed(kept):
            parts.end()

    def close(self) -> None:
        """Give back all, and keep nothing more."""
        with _LOCK:
            self.open = False
        self.clear()
