"""Plans for imagined machines: nodes, sockets and node traits that the user describes."""

from __future__ import annotations

from dataclasses import dataclass

from han.common.errors import NoRuleError
from han.config.arrange import Facts, arrange
from han.config.config import Config
from han.config.rails import rails_of
from han.model.collectives import ROWS
from han.model.topology import Topology
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tasks.size_classes import bound_of, bounds_of, class_of, largest_of
from han.tuning.built_in.traits import NodeTraits
from han.tuning.parts import plan_of_choice
from han.tuning.rules import Decision, RuleTable

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
    def even(cls, ranks: int, ppn: int, traits: NodeTraits = PLAIN) -> ImaginedMachine:
        """Put `ppn` ranks on each node, in one socket; the last node may have fewer ranks."""
        nodes = tuple(rank // ppn for rank in range(ranks))
        return cls(nodes, nodes, traits)

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
        topology = self.topology(config)
        rules = RuleTable(config, topology, self.traits)
        signature = rules.called(signature)
        bound = bound_of(signature, bounds_of(config.thresholds(topology.size)))
        asked = largest_of(class_of(signature, bound)) if bound else signature
        try:
            decision = rules.decide(asked)
        except NoRuleError as error:
            if not leaves or ROWS[signature.collective].kinds:
                raise
            decision = rules.leave(asked, error.passed)
        return plan_of_choice(topology, signature, decision.choice, config.memory), decision
