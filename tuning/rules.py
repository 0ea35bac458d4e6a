"""The rows that decide: the user's rules, tuned tables, the class of machines, built-in choices.

If a row of the built-in choices cannot serve a call, the safe choice does.
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
from han.tasks.compositions import FLAT, TREE, Need, as_called, composition, side_of
from han.tasks.signature import Signature
from han.tuning.built_in.choosing import (
    BUILT_IN,
    NodeTraits,
    Rowed,
    choose,
    composed,
    facts_of_call,
    rowed,
)
from han.tuning.built_in.machine_classes import RULE, class_rows, standing
from han.tuning.built_in.table import safe_table
from han.tuning.classes import CLASSES, STAND_FOR, TUNED, operation_of
from han.tuning.row import Row, Rows
from han.tuning.row_reading import level_use
from han.tuning.trials import keeps_bits
from han.tuning.unfit import unfit

if TYPE_CHECKING:
    from han.config.config import Config
    from han.tuning.tuned.table import TunedTable

Names = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Decision:
    """A Choice, and the rules that were passed over before it: (rule, reason) of each.

    `row` is the row that decided for the whole call, or that keeps the built-in choice. `rows` are
    the names of the rows behind the choice, with the level or ``segment`` that each decided on.
    `other_class` says whether a tuned table without anything for the call has it for another class
    of operations, or for other ranks; this takes longer than the decision.
    """

    choice: Choice
    passed: tuple[tuple[str, str], ...] = ()
    row: Row | None = None
    rows: Names = ()
    other_class: Callable[[], Names] | None = field(default=None, compare=False, repr=False)

    @property
    def tuned(self) -> Row | None:
        """The row of a tuned table that decided, or that keeps the built-in choice."""
        return self.row if self.row is not None and self.row.rule == TUNED else None

    @property
    def left(self) -> bool:
        """Whether the call is left to the MPI library."""
        return self.choice.composition == LEFT


@dataclass(frozen=True)
class RuleTable:
    """Decides by the first row that matches a call and can serve it.

    A row that matches and cannot serve is passed over, with a reason.
    """

    config: Config | None
    topology: Topology
    traits: NodeTraits
    tuned: TunedTable | None = None

    def decide(self, signature: Signature, *, blocking: bool = True) -> Decision:
        """Choose for a call; the same on all ranks. Raises NoRuleError if no rule can serve it."""
        signature = self.called(signature)
        passed: list[tuple[str, str]] = []
        for choice, row, rows in self._candidates(signature):
            reason = self.objection(signature, choice, blocking=blocking)
            if reason is None:
                other = self._other_class(signature) if row is None else None
                return Decision(choice, tuple(passed), row, rows, other)
            passed.append((choice.rule, reason))
        raise NoRuleError(signature.describe(), passed)

    def called(self, signature: Signature) -> Signature:
        """Return the signature that a call has here: reproducible if the configuration says so.

        The first rule that matches and says something about it decides, even if another rule
        decides what runs: no rule may be passed over without the result that it asks for. Scans and
        calls by blocks on several nodes, and those that are the MPI library's, have another order.
        """
        if self.config is None or not (self.config.reproducible or self._saying):
            return signature
        apart = (signature.by_blocks or signature.prefix) and self.topology.whole is None
        if signature.canonical or signature.device or apart or not matters(signature):
            return signature
        wanted = self.config.reproducible
        if self._saying:
            facts = facts_of_call(signature, self.topology, self.traits)
            matching = (r for r in self._saying if r.when.matches(signature.collective, facts))
            wanted = next((bool(rule.use.reproducible) for rule in matching), wanted)
        return replace(signature, canonical=True) if wanted else signature

    def _other_class(self, signature: Signature) -> Callable[[], Names] | None:
        if self.tuned is None or (not signature.reduces and self.topology.nodes == 1):
            return None
        return partial(_other_class, self.tuned, signature, self.topology, self.traits)

    @cached_property
    def _saying(self) -> tuple[Rule, ...]:
        """The rules that say whether calls are reproducible."""
        rules = self.config.rules if self.config is not None else ()
        return tuple(rule for rule in rules if rule.use.reproducible is not None)

    def rival(self, signature: Signature, decision: Decision) -> Choice | None:
        """Return the choice that trials compare with the decision; None if there are no trials.

        Between nodes, calls that a tuned table decides have trials. A tuned choice is compared with
        the built-in one, a built-in choice that the table keeps with the runner-up. The plan serves
        nonblocking calls too. A rule of the user is never overruled.
        """
        if not self._may_try(signature, decision):
            return None
        row, mine = decision.tuned, decision.choice
        assert row is not None
        point = row.nearest(signature.nbytes)
        if mine.rule == TUNED:
            other = self._untuned.decide(signature, blocking=False).choice
        elif point is not None and point.runner_up is not None:
            other = self.made(point.runner_up.use, "rival", signature)
        else:
            return None
        same = replace(other, rule=mine.rule) == mine
        return None if same or self.objection(signature, other, blocking=False) else other

    def _may_try(self, signature: Signature, decision: Decision) -> bool:
        tries = self.config is None or self.config.trials
        tuned = decision.tuned is not None and decision.choice.rule in (BUILT_IN, TUNED)
        return tries and tuned and self.topology.whole is None and keeps_bits(signature)

    @cached_property
    def _untuned(self) -> RuleTable:
        """The same without a tuned table."""
        return replace(self, tuned=None)

    def leave(self, signature: Signature, passed: Sequence[tuple[str, str]]) -> Decision:
        """Return the decision to leave a call to the MPI library; `passed` says why."""
        default = choose(signature, self.topology, self.traits)
        nothing = replace(default, composition=LEFT, rule=f"none: {LEFT}")
        return Decision(nothing, tuple(passed))

    def _candidates(self, signature: Signature) -> Iterator[tuple[Choice, Row | None, Names]]:
        """Yield the choices of matching rows in order, then the built-in ones and the safe one."""
        row: Row | None = None
        for row in self._matching(signature):
            if row.use is None:
                break
            yield self.made(row.use, row.rule, signature), row, self._names(row)
        else:
            row = None
        for choice, rows in self._built_in(signature):
            yield choice, row, rows

    def _names(self, row: Row) -> Names:
        """Return the name of a row for whole calls; of a class also how machines belong to it."""
        if row.rule == row.name:
            return ()
        named = ("call", row.name)
        return (named, ("class", self._standing)) if row.rule.startswith(RULE) else (named,)

    @cached_property
    def _standing(self) -> str:
        return standing(self.traits).how

    def _matching(self, signature: Signature) -> Iterator[Row]:
        if not self._rows.of(signature.collective):
            return iter(())
        facts = facts_of_call(signature, self.topology, self.traits)
        return self._rows.matching(signature.collective, facts)

    def _built_in(self, signature: Signature) -> Iterator[Rowed]:
        other = composed(signature, self.topology, self.traits)
        if other is not None:
            yield other
        default = rowed(signature, self.topology, self.traits)
        yield default
        if signature.prefix:  # nodes may not have consecutive ranks
            yield rowed(signature, self.topology, self.traits, FLAT)
        safe = rowed(signature, self.topology, self.traits, table=safe_table())
        if (safe.choice.levels, safe.choice.segment) != (
            default.choice.levels, default.choice.segment,
        ):  # fmt: skip
            yield safe

    @cached_property
    def _rows(self) -> Rows:
        """The rows for whole calls: the user's rules, tuned tables, then the class of machines."""
        tuned = () if self.tuned is None else self.tuned.on(self.topology)
        return Rows([*self._user_rows(), *tuned, *class_rows(self.topology, self.traits)])

    def _user_rows(self) -> Iterator[Row]:
        for k, rule in enumerate(() if self.config is None else self.config.rules):
            assert self.config is not None
            name = f"rules[{k}] of {self.config.place('rules', k)}"
            yield Row(name, rule.when, rule.use, rule=name)

    def made(self, use: Use, name: str, signature: Signature) -> Choice:
        """Return the built-in choice with the values that a rule or a tuned table sets."""
        of = use.composition or TREE
        default = rowed(signature, self.topology, self.traits, of).choice
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
        topology = as_called(self.topology, signature, choice.composition)
        return unfit(topology, signature, choice, blocking)


def _other_class(
    table: TunedTable, signature: Signature, topology: Topology, traits: NodeTraits
) -> Names:
    """Return why a table does not decide: it has nothing for these ranks, or for another class."""
    if not table.on(topology):
        told = table.says_of(topology)
        return ((TUNED, told),) if told else ()
    own = operation_of(signature)
    for name, values in STAND_FOR.items() if own else ():
        if name == own or table.find(signature.changed(**values), topology, traits) is None:
            continue
        return ((TUNED, f"measured for {CLASSES[name]}; this call is of {CLASSES[own]}"),)
    return ()


def use_of(choice: Choice, names: Mapping[int, str]) -> Use:
    """Return a choice as a rule writes it, for the levels that have names."""
    levels = {name: level_use(choice.levels[k]) for k, name in names.items()}
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
