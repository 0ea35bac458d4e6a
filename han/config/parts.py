"""The parts of a configuration as immutable plain data. `documents` checks what users write.

Importing this module does not import pydantic: the first communicator of a program that has no
configuration file should not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, get_args

from han.common.units import format_size
from han.config.catalogue import ParameterValue

NamedScope = Literal["l3", "numa", "socket", "shared_memory", "all"]
Policy = Literal["auto", "spin", "yield", "sleep", "futex"]
Schedule = Literal["dataflow", "lockstep"]
NAMED_SCOPES: tuple[str, ...] = get_args(NamedScope)
POLICIES: tuple[str, ...] = get_args(Policy)

# How a field is written in a document, where that is not as it is held.
SIZE: Mapping[str, Callable[[int | str], str]] = {
    "written": lambda size: format_size(size) if isinstance(size, int) else size
}


@dataclass(frozen=True)
class SizeScope:
    """Groups of consecutive ranks within the enclosing level. The last group may be smaller."""

    size: int


@dataclass(frozen=True)
class HostsScope:
    """Groups of the ranks on the named hosts. A host that is not named is a group by itself."""

    hosts: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class RegexScope:
    """Groups of the ranks whose host names match an expression in the same way.

    The first group of the expression is compared, or the whole match if it has no group. A host
    that does not match is a group by itself.
    """

    regex: str


Scope = NamedScope | SizeScope | HostsScope | RegexScope


@dataclass(frozen=True)
class Level:
    """One level of the machine: the ranks of a group communicate on it."""

    name: str
    scope: Scope
    symbol: str = ""


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
        """Whether a call of ``collective`` of ``nbytes`` on ``nodes`` of ``ppn`` ranks is meant."""
        return (
            (self.collective is None or collective in self.collective)
            and (self.bytes is None or nbytes in self.bytes)
            and (self.nodes is None or nodes in self.nodes)
            and (self.ppn is None or ppn in self.ppn)
            and (self.commutative is None or commutative == self.commutative)
        )


@dataclass(frozen=True)
class LevelUse:
    """The submodule of one level, its algorithm, and parameters of the algorithm.

    Parameters are held as written until ``validate_names`` parses them (``"64KiB"`` as 65536).
    A document has them beside the other keys.
    """

    submodule: str
    algorithm: str | None = None
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Use:
    """What a rule decides. It leaves what it does not name to the rules after it."""

    segment: int | Literal["whole"] | None = field(default=None, metadata=SIZE)
    schedule: str | None = None  # a Schedule
    levels: Mapping[str, LevelUse] = field(default_factory=dict)


@dataclass(frozen=True)
class Rule:
    """One rule: which calls it is for, and what they run."""

    use: Use
    when: When = When()


@dataclass(frozen=True)
class Wait:
    """How a rank waits. Ranks may wait in different ways."""

    policy: Policy = "auto"
    spin: int = 1000
    timeout: float = 600.0

    def under(self, policy: str) -> Wait:
        """Return the same under another policy, one of ``POLICIES``."""
        return replace(self, policy=policy)  # type: ignore[arg-type]


def as_document(part: Any) -> Any:
    """Return a part as plain data for JSON and YAML, with sizes as text and without None."""
    if isinstance(part, LevelUse):
        use = {"submodule": part.submodule, "algorithm": part.algorithm, **part.parameters}
        return as_document(use)
    if is_dataclass(part):
        written = ((f, getattr(part, f.name)) for f in fields(part) if f.compare)
        return as_document({f.name: _written(f.metadata, value) for f, value in written})
    if isinstance(part, Mapping):
        return {key: as_document(value) for key, value in part.items() if value is not None}
    return [as_document(value) for value in part] if isinstance(part, tuple) else part


def _written(metadata: Mapping[str, Any], value: Any) -> Any:
    return metadata["written"](value) if value is not None and "written" in metadata else value
