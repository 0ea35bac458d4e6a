"""The rules of a configuration as immutable plain data: which calls run what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from han.common.units import format_size
from han.config.parameters import ParameterValue
from han.config.parts import BESIDE, SIZE
from han.model.facts import FLAGS, PLACES, SIZES, Facts

Schedule = Literal["dataflow", "lockstep"]
KINDS = ("reduce", "bcast")  # kinds of tasks that a level may carry out in different ways
MOST = 1 << 63  # of an open range
Ends = tuple[int, int]  # the least and the largest value of a fact
Test = tuple[int, int, int]  # the place of a fact, its least and its largest value
Composition = Literal["tree", "flat", "nap", "lanes", "ring"]


@dataclass(frozen=True)
class When:
    """A condition: the calls that a row is for.

    No `collective` stands for all. `levels` are the names of all levels, innermost first; () for
    any. `tests` are the facts that are tested (``han.model.facts``).
    """

    collective: tuple[str, ...] = ()
    tests: tuple[Test, ...] = ()
    levels: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, collective: tuple[str, ...], facts: Mapping[str, Ends | bool],
        levels: tuple[str, ...] = (),
    ) -> When:  # fmt: skip
        """Return the condition that facts hold or not, or lie between two ends, both included."""
        ends = {k: (one, one) if isinstance(one, bool) else one for k, one in facts.items()}
        tests = tuple((PLACES[name], int(low), int(high)) for name, (low, high) in ends.items())
        return cls(collective, tests, levels)

    def ends(self, fact: str) -> Ends | None:
        """Return the least and the largest value of a fact; None if it is not tested."""
        return next(((low, high) for k, low, high in self.tests if k == PLACES[fact]), None)

    def matches(self, collective: str, facts: Facts) -> bool:
        """Whether the condition holds for a call of a collective, whatever its levels."""
        if self.collective and collective not in self.collective:
            return False
        return all(low <= facts[k] <= high for k, low, high in self.tests)

    def may_hold(self, here: Mapping[str, int]) -> bool:
        """Whether it may hold where some facts have these values."""
        tests = ((here.get(Facts._fields[k], low), low, high) for k, low, high in self.tests)
        return all(low <= value <= high for value, low, high in tests)

    def thresholds(self, ranks: int) -> Iterator[int]:
        """Yield the bytes of a message from which on it may hold, or hold no more."""
        for k, low, high in self.tests:
            for up, down in _ratios(Facts._fields[k], ranks):
                yield from (-(-end * down // up) for end in (low, high + 1) if 0 < end <= MOST)

    def document(self) -> dict[str, Any]:
        """Return it as users write it, with sizes as text."""
        found = {Facts._fields[k]: _written(k, (low, high)) for k, low, high in self.tests}
        names = [*self.collective] if len(self.collective) != 1 else self.collective[0]
        return {"collective": names, **found} if names else found


ANY = When()


def _written(place: int, ends: Ends) -> Any:
    name = Facts._fields[place]
    if name in FLAGS:
        return bool(ends[0])
    low, high = ((format_size(end) if name in SIZES else end) for end in ends)
    return ({"min": low} if ends[0] else {}) | ({"max": high} if ends[1] < MOST else {})


def _ratios(name: str, ranks: int) -> tuple[tuple[int, int], ...]:
    """Return by what the bytes of a message are multiplied and divided for a fact."""
    each, link = max(1, ranks), max(2, ranks - 1)
    total = (each, 1), (each * each, 1)  # the second one where a buffer holds a block for each rank
    ratios = {"bytes": ((1, 1),), "share": ((1, each),), "link": ((1, link),), "total": total}
    return ratios.get(name, ())


@dataclass(frozen=True)
class KindUse:
    """What one kind of tasks of a level runs, where it differs: an algorithm and parameters.

    Without an algorithm it is that of the level, with the level's parameters.
    """

    algorithm: str | None = None
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict, metadata=BESIDE)


@dataclass(frozen=True)
class LevelUse:
    """The submodule of one level, its algorithm, and parameters of the algorithm.

    Parameters stay as written until ``validate_names`` parses them (``"64KiB"`` as 65536).
    In a document they are keys beside the other two, and so are kinds of tasks.
    """

    submodule: str
    algorithm: str | None = None
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict, metadata=BESIDE)
    kinds: Mapping[str, KindUse] = field(default_factory=dict, metadata=BESIDE)


@dataclass(frozen=True)
class Use:
    """What a rule decides. The built-in choice decides what the rule does not name."""

    segment: int | Literal["whole"] | None = field(default=None, metadata=SIZE)
    schedule: str | None = None  # a Schedule
    levels: Mapping[str, LevelUse] = field(default_factory=dict)
    composition: str | None = None  # a Composition
    reproducible: bool | None = None  # None: as the configuration says


@dataclass(frozen=True)
class Rule:
    """One rule: which calls it is for, and what they run."""

    use: Use
    when: When = ANY
