"""An exchange of fewer members: the others pass their operand on, and receive the result.

Source: Thakur et al. (Rabenseifner), for numbers of members that are not a power of two; here the
inner exchange may have any number of them, at least half of all.
"""

from __future__ import annotations

from dataclasses import dataclass

from han.submodules.exchange.steps import OWN, Blocks, Fold, Steps, Take


@dataclass(frozen=True)
class Paired(Steps):
    """The exchange `inner` of some of `size` members.

    The first members form pairs. The odd member of a pair sends its operand to the even one before
    the first stage, and takes the result from it in the last gathering step. Pairs are neighbours,
    so the order of operands is that of `inner`.
    """

    inner: Steps
    size: int
    releases = 1

    @property
    def blocks(self) -> int:
        """How many blocks a message is cut into."""
        return self.inner.blocks

    @property
    def stages(self) -> int:
        """How many combining stages there are."""
        return 1 + self.inner.stages

    @property
    def gathers(self) -> int:
        """How many gathering steps there are."""
        return self.inner.gathers + 1

    def folds(self, member: int, stage: int) -> list[Fold]:
        """Return what the pairs combine in stage 1, then what the inner exchange does."""
        if stage == 1:
            return [(self._all, ((member, OWN), (member + 1, 0)))] if self._receives(member) else []
        place = self._place(member)
        found = [] if place is None else self.inner.folds(place, stage - 1)
        return [
            (blocks, tuple(self._source(m, s) for m, s in sources)) for blocks, sources in found
        ]

    def readers(self, member: int, stage: int) -> list[int]:
        """Return the even member of the pair in stage 1, then the inner exchange's readers."""
        place = self._place(member)
        if stage == 1:
            return [member - 1] if place is None else []
        return (
            [] if place is None else list(map(self._member, self.inner.readers(place, stage - 1)))
        )

    def takes(self, member: int, step: int) -> list[Take]:
        """Return what the inner exchange takes, and in the last step what odd members do."""
        place = self._place(member)
        if step == self.gathers:
            return [(member - 1, self._all)] if place is None else []
        found = [] if place is None else self.inner.takes(place, step)
        return [(self._member(m), blocks) for m, blocks in found]

    def takers(self, member: int, step: int) -> list[int]:
        """Return the inner exchange's takers, and in the last step the odd member of a pair."""
        place = self._place(member)
        if step == self.gathers:
            return [member + 1] if self._receives(member) else []
        found = [] if place is None else self.inner.takers(place, step)
        return [self._member(m) for m in found]

    @property
    def _all(self) -> Blocks:
        return range(self.blocks)

    @property
    def _pairs(self) -> int:
        return self.size - self.inner.size

    def _receives(self, member: int) -> bool:
        return member < 2 * self._pairs and member % 2 == 0

    def _place(self, member: int) -> int | None:
        """Return a member's number in the inner exchange; None for the odd member of a pair."""
        if member >= 2 * self._pairs:
            return member - self._pairs
        return None if member % 2 else member // 2

    def _member(self, place: int) -> int:
        return 2 * place if place < self._pairs else place + self._pairs

    def _source(self, place: int, stage: int) -> tuple[int, int]:
        """Return the source of an operand; that of a pair is no longer the member's own."""
        member = self._member(place)
        combined = stage != OWN or self._receives(member)
        return member, max(0, stage) + 1 if combined else OWN


def paired(inner: Steps, size: int) -> Steps:
    """Return the exchange of `size` members by an exchange of at least half of them."""
    return inner if inner.size == size else Paired(inner, size)
