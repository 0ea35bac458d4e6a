"""Levels on which reductions run otherwise than broadcasts: rules, proofs, costs, files."""

from plans import MEMORY, rules_of

from han.config import load_config
from han.model.topology import virtual
from han.submodules.registry import plan_of_choice, submodule
from han.tasks.call import call_signature
from han.tasks.choice import Choice, level_choice
from han.tasks.files.store import from_json, to_json
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.costs.stages import pipeline_of
from han.tuning.row_reading import use_of as read_use
from han.tuning.rules import RuleTable, use_of
from han.tuning.search.limits import Limits
from han.tuning.search.space import space_of
from han.tuning.tuned.uses import spell, use_record

TOPOLOGY = virtual(6, 3)
KiB = 1024


def rule(level="network", **use):
    return {"rules": [{"use": {"segment": "4KiB", "levels": {level: use}}}]}


def decided(config, collective="allreduce", nbytes=64 * KiB):
    names = [{"name": name, "scope": scope} for name, scope in zip(
        TOPOLOGY.names, ({"size": 3}, "all"), strict=True)]  # fmt: skip
    table = RuleTable(load_config({**config, "levels": names}), TOPOLOGY, NodeTraits())
    return table.decide(call_signature(collective, nbytes))


def test_a_kind_with_an_algorithm_stands_by_itself_and_one_without_changes_the_level():
    own = {"algorithm": "chain", "window": 3}
    found = decided(rule(submodule="adapt", algorithm="binomial", segment=8192, reduce=own))
    level = found.choice.levels[1]
    assert level.of("reduce") == level_choice("adapt", "chain", window=3)
    assert level.of("bcast") == level_choice("adapt", "binomial", segment=8192)
    assert level.describe() == "adapt binomial (segment 8KiB), reduce: chain (window 3)"
    found = decided(
        rule(submodule="adapt", algorithm="binomial", segment=8192, bcast={"segment": 512})
    )
    assert found.choice.levels[1].of("bcast") == level_choice("adapt", "binomial", segment=512)
    same = decided(rule(submodule="adapt", algorithm="binomial", bcast={"algorithm": "binomial"}))
    assert same.choice.levels[1] == level_choice("adapt", "binomial"), "one spelling of a choice"


def test_a_rule_without_an_algorithm_keeps_what_is_built_in_for_each_kind():
    wide = virtual(32, 16)
    signature = call_signature("allreduce", 64 * KiB)
    names = [{"name": wide.names[0], "scope": {"size": 16}}, {"name": "network", "scope": "all"}]
    built_in = rules_of(wide).decide(signature).choice.levels[0]
    assert built_in.of("reduce").algorithm == "kary" != built_in.algorithm
    config = load_config({**rule(wide.names[0], submodule="sm", cells=2), "levels": names})
    found = RuleTable(config, wide, NodeTraits()).decide(signature).choice.levels[0]
    assert found.of("reduce").algorithm == "kary"
    assert found.of("reduce").get("cells", 0) == found.get("cells", 0) == 2


def test_a_kind_needs_an_algorithm_that_serves_it_and_only_reductions_keep_order():
    for kinds in ({"reduce": {"algorithm": "halving"}}, {"bcast": {"algorithm": "ring"}}):
        found = decided(rule(submodule="exchange", algorithm="scatter", **kinds))
        assert "serves allreduce only" in found.passed[0][1]
    found = decided(rule(submodule="adapt", algorithm="chain", reduce={"algorithm": "binary"}))
    assert not found.passed
    ordered = call_signature("allreduce", 64 * KiB, op="", commutative=False)
    table = rules_of(TOPOLOGY)
    chain, binary = level_choice("adapt", "chain"), level_choice("adapt", "binary")
    node = level_choice("sm", "flat")
    for level, kept in ((chain.where("bcast", binary), True), (binary, False),
                        (chain.where("reduce", binary), False)):  # fmt: skip
        reason = table.objection(ordered, Choice((node, level)))
        assert (reason is None) == kept, reason


def test_the_cost_of_a_task_belongs_to_its_kind():
    level = level_choice("adapt", "chain").where("reduce", level_choice("adapt", "binary"))
    choice = Choice((level_choice("sm", "flat"), level), 4 * KiB)
    plan = plan_of_choice(TOPOLOGY, call_signature("allreduce", 64 * KiB), choice, MEMORY)
    told = {(s.name, s.level): s.choice for s in pipeline_of(plan).steps}
    assert told["ir", 1] == level_choice("adapt", "binary")
    assert told["ib", 1] == level_choice("adapt", "chain")


def test_files_keep_what_kinds_run():
    level = level_choice("adapt", "chain", segment=4096)
    level = level.where("reduce", level_choice("adapt", "knomial", radix=3))
    choice = Choice((level_choice("sm", "flat"), level), 4 * KiB)
    plan = plan_of_choice(TOPOLOGY, call_signature("allreduce", 16 * KiB), choice, MEMORY)
    again, _ = from_json(to_json(plan, MEMORY), submodule)
    assert again.choice == choice
    use = use_of(choice, dict(enumerate(TOPOLOGY.names)))
    assert read_use(use_record(use)) == use
    assert "adapt chain (segment 4KiB), reduce: knomial (radix 3)" in spell(use)


def test_the_space_of_a_search_has_kinds_of_tasks():
    limits = Limits(
        submodules=("sm", "adapt"), algorithms=("flat", "chain", "binary"), segments=(4 * KiB,),
        schedules=("dataflow",), parameters={"adapt.segment": (1024,)},
    )  # fmt: skip
    table = rules_of(TOPOLOGY)
    levels = {
        c.levels[1]
        for c in space_of(table, call_signature("allreduce", 64 * KiB), limits).candidates
    }
    chain, binary = level_choice("adapt", "chain"), level_choice("adapt", "binary")
    small = level_choice("adapt", "chain", segment=1024)
    for wanted in (chain.where("reduce", binary), binary.where("reduce", chain),
                   chain.where("reduce", small), small.where("reduce", chain)):  # fmt: skip
        assert wanted in levels
    only = space_of(table, call_signature("bcast", 64 * KiB), limits).candidates
    assert not any(level.kinds for c in only for level in c.levels)
