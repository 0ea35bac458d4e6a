"""The table of rules: the user's rules in order, then the tuned table, then the built-in choice.

The built-in choice follows from a table too. If a row of it cannot serve a call, the safe choice
does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from han.common.errors import NoRuleError
from han.config.rules import KindUse, LevelUse, Rule, Use
from han.model.topology import Topology
from han.submodules.registry import submodule
from han.tasks.canonical import matters
from han.tasks.choice import LEFT, Choice, LevelChoice
from han.tasks.compositions import TREE, Need, composition, side_of
from han.tasks.outline import as_called
from han.tasks.signature import Signature
from han.tuning.built_in.choosing import facts_of_call
from han.tuning.built_in.shipped import safe_table
from han.tuning.built_in.traits import NodeTraits
from han.tuning.classes import TUNED, other_class
from han.tuning.heuristics import BUILT_IN, choose, composed, rival, rowed, tried
from han.tuning.trials import keeps_bits
from han.tuning.unfit import unfit

if TYPE_CHECKING:
    from han.config.config import Config
    from han.tuning.tuned.layers import Tables
    from han.tuning.tuned.rows import FoundRow
    from han.tuning.tuned.table import Found

Names = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Decision:
    """A Choice, and the rules that were passed over before it: (rule, reason) of each.

    `tuned` is the measurement behind it, if a tuned table decided or kept the built-in choice.
    `rows` are the rows behind a built-in choice, with the level or ``segment`` of each.
    `other_class` says whether a tuned table without anything for the call has it for another class
    of operations; this takes longer than the decision.
    """

    choice: Choice
    passed: tuple[tuple[str, str], ...] = ()
    tuned: Found | FoundRow | None = None
    rows: tuple[tuple[str, str], ...] = ()
    other_class: Callable[[], Names] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class RuleTable:
    """Decides by the first rule that matches a call and can serve it.

    A rule that matches and cannot serve is passed over, with a reason.
    """

    config: Config | None
    topology: Topology
    traits: NodeTraits
    tuned: Tables | None = None

    def decide(self, signature: Signature, *, blocking: bool = True) -> Decision:
        """Choose for a call; the same on all ranks. Raises NoRuleError if no rule can serve it."""
        signature = self.called(signature)
        passed: list[tuple[str, str]] = []
        tuned = self.tuned
        found = None if tuned is None else tuned.find(signature, self.topology, self.traits)
        for choice, rows in self._candidates(signature, found):
            reason = self.objection(signature, choice, blocking=blocking)
            if reason is None:
                measured = found if choice.rule in (TUNED, BUILT_IN) else None
                other = self._other_class(signature) if found is None else None
                return Decision(choice, tuple(passed), measured, rows, other)
            passed.append((choice.rule, reason))
        raise NoRuleError(signature.describe(), passed)

    def called(self, signature: Signature) -> Signature:
        """Return the signature that a call has here: reproducible if the configuration says so.

        The first rule that matches and says something about it decides, even if another rule
        decides what runs: no rule may be passed over without the result that it asks for. Calls
        that are left to the MPI library have its order.
        """
        if self.config is None or not (self.config.reproducible or self._saying):
            return signature
        left = signature.device or (signature.by_blocks and self.topology.whole is None)
        if signature.canonical or left or not matters(signature):
            return signature
        wanted = self.config.reproducible
        if self._saying:
            facts = facts_of_call(signature, self.topology, self.traits)
            matching = (r for r in self._saying if r.when.matches(signature.collective, facts))
            wanted = next((bool(rule.use.reproducible) for rule in matching), wanted)
        return replace(signature, canonical=True) if wanted else signature

    def _other_class(self, signature: Signature) -> Callable[[], Names] | None:
        if self.tuned is None or not signature.reduces:
            return None
        return partial(other_class, self.tuned, signature, self.topology, self.traits)

    @cached_property
    def _saying(self) -> tuple[Rule, ...]:
        """The rules that say whether calls are reproducible."""
        rules = self.config.rules if self.config is not None else ()
        return tuple(rule for rule in rules if rule.use.reproducible is not None)

    def may_try(self, signature: Signature, decision: Decision) -> bool:
        """Return whether a call may have a rival; to find it takes much longer."""
        if self.config is not None and not self.config.trials:
            return False
        if decision.choice.rule not in (BUILT_IN, TUNED):
            return False
        if self.topology.whole is not None:
            return tried(signature, self.topology, self.traits) is not None
        return decision.tuned is not None and keeps_bits(signature)

    def rival(
        self, signature: Signature, decision: Decision, *, blocking: bool = True
    ) -> Choice | None:
        """Return the choice that trials compare with the decision; None if there are no trials.

        There are no trials if a rule of the user decided. A tuned choice is compared with the
        built-in one, for calls that have trials. Between nodes these are the calls that a
        tuned table decides; a built-in choice that it keeps is compared with the runner-up.
        """
        if not self.may_try(signature, decision):
            return None
        if self.topology.whole is None:
            return self._measured_rival(signature, decision)
        other = rival(signature, self.topology, self.traits)
        if other is not None and decision.choice.rule == TUNED:
            other = choose(signature, self.topology, self.traits)
            other = None if other == decision.choice else other
        fits = other is not None and self.objection(signature, other, blocking=blocking) is None
        return other if fits else None

    def _measured_rival(self, signature: Signature, decision: Decision) -> Choice | None:
        """Return what trials compare with the decision of a tuned table; None: nothing.

        The plan serves nonblocking calls too.
        """
        found, mine = decision.tuned, decision.choice
        assert found is not None
        if mine.rule == TUNED:
            other = self._untuned.decide(signature, blocking=False).choice
        elif found.use is None and found.runner_up is not None:
            use = found.runner_up.use
            base = rowed(signature, self.topology, self.traits, use.composition or TREE).choice
            other = self._apply(use, "rival", base, signature)
        else:  # the tuned choice cannot serve, or there is no other one
            return None
        same = replace(other, rule=mine.rule) == mine
        return None if same or self.objection(signature, other, blocking=False) else other

    @cached_property
    def _untuned(self) -> RuleTable:
        """The same without a tuned table."""
        return replace(self, tuned=None)

    def leave(self, signature: Signature, passed: Sequence[tuple[str, str]]) -> Decision:
        """Return the decision to leave a call to the MPI library; `passed` says why."""
        default = choose(signature, self.topology, self.traits)
        nothing = replace(default, composition=LEFT, rule=f"none: {LEFT}")
        return Decision(nothing, tuple(passed))

    def _candidates(
        self, signature: Signature, found: Found | FoundRow | None
    ) -> Iterator[tuple[Choice, Names]]:
        built_in = partial(rowed, signature, self.topology, self.traits)
        rules = self._rules_for(signature.collective)
        facts = facts_of_call(signature, self.topology, self.traits) if rules else None
        for index, rule in rules:
            if rule.when.matches(signature.collective, facts):
                where = self.config.place("rules", index) if self.config is not None else ""
                base = built_in(rule.use.composition or TREE).choice
                name = f"rules[{index}] of {where}"
                yield self._apply(rule.use, name, base, signature), ()
        if found is not None and found.use is not None:
            base = built_in(found.use.composition or TREE).choice
            yield self._apply(found.use, TUNED, base, signature), found.rows
        other = composed(signature, self.topology, self.traits)
        if other is not None:
            yield other
        default, rows = built_in()
        yield default, rows
        safe = rowed(signature, self.topology, self.traits, table=safe_table())
        if (safe.choice.levels, safe.choice.segment) != (default.levels, default.segment):
            yield safe

    def _rules_for(self, collective: str) -> tuple[tuple[int, Rule], ...]:
        """Return the user's rules that may match calls of a collective, with their numbers."""
        found = self._by_collective.get(collective)
        if found is None:
            rules = self.config.rules if self.config is not None else ()
            found = tuple((k, r) for k, r in enumerate(rules) if r.when.concerns(collective))
            self._by_collective[collective] = found
        return found

    @cached_property
    def _by_collective(self) -> dict[str, tuple[tuple[int, Rule], ...]]:
        return {}

    def _apply(self, use: Use, name: str, default: Choice, signature: Signature) -> Choice:
        """Return the built-in choice with the values that a rule or a tuned table sets."""
        levels = []
        for level, choice in enumerate(default.levels):
            own = use.levels.get(self.topology.names[level])
            if own is not None and own.algorithm is None and own.submodule != choice.submodule:
                choice = self._first(own.submodule, level, default.composition, signature)
            levels.append(self._level(choice, own))
        segment = default.segment if use.segment is None else use.segment
        return Choice(
            tuple(levels),
            None if isinstance(segment, str) else segment,
            use.schedule or default.schedule,
            default.composition,
            name,
        )

    def _first(self, name: str, level: int, of: str, signature: Signature) -> LevelChoice:
        """Return the first algorithm of a submodule that serves a level of a composition.

        If none does, it is the first of all.
        """
        part, view = submodule(name), as_called(self.topology, signature, of)
        row, needs = composition(of), tuple[Need, ...]()
        if row.sides and level in view.active:
            needs = row.needs(side_of(view, level), signature.collective)
        known = list(part.algorithms)
        able = (a for a in known if any(part.meets(a, need) for need in needs))
        return LevelChoice(name, next(able, known[0]))

    def _level(self, choice: LevelChoice, use: LevelUse | None) -> LevelChoice:
        """Return what a level runs; where a rule names an algorithm, it is made once."""
        if use is None or use.algorithm is None:
            return _overlay(choice, use)
        known = self._named.get(id(use))
        if known is None:
            known = self._named[id(use)] = use, _overlay(choice, use)
        return known[1]

    @cached_property
    def _named(self) -> dict[int, tuple[LevelUse, LevelChoice]]:
        return {}  # by the number of a use, which must live as long

    def objection(
        self, signature: Signature, choice: Choice, *, blocking: bool = True
    ) -> str | None:
        """Return the reason why `choice` cannot serve a call, or None."""
        if signature.by_blocks and self.topology.whole is None:
            return apart(self.topology)
        topology = as_called(self.topology, signature, choice.composition)
        return unfit(topology, signature, choice, blocking)


def apart(topology: Topology) -> str:
    """Return the reason why calls by blocks are left to the MPI library across nodes."""
    return (
        f"the {topology.size} ranks share memory at no level ({' < '.join(topology.names)}): "
        "between nodes, such calls are left to the MPI library"
    )


def use_of(choice: Choice, names: Mapping[int, str]) -> Use:
    """Return a choice as a rule writes it, for the levels that have names."""
    levels = {}
    for k, name in names.items():
        one = choice.levels[k]
        kinds = {kind: KindUse(own.algorithm, dict(own.parameters)) for kind, own in one.kinds}
        levels[name] = LevelUse(one.submodule, one.algorithm, dict(one.parameters), kinds)
    other = None if choice.composition == TREE else choice.composition
    return Use(choice.segment or "whole", choice.schedule, levels, other)


def _overlay(choice: LevelChoice, use: LevelUse | None) -> LevelChoice:
    """Return the built-in choice of a level with the values that a rule sets."""
    if use is None:
        return choice
    level = replace(_changed(choice.alike, use), submodule=use.submodule)
    if use.algorithm is None:  # the built-in choice's own kinds stay
        for kind, own in choice.kinds:
            level = level.where(kind, _changed(own, use))
    for kind, other in use.kinds.items():
        level = level.where(kind, _changed(level.of(kind), other))
    return level


def _changed(choice: LevelChoice, use: LevelUse | KindUse) -> LevelChoice:
    """Return a choice with another algorithm and its parameters, or with some more parameters."""
    kept = dict(choice.parameters) if use.algorithm is None else {}
    parameters = tuple(sorted({**kept, **use.parameters}.items()))
    return LevelChoice(choice.submodule, use.algorithm or choice.algorithm, parameters)
