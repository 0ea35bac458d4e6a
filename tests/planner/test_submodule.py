"""A submodule that is known only to the registry: configurations, planner, proofs."""

from dataclasses import replace

import pytest
from machines import collectives_of, topology_of

from han.common.errors import ConfigError
from han.config.config import load_config
from han.submodules import registry
from han.submodules.adapt.adapt import Adapt
from han.submodules.names import validate_names
from han.tasks.call import call_signature
from han.tasks.contract import Algorithm, Parameter
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.verify import verify
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.explanation import Explanation
from han.tuning.planner import Planner

TOPOLOGY = topology_of([[0] * 5], -1)


class Toy(Adapt):
    """The submodule `adapt` by another name, for blocking calls only."""

    name = "toy"
    about = "for a test"
    algorithms = {"linear": Algorithm("the root talks to everyone", ordered="always")}
    parameters = {"segment": Parameter("size", "bytes of one message", 1, 1 << 20)}
    may_block = True

    def supports(self, question):
        return None if question.blocking else "toys block"


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(registry._imported, "toy", Toy())
    return registry.submodule("toy")


def config_of(**more):
    level = {"submodule": "toy", "segment": "64", **more}
    rules = [{"use": {"segment": "whole", "levels": {"network": level}}}]
    return validate_names(load_config({"rules": rules}, {}))


def planner_of(config):
    return Planner(TOPOLOGY, config, NodeTraits(), 0, maps_arrays=False)


def test_configurations_know_it():
    use = config_of().rules[0].use.levels["network"]
    assert (use.submodule, dict(use.parameters)) == ("toy", {"segment": 64})


def test_wrong_names_are_answered_with_its_own():
    with pytest.raises(ConfigError, match="did you mean 'segment'"):
        config_of(segmant="64")
    with pytest.raises(ConfigError, match="did you mean 'linear'"):
        config_of(algorithm="linaer")


def test_the_planner_takes_it_where_it_serves():
    planner = planner_of(config_of())
    assert planner.planned(Signature("bcast", 1000)).plan.parts[0].may_block
    decision = planner.planned(Signature("bcast", 1000), blocking=False).decision
    assert decision.choice.rule == "built-in"
    assert decision.passed[0][1] == "network: toy: toys block"


def test_explanations_name_it():
    planned = planner_of(config_of()).planned(Signature("reduce", 100, 8, "sum", "float64"))
    assert "network (i): toy linear (segment 64B)" in str(
        Explanation(planned.plan, planned.decision)
    )


def test_what_conformance_tests_do_holds_for_it(toy):
    planner = planner_of(config_of())
    for collective in collectives_of("toy", "linear"):
        plan = planner.planned(call_signature(collective, 800)).plan
        assert [level.submodule for level in plan.choice.levels] == ["toy"]
        assert verify([plan] * 2).ranks == 5


def test_its_defaults_hold_nothing_back(toy):
    plan = planner_of(config_of()).planned(Signature("bcast", 1000)).plan
    assert plan.footprint() == ()
    assert (toy.correct, toy.reads_peers, toy.in_memory, toy.flags) == (True, False, False, ())
    assert lower(plan, 1).talks_mpi
    assert not toy.reads_mapped(TOPOLOGY, replace(plan.signature, mapped=True), 0)
