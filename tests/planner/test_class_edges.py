"""Every algorithm and collective, proved at the edges of classes of sizes on a few machines.

Unlike the random sweeps, each case is there in every run: the first size of a class, the last one,
one element beyond it (the next class), and one that the quantum does not divide.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from time import process_time

import pytest
from machines import composition_of, topology_of
from random_plans import TARGETS, Target

from han.model.collectives import BY_BLOCKS, REDUCING, ROOTED, ROWS
from han.model.topology import Topology
from han.submodules.registry import plan_of_choice
from han.tasks.choice import LevelChoice
from han.tasks.compositions import TREE, as_called
from han.tasks.outline import levels_of
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tasks.size_classes import bound_of, bounds_of, class_of
from han.tasks.verify import Refuted, verify
from han.tuning.built_in.choosing import NodeTraits, choose
from han.tuning.rules import RuleTable

BOUNDS = bounds_of()
MEMORY = 1 << 17
TOPOLOGIES = {
    "one node": replace(topology_of([[0] * 3], 0), attach=True),
    "interleaved nodes": topology_of([[0, 1, 0, 1, 1], [0] * 5], 0),
    "three levels": replace(
        topology_of([[0, 0, 1, 1, 2], [0, 0, 0, 0, 1], [0] * 5], 2), attach=True
    ),
    "no shared memory": topology_of([[0] * 4], -1),
}
CLASSES = (48, 12288)  # upper bounds: a message beside a flag, and one of several pieces
EDGES = ("first", "last", "beyond", "uneven")


def sizes_of(bound: int, element: int) -> dict[str, int]:
    """Return the bytes of each edge of a class, in whole elements."""
    below = (0, *BOUNDS)[BOUNDS.index(bound)] // element
    most = bound // element
    uneven = next(n for n in range((below + most) // 2, most + 1) if n % 2 and n % 3)
    counts = dict(zip(EDGES, (below + 1, most, most + 1, uneven), strict=True))
    return {edge: n * element for edge, n in counts.items()}


def element_of(target: Target) -> int:
    return 8 if target.collective in REDUCING else 1


def signature_of(collective: str, nbytes: int, size: int) -> Signature:
    root = size - 1 if collective in ROOTED else 0
    if collective in REDUCING:
        return Signature(collective, nbytes // 8, 8, "sum", "f8", root=root)
    return Signature(collective, nbytes, root=root)


def bounds_for(target: Target, size: int) -> Iterator[int]:
    """Yield the bounds of two classes: of a message beside a flag, and of several pieces."""
    share = size if target.collective in BY_BLOCKS else 1
    for about in (CLASSES[0], CLASSES[1] // share // 1024 * 1024 or 1024):
        yield next(b for b in BOUNDS if b >= about)


def class_plans(target: Target, topology: Topology, nbytes: int) -> Iterator[tuple[int, Plan]]:
    """Yield the levels that a target can serve, and plans for the class of a message."""
    call = signature_of(target.collective, nbytes, topology.size)
    one = class_of(call, bound_of(call, BOUNDS))
    table = RuleTable(None, topology, NodeTraits())
    name = composition_of(target.submodule, target.algorithm) or TREE
    for level in levels_of(as_called(topology, call, name), call):
        built_in = choose(one, topology, NodeTraits(), name)
        levels = list(built_in.levels)
        levels[level] = LevelChoice(target.submodule, target.algorithm)
        choice = replace(built_in, levels=tuple(levels), segment=None)
        if table.objection(one, choice) is None:
            yield level, plan_of_choice(topology, one, choice, MEMORY)


def prove(target: Target, where: str, turn: int, found: Counter[tuple[Target, str]]) -> None:
    """Prove a target on each level of a machine that it can serve, at edges of two classes.

    Both classes share the edges by turns.
    """
    topology = TOPOLOGIES[where]
    for k, bound in enumerate(bounds_for(target, topology.size), turn):
        edges = sizes_of(bound, element_of(target))
        for edge in EDGES[k % 2 :: 2]:
            nbytes = edges[edge]
            for level, plan in class_plans(target, topology, nbytes):
                one = plan.of_size(nbytes)
                try:
                    verify([one, one], in_place=bool(nbytes % 16))
                except Refuted as refuted:
                    pytest.fail(f"{target} on {where}, level {level}, {nbytes} bytes: {refuted}")
                found[target, edge] += 1


@pytest.mark.slow
def test_every_algorithm_is_proved_at_each_edge_of_a_class(capsys):
    found: Counter[tuple[Target, str]] = Counter()
    start = process_time()
    sized = [target for target in TARGETS if ROWS[target.collective].recv]
    for target in sized:
        for turn in (0, 1):  # all have the second one where the first leaves an edge out
            for k, where in enumerate(TOPOLOGIES, turn):
                prove(target, where, k, found)
            if all(found[target, edge] for edge in EDGES):
                break
    with capsys.disabled():
        print(f"\n{sum(found.values())} proofs, {process_time() - start:.1f} s of processor time")
    missing = [(t, edge) for t in sized for edge in EDGES if not found[t, edge]]
    assert not missing
