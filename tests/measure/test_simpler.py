"""Which parts of a choice stay: those without which the call is slower."""

from __future__ import annotations

from dataclasses import replace

from han.measure.tune.confirm import confirmation, simplified
from han.tasks.choice import Choice, level_choice

BASE = Choice((level_choice("sm", "flat"), level_choice("adapt", "binomial")), 4096)
FOUND = Choice(
    (level_choice("libnbc", "default"), level_choice("adapt", "chain")), None, composition="flat"
)
GAINED = confirmation([2.0] * 12, [1.0] * 12)


def compared(time, seen=None):
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

    simple, ratio = simplified(FOUND, BASE, GAINED, always, compared(time))
    assert simple == replace(BASE, levels=(BASE.levels[0], FOUND.levels[1]))
    assert ratio == 1.0


def test_parts_that_cost_time_or_the_gain_stay_as_they_were_found():
    slower = compared(lambda one: 1.02)
    assert simplified(FOUND, BASE, GAINED, always, slower) == (FOUND, 1.0)
    little = confirmation([1.0] * 12, [0.965] * 12)
    gone = compared(lambda one: 1.009)
    assert simplified(FOUND, BASE, little, always, gone) == (FOUND, 1.0)
    kept, ratio = simplified(FOUND, BASE, GAINED, always, gone)
    assert kept != FOUND
    assert ratio == 1.009


def test_what_cannot_serve_the_call_and_the_built_in_choice_are_not_measured():
    seen = []

    def serves(one):
        return one.composition == "flat"

    simplified(FOUND, BASE, GAINED, serves, compared(lambda one: 1.0, seen))
    assert all(one.composition == "flat" for one in seen)
    assert len(seen) == 3  # segment, and both levels; the schedule is the same
    near = replace(BASE, schedule="lockstep")
    seen.clear()
    assert simplified(near, BASE, GAINED, always, compared(lambda one: 1.0, seen)) == (near, 1.0)
    assert not seen
