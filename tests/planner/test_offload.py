"""Copies of an allgather that travel as messages of a node: programs, proofs and predictions."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from machines import on_nodes, simple_machine, topology_of
from plans import MEMORY, count, rules_of

from han.model.program import Code
from han.submodules.registry import plan_of_choice
from han.tasks.choice import level_choice
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.simulate import simulate
from han.tasks.verify import verify
from han.tuning.built_in.choosing import NodeTraits, choose
from han.tuning.multi_rail import Hockney, offloaded, whole_offload
from han.tuning.search.space import space_of


def plan_of(topology, signature, composition="tree", memory=MEMORY, **parameters):
    """Return the plan with `blocks` of `sm` inside nodes; None if the call is refused."""
    choice = choose(signature, topology, NodeTraits(), composition)
    levels = level_choice("sm", "blocks", **parameters), *choice.levels[1:]
    choice = replace(choice, levels=levels)
    if rules_of(topology).objection(signature, choice) is not None:
        return None
    return plan_of_choice(topology, signature, choice, memory)


@pytest.mark.parametrize("nbytes", [8, 1000, 300_000])
@pytest.mark.parametrize("composition", ["tree", "lanes"])
@pytest.mark.parametrize("nodes", [(5,), (3, 2, 3)])
def test_without_offload_programs_are_the_same(nodes, composition, nbytes):
    topology, signature = on_nodes(*nodes), Signature("allgather", nbytes)
    if len(nodes) == 1 and composition == "lanes":
        return
    for rank in range(topology.size):
        plain, none = (
            lower(plan_of(topology, signature, composition, **more), rank)
            for more in ({}, {"offload": 0})
        )
        assert np.array_equal(plain.code, none.code)
        assert plain.streams == none.streams


@pytest.mark.parametrize("offload", range(7))
def test_so_many_blocks_are_messages_and_the_others_copies(offload):
    """Of five blocks of one piece: that of the rank, into its cell and its buffer, and others."""
    size, moved = 5, min(offload, 4)
    plan = plan_of(on_nodes(size), Signature("allgather", 8192), offload=offload)
    for rank in range(size):
        program = lower(plan, rank)
        assert count(program, Code.ISEND) == count(program, Code.IRECV) == moved
        assert count(program, Code.TEST) == 2 * moved
        assert count(program, Code.COPY) == (moved < 4) + 1 + 4 - moved
        receives = program.code[program.code["code"] == Code.IRECV]["peer"].tolist()
        assert receives == [(rank + k) % size for k in range(1, 1 + moved)]


def draw_case(draw):
    """Draw a machine, a call and parameters; the plan is None if these do not fit."""
    sizes = [draw.randint(1, 6) for _ in range(draw.choice([1, 1, 2, 3]))]
    topology = on_nodes(*sizes)
    if draw.random() < 0.4 and len(sizes) > 1:
        size = sum(sizes)
        topology = topology_of([[r % len(sizes) for r in range(size)], [0] * size], 0)
    signature = Signature("allgather", draw.choice([0, 8, 56, 1000, 4096, 20_000]))
    if draw.random() < 0.4 and signature.nbytes:
        counts = [draw.choice([0, signature.count]) for _ in range(topology.size)]
        signature = replace(signature, counts=(signature.count, *counts[1:]))
    tried = {"chunk": (64, 1000, 4096), "cells": (1, 2, 3, 8), "inline": (False, True)}
    more = {name: draw.choice(values) for name, values in tried.items() if draw.random() < 0.5}
    composition = draw.choice(["tree", "lanes"] if len(sizes) > 1 else ["tree"])
    offload, memory = draw.choice([1, 2, 3, 5, 9]), draw.choice([1 << 16, 1 << 20])
    return plan_of(topology, signature, composition, memory, offload=offload, **more)


def test_random_offloads_are_proved():
    draw, proved = Random(1), 0
    while proved < 60:
        plan = draw_case(draw)
        if plan is not None and plan.levels:
            lockstep = replace(plan.choice, schedule=draw.choice(["dataflow", "lockstep"]))
            plan = plan_of_choice(plan.topology, plan.signature, lockstep, MEMORY)
            verify([plan] * draw.randint(1, 3), in_place=draw.random() < 0.5)
            proved += 1


def test_other_collectives_refuse_it():
    topology = on_nodes(4)
    choice = choose(Signature("gather", 64), topology, NodeTraits(), "tree")
    choice = replace(choice, levels=(level_choice("sm", "blocks", offload=1), *choice.levels[1:]))
    reason = rules_of(topology).objection(Signature("gather", 64), choice)
    assert "offload serves allgather only" in reason


def test_the_tuner_tries_it():
    space = space_of(rules_of(on_nodes(4)), Signature("allgather", 1 << 16))
    offloads = {level.get("offload", 0) for one in space.candidates for level in one.levels}
    assert {1, 2} <= offloads


# ---- predictions -----------------------------------------------------------------------------


def machine(rails=1):
    """Return a machine on which nothing but bytes takes time."""
    link = {"latency": "0us", "eager": "1GiB"}
    return simple_machine(link, memory="1000GB/s", rails=rails)


@pytest.mark.parametrize(("rails", "seconds"), [(1, 40e-3), (2, 20e-3), (4, 10e-3)])
def test_messages_of_a_node_take_its_rails(rails, seconds):
    """Four ranks send 1 MB each: 10 ms a message, one after the other on each rail."""
    plan = plan_of(on_nodes(4), Signature("allgather", 1_000_000), offload=1)
    model = machine(rails)
    found = simulate(plan, model, model.place(1, 4))
    assert found.seconds == pytest.approx(seconds, rel=0.02)
    assert found.nbytes == (0, 4_000_000)


def test_equation_1_tells_the_best_offload():
    """Where adapters are as quick as processors, they take their part."""
    ppn, n = 8, 1_000_000
    model = machine(8)
    node = model.node.model_copy(update={"injection": 1e9})
    quick = model.levels[1].model_copy(update={"bandwidth": 1e9})
    model = model.model_copy(update={"node": node, "levels": (model.levels[0], quick)})
    wanted = whole_offload(model, n, ppn)
    exact = offloaded(Hockney.of(model, adapters=8), n, ppn)
    assert abs(wanted - exact) < 1
    times = []
    for d in range(ppn):
        plan = plan_of(on_nodes(ppn), Signature("allgather", n), memory=1 << 24, offload=d)
        times.append(simulate(plan, model, model.place(1, ppn)).seconds)
    assert min(times) < 0.75 * times[0]
    assert times[wanted] == pytest.approx(min(times), rel=0.15)
    assert whole_offload(machine(1), n, ppn) == 0
