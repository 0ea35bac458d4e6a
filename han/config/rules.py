"""The rules of a configuration as immutable plain data: which calls run what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from han.config.catalogue import ParameterValue
from han.config.parts import BESIDE, SIZE

Schedule = Literal["dataflow", "lockstep"]
KINDS = ("reduce", "bcast")  # kinds of tasks that a level may carry out in different ways
Composition = Literal["tree", "flat", "nap", "lanes", "ring"]


@dataclass(frozen=True)
class Count:
    """A range of counts. Both ends are included; without an end the range is open there."""

    min: int | None = None
    max: int | None = None

    def __contains__(self, value: int) -> bool:
        return _within(self.min, value, self.max)


@dataclass(frozen=True)
class Bytes:
    """A range of sizes. Both ends are included; without an end the range is open there."""

    min: int | None = field(default=None, metadata=SIZE)
    max: int | None = field(default=None, metadata=SIZE)

    def __contains__(self, value: int) -> bool:
        return _within(self.min, value, self.max)


def _within(low: int | None, value: int, high: int | None) -> bool:
    return (low is None or low <= value) and (high is None or value <= high)


@dataclass(frozen=True)
class When:
    """The calls that a rule is for. A key that is None is for all calls."""

    collective: tuple[str, ...] | None = None
    bytes: Bytes | None = None
    nodes: Count | None = None
    ppn: Count | None = None
    commutative: bool | None = None

    def matches(
        self, collective: str, *, nbytes: int, nodes: int, ppn: int, commutative: bool
    ) -> bool:
        """Whether the rule is for calls of ``nbytes`` bytes on ``nodes`` nodes of ``ppn`` ranks."""
        return (
            (self.collective is None or collective in self.collective)
            and (self.bytes is None or nbytes in self.bytes)
            and (self.nodes is None or nodes in self.nodes)
            and (self.ppn is None or ppn in self.ppn)
            and (self.commutative is None or commutative == self.commutative)
        )


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


@dataclass(frozen=True)
class Rule:
    """One rule: which calls it is for, and what they run."""

    use: Use
    when: When = When()
