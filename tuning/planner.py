"""The planner: decides, plans and lowers calls without MPI, shared memory or buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING

from han.common.errors import NoRuleError
from han.config.config import Config
from han.model.collectives import ROWS
from han.model.program import Program
from han.model.topology import Topology
from han.tasks.choice import LEFT, Choice
from han.tasks.outline import as_called, levels_of
from han.tasks.plan import Plan
from han.tasks.samples import lower_with_loops
from han.tasks.signature import ON_DEVICE, Signature
from han.tasks.size_classes import bound_of, bounds_of, class_of, largest_of
from han.tuning.built_in.shipped import shipped
from han.tuning.built_in.traits import NodeTraits
from han.tuning.parts import parts_of, plan_of_choice
from han.tuning.rules import Decision, RuleTable
from han.tuning.trials import burst_of, first_trial
from han.tuning.tuned.evidence import nearest

if TYPE_CHECKING:
    from han.tuning.tuned.table import TunedTable

REMEMBERED = 512  # decisions that a planner remembers


@dataclass(frozen=True)
class Planned:
    """The plans that a call may run, the same on all ranks.

    The ranks run `alternative` if all buffers of all ranks are shared arrays. A rank knows only its
    own buffers, and only when the call is made, so ranks offer the alternative during the call.
    `rival` is for trials: the leader of the call chooses between the plan and the rival, and all
    ranks follow. Between nodes the number of the run says which of both it takes, and the first
    trial begins after `first` runs. `find_rival` decides on it, which takes as long as all else:
    the first call need not ask. All of these plans take the same part of the rings.
    """

    topology: Topology
    signature: Signature
    decision: Decision
    memory: int
    alternative: Plan | None = None
    find_rival: Callable[[], Choice | None] | None = field(default=None, compare=False, repr=False)
    first: int = 0

    @cached_property
    def plan(self) -> Plan:
        """The plan of the decision's choice."""
        return plan_of_choice(self.topology, self.signature, self.decision.choice, self.memory)

    @cached_property
    def rival(self) -> Plan | None:
        """The plan that trials compare with it; None: there are no trials."""
        choice = None if self.find_rival is None else self.find_rival()
        if choice is None:
            return None
        return plan_of_choice(self.topology, self.signature, choice, self.memory)

    @cached_property
    def talks(self) -> bool:
        """Whether ranks send messages in the plan of the decision's choice."""
        choice = self.decision.choice
        topology = as_called(self.topology, self.signature, choice.composition)
        parts, levels = parts_of(choice), levels_of(topology, self.signature)
        return any(
            parts[k].sends(topology, k, one) for k in levels for one in choice.levels[k].each
        )

    @property
    def counted(self) -> bool:
        """Whether trials follow from the numbers of runs, as no leader can be asked."""
        return self.rival is not None and self.topology.whole is None

    @property
    def left(self) -> bool:
        """Whether the call is left to the MPI library."""
        return self.decision.choice.composition == LEFT

    @property
    def others(self) -> tuple[Plan, ...]:
        """The alternative and the rival, if there are any."""
        return tuple(plan for plan in (self.alternative, self.rival) if plan is not None)


class Planner:
    """Decides, plans and lowers for one rank; every decision is the same on all ranks.

    `maps_arrays` says whether all ranks map each other's shared arrays. `tuned` is a table of
    measured choices, the same on all ranks. Any thread may use it.
    """

    def __init__(
        self, topology: Topology, config: Config, traits: NodeTraits, rank: int, maps_arrays: bool,
        tuned: TunedTable | None = None,
    ) -> None:  # fmt: skip
        self.topology, self.config, self.traits = topology, config, traits
        self.rank, self.maps_arrays, self.tuned = rank, maps_arrays, tuned
        self.rules = RuleTable(config, topology, traits, tuned)
        measured = tuned.thresholds(topology) if tuned is not None else ()
        self.bounds = bounds_of((*config.thresholds(topology.size), *measured))
        self._remembered = lru_cache(REMEMBERED)(self._planned)
        self.sized = lru_cache(REMEMBERED)(self._sized)

    def planned(
        self,
        signature: Signature,
        blocking: bool = True,
        memory: int | None = None,
        least: int | None = None,
    ) -> Planned:
        """Decide what a call runs, and which plans it may run instead; raises NoRuleError.

        The plans are those of the call's class of sizes, if it has one. Channels have about
        `memory` bytes for cells; None: those of the communicator. Calls of fewer than `least` bytes
        have no alternative; None: as the table of built-in choices says.
        """
        try:
            size = self.config.memory if memory is None else memory
            return self._remembered(self.sized(signature), blocking, size, least)
        except NoRuleError as error:  # it names the class
            raise NoRuleError(signature.describe(), [*error.passed]) from None

    def _planned(
        self, signature: Signature, blocking: bool, memory: int, least: int | None
    ) -> Planned:
        decision = self.decide(signature, blocking)
        one = Planned(self.topology, signature, decision, memory)
        if one.left or signature.mapped:
            return one
        asked, find = largest_of(signature), None
        if self.rules.may_try(asked, decision):
            find = partial(self.rules.rival, asked, decision, blocking=blocking)
        return replace(
            one,
            alternative=self._alternative(signature, blocking, memory, least),
            find_rival=find,
            first=self._first(asked, decision),
        )

    def _first(self, signature: Signature, decision: Decision) -> int:
        """Return the runs before the first trial, if the call has any between nodes."""
        if decision.tuned is None:
            return 0
        point = nearest(decision.tuned, signature.nbytes)
        return first_trial(None if point is None else point.times, burst_of(signature))

    def _sized(self, signature: Signature) -> Signature:
        """Return the signature of a call's class of sizes; its own if it has none.

        It says whether the call is reproducible here.
        """
        signature = self.rules.called(signature)
        bound = 0 if signature.grains else bound_of(signature, self.bounds)
        return class_of(signature, bound) if bound else signature

    def persistent(self, signature: Signature, memory: int) -> Planned:
        """Decide what a persistent request runs, in channels of about `memory` bytes."""
        decision = self.decide(signature, blocking=False)
        return Planned(self.topology, self.sized(signature), decision, memory)

    def leaves(self, signature: Signature) -> bool:
        """Whether nonblocking and persistent calls of a signature are left to the MPI library.

        Raises NoRuleError.
        """
        decision = self.decide(signature, blocking=False)
        return Planned(self.topology, signature, decision, self.config.memory).left

    def named_submodules(self) -> set[str]:
        """Return the submodules that rules and the tuned table name, besides built-in choices."""
        uses = [rule.use for rule in self.config.rules]
        if self.tuned is not None:
            uses += self.tuned.uses(self.topology)
        return {level.submodule for use in uses for level in use.levels.values()}

    def program(self, plan: Plan) -> Program:
        """Lower a plan for this rank; a large program has loops."""
        return lower_with_loops(plan, self.rank)

    def decide(self, signature: Signature, blocking: bool) -> Decision:
        """Decide for a call, as for the largest one of its class of sizes.

        Leave a call on memory of a device, or of one task that no rule serves, to the MPI library.
        """
        if signature.device:
            return self.rules.leave(signature, ((LEFT, f"a buffer is {ON_DEVICE}"),))
        asked = largest_of(self.sized(signature))
        try:
            return self.rules.decide(asked, blocking=blocking)
        except NoRuleError as error:
            if ROWS[signature.collective].kinds:
                raise NoRuleError(signature.describe(), [*error.passed]) from None
            return self.rules.leave(asked, error.passed)

    def _alternative(
        self, signature: Signature, blocking: bool, memory: int, least: int | None
    ) -> Plan | None:
        """Plan a call on shared arrays; None if its ranks would not read them where they are."""
        if not self.maps_arrays:
            return None
        if largest_of(self.sized(signature)).nbytes < (shipped().offer if least is None else least):
            return None
        mapped = replace(signature, mapped=True)
        decision = self.decide(mapped, blocking)
        plan = Planned(self.topology, self.sized(mapped), decision, memory).plan
        return plan if _reads_mapped(plan) else None


def _reads_mapped(plan: Plan) -> bool:
    """Whether ranks read mapped buffers, and all other data goes through shared memory."""
    topology, signature = plan.topology, plan.signature
    uses = [(plan.parts[level], level, plan.choice.levels[level]) for level in plan.levels]
    reads = any(part.reads_mapped(topology, signature, level, one) for part, level, one in uses)
    return reads and not any(
        part.sends(topology, level, each) for part, level, one in uses for each in one.each
    )
