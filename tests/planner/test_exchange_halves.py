"""Exchanges on inner levels: their reduces and broadcasts through cells, and what they refuse."""

from functools import partial
from itertools import product

import pytest
from machines import topology_of
from plans import objection, planned

from han.model.program import Code
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.verify import verify

KiB = 1024


def signature_of(collective, nbytes, root=0, ordered=True):
    if collective == "barrier":
        return Signature(collective)
    if collective == "bcast":
        return Signature(collective, nbytes, root=root)
    count = nbytes // 8
    return Signature(collective, count, 8, "op", "u8", not ordered, False, root)


@pytest.mark.parametrize("members", range(2, 10))
def test_any_root_among_up_to_nine_members(members):
    topology = topology_of([[0] * members], 0)
    tree = level_choice("exchange", "tree", chunk=4 * KiB)
    for nbytes, root in product((0, 8, 48, 1000, 4096, 40_000), range(members)):
        for collective in ("bcast", "reduce"):
            signature = signature_of(collective, nbytes, root)
            plan = planned(topology, signature, Choice((tree,)))
            verify([plan] * 3, in_place=root % 2 == 0)


def combined_in(plan, name, ranks):
    """Return how many elements each of some ranks combines in a stream."""
    combined = []
    for rank in range(ranks):
        program = lower(plan, rank)
        (stream,) = [s for s in program.streams if s.name == name]
        code = program.code[stream.start : stream.stop]
        rows = code[(code["code"] == Code.REDUCE) | (code["code"] == Code.REDUCE2)]
        combined.append(int(rows["n"].sum()))
    return combined


def combined_by(rank_count, nbytes, **tree):
    """Return how many elements each rank of a socket combines in a reduction."""
    topology = topology_of([[0] * rank_count + [1] * rank_count, [0] * 2 * rank_count], 0)
    choice = Choice((level_choice("exchange", "tree", **tree), level_choice("adapt", "chain")))
    plan = planned(topology, signature_of("allreduce", nbytes), choice, memory=1 << 24)
    verify([plan] * 3)
    return combined_in(plan, "reduce@level0", rank_count)


def test_all_members_of_a_socket_combine():
    combined = combined_by(8, 64 * KiB)
    assert len(set(combined)) == 1, combined
    assert combined[0] > 0


def test_first_members_combine_what_is_not_split():
    """Factors 4 and 2: member 0 combines four operands, then two; member 4 combines four."""
    count = 8 * KiB
    assert combined_by(8, 64 * KiB, whole=64 * KiB) == [4 * count, 0, 0, 0, 3 * count, 0, 0, 0]
    assert min(combined_by(8, 64 * KiB + 8, whole=64 * KiB)) >= 7 * count // 8, "a share each"


def test_the_reason_why_an_exchange_does_not_serve_an_inner_level():
    exchange, adapt = partial(level_choice, "exchange"), level_choice("adapt", "chain")
    uneven = [[0] * 4 + [1] * 3, [0] * 7]
    call = signature_of("allreduce", 1000)
    for shared, level, expected in (
        (0, exchange("recursive"), "outermost level only; of exchange, tree, scatter may serve"),
        (-1, exchange("tree"), "tree reduces and broadcasts apart only where members share"),
        (0, exchange("tree", factors=(-2, -2, 2, 2)), "of the level, which have 3, 4 members"),
    ):
        reason = objection(topology_of(uneven, shared), call, Choice((level, adapt)))
        assert expected in reason
    one = topology_of([[0] * 4], -1)
    for collective in ("bcast", "reduce"):
        reason = objection(one, signature_of(collective, 1000), Choice((exchange("tree"),)))
        assert "scatter does in messages" in reason
    commuting = signature_of("allreduce", 1000, ordered=False)
    for kind in ("bcast", "reduce"):
        own = exchange("scatter").where(kind, exchange("tree"))
        assert "scatter does in messages" in objection(one, commuting, Choice((own,)))
        verify([planned(topology_of([[0] * 4], 0), commuting, Choice((own,)))] * 2)
    large = Signature("allreduce", 4, 1 << 17, "op", "u8")
    reason = objection(topology_of(uneven, 0), large, Choice((exchange("tree"), adapt)))
    assert "bytes of cells for elements of 131072 bytes; half of the smallest ring" in reason


def test_a_reproducible_reduction_asks_for_whole_blocks_on_every_level():
    call = Signature("allreduce", 100, 8, "op", "f8", canonical=True)
    tree, adapt = level_choice("exchange", "tree"), level_choice("exchange", "recursive_doubling")
    for sizes in ((4, 4), (8, 8), (2, 2, 2, 2)):
        domains = [node for node, size in enumerate(sizes) for _ in range(size)]
        topology = topology_of([domains, [0] * len(domains)], 0)
        verify([planned(topology, call, Choice((tree, adapt)))] * 2)
    three = topology_of([[0] * 3 + [1] * 3, [0] * 6], 1)
    assert objection(three, call, Choice((tree, tree))) is None, "blocks of 2, 1, 1 and 2 ranks"
    uneven = topology_of([[0] * 8 + [1] * 3, [0] * 11], 1)
    two = level_choice("exchange", "tree", factors=(-2, -2, -2, 2, 2, 2))
    reason = objection(uneven, call, Choice((two, tree)))
    assert "do not fit all groups" in reason
