"""The planner: decides, plans and lowers calls without MPI, shared memory or buffers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from han.common.errors import NoRuleError
from han.common.kept import kept
from han.config.config import Config
from han.model.collectives import ROWS
from han.model.program import Program
from han.model.topology import Topology
from han.submodules.registry import plan_of_choice
from han.tasks.choice import LEFT, Choice
from han.tasks.own_sizes import one_for_all
from han.tasks.plan import Plan
from han.tasks.samples import lower_with_loops
from han.tasks.signature import ON_DEVICE, Signature
from han.tasks.size_classes import bound_of, bounds_of, class_of, largest_of
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.built_in.machine_classes import class_rows, class_thresholds
from han.tuning.built_in.table import shipped
from han.tuning.rules import Decision, RuleTable
from han.tuning.trials import burst_of, first_trial

if TYPE_CHECKING:
    from han.tuning.tuned.table import TunedTable

REMEMBERED = 512  # decisions that a planner remembers


@dataclass(frozen=True)
class Planned:
    """The plans that a call may run, the same on all ranks; `signature` is that of its class.

    The ranks run `alternative` if all buffers of all ranks are shared arrays. A rank knows only its
    own buffers, and only when the call is made, so ranks offer the alternative during the call.
    Trials compare `rival` with the plan: the number of the run says which of both it takes, and the
    first trial begins after `first` runs. All of these plans take the same part of the rings.
    """

    signature: Signature
    decision: Decision
    plan: Plan
    alternative: Plan | None = None
    rival: Plan | None = None
    first: int = 0

    @kept
    def talks(self) -> bool:
        """Whether ranks send messages, in the plan or to agree on a trial."""
        return self.rival is not None or _sends(self.plan)

    @property
    def left(self) -> bool:
        """Whether the call is left to the MPI library."""
        return self.decision.left

    @property
    def others(self) -> tuple[Plan, ...]:
        """The alternative and the rival, if there are any."""
        return tuple(plan for plan in (self.alternative, self.rival) if plan is not None)

    @property
    def alone(self) -> Planned:
        """The same without alternative and rival."""
        return replace(self, alternative=None, rival=None, first=0)


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
        known = class_thresholds(topology, traits)
        self.bounds = bounds_of((*config.thresholds(topology.size), *measured, *known))
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
        size = self.config.memory if memory is None else memory
        try:
            return self._remembered(self.sized(signature), blocking, size, least)
        except NoRuleError as error:
            raise _naming(signature, error) from None

    def _planned(
        self, signature: Signature, blocking: bool, memory: int, least: int | None
    ) -> Planned:
        decision = self.decide(signature, blocking)
        one = self._running(signature, decision, memory)
        if one.left or signature.mapped:
            return one
        one = self._with_rival(one, memory)
        return replace(one, alternative=self._alternative(signature, blocking, memory, least))

    def _running(self, signature: Signature, decision: Decision, memory: int) -> Planned:
        plan = plan_of_choice(self.topology, signature, decision.choice, memory)
        return Planned(signature, decision, plan)

    def _with_rival(self, one: Planned, memory: int) -> Planned:
        """Add what trials compare with the plan, if the call has any."""
        asked = largest_of(one.signature)
        choice, tuned = self.rules.rival(asked, one.decision), one.decision.tuned
        if choice is None or tuned is None:
            return one
        point = tuned.nearest(asked.nbytes)
        return replace(
            one,
            rival=plan_of_choice(self.topology, one.signature, choice, memory),
            first=first_trial(None if point is None else point.times, burst_of(asked)),
        )

    def _sized(self, signature: Signature) -> Signature:
        """Return the signature of a call's class of sizes; its own if it has none.

        It says whether the call is reproducible here.
        """
        signature = one_for_all(self.rules.called(signature))
        bound = 0 if signature.grains else bound_of(signature, self.bounds)
        return class_of(signature, bound) if bound else signature

    def running(self, signature: Signature, choice: Choice) -> Planned:
        """Return the plan of a call that runs `choice`, whatever the rules say."""
        return self._running(self.sized(signature), Decision(choice), self.config.memory)

    def leaves(self, signature: Signature) -> bool:
        """Whether nonblocking and persistent calls of a signature are left to the MPI library.

        Raises NoRuleError.
        """
        try:
            return self.decide(self.sized(signature), blocking=False).left
        except NoRuleError as error:
            raise _naming(signature, error) from None

    def named_submodules(self) -> set[str]:
        """Return the submodules that rules and the tuned table name, besides built-in choices."""
        uses = [rule.use for rule in self.config.rules]
        if self.tuned is not None:
            uses += self.tuned.uses(self.topology)
        computed = class_rows(self.topology, self.traits)
        uses += [row.use for row in computed if row.use is not None]
        return {level.submodule for use in uses for level in use.levels.values()}

    def program(self, plan: Plan) -> Program:
        """Lower a plan for this rank; a large program has loops."""
        return lower_with_loops(plan, self.rank)

    def decide(self, signature: Signature, blocking: bool) -> Decision:
        """Decide for the calls of a class of sizes, as for the largest one; raises NoRuleError.

        Leave a call on memory of a device, or of one task that no rule serves, to the MPI library.
        """
        if signature.device:
            return self.rules.leave(signature, ((LEFT, f"a buffer is {ON_DEVICE}"),))
        asked = largest_of(signature)
        try:
            return self.rules.decide(asked, blocking=blocking)
        except NoRuleError as error:
            if ROWS[signature.collective].kinds:
                raise
            return self.rules.leave(asked, error.passed)

    def _alternative(
        self, signature: Signature, blocking: bool, memory: int, least: int | None
    ) -> Plan | None:
        """Plan a call on shared arrays; None if its ranks would not read them where they are."""
        if not self.maps_arrays:
            return None
        if largest_of(signature).nbytes < (shipped().offer if least is None else least):
            return None
        mapped = self.rules.called(replace(signature, mapped=True))
        plan = self._running(mapped, self.decide(mapped, blocking), memory).plan
        return plan if _reads_mapped(plan) else None


def _naming(signature: Signature, error: NoRuleError) -> NoRuleError:
    """Return the error of a class of sizes as that of one call."""
    return NoRuleError(signature.describe(), [*error.passed])


def _sends(plan: Plan) -> bool:
    """Whether ranks send messages in a plan."""
    return any(
        plan.parts[level].sends(plan.topology, level, one)
        for level in plan.levels
        for one in plan.choice.levels[level].each
    )


def _reads_mapped(plan: Plan) -> bool:
    """Whether ranks read mapped buffers, and all other data goes through shared memory."""
    reads = any(
        plan.parts[level].reads_mapped(
            plan.topology, plan.signature, level, plan.choice.levels[level]
        )
        for level in plan.levels
    )
    return reads and not _sends(plan)
