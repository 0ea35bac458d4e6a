"""The rules of a configuration as immutable plain data: which calls run what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Literal

from han.config.catalogue import ParameterValue
from han.config.parts import BESIDE, SIZE

Schedule = Literal["dataflow", "lockstep"]
KINDS = ("reduce", "bcast")  # kinds of tasks that a level may carry out in different ways
MOST = 1 << 63  # of an open range
Test = tuple[str, int, int]  # a fact of a call, its least and its largest value
Composition = Literal["tree", "flat", "nap", "lanes", "ring"]


@dataclass(frozen=True)
class Count:
    """A range of counts. Both ends are included; without an end the range is open there."""

    min: int | None = None
    max: int | None = None


@dataclass(frozen=True)
class Bytes:
    """A range of sizes. Both ends are included; without an end the range is open there."""

    min: int | None = field(default=None, metadata=SIZE)
    max: int | None = field(default=None, metadata=SIZE)


@dataclass(frozen=True)
class When:
    """The calls that a rule is for. A key that is None is for all calls.

    Each key but the collective names a fact of a call (``han.tuning.built_in.facts``).
    """

    collective: tuple[str, ...] | None = None
    bytes: Bytes | None = None
    nodes: Count | None = None
    ppn: Count | None = None
    commutative: bool | None = None
    ranks: Count | None = None
    prime: Count | None = None
    root: Count | None = None
    rails: Count | None = None
    share: Bytes | None = None
    link: Bytes | None = None
    total: Bytes | None = None
    native: bool | None = None
    heavy: bool | None = None
    mapped: bool | None = None
    attach: bool | None = None
    uneven: bool | None = None
    in_place: bool | None = None
    mesh: bool | None = None
    oversubscribed: bool | None = None
    sockets: bool | None = None

    @cached_property
    def tests(self) -> tuple[Test, ...]:
        """The facts that are tested, each with its least and its largest value."""
        given = [(f.name, getattr(self, f.name)) for f in fields(self) if f.name != "collective"]
        return tuple((name, *_ends(test)) for name, test in given if test is not None)

    def matches(self, collective: str, facts: object) -> bool:
        """Whether the rule is for calls of a collective; `facts` has one attribute for each key."""
        if not self.concerns(collective):
            return False
        return all(low <= getattr(facts, name) <= high for name, low, high in self.tests)

    def concerns(self, collective: str) -> bool:
        """Whether the rule is for any calls of a collective."""
        return self.collective is None or collective in self.collective


def thresholds(tests: Iterable[Test], ranks: int) -> Iterator[int]:
    """Yield the bytes of a message from which on a test may hold, or hold no more."""
    for name, low, high in tests:
        for up, down in _ratios(name, ranks):
            yield from (-(-end * down // up) for end in (low, high + 1) if 0 < end <= MOST)


def _ratios(name: str, ranks: int) -> tuple[tuple[int, int], ...]:
    """Return by what the bytes of a message are multiplied and divided for a fact."""
    each, link = max(1, ranks), max(2, ranks - 1)
    total = (each, 1), (each * each, 1)  # the second one where a buffer holds a block for each rank
    ratios = {"bytes": ((1, 1),), "share": ((1, each),), "link": ((1, link),), "total": total}
    return ratios.get(name, ())


def _ends(test: Count | Bytes | bool) -> tuple[int, int]:
    if isinstance(test, bool):
        return int(test), int(test)
    return test.min or 0, MOST if test.max is None else test.max


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
    when: When = When()
