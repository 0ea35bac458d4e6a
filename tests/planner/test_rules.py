"""What rules of users may test of a call, and the classes of sizes that follow."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace

import pytest
from machines import topology_of

from han.config.config import load_config
from han.config.documents import When
from han.model.facts import Facts
from han.model.topology import virtual
from han.tasks.call import call_signature
from han.tasks.choice import level_choice
from han.tuning.built_in.choosing import BUILT_IN, NodeTraits, facts_of_call
from han.tuning.planner import Planner
from han.tuning.rules import RuleTable

KiB = 1 << 10
SIX = replace(virtual(6), attach=True)
CALL = call_signature("allreduce", 48 * KiB)
USE = {"levels": {"network": {"submodule": "sm", "algorithm": "knomial", "radix": 3}}}


def decides(when, signature=CALL, topology=SIX, traits=None):
    """Whether a rule decides for a call."""
    config = load_config({"rules": [{"when": when, "use": USE}]})
    rule = RuleTable(config, topology, traits or NodeTraits()).decide(signature).choice.rule
    assert rule.startswith("rules[0]") or rule == BUILT_IN
    return rule != BUILT_IN


SHARES = {  # of 48 KiB among 6 ranks
    "bytes": 48 * KiB, "share": 8 * KiB, "link": 48 * KiB // 5, "total": 6 * 48 * KiB,
    "ranks": 6, "prime": 3, "nodes": 1, "ppn": 6, "root": 0,
}  # fmt: skip


@pytest.mark.parametrize("key", SHARES)
def test_a_range_holds_between_its_ends(key):
    value = SHARES[key]
    assert decides({key: {"min": value}})
    assert decides({key: {"max": value}})
    assert not decides({key: {"min": value + 1}})
    assert not value or not decides({key: {"max": value - 1}})


def test_parameters_of_an_algorithm_that_a_call_chooses_are_checked_with_the_choice():
    """The built-in choice names the algorithm: the rule serves those calls whose one takes it."""
    use = {"levels": {"network": {"submodule": "sm", "chunk": 8 * KiB}}}
    rules = RuleTable(load_config({"rules": [{"use": use}]}), SIX, NodeTraits())
    large = rules.decide(call_signature("bcast", 48 * KiB)).choice.levels[-1]
    assert large.submodule == "sm"
    assert large.get("chunk", 0) == 8 * KiB
    small = rules.decide(call_signature("allreduce", 8))
    assert small.choice.levels[-1].algorithm == "direct"
    ((rule, reason),) = small.passed
    assert rule == "rules[0] of config"
    assert reason == "network: sm: direct does not take chunk; it takes no parameters"


@pytest.mark.parametrize(("name", "chosen"), [("nap", "recursive"), ("lanes", "shares")])
def test_a_submodule_without_an_algorithm_runs_the_first_that_serves_the_composition(name, chosen):
    nodes = topology_of([[0, 0, 0, 1, 1, 1], [0] * 6], 0)
    use = {"composition": name, "levels": {nodes.names[0]: {"submodule": "exchange"}}}
    levels = [{"name": n, "symbol": n[0], "scope": {"size": 3}} for n in nodes.names[:1]]
    levels.append({"name": nodes.names[1], "symbol": "i", "scope": "all"})
    config = load_config({"levels": levels, "rules": [{"use": use}]})
    found = RuleTable(config, nodes, NodeTraits()).decide(call_signature("allreduce", 4 * KiB))
    assert not found.passed
    assert found.choice.composition == name
    assert found.choice.levels[0].algorithm == chosen


ON_SOCKETS = replace(SIX, sockets=(0, 0, 0, 1, 1, 1))
HOLDS = {
    "commutative": {},
    "native": {},
    "mapped": {"signature": replace(CALL, mapped=True)},
    "attach": {},
    "in_place": {"signature": replace(CALL, in_place=True)},
    "mesh": {"traits": NodeTraits(mesh=True)},
    "rdma": {"traits": NodeTraits(rdma=True)},
    "oversubscribed": {"traits": NodeTraits(oversubscribed=True)},
    "sockets": {"topology": ON_SOCKETS},
}
HOLDS_NOT = {
    "commutative": {"signature": replace(CALL, commutative=False)},
    "native": {"signature": replace(CALL, op="user", native=False)},
    "attach": {"topology": replace(SIX, attach=False)},
}


@pytest.mark.parametrize("key", HOLDS)
def test_a_fact_is_asked_for_or_excluded(key):
    for where, holds in ((HOLDS[key], True), (HOLDS_NOT.get(key, {}), False)):
        assert decides({key: holds}, **where)
        assert not decides({key: not holds}, **where)


def test_blocks_that_differ_are_told_apart():
    alike = call_signature("allgather", 64)
    for signature in (alike, replace(alike, varied=True), replace(alike, counts=(64,) * 6)):
        assert facts_of_call(signature, SIX, NodeTraits()).uneven == signature.uneven


def test_keys_of_rules_are_facts_of_calls():
    of_levels = {"outermost", "whole", "composition", "reproducible"}
    keys = set(When.model_fields) - {"collective"}
    assert keys == {*Facts._fields} - of_levels


def test_shared_arrays_may_have_a_rule_of_their_own():
    rule = {
        "when": {"collective": "bcast", "mapped": True, "ranks": {"max": 8}},
        "use": {"levels": {"network": {"submodule": "solo", "algorithm": "spread"}}},
    }
    planner = Planner(SIX, load_config({"rules": [rule]}), NodeTraits(), 0, True)
    planned = planner.planned(call_signature("bcast", 1 << 20))
    assert planned.decision.choice.rule == BUILT_IN
    assert planned.alternative.choice.levels[0].algorithm == "spread"


@pytest.mark.parametrize("collective", ["allreduce", "allgather"])
@pytest.mark.parametrize("key", ["bytes", "share", "link", "total"])
def test_no_class_of_sizes_is_on_both_sides_of_a_rule(collective, key):
    rule = {"when": {key: {"min": 1000, "max": "100KiB"}}, "use": USE}
    planner = Planner(SIX, load_config({"rules": [rule]}), NodeTraits(), 0, False)
    (when,) = (one.when for one in planner.config.rules)
    low, found = 0, set()
    for high in planner.bounds:
        if high > 1 << 24:
            break
        calls = [
            replace(call_signature(collective, 8), element=1, count=n) for n in (low + 1, high)
        ]
        held = {when.matches(collective, facts_of_call(one, SIX, NodeTraits())) for one in calls}
        assert len(held) == 1, (low + 1, high)
        low, found = high, found | held
    assert found == {False, True}


def test_a_choice_from_another_process_has_this_process_hash():
    code = (
        "import pickle, sys; from han.tasks.choice import level_choice; "
        "one = level_choice('sm', 'flat', chunk=64); hash(one); "
        "sys.stdout.buffer.write(pickle.dumps(one))"
    )
    environ = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, check=True
    )
    assert pickle.loads(done.stdout) in {level_choice("sm", "flat", chunk=64)}
