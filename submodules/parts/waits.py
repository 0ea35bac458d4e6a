"""Waits for flags of several members of a group at once."""

from __future__ import annotations

from collections.abc import Callable

from han.model.program import Ref
from han.tasks.context import Context

Members = tuple[int, ...]


class Waits:
    """The flags that a rank waits for; `flag` returns that of a member and a kind.

    Those of the same members are looked up once: all pieces of a message wait for them.
    """

    def __init__(self, context: Context, flag: Callable[[int, int], Ref]) -> None:
        self.stream, self.members, self.flag = context.stream, context.group.ranks, flag
        self._known: dict[tuple[Members, int], tuple[tuple[Ref, ...], Members]] = {}

    def of(self, members: Members, kind: int) -> tuple[tuple[Ref, ...], Members]:
        """Return the flags of one kind of several members, and their ranks."""
        found = self._known.get((members, kind))
        if found is None:
            flags, ranks = [self.flag(m, kind) for m in members], [self.members[m] for m in members]
            found = self._known[members, kind] = tuple(flags), tuple(ranks)
        return found

    def wait(self, members: Members, kind: int, value: int) -> None:
        """Wait until the flags of members have reached a value, in turn; not for one below 1."""
        if value > 0:
            flags, ranks = self.of(members, kind)
            self.stream.wait_each(flags, value, ranks)
