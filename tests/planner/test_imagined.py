"""Imagined machines: every computer and every command makes the same plan."""

import json

import pytest
from commands import call, refuse
from machines import simple_machine

from han import _native
from han.cli.imagined import imagine
from han.common.errors import ArgumentError
from han.config.config import load_config
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.imagined import ImaginedMachine
from han.tuning.prediction import Where, plan_of
from han.tuning.profile import profile_of

MiB = 1 << 20
ON_A_MESH = ("allreduce", "4MiB", "--ppn", 2)  # a call whose plan depends on the mesh
IN_TURNS = ("allreduce", "8KiB", "--ppn", 4)  # a call whose plan depends on oversubscription


@pytest.fixture(params=[False, True], ids=["near", "mesh"])
def processor(request, monkeypatch):
    """Pretend that the processor of this machine is a mesh, or is none."""
    monkeypatch.setattr(_native, "on_mesh", lambda: request.param)


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("command", ["explain", "plan"])
def test_this_processor_does_not_show_in_a_plan_for_an_imagined_machine(command):
    plain = algorithm_of(command, *ON_A_MESH)
    assert plain == "each"
    assert algorithm_of(command, *ON_A_MESH, "--mesh") != plain


@pytest.mark.parametrize("command", ["explain", "plan"])
def test_an_imagined_machine_can_have_too_few_cores(command):
    plain = algorithm_of(command, *IN_TURNS)
    assert algorithm_of(command, *IN_TURNS, "--oversubscribed") != plain


def algorithm_of(*arguments):
    return json.loads(call(*arguments, "--json"))["levels"]["node"]["algorithm"]


@pytest.mark.usefixtures("processor")
def test_configurations_are_compared_on_the_same_imagined_machine():
    def levels(*flags):
        found = json.loads(call("diff", "default", "default", *ON_A_MESH, *flags, "--json"))
        assert found["first"]["choice"] == found["second"]["choice"]
        return found["first"]["choice"]["levels"]

    assert levels() == levels("--oversubscribed") != levels("--mesh")


@pytest.mark.parametrize("command", ["explain", "plan"])
def test_nodes_have_as_many_sockets_as_options_say(command):
    three = ("bcast", "1MiB", "--ranks", 16, "--ppn", 8, "--config", "socket-node-network")
    levels = json.loads(call(command, *three, "--sockets", 2, "--json"))["tasks"]
    assert {task["level"] for task in levels} == {0, 1, 2}


def test_a_level_with_one_member_is_a_warning(capfd):
    call_of_two = ("bcast", 1 << 20, "sum", "f8", 0)
    imagine(16, 8, "socket-node-network", call_of_two)
    assert "Warning: level node: each domain has one member" in capfd.readouterr().err
    imagine(16, 8, "socket-node-network", call_of_two, sockets=2)
    imagine(16, 16, None, call_of_two)
    assert not capfd.readouterr().err


@pytest.mark.parametrize("mesh", [False, True])
@pytest.mark.parametrize("cores", [2, 64])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_commands_and_predictions_plan_alike(ranks, cores, mesh):
    """The same ranks on the same machine have the same plan in commands and predictions."""
    machine = simple_machine(cores=cores, mesh=mesh)
    traits = NodeTraits(ranks > cores, mesh)
    where = Where(machine, 1, ranks)
    for nbytes in (8, 64 << 10, 4 * MiB):
        asked = imagine(ranks, ranks, None, ("allreduce", nbytes, "sum", "f8", 0), traits)
        plan = plan_of(where, load_config(), asked.plan.signature)
        assert plan.choice == asked.plan.choice
        for rank in range(ranks):
            assert lower(plan, rank).code.tobytes() == lower(asked.plan, rank).code.tobytes()


def test_a_predicted_machine_is_an_imagined_one():
    for cores, mesh in ((2, True), (3, False)):
        machine = simple_machine(cores=cores, mesh=mesh)
        traits = NodeTraits(cores < 3, mesh, cores, profile=profile_of(machine))
        assert Where(machine, 2, 3).imagined() == ImaginedMachine.even(6, 3, traits)


def test_the_last_node_may_have_fewer_ranks():
    topology = ImaginedMachine.even(5, 2).topology(load_config())
    assert topology.domains == ((0, 0, 1, 1, 2), (0,) * 5)
    assert topology.memory == (0, 0, 1, 1, 2)
    assert not topology.attach


def test_rules_that_cannot_serve_a_call_are_passed_over():
    config = load_config({"rules": [{"use": {"levels": {"node": {"submodule": "solo"}}}}]})
    _, decision = ImaginedMachine.even(2, 2).plan(config, Signature("bcast", 8))
    assert decision.passed
    with pytest.raises(ArgumentError, match="cannot serve it"):
        plan_of(Where(simple_machine(cores=2, mesh=False), 1, 2), config, Signature("bcast", 8))


@pytest.mark.parametrize("flag", ["--oversubscribed", "--mesh"])
def test_what_an_imagined_machine_is_like_goes_with_its_ranks(flag):
    assert f"{flag} needs --nodes or --ppn" in refuse("explain", "bcast", "8", flag)
