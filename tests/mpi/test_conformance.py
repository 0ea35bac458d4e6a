"""Every algorithm of every submodule, forced by a rule: sizes, types, operations, roots, in place.

Results must be those of MPI.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from _support import (
    COLLECTIVES,
    WORLD,
    Call,
    Checker,
    Reference,
    all_pairs,
    by_numpy,
    comm_on,
    comm_with,
    opened,
)
from machines import PARTS, collectives_of, composition_of, numbers_of, taken, topology_of
from mpi4py import MPI

from han.explain import make_signature
from han.model.collectives import BY_BLOCKS, REDUCING, REPLACING, ROOTED, ROWS, UNEVEN
from han.submodules.registry import registered
from han.tasks.choice import LevelChoice
from han.tasks.contract import Question
from han.tasks.lanes import inner_levels, outer_levels
from han.tasks.signature import Signature

COUNTS = (0, 1, 2, 7, 8, 500, 513, 1000)
TURNS = 3  # at types and operations, which many algorithms meet
LARGE = 38_003  # elements of 8 bytes: about 300 KB, not a multiple of any segment or piece
APART = topology_of([[0] * 4], -1)  # ranks that share no memory
APART_BELOW = topology_of([[0, 0, 1, 1], [0] * 4], -1)


def needs_memory(part, collective, outermost):
    """Return whether an algorithm refuses ranks that share no memory, on some level."""
    topology = APART if outermost else APART_BELOW
    question = Question(topology, 0, Signature(collective, 8), LevelChoice(*part))
    return registered()[part[0]].supports(question) is not None


def segment_of(name, algorithm):
    """Return the segment that an algorithm is forced with."""
    return "whole" if registered()[name].algorithms[algorithm].one_segment else 20_000


def force(level, name, algorithm, **more):
    """Return the decision of a rule that forces an algorithm on a level, with small pieces."""
    rows = registered()[name].parameters
    tried = {key: of[0] for key, row in rows.items() if (of := numbers_of(key, row))}
    parameters = taken(name, algorithm, tried)
    return {**more, "levels": {level: {"submodule": name, "algorithm": algorithm, **parameters}}}


def sizes_and_roots(size):
    """Yield calls of all sizes, and of three sizes from every root."""
    roots = itertools.cycle(range(size))
    for collective, count in itertools.product(COLLECTIVES, (*COUNTS, LARGE)):
        in_places = (False, True) if collective in REDUCING else (False,)
        for in_place in in_places:
            yield Call(collective, count, root=next(roots), in_place=in_place)
    for collective, count in itertools.product(("bcast", "reduce"), (7, 1000, LARGE)):
        for root in range(size):
            yield Call(collective, count, root=root, in_place=root % 2 == 0)
    yield from blocks_of_all_sizes(size)


def blocks_of_all_sizes(size):
    """Yield calls that move blocks of all sizes, equal and uneven ones."""
    for collective, in_place in itertools.product(BY_BLOCKS, (False, True)):
        for k, count in enumerate((*COUNTS, LARGE // size)):
            root = (k + in_place) % size if collective in ROOTED else 0
            yield Call(collective, count, root=root, in_place=in_place)
    for collective, in_place in itertools.product(UNEVEN, (False, True)):
        for count in (1, 8, 513, 1000, LARGE // size):
            yield Call(collective, count, in_place=in_place, uneven=True)


def types_and_operations(size):
    """Yield calls of every operation on every type for which it is defined."""
    choices = itertools.cycle(itertools.product((False, True), range(size)))
    for dtype, op in all_pairs():
        in_place, root = next(choices)
        yield Call("allreduce", 130, dtype, op, 0, in_place)
        if op in ("sum", "lxor"):
            yield Call("reduce", 1030, dtype, op, root, in_place)
            yield Call("reduce_scatter", 140, dtype, op, 0, in_place)
            yield Call("reduce_scatter", 141, dtype, op, 0, not in_place, True)


def carried_out(comm, calls):
    """Return the collectives of calls with data that the forced algorithm carries out.

    Return also, by collective and reason, a call for which it is not used.
    """
    carried, refused = set(), {}
    for call in calls:
        op = getattr(MPI, call.op.upper())
        signature = make_signature(call.collective, call.nbytes, op, call.dtype, call.root)
        replaced = call.in_place and call.collective in REPLACING
        signature = replace(signature, in_place=replaced)
        decision = comm._han.parts.planner.decide(signature, blocking=True)
        if not decision.choice.rule.startswith("rules[0]"):
            refused.setdefault((call.collective, decision.passed[0][1]), call)
        elif call.count or call.collective == "barrier":
            carried.add(call.collective)
    return carried, refused


def in_turns(calls, turns):
    """Return lists of calls at which algorithms take turns: each has one of so many neighbours."""
    numbered = [((i + i // turns) % turns, call) for i, call in enumerate(calls)]
    return [[call for turn, call in numbered if turn == k] for k in range(turns)]


def run_parts(comm, domains, level, schedule, turns, shared_to=0):
    """Make one turn's calls with each algorithm on a level; it serves what its attributes say."""
    reference, calls_of = Reference(comm.Dup()), itertools.cycle(turns)
    for name, algorithm in filter(lambda part: may_be_on(part, level), PARTS):
        segment = segment_of(name, algorithm)
        use = force(level, name, algorithm, segment=segment, schedule=schedule)
        if composition_of(name, algorithm):
            use["composition"] = composition_of(name, algorithm)
        with opened(comm_with(comm, domains, use, shared_to)) as han_comm:
            mine = meant_for((name, algorithm), next(calls_of))
            Checker(han_comm, reference).every(mine, (name, algorithm, level, schedule))
            carried, refused = carried_out(han_comm, mine)
            where = han_comm._han.parts.topology, level, shared_to
            asked = {call.collective for call in mine}
            can = {one for one in asked if can_serve((name, algorithm), one, *where)}
            assert carried == can, (name, algorithm, refused)


def may_be_on(part, level):
    """Return whether rules may name an algorithm on a level: those of compositions have one."""
    composition = composition_of(*part)
    return not composition or (level == "network") == (composition in ("nap", "ring"))


def can_serve(part, collective, topology, level, shared_to):
    """Return whether a level has the place in the machine and the memory for an algorithm."""
    algorithm, k = registered()[part[0]].algorithms[part[1]], topology.names.index(level)
    if composition_of(*part):
        view = topology.one_network
        inner, outer = inner_levels(view), outer_levels(view)
        if "ring" in algorithm.families:
            alone = len(topology.active) < 2 and topology.shared[k]
            return not alone and k == topology.active[-1]
        return bool(inner and outer) and k in (outer if "nap" in algorithm.families else inner)
    outermost = k == topology.active[-1]
    apart = {*ROWS[collective].task_kinds} <= {*algorithm.kinds}
    if algorithm.fuses and not (outermost or apart):
        return False
    if {*algorithm.kinds} <= {*BY_BLOCKS}:
        together = topology.whole is not None
        if part[0] == "bundle":  # on a level on which the call does not communicate too
            return k != topology.whole if together else outermost
        return together or (part[0] == "sm" and not outermost)
    if part[0] == "scan":
        return outermost or topology.whole is not None
    return shared_to >= k or not needs_memory(part, collective, outermost)


def meant_for(part, calls):
    """Return the calls of collectives that an algorithm carries out."""
    served = collectives_of(*part)
    return [call for call in calls if call.collective in served]


@pytest.mark.mpi(ranks=[2, 5], timeout=120, unit="s")
def test_sizes_and_roots_inside_a_node(mpi_ranks):
    calls = list(sizes_and_roots(WORLD.size))
    turns = in_turns(calls, 1 if WORLD.size == 2 else 3)
    run_parts(WORLD, [[0] * WORLD.size] * 2, "level0", "dataflow", turns)


@pytest.mark.mpi(ranks=[3, 7], timeout=120, unit="s")
def test_sizes_and_roots_between_nodes_of_one_rank(mpi_ranks):
    domains = [list(range(WORLD.size)), [0] * WORLD.size]
    calls = list(sizes_and_roots(WORLD.size))
    turns = in_turns(calls, 1 if WORLD.size == 3 else 3)
    run_parts(WORLD, domains, "network", "dataflow", turns, shared_to=0)


@pytest.mark.mpi(ranks=[6], timeout=120, unit="s")
@pytest.mark.parametrize("schedule", ["dataflow", "lockstep"])
@pytest.mark.parametrize("level", ["level0", "network"])
def test_sizes_and_roots_on_one_of_two_levels(mpi_ranks, level, schedule):
    domains = [[0, 0, 0, 1, 2, 2], [0] * 6]
    calls = list(sizes_and_roots(WORLD.size))[:: 4 if schedule == "dataflow" else 7]
    shared_to = 1 if schedule == "lockstep" else 0
    run_parts(WORLD, domains, level, schedule, [calls], shared_to)


@pytest.mark.mpi(ranks=[4], timeout=120, unit="s")
@pytest.mark.parametrize("level", ["level0", "network"])
def test_types_and_operations(mpi_ranks, level):
    turns = in_turns(list(types_and_operations(WORLD.size)), TURNS)
    run_parts(WORLD, [[0, 0, 1, 1], [0] * 4], level, "dataflow", turns, shared_to=1)


VARIANTS = (
    {"algorithm": "kary", "radix": 2, "read_parent_flag": False, "in_recv": False},
    {"algorithm": "kary", "leaders": "first", "reduce": {"algorithm": "flat", "leaders": "last"}},
    {"algorithm": "knomial", "skew": "right", "leaders": "last", "socket_tree": "flat"},
    {"algorithm": "flat", "cells": 1, "trailing": True, "inline": False},
    {"algorithm": "flat", "read_parent_flag": False, "trailing": True,
     "reduce": {"algorithm": "knomial", "cells": 2, "chunk": 256}},
    {"algorithm": "flat", "bcast": {"algorithm": "knomial", "cells": 1, "trailing": True}},
    {"submodule": "solo", "algorithm": "pull", "tree": "kary", "radix": 2},
    {"submodule": "solo", "algorithm": "pull", "tree": "chain", "reduce": {"chunk": 512}},
)  # fmt: skip


@pytest.mark.mpi(ranks=[7, 8], timeout=120, unit="s")
def test_trees_of_sockets_and_what_can_be_switched_off(mpi_ranks):
    reference = Reference(WORLD.Dup())
    calls = meant_for(("sm", "flat"), sizes_and_roots(WORLD.size))[::3]
    sockets = (0, 1, 0, 1, 2, 2, 0, 1)[: WORLD.size]
    topology = replace(topology_of([[0] * WORLD.size] * 2, 0), sockets=sockets)
    for variant in VARIANTS:
        use = {"levels": {"level0": {"submodule": "sm", "chunk": 4096, **variant}}}
        with opened(comm_on(WORLD, topology, use)) as han_comm:
            Checker(han_comm, reference).every(calls, variant)
            assert not carried_out(han_comm, calls)[1]


@pytest.mark.mpi(ranks=[1, 9], timeout=120, unit="s")
def test_built_in_choices(mpi_ranks):
    calls = [*sizes_and_roots(WORLD.size), *types_and_operations(WORLD.size)]
    for width in (3, WORLD.size):
        domains = [[r // width for r in range(WORLD.size)], [0] * WORLD.size]
        with opened(comm_with(WORLD, domains)) as han_comm:
            Checker(han_comm, Reference(WORLD.Dup())).every(calls, width)


@pytest.mark.mpi(ranks=[3], timeout=60, unit="s")
def test_mpi_and_numpy_agree_on_what_is_expected(mpi_ranks):
    reference = Reference(MPI.COMM_WORLD.Dup())
    for dtype, op in all_pairs():
        ours, theirs = by_numpy(3, dtype, op, 13), reference(dtype, op, 13)
        if np.dtype(dtype).kind in "fc":
            np.testing.assert_allclose(ours, theirs, rtol=100 * np.finfo(dtype).eps)
        else:
            np.testing.assert_array_equal(ours, theirs, f"{dtype} {op}")
