"""Proofs for all sizes of a class at once, and what they need of positions."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_plans import TARGETS
from test_class_edges import TOPOLOGIES, bounds_for, class_plans, element_of
from test_planner import quick

from han.model.collectives import ROWS
from han.model.program import positions
from han.tasks.lower import lower
from han.tasks.plan import Plan
from han.tasks.verify import Refuted, Unproved, verify, verify_class
from han.tasks.verify.turns import Access, Sizes, out_of_turn

SIZED = [target for target in TARGETS if ROWS[target.collective].recv]


def plans() -> Iterator[tuple[str, Plan]]:
    """Yield a plan for a class for each target, level of some machines, and two classes."""
    for target in SIZED:
        element = element_of(target)
        for topology in TOPOLOGIES.values():
            for bound in bounds_for(target, topology.size):
                for _, plan in class_plans(target, topology, bound // element * element):
                    yield target.algorithm, plan


def test_every_algorithm_is_proved_for_all_sizes_of_a_class():
    proved: Counter[str] = Counter()
    for k, (_, plan) in enumerate(plans()):
        report = verify_class(plan, in_place=bool(k % 2))
        assert f"sizes: all up to {plan.signature.bound} bytes" in str(report)
        proved[plan.signature.collective] += 1
    assert set(proved) == {target.collective for target in SIZED}
    assert sum(proved.values()) > 700


def small_plans() -> list[Plan]:
    found = {}
    for algorithm, plan in plans():
        if plan.topology.size <= 4 and plan.signature.grains > 1:
            found.setdefault((plan.signature.collective, algorithm), plan)
    return [*found.values()]


def test_terms_that_agree_for_the_largest_message_only_are_found():
    """Grains that are shifted together with their origins are the same bytes of it."""
    shifted = 0
    for plan in small_plans():
        size, largest = plan.topology.size, plan.signature.nbytes
        programs = [lower(plan, rank) for rank in range(size)]
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
        programs = [lower(plan, rank) for rank in range(plan.topology.size)]
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


@quick
@given(st.integers(1, 1 << 20), st.sampled_from([1, 8, 24, 64, 4096]), st.data())
def test_positions_rise_and_are_never_farther_apart_than_in_the_largest_message(
    grains, grain, data
):
    nbytes = data.draw(st.integers(0, grains * grain))
    numbers = np.unique([0, *data.draw(st.lists(st.integers(0, grains), max_size=50)), grains])
    at = positions(numbers.astype("u8"), grains, grain, nbytes).astype(np.int64)
    assert (at[0], at[-1]) == (0, nbytes)
    steps = np.diff(at)
    assert (steps >= 0).all()
    assert (steps <= np.diff(numbers) * grain).all()
