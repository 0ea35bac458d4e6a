"""Exchanges inside nodes in nap: after a round only some members have operands."""

import pytest
from machines import on_nodes
from plans import count, objection, planned
from test_exchange_halves import combined_in, signature_of

from han.model.program import Code
from han.submodules.exchange.rounds import Rounds
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.size_classes import class_of
from han.tasks.verify import verify

KiB = 1024
ALGORITHMS = ("recursive", "cyclic", "tree", "copyin")


def nap(*levels, **choice):
    return Choice(tuple(levels), composition="nap", **choice)


def pairs(base=0):
    return level_choice("nap", "pairs", base=base)


def call(nbytes, collective="allreduce"):
    return signature_of(collective, nbytes, ordered=False)


@pytest.mark.parametrize("nodes", [4, 64])
def test_flags_count_the_pieces_of_all_steps(nodes):
    """Three steps and more: each passes over the message."""
    own = level_choice("exchange", "recursive", chunk=64)
    for nbytes in (100 << 20, 1900 << 20):
        plan = planned(on_nodes(*[4] * nodes), call(nbytes), nap(own, pairs(2)), 1 << 24)
        one = Rounds.of(plan, 0, "allreduce")
        assert one.pieces * one.values < 1 << 24, one


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nodes_of_two_to_nine_ranks_in_rounds(algorithm):
    """Pieces of 64 bytes in small rings, so that banks of cells are used again."""
    for ranks in (2, 3, 5, 8, 9):
        own = level_choice("exchange", algorithm, chunk=64)
        for nodes, nbytes in ((2, 8), (3, 1000), (5, 2000), (2, 0)):
            signature = call(nbytes, "allreduce" if nbytes else "barrier")
            base = (2, ranks)[(ranks + nodes) % 2]
            topology = on_nodes(*[ranks] * nodes)
            plan = planned(topology, signature, nap(own, pairs(base)), 1 << 16)
            verify([plan] * 3, in_place=nodes % 2 == 0)


def test_members_without_an_operand_combine_nothing():
    """Two nodes of 8 ranks: after the round, two members of a node have operands."""
    own = level_choice("exchange", "recursive")
    plan = planned(on_nodes(8, 8), call(16 * KiB), nap(own, pairs()))
    before = 3 * 4 * KiB + 2 * KiB
    after = [8 * n - before for n in combined_in(plan, "allreduce@level0", 8)]
    assert after == [8 * KiB, 8 * KiB, *[0] * 6]


def test_small_calls_count_no_pieces():
    """Each piece has a bank of its own, so no member waits for others that have read."""
    own = level_choice("exchange", "recursive")
    plan = planned(on_nodes(*[4] * 16), call(8), nap(own, pairs()))
    rounds = Rounds.of(plan, 0, "allreduce")
    assert (rounds.pieces, rounds.recycled, rounds.whole) == (3, False, True)
    posts = sum(count(lower(plan, r), Code.POST) for r in range(4))
    assert posts <= 4 * 2 * 3


def test_classes_of_sizes_have_one_program():
    sizes = class_of(Signature("allreduce", 2048, 8, "sum", "f8"), 16 * KiB)
    for algorithm in ALGORITHMS:
        own = level_choice("exchange", algorithm, chunk=1000)
        plan = plan_of_choice(on_nodes(3, 4, 3), sizes, nap(own, pairs()), 1 << 20)
        for nbytes in (8, 72, 1000, 8200, 16 * KiB):
            verify([plan.of_size(nbytes)] * 2)


def test_what_is_refused():
    own, signature = level_choice("exchange", "recursive"), call(4 * KiB)
    cyclic = level_choice("exchange", "cyclic")
    ordered = signature_of("allreduce", 64)
    assert "does not keep the order" in objection(on_nodes(4, 4, 4), ordered, nap(cyclic, pairs()))
    uneven = on_nodes(2, 3)
    factors = level_choice("exchange", "recursive", factors=(-2, 2))
    assert "do not fit all groups" in objection(uneven, signature, nap(factors, pairs()))
    preset = level_choice("exchange", "recursive_doubling")
    assert "does not serve nap here" in objection(uneven, signature, nap(preset, pairs()))
    large = Signature("allreduce", 1, 40_000, "op", "u8", True, False)
    assert "bytes of cells for elements of" in objection(uneven, large, nap(own, pairs()))
