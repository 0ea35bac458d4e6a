"""How often bytes are moved: the counts of known algorithms, and the text of `explain`."""

from dataclasses import replace

import pytest
from machines import topology_of

from han.cli.imagined import imagine
from han.explain import make_signature
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, LevelChoice, level_choice
from han.tasks.inspect.traffic import Counted, Traffic, describe, traffic

SIZE, NBYTES = 4, 3 << 20


def plan_of(collective: str, choice: LevelChoice):
    topology = topology_of([[0] * SIZE, [0] * SIZE], 0)
    signature = make_signature(collective, NBYTES)
    levels = (choice, level_choice("adapt", "binomial"))
    return plan_of_choice(topology, signature, Choice(levels), 64 << 20)


ONE_COPY = (
    level_choice("solo", "pull"),
    level_choice("solo", "pull", tree="chain", chunk=64 << 10),
    level_choice("solo", "pull", tree="knomial", radix=2),
    level_choice("solo", "spread"),
    level_choice("solo", "meet"),
)


@pytest.mark.parametrize("choice", ONE_COPY, ids=LevelChoice.describe)
def test_reading_each_others_memory_is_one_copy_a_receiver(choice):
    moved = traffic(plan_of("bcast", choice))
    assert moved.copied == moved.attached == (SIZE - 1) * NBYTES
    assert not moved.combined
    assert not moved.sent


def test_who_meets_copies_as_much_as_everybody_else():
    plan = plan_of("bcast", level_choice("solo", "meet"))
    shares = [traffic(plan, [rank]).copied for rank in range(SIZE)]
    assert max(shares) - min(shares) <= (SIZE - 1) * 64


def test_cells_cost_the_root_one_copy_more():
    assert traffic(plan_of("bcast", level_choice("sm", "flat"))).copied == SIZE * NBYTES


@pytest.mark.parametrize("submodule", ["sm", "solo"])
def test_an_allreduce_combines_each_byte_as_often_as_operands_meet(submodule):
    assert traffic(plan_of("allreduce", level_choice(submodule, "split"))).combined == (
        (SIZE - 1) * NBYTES
    )


def test_messages_are_counted_where_they_are_sent():
    plan = imagine(4, 1, None, ("bcast", 1 << 20, "sum", "f8", 0)).plan
    assert traffic(plan).sent == 3 << 20
    assert traffic(plan, [0]).sent == 1 << 20  # a chain
    assert traffic(plan, [3]) == Traffic(received=1 << 20)


def test_operands_in_peers_arrays_are_told_apart():
    choice = Choice((level_choice("solo", "split"),))
    signature = replace(make_signature("allreduce", NBYTES), mapped=True)
    plan = plan_of_choice(topology_of([[0] * SIZE], 0), signature, choice, 64 << 20)
    moved = traffic(plan)
    assert moved.attached == 0
    assert moved.copied == moved.combined == (SIZE - 1) * NBYTES
    assert moved.mapped == 2 * (SIZE - 1) * NBYTES


def test_what_was_counted_is_said_a_call():
    counted = Counted.of((1, 60, 20, 40, 5, 0, 0)) + Counted.of((1, 0, 0, 0, 0, 10, 0))
    assert counted == Counted(2, Traffic(100, 20, 10, 0, 40, 5))
    assert counted.describe(50) == (
        "2 calls, each byte copied once, combined 0.2 times, sent 0.1 times by this rank"
    )
    assert Counted(1).describe(0) == "1 call, nothing moved by this rank"
    assert counted.describe(None) == "2 calls of any sizes"


def test_it_is_said_per_receiver():
    assert describe(plan_of("bcast", level_choice("solo", "pull"))) == (
        "each byte copied once per receiver"
    )
    assert "  traffic   each byte copied 2 times per receiver" in str(
        imagine(2, 2, None, ("bcast", 1 << 20, "sum", "f8", 0))
    )
    assert describe(imagine(65, 65, None, ("bcast", 8, "sum", "f8", 0)).plan) == (
        "not counted for more than 64 ranks"
    )


def test_a_rank_alone_moves_nothing_to_anybody():
    assert describe(imagine(1, 1, None, ("bcast", 8, "sum", "f8", 0)).plan) == "none"
