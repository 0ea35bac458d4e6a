"""The confirmation of a choice against the built-in one, and which of its parts stay."""

from dataclasses import replace
from itertools import count
from random import Random

import pytest

from han.measure.measured import LOOKS
from han.measure.tune.confirm import BUILT_IN, OTHER, confirm, confirmation, simplified
from han.tasks.choice import Choice, level_choice


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


# ---- which parts of a choice stay ---------------------------------------------------------------

BASE = Choice((level_choice("sm", "flat"), level_choice("adapt", "binomial")), 4096)
FOUND = Choice(
    (level_choice("libnbc", "default"), level_choice("adapt", "chain")), None, composition="flat"
)
GAINED = confirmation([2.0] * 12, [1.0] * 12)


def against(time, seen=None):
    """Return a comparison with FOUND, whose calls take a second: `time` says what others take."""

    def compare(one):
        if seen is not None:
            seen.append(one)
        return confirmation([1.0] * 12, [time(one)] * 12)

    return compare


def always(one):
    return True


def test_only_the_part_that_makes_it_faster_stays():
    def time(one):
        return 1.0 if one.levels[1] == FOUND.levels[1] else 2.0

    simple, ratio = simplified(FOUND, BASE, GAINED, always, against(time))
    assert simple == replace(BASE, levels=(BASE.levels[0], FOUND.levels[1]))
    assert ratio == 1.0


def test_parts_that_cost_time_or_the_gain_stay_as_they_were_found():
    slower = against(lambda one: 1.02)
    assert simplified(FOUND, BASE, GAINED, always, slower) == (FOUND, 1.0)
    little = confirmation([1.0] * 12, [0.965] * 12)
    gone = against(lambda one: 1.009)
    assert simplified(FOUND, BASE, little, always, gone) == (FOUND, 1.0)
    kept, ratio = simplified(FOUND, BASE, GAINED, always, gone)
    assert kept != FOUND
    assert ratio == 1.009


def test_what_cannot_serve_the_call_and_the_built_in_choice_are_not_measured():
    seen = []

    def serves(one):
        return one.composition == "flat"

    simplified(FOUND, BASE, GAINED, serves, against(lambda one: 1.0, seen))
    assert all(one.composition == "flat" for one in seen)
    assert len(seen) == 3  # segment, and both levels; the schedule is the same
    near = replace(BASE, schedule="lockstep")
    seen.clear()
    assert simplified(near, BASE, GAINED, always, against(lambda one: 1.0, seen)) == (near, 1.0)
    assert not seen
