"""The planner: topologies, graphs, trees, pieces, and lowering."""

import os
from collections import Counter
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from machines import topology_of
from plans import MEMORY, programs_of, prove, rules_of
from random_plans import draw_topology

from han.common.errors import ConfigError
from han.config.config import load_config
from han.model.collectives import FLAT, KINDS, ROWS, TREE
from han.model.program import MAX_STREAMS, Code
from han.model.topology import Topology, virtual
from han.submodules.parts.pieces import cut
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, level_choice
from han.tasks.graph import stream_tag
from han.tasks.lower import lower
from han.tasks.outline import geometries
from han.tasks.signature import Signature
from han.tasks.steps import chain_of_steps, of_tree, segments
from han.tasks.verify import Refuted, verify

MPI_RULE = {
    "levels": [{"name": "network", "scope": "all"}],
    "rules": [{"use": {"levels": {"network": {"submodule": "mpi"}}}}],
}
quick = settings(
    deadline=None,
    max_examples=100,
    derandomize=True,
    database=None,
    report_multiple_bugs=False,
    phases=[Phase.generate, *([Phase.shrink] if os.environ.get("HAN_TEST_SHRINK") else [])],
)
any_topology = st.integers(0, 1 << 30).map(lambda n: draw_topology(Random(n), [(1, 16)]))
OPERATIONS = {"sum": 8, "matrix product": 32}  # bytes of an element


# ---- topologies ---------------------------------------------------------------------------------


@quick
@given(any_topology, st.data())
def test_every_rank_talks_up_to_the_level_where_another_speaks_for_it(topology, data):
    root = data.draw(st.integers(0, topology.size - 1))
    for level in range(topology.depth):
        talkers = Counter()
        for rank in range(topology.size):
            group = topology.group(level, rank, root)
            if group is None:
                assert topology.leader(level - 1, rank, root) != rank
                continue
            talkers[rank] += 1
            assert group.ranks[group.me] == rank
            assert set(group.ranks) <= set(topology.domain(level, rank))
            assert [topology.home(level, rank)[s] for s in group.slots] == list(group.ranks)
            peers = {topology.group(level, r, root).ranks for r in group.ranks}
            assert peers == {group.ranks}
            assert group.ranks[group.root] == topology.leader(level, rank, root)
        below = topology.domains[level - 1] if level else range(topology.size)
        assert len(talkers) == len(set(below))
    assert root in topology.group(topology.depth - 1, root, root).ranks


@quick
@given(any_topology)
def test_ordered_topologies_have_groups_of_consecutive_ranks(topology):
    ordered = topology.ordered
    assert ordered.homes == topology.homes
    assert ordered.shared == topology.shared
    for level in range(ordered.depth):
        for rank in range(ordered.size):
            domain = ordered.domain(level, rank)
            assert domain == tuple(range(domain[0], domain[-1] + 1))
            assert set(domain) <= set(topology.domain(level, rank))
    assert ordered.ordered == ordered


def test_groups_that_cut_through_inner_ones_are_refused():
    with pytest.raises(ConfigError, match="splits groups"):
        Topology(("a", "b", "c"), ("a", "b", "c"), ((0, 0), (0, 1), (0, 0)), (0, 0))
    with pytest.raises(ConfigError, match="must hold all ranks"):
        Topology(("a",), ("a",), ((0, 1),), (0, 0))


@quick
@given(any_topology)
def test_active_levels_are_those_with_company(topology):
    active = topology.active
    for level in range(topology.depth):
        sizes = [g.size for r in range(topology.size) if (g := topology.group(level, r, 0))]
        assert (level in active) == (max(sizes) > 1)


# ---- graphs -------------------------------------------------------------------------------------


def stage_names(collective, segment_count, levels=(0, 1), symbols="si", fused=False):
    signature = Signature(collective, segment_count, 8)
    steps = of_tree(collective, levels, fused)
    return chain_of_steps(steps, symbols, signature, 8).stage_names()


@pytest.mark.parametrize("u", [1, 2, 3, 4, 7])
def test_stages_are_the_composite_tasks_of_the_paper(u):
    assert stage_names("bcast", u) == ["ib", *["sbib"] * (u - 1), "sb"]
    assert stage_names("reduce", u) == ["sr", *["irsr"] * (u - 1), "ir"]
    if u >= 4:
        begin, end = ["sr", "irsr", "ibirsr"], ["sbibir", "sbib", "sb"]
        assert stage_names("allreduce", u) == [*begin, *["sbibirsr"] * (u - 3), *end]


def test_stages_of_short_messages_and_of_one_and_three_levels():
    assert stage_names("allreduce", 1) == ["sr", "ir", "ib", "sb"]
    assert stage_names("allreduce", 2) == ["sr", "irsr", "ibir", "sbib", "sb"]
    assert stage_names("allreduce", 3) == ["sr", "irsr", "ibirsr", "sbibir", "sbib", "sb"]
    assert stage_names("allreduce", 3, fused=True) == ["sr", "iasr", "sbiasr", "sbia", "sb"]
    assert stage_names("bcast", 2, (1,)) == ["ib", "ib"]
    assert stage_names("bcast", 2, (0, 1, 2), "sni") == ["ib", "nbib", "sbnb", "sb"]
    assert stage_names("barrier", 0) == ["sr", "ir", "ib", "sb"]
    assert stage_names("bcast", 3, ()) == []


@quick
@given(st.integers(0, 300), st.integers(1, 40), st.one_of(st.none(), st.integers(1, 500)))
def test_segments_and_pieces_cover_the_message_in_whole_elements(count, element, size):
    signature = Signature("allreduce", count, element)
    parts = list(segments(signature, size))
    assert [a for a, _ in parts] == [0, *(b for _, b in parts[:-1])]
    assert parts[-1][1] == signature.nbytes
    assert all(b % element == 0 for _, b in parts)
    tasks = chain_of_steps([("allreduce", 0)], "i", signature, size).streams()["allreduce", 0]
    pieces = cut(tuple(tasks), 64, element)
    assert [p.index for p in pieces] == list(range(len(pieces)))
    assert [p.start for p in pieces] == [0, *(p.stop for p in pieces[:-1])]
    assert pieces[-1].stop == signature.nbytes
    assert all(p.nbytes % element == 0 and p.nbytes <= max(64, element) for p in pieces)
    assert sum(p.first for p in pieces) == sum(p.last for p in pieces) == len(tasks)


# ---- results ------------------------------------------------------------------------------------


WIDE = 10016  # bytes of an element that no cell holds


@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize(
    "nodes", [[[0, 0, 0, 0]], [[0, 0, 1, 1], [0] * 4], [[0, 1, 0, 1], [0] * 4]]
)
@pytest.mark.parametrize("shared_to", [0, -1])
def test_elements_larger_than_a_cell_are_reduced_in_messages(size, op, nodes, shared_to):
    topology = topology_of([level[:size] for level in nodes], shared_to)
    table = rules_of(topology)
    for count, collective in product((1, 40), ("reduce", "allreduce")):
        for root in range(size if collective == "reduce" else 1):
            commutes = op == "sum"
            signature = Signature(collective, count, WIDE, op, "", commutes, False, root)
            choice = table.decide(signature).choice
            assert {part.submodule for part in choice.levels} <= {"adapt", "exchange"}
            plan = plan_of_choice(topology, signature, choice, MEMORY)
            prove(plan)


def test_blocking_collectives_serve_blocking_calls_only():
    topology, signature = topology_of([[0, 0]], 0), Signature("bcast", 5000)
    table = rules_of(topology)
    choice = Choice((level_choice("mpi", "default"),))
    assert table.objection(signature, choice) is None
    reason = "blocking collectives cannot serve a nonblocking or persistent call"
    assert table.objection(signature, choice, blocking=False) == f"network: mpi: {reason}"
    with_mpi = replace(table, config=load_config(MPI_RULE, {}))
    assert with_mpi.decide(signature).choice.levels[0].submodule == "mpi"
    decision = with_mpi.decide(signature, blocking=False)
    assert decision.choice.levels[0].submodule == "sm"
    assert [why for _, why in decision.passed] == [f"network: mpi: {reason}"]


@pytest.mark.parametrize("depth", [8, 9])
def test_a_topology_has_at_most_eight_levels(depth):
    domains = [[0, 0]] * depth
    names = tuple(f"level{k}" for k in range(depth))
    if depth == 9:
        with pytest.raises(ConfigError, match="9 levels, at most 8"):
            Topology(names, tuple("abcdefghi"), tuple(map(tuple, domains)), (0, 0))
        return
    topology = Topology(names, tuple("abcdefgh"), tuple(map(tuple, domains)), (0, 0))
    tags = {stream_tag(kind, k, len(ROWS)) for kind in KINDS for k in range(depth)}
    assert len(tags) == depth * len(TREE) + len(FLAT)
    assert max(tags) < MAX_STREAMS
    assert len(geometries(topology, MEMORY)) == depth


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("op", OPERATIONS)
def test_split_keeps_to_what_the_kernels_ask(size, in_place, op):
    element = OPERATIONS[op]
    signature = Signature("allreduce", 9000 // element, element, op, "", op == "sum", True)
    choice = Choice((level_choice("sm", "split", chunk=4096),))
    plan = plan_of_choice(topology_of([[0] * size], 0), signature, choice, MEMORY)
    assert any(Code.REDUCE2 in lower(plan, r).code["code"] for r in range(size))
    verify([plan] * 2, in_place=in_place)


@pytest.mark.parametrize(("target", "shift"), [(3, 0), (3, 8), (0, 8)])
def test_operands_that_overlap_are_refused(target, shift):
    choice = Choice((level_choice("sm", "split"),))
    signature = Signature("allreduce", 1000, 8, "sum", "uint64")
    plan = plan_of_choice(topology_of([[0, 0]], 0), signature, choice, MEMORY)
    programs = programs_of(plan)
    code = programs[0].code.copy()
    for row in np.flatnonzero(code["code"] == Code.REDUCE2):
        code["base"][row, target] = code["base"][row, 1]
        code["off"][row, target] = code["off"][row, 1] + shift
    with pytest.raises(Refuted, match="operands that overlap"):
        verify([plan], in_place=True, programs=[[replace(programs[0], code=code), programs[1]]])


def test_a_rank_lowers_only_its_own_operations():
    topology = virtual(4096, 16)
    choice = Choice((level_choice("sm", "knomial"), level_choice("adapt", "binomial")), 1 << 16)
    plan = plan_of_choice(topology, Signature("bcast", 1 << 20), choice, 1 << 24)
    assert max(len(lower(plan, r).code) for r in (0, 1, 17, 2048, 4095)) < 2000
