"""Scans are proved: in cells and in messages, of all kinds of sizes, in place and not."""

from dataclasses import replace

import pytest

from han.model.topology import virtual
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.verify import Refuted, verify

CALL = Signature("scan", 0, 8, "my operation", "float64", commutative=False)
CHOICES = (
    level_choice("sm", "prefix", chunk=4096, cells=2),
    level_choice("sm", "chain", chunk=4096, cells=2),
    level_choice("scan", "doubling"),
    level_choice("scan", "chain", segment=4096),
)


def plan_of(collective, size, count, choice):
    call = replace(CALL, collective=collective, count=count)
    return plan_of_choice(virtual(size), call, Choice((choice,)), 1 << 20)


@pytest.mark.parametrize("collective", ["scan", "exscan"])
@pytest.mark.parametrize("choice", CHOICES)
def test_scans_are_proved(collective, choice):
    for size in (1, 2, 3, 5, 9):
        for count in (0, 1, 6, 7, 513, 5000):
            plan = plan_of(collective, size, count, choice)
            for in_place in (False, True):
                verify([plan, plan], in_place=in_place)


@pytest.mark.parametrize("in_place", [False, True])
def test_rank_0_of_an_exscan_must_keep_its_buffer(in_place):
    """The programs of a scan are refused, since rank 0 of a scan writes its result."""
    plan = plan_of("exscan", 3, 1000, CHOICES[0])
    wrong = [lower(plan_of("scan", 3, 1000, CHOICES[0]), rank) for rank in range(3)]
    with pytest.raises(Refuted):
        verify([plan], in_place=in_place, programs=[wrong])
