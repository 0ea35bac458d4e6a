"""Programs of ranks with equal roles are those that each rank lowers by itself."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import topology_of
from plans import programs_of
from random_plans import one_plan

from han.config.machine import load_machine
from han.model.program import CHANNELS
from han.submodules.registry import plan_of_choice, registered
from han.tasks.choice import Choice, level_choice
from han.tasks.equal_roles import roles
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.simulate import simulate
from han.tasks.size_classes import bound_of, bounds_of, class_of

MEMORY = 1 << 18


def differs(one, other):
    """Return the fields in which two programs differ."""
    pairs = {f.name: (getattr(one, f.name), getattr(other, f.name)) for f in fields(one)}
    same = {
        name: np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
        for name, (a, b) in pairs.items()
    }
    return [name for name, equal in same.items() if not equal]


def apart_from_offsets(program):
    """Return a program without its addresses in buffers and scratch memory."""
    code = program.code.copy()
    own = code["base"] < CHANNELS
    code["base"][own], code["off"][own] = 0, 0
    return replace(program, code=code, scratch=0)


def machine_of(depth, **rates):
    """Return a machine model of so many levels, the outermost of which is a network."""
    inner = [
        {"name": f"l{k}", "latency": "1us", "bandwidth": "5GB/s", "flag": f"{k + 1}00ns", **rates}
        for k in range(depth - 1)
    ]
    for k, level in enumerate(inner[:-1]):
        level["ranks"] = 2 << k
    network = {"name": "network", "latency": "5us", "bandwidth": "1GB/s", "eager": "4KiB"}
    node = {"level": inner[-1]["name"], "copy": "9GB/s", "reduce": "3GB/s", "memory": "30GB/s"}
    node["injection"] = "1GB/s"
    return load_machine({"about": "any", "levels": [*inner, network], "node": node})


def check(plan):
    """Compare all programs; return how many were lowered."""
    found = list(roles(plan))
    assert [one.rank for one in found] == list(range(plan.topology.size))
    moves = plan.choice.composition in ("lanes", "ring") or len(plan.topology.active) < 2
    alike = apart_from_offsets if moves else lambda program: program
    for one in found:
        assert not differs(alike(one.program), alike(lower(plan, one.rank))), one.rank
    return len({id(one.first) for one in found})


def check_times(plan, **rates):
    """Compare the times of shared programs with those of each rank's own."""
    machine = machine_of(plan.topology.depth, **rates)
    shared, own = (
        simulate(plan, machine, programs=programs, runs=2, spans=True)
        for programs in (None, programs_of(plan))
    )
    assert shared == own


def nodes(count, ppn, sockets=0):
    places = [[k // ppn for k in range(count * ppn)], [0] * (count * ppn)]
    if sockets:
        places.insert(0, [k // sockets for k in range(count * ppn)])
    return topology_of(places, len(places) - 2)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 30))
def test_programs_of_equal_roles_are_those_that_ranks_lower(number):
    """They also take the times of each rank's own."""
    plan = one_plan(number, 24, MEMORY)
    check(plan)
    if plan.topology.depth > 1:
        check_times(plan)


def lanes_plan(topology, signature, inner, outer, segment=None, **lanes):
    levels = [level_choice("sm", "shares", **lanes) for _ in range(inner)]
    levels += [level_choice(*outer)] * (topology.depth - inner)
    return plan_of_choice(
        topology, signature, Choice(tuple(levels), segment, composition="lanes"), MEMORY
    )


OUTERS = {
    "allreduce": [("exchange", "halving"), ("exchange", "ring"), ("exchange", "cyclic")],
    "bcast": [("adapt", "binomial"), ("adapt", "chain")],
    "reduce": [("adapt", "binomial"), ("adapt", "chain")],
}
PLACES = {
    "even": ([[k // 4 for k in range(24)], [0] * 24], 1),
    "uneven": ([[0] * 4 + [1] * 2 + [2] * 4 + [3] * 3 + [4] * 4, [0] * 17], 1),
    "interleaved": ([[k % 5 for k in range(20)], [0] * 20], 1),
    "sockets": ([[k // 2 for k in range(24)], [k // 4 for k in range(24)], [0] * 24], 2),
    "switches": ([[k // 3 for k in range(24)], [k // 12 for k in range(24)], [0] * 24], 1),
}


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("collective", ["bcast", "reduce", "allreduce"])
@pytest.mark.parametrize(("count", "segment"), [(1200, 4096), (1024, None)])
def test_lanes_of_shared_programs_take_the_times_of_each_ranks_own(
    places, collective, count, segment
):
    domains, inner = PLACES[places]
    topology, reduces = topology_of(domains, inner - 1), collective != "bcast"
    root = 5 if collective != "allreduce" else 0
    signature = Signature(collective, count, 8 if reduces else 1, "sum" * reduces, "f8", root=root)
    outers = OUTERS[collective].copy()
    del outers[([*PLACES].index(places) + (segment is None)) % len(outers)]  # the other size has it
    for outer in outers:
        for more in ({}, {"lanes": 3}) if places == "uneven" else ({},):
            plan = lanes_plan(topology, signature, inner, outer, segment, **more)
            check(plan)
            check_times(plan)
        bound = bound_of(signature, bounds_of(()))
        plan = lanes_plan(topology, class_of(signature, bound), inner, outer, segment)
        plan = plan.of_size(signature.nbytes)
        check(plan)
        check_times(plan, copy="2GB/s", reduce="1GB/s", cache="32KiB")


def test_lanes_of_alike_nodes_share_programs():
    signature = Signature("allreduce", 4096, 8, "sum", "f8")
    plan = lanes_plan(nodes(16, 4), signature, 1, ("exchange", "halving"), 8192)
    assert check(plan) <= 8
    plan = lanes_plan(nodes(16, 4), signature.changed(count=4099), 1, ("exchange", "halving"), 8192)
    assert 8 < check(plan) <= 64


def ring_plan(places, count, pieces, **sizes):
    levels = [level_choice("sm", "flat")] * (len(places) - 1)
    levels.append(level_choice("ring", "pieces", **sizes))
    signature = Signature("allreduce", count, 8, "sum", "f8")
    choice = Choice(tuple(levels), pieces, composition="ring")
    return plan_of_choice(topology_of(places, len(places) - 2), signature, choice, MEMORY)


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize(("count", "segment"), [(3000, 8192), (1024, None), (40, None)])
def test_rings_of_shared_programs_take_the_times_of_each_ranks_own(places, count, segment):
    for sizes in ({}, {"segment": 256, "window": 2}):
        plan = ring_plan(PLACES[places][0], count, segment, **sizes)
        check(plan)
        check_times(plan, copy="2GB/s", reduce="1GB/s", cache="32KiB")


def test_rings_of_alike_nodes_share_programs():
    places = [[k // 4 for k in range(64)], [0] * 64]
    assert check(ring_plan(places, 16 * 1024, 65536)) == 4
    assert 4 < check(ring_plan(places, 16 * 64, 8192)) <= 2 * 4  # parts of two blocks
    assert check(ring_plan(places, 16 * 1024 + 8, None)) > 4


def flat_plan(algorithm, size, count, segment):
    levels = level_choice("sm", "flat"), level_choice("exchange", algorithm)
    signature = Signature("allreduce", count, 8, "sum", "f8")
    topology = topology_of([[k // 4 for k in range(size)], [0] * size], 0)
    choice = Choice(levels, segment, composition="flat")
    return plan_of_choice(topology, signature, choice, MEMORY)


@pytest.mark.parametrize("algorithm", ["halving", "ring", "cyclic", "bruck", "copyin"])
@pytest.mark.parametrize(("size", "count"), [(32, 8192), (32, 32 * 40 + 5), (39, 32 * 39)])
def test_flat_groups_of_shared_programs_take_the_times_of_each_ranks_own(algorithm, size, count):
    plan = flat_plan(algorithm, size, count, count // 32 * 8)
    lowered = check(plan)
    assert lowered <= size
    check_times(plan)
    if algorithm in ("halving", "ring") and count == 8192:
        assert lowered == 2  # rank 0 is the root


@pytest.mark.parametrize(("algorithm", "count", "segment"), [
    ("halving", 2500, 512), ("halving", 20_000, 4096), ("scatter", 851, 176),
])  # fmt: skip
def test_flat_groups_in_shorter_messages_of_a_class(algorithm, count, segment):
    """There tasks of one size in the largest message differ in size."""
    size = 44 if algorithm == "scatter" else 32
    collective = "reduce" if algorithm == "scatter" else "allreduce"
    signature = Signature(collective, count, 8, "sum", "f8")
    levels = level_choice("sm", "flat"), level_choice("exchange", algorithm)
    choice, bound = Choice(levels, segment, composition="flat"), bound_of(signature, bounds_of(()))
    plan = plan_of_choice(nodes(size // 4, 4), class_of(signature, bound), choice, MEMORY)
    assert not plan.shortened
    assert plan.of_size(signature.nbytes).shortened
    check(plan.of_size(signature.nbytes))


@pytest.mark.parametrize("algorithm", ["chain", "binary", "binomial"])
@pytest.mark.parametrize(("collective", "root"), [("bcast", 0), ("bcast", 7), ("reduce", 3)])
def test_flat_trees_of_shared_programs_take_the_times_of_each_ranks_own(
    algorithm, collective, root
):
    reduces = collective == "reduce"
    signature = Signature(collective, 8000, 8 if reduces else 1, "sum" * reduces, "f8", root=root)
    levels = level_choice("sm", "flat"), level_choice("adapt", algorithm)
    choice = Choice(levels, signature.nbytes // 40 // 8 * 8, composition="flat")
    plan = plan_of_choice(nodes(9, 4), signature, choice, MEMORY)
    assert check(plan) < 36
    check_times(plan)


@pytest.mark.parametrize("collective", ["bcast", "reduce", "allreduce"])
@pytest.mark.parametrize("inner", [("sm", "flat"), ("sm", "knomial"), ("adapt", "chain")], ids=str)
@pytest.mark.parametrize("root", [0, 6])
def test_ranks_that_lead_nothing_share_programs(collective, inner, root):
    if collective == "allreduce":
        root = 0
    reduces = collective != "bcast"
    signature = Signature(collective, 300, 8 if reduces else 1, "sum" * reduces, "f8", root=root)
    choice = Choice((level_choice(*inner), level_choice("adapt", "binomial")), 800)
    lowered = check(plan_of_choice(nodes(6, 4), signature, choice, MEMORY))
    # one of each node leads; of the others three places, and three more beside another root
    assert lowered <= 6 + 3 + 3


def test_ranks_of_sockets_share_programs():
    signature = Signature("allreduce", 300, 8, "sum", "f8")
    inner = level_choice("sm", "flat")
    choice = Choice((inner, inner, level_choice("exchange", "halving")))
    assert check(plan_of_choice(nodes(4, 8, 4), signature, choice, MEMORY)) <= 4 + 1 + 3


def test_uneven_nodes_have_roles_of_their_own():
    topology = topology_of([[0, 0, 0, 1, 1, 2, 2, 2], [0] * 8], 0)
    signature = Signature("allreduce", 300, 8, "sum", "f8")
    choice = Choice((level_choice("sm", "flat"), level_choice("adapt", "binomial")))
    assert check(plan_of_choice(topology, signature, choice, MEMORY)) == 3 + 2 + 1


def test_submodules_say_whether_programs_follow_from_places():
    found = registered()
    assert all(found[name].by_place for name in ("sm", "adapt", "exchange", "ring"))
    assert not any(found[name].by_place for name in ("solo", "mpi", "libnbc", "nap"))


def test_a_request_that_receives_and_then_sends_has_no_peer_in_its_second_test():
    topology = replace(topology_of([[0] * 13 + [1] * 5, [0] * 18], 0), attach=False)
    signature = Signature("bcast", 0, 1, root=0)
    inner, outer = level_choice("exchange", "scatter"), level_choice("adapt", "binomial")
    check(plan_of_choice(topology, signature, Choice((inner, outer)), MEMORY))
