"""The confirmation of a choice against the built-in one, with rows from a seeded clock."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest

from han.measure.tune.confirm import BUILT_IN, LOOKS, OTHER, confirm, confirmation


def compared(*ratios):
    """Return the confirmation of rows that take some times as long as the built-in one."""
    return confirmation([1.0] * len(ratios), ratios)


def rows(ratio, seed=1, noise=0.3, made=None, gaps=0.05):
    """Return rows of a machine with noise whose speed changes, and now and then long gaps."""
    random, turn = Random(seed), count()

    def row(name):
        if made is not None:
            made.append(name)
        speed = 1 + next(turn) // 10 % 2
        gap = 50 if random.random() < gaps else 1
        noisy = random.lognormvariate(0, noise)
        return 1e-4 * speed * gap * noisy * (ratio if name == OTHER else 1)

    return row


def taken(ratio, noise=0.3):
    """Return how many of 200 comparisons take a choice."""
    return sum(confirm(rows(ratio, s, noise), lambda: False).is_better for s in range(200))


def test_a_choice_that_is_not_faster_is_hardly_ever_taken_however_noisy_the_rows():
    assert taken(1.0) <= 4
    assert taken(1.05) <= 1
    assert taken(1.0, noise=1.0) <= 4


def test_a_choice_that_is_faster_by_far_is_taken():
    assert taken(0.5) >= 195
    assert taken(0.9, noise=0.03) >= 195


def test_less_than_the_gain_is_not_enough():
    assert not compared(*[0.98] * 48).is_better
    assert compared(*[0.96] * 12).is_better


def test_what_is_faster_only_while_other_programs_hold_the_processors_is_not_taken():
    held, alone = [4.0] * 40, [1.0] * 8
    assert not confirmation([*held, *alone], [2.0] * 40 + [1.1] * 8).is_better
    assert confirmation([*held, *alone], [2.0] * 40 + [0.9] * 8).is_better


@pytest.mark.parametrize(("ratio", "pairs"), [(0.5, LOOKS[0]), (2.0, LOOKS[0])])
def test_it_ends_as_soon_as_the_answer_is_known(ratio, pairs):
    assert confirm(rows(ratio, noise=0.01, gaps=0), lambda: False).pairs == pairs


def test_once_the_time_is_over_it_ends_after_the_next_look():
    assert confirm(rows(0.96, noise=0.3), lambda: True).pairs == LOOKS[0]
    assert confirm(rows(0.96, noise=0.3), lambda: False).pairs == LOOKS[-1]


def test_the_order_of_pairs_alternates():
    made = []
    confirm(rows(1.0, made=made), lambda: True)
    first = made[::2]
    assert first.count(BUILT_IN) == first.count(OTHER) == LOOKS[0] // 2


def test_the_reason_tells_the_ratio_and_its_interval():
    told = "1.02 (1.00 to 1.10) times the built-in choice in 12 pairs of calls back to back"
    assert compared(*[1.0, 1.02, 1.1] * 4).describe() == told
    assert confirmation([1.0] + [2.0] * 11, [1.2] * 12).describe() == (
        "0.60 (0.60 to 0.60) times the built-in choice in 12 pairs of calls back to back, "
        "1.20 at best"
    )
