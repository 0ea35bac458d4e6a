"""Compositions other than the tree: who exchanges with whom, proofs, and why rules are refused."""

from collections import Counter
from dataclasses import replace

import pytest
from machines import on_nodes, topology_of
from plans import MEMORY, built_in, count, objection, planned, programs_of, sent

from han.common.errors import ConfigError
from han.config.config import load_config
from han.model.program import Code
from han.model.topology import Topology
from han.submodules.names import validate_names
from han.submodules.registry import plan_of_choice, submodule
from han.tasks.choice import LevelChoice, level_choice
from han.tasks.compositions import COMPOSITIONS
from han.tasks.files.store import PlanFileError, from_json, to_json
from han.tasks.lanes import Lanes
from han.tasks.lower import lower
from han.tasks.nap import Nap
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tasks.verify import verify
from han.tuning.built_in.choosing import NodeTraits, choose

TRAITS = NodeTraits()


def even(nodes: int, ppn: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(ppn * n, ppn * (n + 1))) for n in range(nodes))


def call(nbytes: int, collective: str = "allreduce") -> Signature:
    if collective == "barrier":
        return Signature("barrier")
    if collective == "bcast":
        return Signature("bcast", nbytes, root=1)
    return Signature(collective, nbytes // 8, 8, "sum", "uint64")


# ---- the rounds of nap --------------------------------------------------------------------------


def test_figure_6_of_the_paper():
    nap = Nap(even(4, 4), 4)
    assert nap.rounds == 1
    assert nap.receives(2, 1)[1] == (1, 6)  # P9 exchanges with P6
    assert (1, 6) in nap.sends(2, 1)
    assert 2 not in {local for local, _ in nap.receives(2, 1).values()}  # local rank 2 is idle


def test_figure_7_of_the_paper():
    nap = Nap(even(16, 4), 4)
    assert nap.rounds == 2
    assert nap.receives(2, 2)[1] == (1, 24)  # P9 exchanges with P24
    assert nap.round(2, 2).position == 2


def test_figure_8_of_the_paper():
    nap = Nap(even(12, 4), 4)
    assert [nap.round(n, 2).parts for n in range(12)] == [3] * 12
    idle = {local for n in range(12) for local, _ in nap.sends(n, 2)}
    assert idle == {0, 1, 2}  # local rank 3 of each node has no counterpart


def test_figure_9_of_the_paper():
    """Ten nodes: the last subgroup has a node more, which hears from idle ranks."""
    nap = Nap(even(10, 4), 4)
    assert nap.round(9, 2).bounds == ((0, 3), (3, 6), (6, 10))
    sizes = [len(nap.sends(n, 2)) for n in range(10)]
    assert sum(sizes) == 10 * 2
    extra = nap.receives(9, 2)
    assert {sender // 4 for _, sender in extra.values()} == {2, 5}
    for part, (_, sender) in extra.items():
        assert sender % 4 == part  # the rank that has nothing to exchange in its subgroup


def test_a_rank_sends_one_message_a_round():
    """16 ranks a node on 4096 nodes take three steps; recursive doubling takes twelve."""
    nap = Nap(even(4096, 16), 16)
    assert nap.rounds == 3
    for number in (1, 2, 3):
        most = Counter(local for local, _ in nap.sends(1234, number))
        assert max(most.values()) == 1


# ---- proofs -------------------------------------------------------------------------------------


def test_nap_sends_what_the_paper_says():
    """256 nodes of 16 ranks: 2 messages a rank at most, 8 with recursive doubling."""
    topology, signature = on_nodes(*[16] * 256), call(8)
    plan = built_in(topology, signature, "nap")
    assert max(count(lower(plan, r), Code.ISEND) for r in range(0, 4096, 97)) == 2
    assert plan.tasks.stage_names() == ["sa", "ia", "sa2", "ia2", "sa3"]
    assert len(plan.streams) == 2, "steps of one kind on one level share a stream"


def test_lanes_share_the_traffic_between_nodes():
    topology, signature = on_nodes(4, 4, 5, 4), call(256 * 1024)
    plan = built_in(topology, signature, "lanes")
    found = [*map(sent, programs_of(plan))]
    assert found[:4] == [96 * 1024] * 4, "2 (n - 1) / n of a quarter of the message"
    assert found[12] == 0, "the fifth rank of a node is in no lane"


def test_lanes_of_a_broadcast_and_a_reduce_send_a_share_each():
    topology = on_nodes(4, 4, 4)
    for collective, senders in (("bcast", (4, 5, 6, 7)), ("reduce", (0, 1, 2, 3))):
        signature = replace(call(256 * 1024, collective), root=6)
        found = [*map(sent, programs_of(built_in(topology, signature, "lanes")))]
        assert sum(found) == 2 * 256 * 1024
        assert all(found[r] for r in senders)
        assert max(found) <= 128 * 1024


def senders(plan: Plan) -> dict[int, int]:
    """Return the bytes that each rank sends in messages, of ranks that send any."""
    return {rank: n for rank, program in enumerate(programs_of(plan)) if (n := sent(program))}


def lanes_plan(topology: Topology, lanes: int, nbytes: int = 64 * 1024) -> Plan:
    signature = call(nbytes)
    choice = choose(signature, topology, TRAITS, "lanes")
    levels = (level_choice("sm", "shares", lanes=lanes), *choice.levels[1:])
    return planned(topology, signature, replace(choice, levels=levels))


def test_small_nodes_fold_lanes():
    """Four lanes of nodes of 4, 2 and 1 ranks: local rank i carries lanes i, i + 2 and so on."""
    plan = lanes_plan(on_nodes(4, 2, 1), 4)
    verify([plan, plan])
    found = senders(plan)
    assert set(found) == set(range(7))
    assert found[4] == found[5], "two lanes each"
    assert found[4] > max(found[r] for r in range(4))


@pytest.mark.parametrize(
    ("rails", "lanes", "carriers"),
    [
        ((0, 0, 1, 1), 2, (0, 2)),  # lanes 0 and 1 on rails 0 and 1
        ((0, 0, 1, 1), 3, (0, 2, 1)),
        ((1, 1, 1, 0), 2, (3, 0)),
        ((0, 1, 0, 1), 2, (0, 1)),
        ((0, 0, 0, 0), 2, (0, 1)),
    ],
)
def test_lanes_take_the_rails_in_turn(rails, lanes, carriers):
    topology = replace(on_nodes(4, 4), rails=rails * 2)
    plan = lanes_plan(topology, lanes)
    verify([plan])
    assert set(senders(plan)) == {r + node for r in carriers for node in (0, 4)}
    found = Lanes(plan.topology, plan.choice)
    assert tuple(found.rank_of(0, (lane,)) for lane in range(lanes)) == carriers


def test_shares_are_cut_again_on_each_level_inside_nodes():
    """Two nodes of 3 sockets of 2 ranks, and a level of switches: 6 lanes, each through a tree."""
    size = 24
    domains = [[r // k for r in range(size)] for k in (2, 6, 12, 24)]
    topology, signature = topology_of(domains, 1), call(6 * 64 * 100)
    plan = built_in(topology, signature, "lanes")
    assert plan.tasks.stage_names() == ["srs", "nrs", "xr", "ia", "xb", "nag", "sag"]
    verify([plan, plan])
    found = senders(plan)
    assert set(found) == set(range(size))
    assert max(found.values()) == 2 * 64 * 100, "to the other switch, and down in its own"


def test_nap_is_a_tree_inside_nodes():
    """Only leaders of sockets combine on the node level."""
    domains = [[r // k for r in range(16)] for k in (2, 8, 16)]
    topology, signature = topology_of(domains, 1), call(8)
    plan = built_in(topology, signature, "nap")
    assert plan.tasks.stage_names() == ["sr", "na", "sb", "ia", "sr2", "na2", "sb2"]
    assert "allreduce@level1" not in {s.name for s in lower(plan, 1).streams}
    verify([plan] * 3)


def test_nodes_of_different_trees_exchange_in_pairs():
    """Three operands in another order would give other bits."""
    sockets = [0, 0, 1, 1, 2, 3, 3, 3, 4, 4, 5, 5]
    topology = topology_of([sockets, [r // 4 for r in range(12)], [0] * 12], 1)
    assert refused(topology, "nap", levels={2: level_choice("nap", "pairs", base=3)}) == (
        "nap: base 3, but nodes differ in the levels inside them: at most 2"
    )
    assert refused(topology, "nap") == ""


def test_a_ring_overlaps_with_the_tasks_inside_nodes():
    """One task of each kind; a node broadcasts a piece as soon as it has come round."""
    topology, signature = on_nodes(2, 2, 2, 2), call(1 << 20)
    plan = built_in(topology, signature, "ring")
    assert plan.tasks.stage_names() == ["sr", "ia", "sb"]
    program, nbytes = lower(plan, 2), (1 << 20) // 4
    messages = program.code["n"][program.code["code"] == Code.ISEND]
    assert sum(messages) == 6 * nbytes
    assert set(messages) == {32 * 1024}
    assert count(program, Code.AWAIT) >= 2 * 32, (
        "of each piece: from the reduction, and from the ring"
    )
    verify([plan, plan])


@pytest.mark.parametrize("collective", ["bcast", "reduce"])
def test_pieces_go_along_a_chain(collective):
    topology, signature = on_nodes(2, 2, 2, 2), replace(call(1 << 20, collective), root=3)
    plan = built_in(topology, signature, "ring")
    assert len(plan.tasks) == 2
    assert set(senders(plan).values()) == {1 << 20}
    assert max(count(one, Code.AWAIT) for one in programs_of(plan)) == 32, "one for each piece"
    verify([plan])


def test_trees_are_as_before():
    """A tree's tasks have no numbers in their names, and one stream for each step."""
    topology, signature = on_nodes(3, 2, 4), call(1 << 20)
    plan = built_in(topology, signature)
    assert {t.name for t in plan.tasks} <= {"sr", "ir", "ib", "ia", "sb"}
    assert all(len({t.step for t in tasks}) == 1 for tasks in plan.streams.values())


def test_a_file_with_a_base_of_one_is_refused():
    topology, signature = on_nodes(3, 2, 4), call(8)
    plan = built_in(topology, signature, "nap")
    pairs = '"algorithm": "pairs", "parameters": ['
    wrong = to_json(plan, MEMORY).replace(pairs, f'{pairs}["base", 1]')
    with pytest.raises(PlanFileError, match="base 1: 2 or more"):
        from_json(wrong, submodule)


# ---- refusals -----------------------------------------------------------------------------------


def refused(topology: Topology, name: str, nbytes: int = 800, collective: str = "allreduce", **use):
    signature = call(nbytes, collective)
    choice = choose(signature, topology, TRAITS, name)
    levels = list(choice.levels)
    for level, one in use.pop("levels", {}).items():
        levels[level] = one
    return objection(topology, signature, replace(choice, levels=tuple(levels), **use)) or ""


def test_reasons_have_numbers():
    nodes = on_nodes(4, 3, 4)
    assert refused(nodes, "nap") == refused(nodes, "lanes") == ""
    assert refused(on_nodes(5), "nap") == "nap: all 5 ranks are on one node"
    assert refused(on_nodes(1, 1, 1), "lanes") == "lanes: each of 3 nodes has one rank"
    assert refused(topology_of([[0, 0, 1, 1], [0] * 4], -1), "nap") == (
        "nap: no level inside 'network' has groups that share memory"
    )
    assert refused(nodes, "nap", levels={1: level_choice("nap", "pairs", base=4)}) == (
        "nap: base 4, but the smallest node has 3 ranks: at most 3"
    )
    assert "base 1: 2 or more" in refused(
        nodes, "nap", levels={1: level_choice("nap", "pairs", base=1)}
    )
    assert refused(nodes, "lanes", levels={0: level_choice("sm", "shares", lanes=5)}) == (
        "lanes: 5 lanes, but the largest node has 4 ranks"
    )
    assert "one segment" in refused(nodes, "nap", segment=64)
    assert "not bcast" in refused(nodes, "nap", collective="bcast")
    assert refused(on_nodes(5), "ring") == "ring: all 5 ranks are on one node"
    assert "not barrier" in refused(nodes, "ring", collective="barrier")
    assert "nothing to send round" in refused(nodes, "ring", 0)
    solo = level_choice("solo", "pull")
    assert "does not serve ring" in refused(nodes, "ring", levels={0: solo})
    chain = level_choice("adapt", "chain")
    assert "known: ring pieces" in refused(nodes, "ring", levels={1: chain})
    assert "not barrier" in refused(nodes, "lanes", collective="barrier")
    assert "nothing to share out" in refused(nodes, "lanes", 0)


def test_submodules_that_cannot_serve_are_refused_with_those_that_can():
    nodes = on_nodes(4, 3, 4)
    reason = refused(nodes, "nap", levels={1: level_choice("adapt", "chain")})
    assert reason == "network: adapt: chain does not serve nap here; known: nap pairs"
    reason = refused(nodes, "nap", levels={0: level_choice("solo", "split")})
    assert "known: sm direct, sm each, sm split" in reason
    assert "does not serve lanes" in refused(
        nodes, "lanes", levels={1: level_choice("solo", "split")}
    )
    for level, one in ((0, level_choice("sm", "shares")), (1, level_choice("nap", "pairs"))):
        assert "compositions other than tree" in refused(nodes, "tree", levels={level: one})
    fused = level_choice("sm", "each").where("reduce", level_choice("sm", "flat"))
    assert "each has no reduce tasks of its own" in refused(on_nodes(4), "tree", levels={0: fused})
    assert "serves up to 2048 bytes" in refused(
        nodes, "nap", 4000, levels={0: level_choice("sm", "direct")}
    )


def own_kinds(name: str, algorithm: str, **kinds: str) -> LevelChoice:
    choice = level_choice(name, algorithm)
    for kind, own in kinds.items():
        choice = choice.where(kind, level_choice(name, own))
    return choice


@pytest.mark.parametrize(
    ("name", "domains", "level", "one"),
    [
        ("lanes", [[0, 0, 1, 1, 2, 2]], 1, own_kinds("adapt", "chain", reduce="binomial")),
        ("lanes", [[0, 0, 1, 1, 2, 2]], 1, own_kinds("adapt", "chain", bcast="binomial")),
        ("ring", [[0, 0, 0, 1, 1, 1]], 0, own_kinds("sm", "flat", reduce="knomial")),
        ("ring", [[0, 0, 0, 1, 1, 1]], 0, own_kinds("exchange", "tree")),
        ("nap", [[0, 0, 1, 1, 2, 2, 3, 3], [0] * 4 + [1] * 4], 0,
         own_kinds("sm", "flat", reduce="kary")),
    ],
)  # fmt: skip
def test_a_kind_of_tasks_of_a_composition_runs_otherwise(name, domains, level, one):
    size = len(domains[0])
    topology, signature = topology_of([*domains, [0] * size], len(domains) - 1), call(8000)
    choice = choose(signature, topology, TRAITS, name)
    levels = (*choice.levels[:level], one, *choice.levels[level + 1 :])
    verify([planned(topology, signature, replace(choice, levels=levels))] * 2)


def test_a_kind_that_a_level_does_not_have_is_refused():
    nodes = on_nodes(4, 3, 4)
    for name, level, one, expected in (
        ("lanes", 0, own_kinds("sm", "shares", reduce="flat"), "lanes has no reduce tasks here"),
        ("lanes", 1, own_kinds("exchange", "halving", bcast="scatter"), "halving has no bcast tas"),
        ("lanes", 1, own_kinds("exchange", "scatter", bcast="ring"), "does not serve lanes here"),
        ("lanes", 1, own_kinds("exchange", "scatter", bcast="tree"), "scatter does in messages"),
        ("nap", 1, own_kinds("nap", "pairs", reduce="pairs"), ""),
        ("ring", 0, own_kinds("sm", "flat", reduce="split"), "split does not serve ring here"),
    ):
        assert expected in refused(nodes, name, levels={level: one})


@pytest.mark.parametrize(
    ("composition", "levels", "said"),
    [
        ("nap", {"network": {"submodule": "adapt"}}, "adapt does not serve composition 'nap'"),
        ("nap", {"node": {"submodule": "sm", "algorithm": "blocks"}}, "blocks of sm does not"),
        ("lanes", {"node": {"submodule": "solo"}}, "known: sm shares"),
        ("lanes", {"network": {"submodule": "nap"}}, "between nodes"),
        ("ring", {"network": {"submodule": "sm", "algorithm": "kary"}}, "kary of sm does not"),
        ("ladder", {}, "unknown composition.*flat, lanes, nap, ring, tree"),
    ],
)
def test_rules_are_checked_when_they_are_read(composition, levels, said):
    rule = {"use": {"composition": composition, "levels": levels}}
    with pytest.raises(ConfigError, match=said):
        validate_names(load_config({"rules": [rule]}))


def test_every_composition_may_be_named():
    for name in COMPOSITIONS:
        config = load_config({"rules": [{"use": {"composition": name}}]})
        assert validate_names(config).rules[0].use.composition == name


@pytest.mark.parametrize("schedule", ["dataflow", "lockstep"])
@pytest.mark.parametrize(
    "one", [level_choice("adapt", "chain"), level_choice("exchange", "recursive_doubling")], ids=str
)
def test_scratch_does_not_grow_with_segments_or_folded_lanes(one, schedule):
    """Later tasks of a stream use its memory again: rank 6 has four lanes, one after the other."""
    topology, signature = on_nodes(4, 2, 1), call(1 << 16)
    choice = choose(signature, topology, TRAITS, "lanes")
    levels = (level_choice("sm", "shares", lanes=4, chunk=4096), one)
    found = []
    for segments in (2, 8):
        cut = replace(choice, levels=levels, segment=(1 << 16) // segments, schedule=schedule)
        plan = plan_of_choice(topology, signature, cut, MEMORY)
        verify([plan, plan])
        found.append([lower(plan, rank).scratch for rank in range(7)])
    assert all(many <= few for few, many in zip(*found, strict=True))
    share = (1 << 16) // 2 // 4
    assert found[0][6] <= 2 * share + 16 * 1024
