"""Communicators that are alike share their planner and its programs."""

from dataclasses import replace

import numpy as np
import pytest
from mpi4py import MPI
from threaded import run_in_threads

import han
from han.config.config import Config, load_config
from han.model.topology import virtual
from han.runtime.alike import ALIKE, Alike, ProgramKey
from han.runtime.measured import BESIDE
from han.submodules import registry
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tuning.built_in.choosing import NodeTraits

TOPOLOGY = virtual(4, 2)
PLAIN = NodeTraits()
RULE = {"use": {"schedule": "lockstep"}}


@pytest.fixture(autouse=True)
def forgotten(alone):
    ALIKE.clear()


def made(config=None, sizes=(1000,)):
    """Make allreduces on a new communicator; return its statistics."""
    comm = han.Comm(MPI.COMM_SELF.Dup(), config)
    for size in sizes:
        send, recv = np.arange(float(size)), np.zeros(size)
        comm.Allreduce(send, recv)
        np.testing.assert_array_equal(send, recv)
    info = comm.cache_info()
    comm.Free()
    return info


def test_a_later_communicator_plans_nothing():
    first, second, other = made({"plans": 3}), made({"plans": 3}), made({"plans": 3}, (1000, 9))
    assert (first.made, first.shared) == (1, 0)
    assert (second.made, second.shared) == (1, 1)
    assert (other.made, other.shared) == (2, 1)


def test_a_plan_that_was_evicted_is_not_planned_again():
    info = made({"plans": 1}, (10, 1000, 10))
    assert (info.misses, info.made, info.shared) == (3, 3, 1)


def test_what_programs_depend_on_tells_planners_apart(monkeypatch):
    def planner(topology=TOPOLOGY, config=None, traits=PLAIN, rank=1, maps=True):
        return ALIKE.planner(topology, load_config(config or {}, {}), traits, rank, maps)

    class Other(type(registry.submodule("sm"))):
        pass

    first = planner()
    assert planner() is planner(virtual(4, 2)) is planner(config={"wait": {"policy": "spin"}})
    different = [
        planner(virtual(4)),
        planner(replace(TOPOLOGY, attach=True)),
        planner(replace(TOPOLOGY, sockets=(0, 1, 2, 3))),
        planner(config={"rules": [RULE]}),
        planner(config={"memory": "1MiB"}),
        planner(config={"trials": False}),
        planner(traits=NodeTraits(mesh=True)),
        planner(rank=2),
        planner(maps=False),
    ]
    monkeypatch.setitem(registry._imported, "sm", Other())
    different.append(planner())
    assert len({*map(id, different), id(first)}) == len(different) + 1


def test_messages_name_the_rule_where_the_program_wrote_it(tmp_path):
    found = []
    for name in ("one.yaml", "two.yaml"):
        (tmp_path / name).write_text("rules: [{use: {schedule: lockstep}}]")
        config = load_config(tmp_path / name, {})
        planner = ALIKE.planner(TOPOLOGY, config, NodeTraits(), 0, True)
        found.append(planner.planned(Signature("bcast", 8)).decision.choice.rule)
    assert "one.yaml" in found[0]
    assert "two.yaml" in found[1]


def key_of(planner, nbytes):
    signature = Signature("bcast", nbytes)
    return ProgramKey(planner, signature, planner.decide(signature, True).choice, ())


def test_the_least_recently_used_programs_are_dropped():
    some = Alike(3 * BESIDE)
    planner = some.planner(TOPOLOGY, Config(), NodeTraits(), 1, True)
    program = lower(planner.planned(Signature("bcast", 8)).plan, 1)
    for nbytes in range(1, 20):
        some.put(key_of(planner, nbytes), program)
        assert some.get(key_of(planner, 1)) is program
        assert some.nbytes <= 3 * BESIDE
    assert some.get(key_of(planner, 19)) is program
    assert some.get(key_of(planner, 2)) is None


def test_threads_share_planners_and_programs():
    some, found = Alike(40 * BESIDE), []

    def use():
        for turn in range(200):
            planner = some.planner(TOPOLOGY, Config(), NodeTraits(), 1, True)
            signature = Signature("bcast", 8 << turn % 10)
            program = some.get(key_of(planner, signature.nbytes))
            if program is None:
                program = lower(planner.planned(signature).plan, 1)
                some.put(key_of(planner, signature.nbytes), program)
            found.append((id(planner), program.tasks))

    run_in_threads(use, (), (), (), ())
    assert len(found) == 800
    assert len({planner for planner, _ in found}) == 1
