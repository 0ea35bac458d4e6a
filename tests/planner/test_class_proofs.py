"""Proofs for all sizes of a class at once, and what they need of positions."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from machines import composition_of, topology_of
from plans import programs_of, rules_of
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
from han.tasks.verify import Refuted, Unproved, verify, verify_class
from han.tasks.verify.turns import Access, Sizes, out_of_turn
from han.tuning.built_in.choosing import NodeTraits, choose

SIZED = [target for target in TARGETS if ROWS[target.collective].recv]
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


def edges_of(bound: int, element: int) -> list[int]:
    """Return the bytes of the smallest, a middle and the largest message of a class.

    The quantum does not divide that in the middle.
    """
    below = (0, *BOUNDS)[BOUNDS.index(bound)] // element
    most = bound // element
    uneven = next(n for n in range((below + most) // 2, most + 1) if n % 2 and n % 3)
    return [n * element for n in (below + 1, uneven, most)]


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


def class_plans(target: Target, topology: Topology, nbytes: int) -> Iterator[Plan]:
    """Yield plans for the class of a message, for each level that a target can serve."""
    call = signature_of(target.collective, nbytes, topology.size)
    one = class_of(call, bound_of(call, BOUNDS))
    table = rules_of(topology)
    name = composition_of(target.submodule, target.algorithm) or TREE
    for level in levels_of(as_called(topology, call, name), call):
        built_in = choose(one, topology, NodeTraits(), name)
        levels = list(built_in.levels)
        levels[level] = LevelChoice(target.submodule, target.algorithm)
        choice = replace(built_in, levels=tuple(levels), segment=None)
        if table.objection(one, choice) is None:
            yield plan_of_choice(topology, one, choice, MEMORY)


def plans() -> Iterator[tuple[Target, Plan]]:
    """Yield a plan for a class for each target, level of some machines, and two classes."""
    for target in SIZED:
        element = 8 if target.collective in REDUCING else 1
        for topology in TOPOLOGIES.values():
            for bound in bounds_for(target, topology.size):
                for plan in class_plans(target, topology, bound // element * element):
                    yield target, plan


@pytest.mark.slow
def test_every_algorithm_is_proved_for_all_sizes_of_a_class():
    """By one proof for all of them, and by one for each size at an edge of the class."""
    proved: Counter[Target] = Counter()
    for k, (target, plan) in enumerate(plans()):
        bound = plan.signature.bound
        report = verify_class(plan, in_place=bool(k % 2))
        assert f"sizes: all up to {bound} bytes" in str(report)
        for nbytes in edges_of(bound, plan.signature.element):
            verify([plan.of_size(nbytes)] * 2, in_place=bool(nbytes % 16))
        proved[target] += 1
    assert set(proved) == set(SIZED)
    assert sum(proved.values()) > 700


def small_plans() -> list[Plan]:
    found = {}
    for target, plan in plans():
        if plan.topology.size <= 4 and plan.signature.grains > 1:
            found.setdefault((target.collective, target.algorithm), plan)
    return [*found.values()]


def test_terms_that_agree_for_the_largest_message_only_are_found():
    """Grains that are shifted together with their origins are the same bytes of it."""
    shifted = 0
    for plan in small_plans():
        programs, largest = programs_of(plan), plan.signature.nbytes
        for rank, program in enumerate(programs):
            rows = np.flatnonzero(
                (program.terms["each"] != 0)
                & (program.terms["stop"] > program.terms["start"])
                & (program.terms["stop"] < program.grains)
            )
            for row in rows[:: max(1, len(rows) // 3)].tolist():
                terms = program.terms.copy()
                for name in ("start", "stop", "origin"):
                    terms[name][row] += 1
                changed = replace(program, terms=terms)
                assert (changed.at(largest).code == program.at(largest).code).all()
                wrong = [*programs[:rank], changed, *programs[rank + 1 :]]
                with pytest.raises(Unproved):
                    verify_class(plan, programs=wrong)
                shifted += 1
    assert shifted > 50


ONE, TWO, FAR = (0, 0, 0), (0, 0, 4), (512, 0, 0)
SIZES = Sizes(1024, 64)


def accesses(*rows: tuple[int, int, tuple[int, int, int], int, int, str]) -> list[Access]:
    found = []
    for event, until, frame, start, stop, how in rows:
        end = frame[0] + (stop - frame[2]) * SIZES.grain
        found.append(Access(event, until, frame, start, stop, end, "r" in how, "w" in how))
    return found


def test_frames_in_common_bytes_are_used_in_turn():
    in_turn = accesses(
        (0, 2, ONE, 0, 4, "w"), (1, 1, FAR, 0, 4, "w"),
        (3, 5, ONE, 1, 3, "r"), (4, 4, FAR, 0, 4, "r"),
        (6, 7, TWO, 4, 7, "w"), (8, 8, TWO, 5, 7, "r"),
        (9, 9, ONE, 2, 3, "w"), (10, 10, ONE, 2, 3, "r"),
    )  # fmt: skip
    assert out_of_turn(in_turn, SIZES) is None
    for late in (
        (11, 11, ONE, 1, 3, "r"),  # grain 1 was there before frame TWO wrote
        (11, 11, TWO, 5, 6, "r"),
        (3, 3, TWO, 4, 5, "w"),  # a send of frame ONE is under way
        (2, 2, ONE, 0, 5, "r"),  # grain 4 was never written
        (9, 9, TWO, 4, 5, "r"),  # the same operation writes ONE
    ):
        odd = accesses(late)
        found = out_of_turn([*in_turn, *odd], SIZES)
        assert found is not None, late


def test_what_is_wrong_for_the_largest_message_is_refuted():
    for plan in small_plans()[:5]:
        programs = programs_of(plan)
        terms = programs[0].terms.copy()
        row = int(np.flatnonzero(terms["each"])[0])
        terms["stop"][row] -= 1
        with pytest.raises(Refuted) as refuted:
            verify_class(plan, programs=[replace(programs[0], terms=terms), *programs[1:]])
        assert not isinstance(refuted.value, Unproved)


def test_plans_of_one_size_have_no_class():
    plan = small_plans()[0]
    verify_class(plan)
    verify([plan.of_size(plan.signature.bound)])
    with pytest.raises(ValueError, match="no plan for all sizes"):
        verify_class(plan.of_size(plan.signature.bound))
