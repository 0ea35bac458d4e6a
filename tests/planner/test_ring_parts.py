"""The parts of a ring's tasks inside nodes: short blocks of neighbouring nodes form one part."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import topology_of
from plans import built_in, count
from test_planner import quick

from han.model.program import Code
from han.tasks.graph import Task
from han.tasks.lower import lower
from han.tasks.ring import LEAST, SEGMENT, block_at, blocks_of, in_order, parts_of
from han.tasks.signature import Signature
from han.tasks.verify import verify


def ring(nodes: int, ppn: int, nbytes: int):
    """Return the plan of an allreduce by a ring of nodes."""
    topology = topology_of([[r // ppn for r in range(nodes * ppn)], [0] * nodes * ppn], 0)
    signature = Signature("allreduce", nbytes // 8, 8, "sum", "uint64")
    return built_in(topology, signature, "ring", 1 << 22)


def parts(nodes: int, nbytes: int):
    plan = ring(nodes, 1, nbytes)
    task = Task("sr", "reduce", 0, 0, 0, nbytes)
    return task, parts_of(plan.topology, plan.signature, plan.choice, task)


@settings(quick, max_examples=300)
@given(st.integers(2, 300), st.integers(1, 1 << 18), st.data())
def test_a_node_needs_and_finishes_parts_in_the_order_of_its_ring(nodes, count, data):
    task, found = parts(nodes, 8 * count)
    blocks = blocks_of(task, 8, nodes, SEGMENT)
    pieces = [piece for block in blocks for piece in block]
    node = data.draw(st.integers(0, nodes - 1))
    for kind, first in (("reduce", 0), ("bcast", nodes - 1)):
        made = in_order(found, kind, node)
        ends = sorted(made)
        assert [a for a, _ in ends] == [0, *(b for _, b in ends[:-1])], "each byte once"
        assert ends[-1][1] == task.stop
        order = [p for hop in range(nodes) for p in blocks[block_at(node, nodes, first + hop)]]
        turn = {piece: k for k, piece in enumerate(order)}
        within = [[turn[p] for p in pieces if start <= p[0] < stop] for start, stop in made]
        when = [min(turns) if kind == "reduce" else max(turns) for turns in within]
        assert when == sorted(when)
    assert all(b - a <= SEGMENT for a, b in made)


def test_long_blocks_are_not_joined():
    _, found = parts(4, 1 << 20)
    assert found.joined == 1
    assert len(found.groups) == 4
    assert all(len(group) == 8 for group in found.groups)


def test_short_blocks_are_joined():
    _, found = parts(256, 1 << 20)
    assert (found.joined, len(found.groups)) == (8, 32)
    _, found = parts(256, LEAST)
    assert found.groups == (((0, LEAST),),), "a task in one part"


@pytest.mark.parametrize("nbytes", [8, 3000, 1 << 16])
def test_joined_parts_are_proved(nbytes):
    plan = ring(21, 3, nbytes)
    assert verify([plan, plan]).ranks == 63


def test_operations_inside_a_node_do_not_grow_with_the_nodes():
    """256 nodes of 16 ranks: the leader waits for 15 ranks in each of 32 parts, not of 256."""
    assert count(lower(ring(256, 16, 1 << 20), 0), Code.WAIT) < 2 * 32 * 2 * 15
