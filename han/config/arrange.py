"""Arrange ranks into the levels of a configuration, from facts about where each rank runs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from han.config.errors import Problem
from han.model.topology import Topology, number_domains

if TYPE_CHECKING:
    from han.config.parts import Level, Scope

PHYSICAL = ("shared_memory", "numa", "l3", "socket")


@dataclass(frozen=True)
class Facts:
    """Facts about where one rank runs."""

    memory: int  # the lowest rank that it shares memory with
    host: str
    cpus: frozenset[int]
    places: dict[str, frozenset[str]]  # of numa, l3, socket: the ones that its processors are in
    quota: float = math.inf  # processors that its container may use, by its quota
    mesh: bool = False  # whether its processor is a mesh
    local: int | None = None  # its number on its node, as the launcher counts
    cores: int = 0  # of its node; 0: not known
    rdma: bool = False  # whether its node has adapters that read and write memory by themselves
    kind: int = 0  # stands for its processor: nodes with other numbers are others
    profile: tuple[float, ...] = ()  # on rank 0: what is known of the machine
    calibrates: bool = False  # on rank 0: the machine is calibrated, if it was not yet
    latency: float = 0.0  # on rank 0: us of a message to another node, if links are long


def arrange(
    levels: Sequence[Level],
    facts: Sequence[Facts],
    sockets: Scope = "socket",
    rails: tuple[int, ...] = (),
) -> Topology:
    """Return the topology of the ranks; inner domains divide outer ones."""
    outer: list[tuple[object, ...]] = [()] * len(facts)
    domains: list[tuple[int, ...]] = []
    for level in reversed(levels):
        keys = _keys(level.scope, facts, outer)
        outer = [(*o, k) for o, k in zip(outer, keys, strict=True)]
        first: dict[object, int] = {}
        domains.insert(0, tuple(first.setdefault(o, len(first)) for o in outer))
    memory = _memory(levels, facts, domains)
    parts = _keys(sockets, facts, [(m,) for m in memory])
    return Topology(
        tuple(level.name for level in levels),
        tuple(level.symbol or level.name[0] for level in levels),
        tuple(domains),
        memory,
        sockets=number_domains(list(zip(memory, parts, strict=True))),
        rails=rails,
    )


def empty_levels(levels: Sequence[Level], facts: Sequence[Facts]) -> Iterator[Problem]:
    """Yield a problem for each level none of whose hosts runs a rank; `facts` are of all ranks."""
    found = sorted({fact.host for fact in facts})
    for k, level in enumerate(levels):
        if isinstance(level.scope, str) or not hasattr(level.scope, "hosts"):
            continue
        named = [host for hosts in level.scope.hosts.values() for host in hosts]
        if set(found).isdisjoint(named):
            several = f" and {len(found) - 4} more" if len(found) > 4 else ""
            yield Problem(
                ("levels", k, "scope", "hosts"),
                f"level {level.name!r}: none of its {len(named)} hosts runs any of the "
                f"{len(facts)} ranks, which are on {', '.join(found[:4])}{several}",
            )


def _memory(
    levels: Sequence[Level], facts: Sequence[Facts], domains: Sequence[tuple[int, ...]]
) -> tuple[int, ...]:
    """Return a number for each rank; ranks with the same number share memory.

    If the levels have groups that the user defines and none that the hardware defines, the
    innermost groups stand for nodes: ranks of different groups exchange messages.
    """
    physical = any(level.scope in PHYSICAL for level in levels)
    given = any(not isinstance(level.scope, str) for level in levels)
    ids: dict[object, int] = {}
    keys = [
        (fact.memory, domain if given and not physical else None)
        for fact, domain in zip(facts, domains[0], strict=True)
    ]
    return tuple(ids.setdefault(k, len(ids)) for k in keys)


def _keys(
    scope: Scope, facts: Sequence[Facts], outer: Sequence[tuple[object, ...]]
) -> list[object]:
    if scope == "all":
        return [None] * len(facts)
    if scope == "shared_memory":
        return [fact.memory for fact in facts]
    if isinstance(scope, str):
        return [(fact.memory, tuple(sorted(fact.places[scope]))) for fact in facts]
    if hasattr(scope, "size"):
        return _by_size(scope.size, outer)
    if hasattr(scope, "hosts"):
        group = {host: name for name, hosts in scope.hosts.items() for host in hosts}
        return [group.get(fact.host, (fact.host,)) for fact in facts]
    return [_by_pattern(scope.regex, fact.host) for fact in facts]


def _by_size(size: int, outer: Sequence[tuple[object, ...]]) -> list[object]:
    count: dict[object, int] = {}
    keys: list[object] = []
    for o in outer:
        keys.append(count.get(o, 0) // size)
        count[o] = count.get(o, 0) + 1
    return keys


def _by_pattern(pattern: str, host: str) -> object:
    match = re.search(pattern, host)
    if match is None:
        return (host,)
    return match.group(1) if match.re.groups else match.group(0)
