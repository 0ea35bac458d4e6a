"""The parts of a configuration as immutable plain data. `documents` checks what users write.

This module does not import pydantic: a program without a configuration file should not wait for
that import when it makes its first communicator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from typing import Any, Literal, cast, get_args

from han.common.units import format_size

NamedScope = Literal["l3", "numa", "socket", "shared_memory", "all"]
Policy = Literal["auto", "spin", "yield", "sleep", "futex"]
Progress = Literal["auto", "thread", "off"]
NAMED_SCOPES: tuple[str, ...] = get_args(NamedScope)
POLICIES: tuple[str, ...] = get_args(Policy)

# Metadata of fields whose text in a document differs from their value.
SIZE = {"document": "a size"}
BESIDE = {"document": "keys beside the others"}


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
class Wait:
    """How a rank waits. Ranks may wait in different ways.

    `progress` says who steps nonblocking collectives while the rank does something else: a thread
    after a moment (``auto``), a thread from the start (``thread``), nobody (``off``).
    """

    policy: Policy = "auto"
    spin: int = 1000
    timeout: float = 600.0
    progress: Progress = "auto"

    def under(self, policy: str) -> Wait:
        """Return the same with another policy, one of ``POLICIES``."""
        return replace(self, policy=policy)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Rails:
    """The network adapters (rails) of a node, and which of them carries a rank's messages.

    `bind`: the ranks of a node take the rails in turn (``local_rank``), or the rail of each rank of
    a node. The launcher does it; this says what it does.
    """

    count: int = 1
    bind: Literal["local_rank"] | tuple[int, ...] = "local_rank"


def as_document(part: Any) -> Any:
    """Return a part as plain data for JSON and YAML, with sizes as text and without None."""
    if hasattr(part, "document"):
        return part.document()
    if is_dataclass(part):
        return as_document({k: v for f in fields(part) if f.compare for k, v in _entries(part, f)})
    if isinstance(part, Mapping):
        return {key: as_document(value) for key, value in part.items() if value is not None}
    return [as_document(value) for value in part] if isinstance(part, tuple) else part


def _entries(part: Any, field: Field[Any]) -> Iterable[tuple[str, Any]]:
    value = getattr(part, field.name)
    if field.metadata == BESIDE:
        return cast("Mapping[str, Any]", value).items()
    is_size = field.metadata == SIZE and isinstance(value, int)
    return [(field.name, format_size(value) if is_size else value)]
