"""Plans for imagined machines: nodes, sockets and node traits that the user describes."""

from __future__ import annotations

from dataclasses import dataclass

from han.config.arrange import Facts, arrange
from han.config.config import Config
from han.config.rails import rails_of
from han.model.topology import Topology
from han.submodules.registry import plan_of_choice
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tasks.size_classes import largest_of
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.planner import Planner
from han.tuning.rules import Decision

PLAIN = NodeTraits()  # a core for each rank, no mesh


@dataclass(frozen=True)
class ImaginedMachine:
    """The node and the socket of each rank, and the node traits.

    Ranks of a node are consecutive. Nothing depends on the machine that this process runs on.
    """

    nodes: tuple[int, ...]
    sockets: tuple[int, ...]
    traits: NodeTraits = PLAIN

    @classmethod
    def even(
        cls, ranks: int, ppn: int, traits: NodeTraits = PLAIN, sockets: int = 1
    ) -> ImaginedMachine:
        """Put `ppn` ranks on each node, in `sockets` sockets; the last node may have fewer ranks.

        Sockets have a rank more or less where the ranks cannot be shared evenly.
        """
        nodes = tuple(rank // ppn for rank in range(ranks))
        places = (rank // ppn * sockets + rank % ppn * sockets // ppn for rank in range(ranks))
        return cls(nodes, tuple(places), traits)

    def topology(self, config: Config) -> Topology:
        """Arrange the ranks into the levels of a configuration."""
        facts, firsts = [], dict[int, int]()
        for rank, node in enumerate(self.nodes):
            first = firsts.setdefault(node, rank)
            socket = frozenset([str(self.sockets[rank])])
            places = dict.fromkeys(("numa", "l3", "socket"), socket)
            facts.append(Facts(first, f"node{node}", frozenset([rank - first]), places))
        rails = rails_of(config.rails, facts, config.origin)
        return arrange(config.levels, facts, config.sockets, rails)

    def plan(
        self, config: Config, signature: Signature, leaves: bool = False
    ) -> tuple[Plan, Decision]:
        """Plan a call by the rules of a configuration; return the plan and the decision.

        If no rule can serve it, raises NoRuleError, or with `leaves` returns that the call is left
        to the MPI library, where a communicator would leave it.
        """
        planner = Planner(self.topology(config), config, self.traits, 0, False)
        asked = planner.sized(signature)
        if leaves:
            decision = planner.decide(asked, blocking=True)
        else:
            decision = planner.rules.decide(largest_of(asked))
        called = planner.rules.called(signature)
        return plan_of_choice(planner.topology, called, decision.choice, config.memory), decision
