"""Hypothesis strategies for topologies, choices and signatures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import strategies as st
from machines import PARTS, draw_factors, takes_factors, topology_of

from han.model.collectives import (
    BY_BLOCKS,
    COLLECTIVES,
    DATALESS,
    REDUCING,
    REPLACING,
    ROOTED,
    UNEVEN,
)
from han.model.topology import Topology
from han.submodules.registry import registered
from han.tasks.choice import Choice, LevelChoice
from han.tasks.signature import Signature
from han.tuning.built_in.traits import NodeTraits
from han.tuning.heuristics import choose
from han.tuning.rules import RuleTable

KiB = 1024


@st.composite
def topologies(draw: st.DrawFn, sizes: st.SearchStrategy[int]) -> Topology:
    """Draw nested groups, uneven and interleaved, of 1 to 4 levels."""
    size = draw(sizes)
    depth = draw(st.integers(1, 4))
    domains = [[0] * size]
    for _ in range(depth - 1):
        width = draw(st.integers(1, 4))
        own = draw(st.lists(st.integers(0, width - 1), min_size=size, max_size=size))
        if draw(st.booleans()):
            own.sort()
        ids: dict[tuple[int, int], int] = {}
        outer = domains[0]
        domains.insert(0, [ids.setdefault(k, len(ids)) for k in zip(outer, own, strict=True)])
    topology = topology_of(domains, draw(st.integers(-1, depth - 1)))
    sockets = tuple(draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)))
    return replace(topology, attach=draw(st.booleans()), sockets=sockets)


@st.composite
def level_choices(draw: st.DrawFn, members: int = 2) -> LevelChoice:
    """Draw a submodule, an algorithm and some parameters that are valid for so many members."""
    name, algorithm = draw(st.sampled_from(PARTS))
    part = registered()[name]
    taken = part.taken(algorithm)
    rows = {k: row for k, row in part.parameters.items() if row.values and k in taken}
    given = draw(st.sets(st.sampled_from(sorted(rows)))) if rows else set()
    parameters = tuple((k, draw(st.sampled_from(rows[k].values))) for k in sorted(given))
    if takes_factors(name):
        factors = draw_factors(Random(draw(st.integers(0, 1 << 30))), algorithm, members)
        parameters = tuple(sorted((*parameters, *factors.items())))
    return LevelChoice(name, algorithm, parameters)


@st.composite
def choices(draw: st.DrawFn, topology: Topology, signature: Signature) -> Choice:
    """Draw a choice that can serve the call; invalid parts are replaced by built-in ones."""
    table = RuleTable(None, topology, NodeTraits(draw(st.booleans())))
    segment = draw(st.sampled_from([None, 8, 100, 1000, 4 * KiB, 100 * KiB]))
    built_in = choose(signature, topology, table.traits)
    choice = replace(
        built_in, segment=segment, schedule=draw(st.sampled_from(["dataflow", "lockstep"]))
    )
    if table.objection(signature, choice) is not None:
        choice = built_in
    for level in range(topology.depth):
        levels = list(choice.levels)
        levels[level] = draw(level_choices(topology.widest(level)))
        other = replace(choice, levels=tuple(levels))
        if table.objection(signature, other) is None:
            choice = other
    return choice


def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Add 64-bit integers that are stored in bytes."""
    return (a.view(np.uint64) + b.view(np.uint64)).view(np.uint8)


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Multiply 2 x 2 matrices of 64-bit integers, which is exact and does not commute."""
    x, y = (m.view(np.uint64).reshape(-1, 2, 2) for m in (a, b))
    return np.ascontiguousarray(x @ y).reshape(-1).view(np.uint8)


OPERATIONS: dict[str, tuple[int, Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "sum": (8, add),
    "matrix product": (32, multiply),
}


@st.composite
def signatures(draw: st.DrawFn, size: int, most: int = 6000, blocks: bool = False) -> Signature:
    """Draw a call of at most about `most` bytes; `blocks`: also calls that move blocks."""
    known = [name for name in COLLECTIVES if blocks or name not in BY_BLOCKS]
    collective = draw(st.sampled_from(known))
    root = draw(st.integers(0, size - 1))
    nbytes = draw(st.one_of(st.sampled_from([0, 8, 56, 64, 4096, 4104]), st.integers(0, most)))
    mapped = nbytes // 8 % 2 == 1  # half of the calls; a draw would change all later ones
    if collective in DATALESS:
        return Signature(collective)
    if collective in BY_BLOCKS:
        nbytes //= size * size  # all blocks together have the bytes of one message
    root = root if collective in ROOTED else 0
    if collective not in REDUCING:
        return blocks_of(Signature(collective, nbytes, root=root, mapped=mapped), size)
    op = draw(st.sampled_from(list(OPERATIONS)))
    element = OPERATIONS[op][0]
    commutes = op == "sum"
    signature = Signature(
        collective, nbytes // element, element, op, "uint64", commutes, commutes, root, mapped,
    )  # fmt: skip
    return blocks_of(signature, size)


def blocks_of(signature: Signature, size: int) -> Signature:
    """Give some signatures blocks of different lengths, and others a result in place.

    The size decides which, as a draw would change all later ones.
    """
    count = signature.count
    if signature.collective in UNEVEN and count % 3 == 1 and size > 1:
        counts = [count * (size - 1 - r) // (size - 1) for r in range(size)]
        return replace(signature, counts=tuple(counts))
    return replace(signature, in_place=signature.collective in REPLACING and count % 3 == 2)
