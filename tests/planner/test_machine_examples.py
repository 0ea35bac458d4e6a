"""Ready configurations for usual machines: all their levels are found, and all calls are proved."""

from dataclasses import dataclass, replace
from itertools import product
from random import Random

import pytest

from han.config.arrange import Facts, arrange
from han.config.config import Config, load_config
from han.config.rails import rails_of
from han.model.collectives import DATALESS
from han.model.topology import Topology
from han.submodules.names import validate_names
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tasks.plan import Plan
from han.tasks.verify import verify
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.rules import RuleTable


@dataclass(frozen=True)
class Machine:
    """How many there are of each part in the one around it; a core has a rank."""

    switches: int = 2
    nodes: int = 2
    sockets: int = 2
    numa: int = 2
    l3: int = 1
    cores: int = 2

    def facts(self) -> list[Facts]:
        """Return what the ranks of all cores find, in the order of cores."""
        found: list[Facts] = []
        counts = (self.switches, self.nodes, self.sockets, self.numa, self.l3, self.cores)
        first: dict[str, int] = {}
        for switch, node, socket, numa, l3, core in product(*map(range, counts)):
            host, cpu = f"r{switch:02}n{node}", (socket, numa, l3, core)
            memory = first.setdefault(host, len(found))
            places = {
                "socket": frozenset([f"{socket}"]),
                "numa": frozenset([f"node{socket * self.numa + numa}"]),
                "l3": frozenset([f"{cpu[:3]}"]),
            }
            found.append(Facts(memory, host, frozenset([len(found) - memory]), places))
        return found


EPYC = Machine(numa=1, l3=2)
MACHINES = {
    "two-level": Machine(switches=1, nodes=3, sockets=1, numa=1, cores=3),
    "numa": Machine(switches=1, nodes=3, sockets=1, numa=3),
    "socket-node-network": Machine(switches=1, nodes=3, numa=1, cores=3),
    "l3-socket-node-network": replace(EPYC, switches=1, nodes=3),
    "node-switch-network": Machine(switches=3, sockets=1, numa=1, cores=3),
    "numa-socket-node-switch-network": Machine(),
    "two-rails": Machine(switches=1, nodes=4, sockets=1, numa=1, cores=4),
    "exchange-socket": Machine(switches=1, nodes=3, numa=1, cores=6),
}
CALLS = [(name, n) for name in ("bcast", "reduce", "allreduce") for n in (8, 5000, 300_000)]


def some(facts: list[Facts], draw: Random) -> list[Facts]:
    """Return the facts of most ranks in any order, as of a job that leaves cores free."""
    kept = draw.sample(facts, len(facts) - draw.randint(1, len(facts) // 4))
    first: dict[str, int] = {}
    return [replace(f, memory=first.setdefault(f.host, k)) for k, f in enumerate(kept)]


def ready(name: str) -> Config:
    return validate_names(load_config(name))


def topology_of(config: Config, facts: list[Facts]) -> Topology:
    rails = rails_of(config.rails, facts, config.origin)
    return replace(arrange(config.levels, facts, config.sockets, rails), attach=True)


def planned(config: Config, topology: Topology, collective: str, nbytes: int) -> Plan:
    """Return the plan of a call by the rules of a configuration."""
    root = topology.size // 2 if collective in ("bcast", "reduce") else 0
    signature = call_signature(collective, nbytes // 8 * 8)
    signature = replace(signature, root=root)
    choice = RuleTable(config, topology, NodeTraits()).decide(signature).choice
    return plan_of_choice(topology, signature, choice, config.memory)


@pytest.mark.parametrize("name", MACHINES)
def test_every_level_is_found_and_every_call_is_proved(name):
    config, facts = ready(name), MACHINES[name].facts()
    whole = topology_of(config, facts)
    assert whole.active == tuple(range(len(config.levels)))
    for topology in (whole, topology_of(config, some(facts, Random(name)))):
        for collective, nbytes in (*CALLS, *((name, 0) for name in DATALESS)):
            plan = planned(config, topology, collective, nbytes)
            assert verify([plan, plan]).ranks == topology.size


def test_levels_of_a_deep_machine_run_their_own_submodules():
    name = "numa-socket-node-switch-network"
    config = ready(name)
    topology = topology_of(config, MACHINES[name].facts())
    plan = planned(config, topology, "allreduce", 300_000)
    assert [level.algorithm for level in plan.choice.levels] == [
        "flat", "knomial", "flat", "chain", "binomial",
    ]  # fmt: skip
    assert planned(config, topology, "allreduce", 8).choice.composition == "nap"


def test_sockets_and_nodes_exchange():
    config = ready("exchange-socket")
    topology = topology_of(config, MACHINES["exchange-socket"].facts())
    for collective in ("bcast", "reduce", "allreduce", "barrier"):
        plan = planned(config, topology, collective, 300_000 if collective != "barrier" else 0)
        inside = [level.describe() for level in plan.choice.levels[:2]]
        assert inside == ["exchange tree"] * 2


def test_two_rails_are_both_used_by_large_calls():
    config = ready("two-rails")
    topology = topology_of(config, MACHINES["two-rails"].facts())
    assert set(topology.rails) == {0, 1}
    for collective in ("bcast", "reduce", "allreduce"):
        assert planned(config, topology, collective, 300_000).choice.composition == "lanes"
        assert planned(config, topology, collective, 8).choice.composition == "tree"
