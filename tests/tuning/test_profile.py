"""Profiles of machines: distances, files, rounds of a calibration, and the class that follows."""

import math
from dataclasses import replace

import pytest

from han.config.arrange import Facts
from han.config.machine import load_machine, ready_machines
from han.ranks.discover import conditions
from han.runtime.probes import Nodes
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.built_in.machine_classes import standing
from han.tuning.measured import FARTHEST
from han.tuning.measured_machine import machine_with
from han.tuning.prediction import Where
from han.tuning.profile import TELLING, UNKNOWN, Profile, profile_from, profile_of, written
from han.tuning.tuned.combined import Combined, combined

SOME = Profile(16, 2.0, 0.5, 9000.0, 10000.0, 0.1, 8000.0, 5000.0, 60000.0)
MODELS = {name: load_machine(name) for name in ready_machines()}
DAY = "2026-01-01"


# ---- distances ----------------------------------------------------------------------------------


def test_a_distance_says_how_many_times_values_differ():
    assert SOME.distance(SOME) == 1
    assert SOME.distance(SOME._replace(memory=1.0, overhead=9.0)) == 1, "these do not tell"
    doubled = Profile(*(2 * value for value in SOME))
    assert SOME.distance(doubled) == doubled.distance(SOME) == pytest.approx(2)
    one = SOME._replace(flag=SOME.flag * 8)
    assert SOME.distance(one) == pytest.approx(math.exp(math.log(8) / math.sqrt(len(TELLING))))
    assert Profile(cores=4).distance(SOME) == pytest.approx(4), "only of what is known of both"
    assert UNKNOWN.distance(SOME) == math.inf
    assert not UNKNOWN
    assert SOME


def test_newer_values_come_before_older_ones():
    assert Profile(copy=3.0).over(SOME) == SOME._replace(copy=3.0)


def test_a_profile_is_read_as_it_was_written():
    assert profile_from(written(SOME), "profile") == SOME
    assert written(Profile(copy=123456.0)) == {"copy": 123500.0}
    for record, said in (
        ([], "profile: expected keys"),
        ({"flags": 1.0}, "did you mean 'flag'"),
        ({"flag": 0}, r"profile\.flag: expected 1e-06 to 1e\+12, not 0"),
        ({"flag": "1us"}, "not '1us'"),
        ({"flag": math.inf}, "not inf"),
        ({"flag": math.nan}, "not nan"),
        ({"flag": True}, "not True"),
        ({"flag": 10**400}, "not 1000"),
        ({"flag": 1e-320}, "not 1e-320"),
    ):
        with pytest.raises(ValueError, match=said):
            profile_from(record, "profile")


# ---- classes ------------------------------------------------------------------------------------


def traits_of(name):
    return Where(MODELS[name], 1, 1).imagined().traits


@pytest.mark.parametrize(
    ("name", "found"),
    [("stampede2", "fabric"), ("thor", "fabric"), ("shaheen2", "fabric"), ("blue-waters", "fabric"),
     ("alps-grace", "many-cores"), ("alps-epyc", "many-cores"),
     ("ethernet-25gbit", "ethernet"), ("emulated-1gbit", "few-cores"),
     ("emulated-50ms", "long-links"), ("wide-area", "long-links")],
)  # fmt: skip
def test_a_machine_belongs_to_the_class_of_the_nearest_one(name, found):
    where = standing(traits_of(name))
    assert where.calibrated
    assert where.found.name == found
    assert where.distance < FARTHEST
    assert set(where.shared) <= set(TELLING)


def test_a_calibration_comes_before_what_the_system_tells():
    slow = profile_of(MODELS["ethernet-25gbit"])
    traits = NodeTraits(cores=32, rdma=True)
    assert standing(traits).found.name == "fabric"
    assert standing(traits._replace(profile=slow)).found.name == "ethernet", "the adapter is idle"
    assert standing(traits._replace(profile=slow)).calibrated


def test_cores_are_never_guessed():
    """Whatever its network, a node of many cores is none of few."""
    traits = NodeTraits(cores=32, profile=profile_of(MODELS["emulated-1gbit"]))
    assert standing(traits).found.name == "ethernet"
    assert standing(traits._replace(cores=2)).found.name == "few-cores"


@pytest.mark.parametrize("cores", [2, 64])
@pytest.mark.parametrize("rdma", [False, True])
def test_long_links_are_a_class_whatever_the_nodes_are(cores, rdma):
    nodes = NodeTraits(cores=cores, rdma=rdma)
    where = standing(nodes._replace(latency=2e4))
    assert where.found.name == "long-links"
    assert where.how == "by messages between nodes, 20 ms each"
    assert not where.calibrated
    far = standing(nodes._replace(profile=Profile(latency=8e5, flag=50.0, copy=1e3)))
    assert far.found.name == "long-links", "however far the nearest machine is"
    assert far.how == "by messages between nodes, 800 ms each"
    assert standing(nodes._replace(latency=100.0)) == standing(nodes)


def test_a_calibration_comes_before_the_first_messages():
    busy = NodeTraits(cores=32, latency=2e4, profile=profile_of(MODELS["ethernet-25gbit"]))
    assert not busy.has_long_links
    assert standing(busy).found.name == "ethernet"


def test_without_a_network_or_with_one_like_no_other_the_system_tells():
    for profile in (Profile(copy=1e4, flag=0.1), Profile(latency=4000.0, bandwidth=0.1)):
        where = standing(NodeTraits(cores=32, rdma=True, profile=profile))
        assert where.found.name == "fabric"
        assert not where.calibrated
    assert standing(NodeTraits(cores=2)).found.name == "few-cores"
    assert standing(NodeTraits()).found is None, "nothing is known"


def test_the_profile_is_that_of_rank_0_if_nodes_are_alike():
    facts = [Facts(rank, "a", frozenset([0]), {}, cores=8, kind=7) for rank in range(3)]
    facts[0] = replace(facts[0], profile=tuple(SOME))
    facts[1] = replace(facts[1], profile=tuple(Profile(copy=1.0)))
    assert conditions(facts).profile == SOME
    facts[0] = replace(facts[0], latency=2e4)
    facts[2] = replace(facts[2], kind=8)
    assert conditions(facts).profile == UNKNOWN
    assert conditions(facts).latency == 2e4, "links are long whatever the nodes are"


# ---- machine files ------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [*MODELS])
def test_a_machine_file_has_what_was_measured(base):
    model = load_machine(machine_with(SOME, base, 4, 8, DAY))
    several = model.node_level < len(model.levels) - 1
    expected = SOME if several else SOME._replace(latency=0, overhead=0, bandwidth=0, injection=0)
    assert profile_of(model) == pytest.approx(expected, rel=1e-3)
    assert (model.nodes, model.ppn) == (4, 8)
    assert model.sources["node.memory"] == f"measured by han calibrate, {DAY}"
    assert model.sources["node.operation"] == f"assumed: as {base}"
    assert Where(model, 1, 8).imagined().traits.cores == 16


def test_the_network_takes_a_part_of_a_message():
    model = load_machine(machine_with(SOME._replace(overhead=3.0), "thor", 2, 2, DAY))
    assert 0 < model.levels[-1].latency < model.levels[-1].overhead


def test_a_machine_file_lacks_what_was_not_measured():
    """One rank of a node measures no copies, and ranks that share processors no memory."""
    few = SOME._replace(copy=0.0, reduce=0.0, flag=0.0, memory=0.0)
    model, thor = load_machine(machine_with(few, "thor", 2, 1, DAY)), load_machine("thor")
    assert model.node.copy_rate == thor.node.copy_rate
    assert model.node.memory == thor.node.memory
    assert model.sources["node.copy"] == model.sources["node.memory"] == "assumed: as thor"


def test_a_machine_file_of_long_links_has_their_latency_only():
    model = load_machine(machine_with(Profile(8, latency=2e4), "wide-area", 2, 1, DAY))
    assert model.levels[-1].latency == pytest.approx(2e-2)
    assert model.levels[-1].bandwidth == load_machine("wide-area").levels[-1].bandwidth
    assert model.sources["network.bandwidth"] == "assumed: as wide-area"


# ---- rounds -------------------------------------------------------------------------------------


def rounds_of(values, number=5):
    """Return rounds in which each rank measures the same each time."""
    return [[*values] for _ in range(number)]


def test_rounds_are_combined_by_their_median():
    quick = SOME._replace(flag=0.05)
    rounds = [*rounds_of([SOME, SOME], 4), [quick, quick]]
    found = combined(rounds, [(0, 1)], 16)
    assert found.problems == ()
    assert found.profile == SOME._replace(injection=2 * SOME.injection, memory=2 * SOME.memory)
    assert found.spreads["flag"] == 1


def test_of_ranks_together_the_slowest_counts():
    ranks = [SOME._replace(memory=100.0), SOME._replace(memory=300.0)]
    assert combined(rounds_of(ranks), [(0, 1)], 16).profile.memory == 200.0


def test_a_disturbed_calibration_is_told():
    rounds = [[SOME._replace(flag=0.1 * (k + 1))] for k in range(5)]
    (told,) = combined(rounds, [(0,)], 16).problems
    assert told == "disturbed: flag was 0.1 to 0.5 us in 5 rounds"
    assert combined(rounds, [(0,)], 16, crowded=True).problems == ()
    (told,) = combined(rounds[:2], [(0,)], 16).problems
    assert "only 2 of at least 3 rounds" in told


@pytest.mark.parametrize("name", ["bandwidth", "injection", "latency", "copy", "flag"])
def test_a_slow_node_is_named(name):
    worse = getattr(SOME, name) * (4 if name in ("latency", "flag") else 0.25)
    slow = SOME._replace(**{name: worse})
    usual = SOME._replace(**{name: worse})  # its partner, in one round
    rounds = [*rounds_of([SOME, SOME, slow, SOME], 5), [usual, SOME, slow, SOME]]
    (told,) = combined(rounds, [(0,), (1,), (2,), (3,)], 16).problems
    assert told.startswith(f"the node of rank 2 is slow: {name}")
    two = combined(rounds_of([SOME, slow]), [(0,), (1,)], 16).problems
    assert bool(two) == (name in ("copy", "flag")), "of two nodes, both share the link"


@pytest.mark.parametrize("name", ["injection", "copy", "reduce", "latency"])
def test_a_node_with_fewer_ranks_is_not_slow(name):
    """What all ranks do at once depends on their number; a latency does not."""
    nodes = [(0, 1), (2, 3), (4,)]
    worse = getattr(SOME, name) * (4 if name == "latency" else 0.25)
    rounds = rounds_of([SOME] * 4 + [SOME._replace(**{name: worse})])
    assert bool(combined(rounds, nodes, 16).problems) == (name == "latency")


def test_what_no_rank_measured_stays_unknown():
    alone = Profile(16, memory=3.0)
    assert combined(rounds_of([alone]), [(0,)], 16).profile == alone
    far = Profile(16, latency=5e4)  # the last node is first in no pair
    rounds = rounds_of([far, far, Profile(16)])
    assert combined(rounds, [(0,), (1,), (2,)], 16) == Combined(far, {"latency": 1.0})


# ---- nodes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(2, 10))
def test_each_node_meets_all_others(number):
    every = [Nodes.of(range(number), rank) for rank in range(number)]
    met = {(a, b) for a in range(number) for b in range(number) if a != b}
    for turn in range(2 * number):
        for node in every:
            (other,) = node.opposite(turn) or (None,)
            if other is not None:
                assert every[other].opposite(turn) == (node.own,)
                assert other != node.own
                met.discard((node.own, other))
    assert not met


def test_ranks_of_a_node_share_memory():
    nodes = Nodes.of([0, 1, 0, 1, 1], 4)
    assert nodes.ranks == ((0, 2), (1, 3, 4))
    assert (nodes.own, nodes.place) == (1, 2)
    assert nodes.opposite(0) == (0, 2)
