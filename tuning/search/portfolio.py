"""Search what machines run between nodes, by the simulator, for many calls and shapes.

The whole space has tens of thousands of choices for a call. So two searches follow each other. On
few shapes (`anchors`) each composition is improved step by step: the algorithm of each level, the
segment, one parameter of each level. What wins there, or nearly does, is the portfolio: a few uses,
each of which is predicted for all calls of the grid.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import geometric_mean
from typing import Any, NamedTuple

from han.common.errors import HanError
from han.common.grouped import grouped
from han.config.config import Config
from han.config.machine import MachineModel
from han.config.rules import Use
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tasks.choice import Choice, LevelChoice
from han.tasks.compositions import COMPOSITIONS, as_called
from han.tasks.outline import levels_of
from han.tasks.signature import Signature
from han.tuning.built_in.choosing import NodeTraits, choose
from han.tuning.prediction import Where, predict
from han.tuning.rules import RuleTable, use_of
from han.tuning.search.limits import EVERYTHING, Limits
from han.tuning.search.space import SEGMENTS, options

OWN = ("sm", "solo", "adapt", "exchange", "nap", "ring", "bundle", "scan")  # no library's calls
LIMITS = Limits(submodules=OWN, parameters={"factors": ()})  # which would fit few numbers of ranks
# In the simulator messages inside a node do not share its memory, so copies alone are compared.
ON_NODE = LIMITS.model_copy(update={"submodules": ("sm", "solo", "exchange")})
USES = 32  # of a collective, at most
MANY, FEW, SMALL = 16, 4, 32 << 10  # calls in a row of messages up to so many bytes, and of others
HOPELESS = 3.0  # times the best: such a composition, or use, is not looked at further
ELEMENT = 8  # bytes, of the numbers that calls reduce
CLOSE = 1.03  # times the best: such a use is in the portfolio too


def calls_in_a_row(nbytes: int) -> int:
    """Return the simulated calls that stand for a row: a root may be many small calls ahead."""
    return MANY if nbytes <= SMALL else FEW


class Case(NamedTuple):
    """A call on a shape of machine."""

    collective: str
    nodes: int
    ppn: int
    nbytes: int


@dataclass(frozen=True)
class Grid:
    """Calls and shapes: all combinations of up to `ranks` ranks."""

    collectives: tuple[str, ...]
    nodes: tuple[int, ...]
    ppn: tuple[int, ...]
    nbytes: tuple[int, ...]
    ranks: int

    def shapes(self) -> Iterator[tuple[int, int]]:
        """Yield nodes, and ranks a node."""
        return ((n, p) for n in self.nodes for p in self.ppn if n * p <= self.ranks)

    def cases(self) -> Iterator[Case]:
        """Yield all cases."""
        for name in self.collectives:
            for nodes, ppn in self.shapes():
                yield from (Case(name, nodes, ppn, nbytes) for nbytes in self.nbytes)

    def drawn(self, count: int, seed: int = 1) -> Iterator[Case]:
        """Yield so many cases between the ends of each axis, drawn evenly on a log scale."""
        random = Random(seed)
        for _ in range(count):
            nodes = _drawn(random, self.nodes, self.ranks // min(self.ppn))
            ppn, nbytes = _drawn(random, self.ppn, self.ranks // nodes), _drawn(random, self.nbytes)
            whole = -(-nbytes // ELEMENT) * ELEMENT
            yield Case(random.choice(self.collectives), nodes, ppn, whole)


def _drawn(random: Random, axis: Sequence[int], most: float = math.inf) -> int:
    """Return a number between the ends of an axis, and not above `most`."""
    ends = min(axis), min(max(axis), most)
    return round(math.exp(random.uniform(*map(math.log, ends))))


class Laboratory:
    """Predicts calls on one machine model; every program is predicted once.

    The time is that of a call by itself, or `in_a_row` that of one of several back to back.
    """

    def __init__(self, machine: MachineModel, in_a_row: bool = False) -> None:
        self.machine, self.in_a_row = machine, in_a_row
        self._rules: dict[tuple[int, int], tuple[Where, RuleTable]] = {}
        self._known: dict[tuple[Case, Choice], float | None] = {}

    def rules(self, case: Case) -> RuleTable:
        """Return what decides on a shape, without rules, tables and classes of machines."""
        return self._place(case)[1]

    def _place(self, case: Case) -> tuple[Where, RuleTable]:
        key = case.nodes, case.ppn
        if key not in self._rules:
            where = Where(self.machine, *key)
            imagined = where.imagined()
            traits = imagined.traits._replace(cores=0)
            self._rules[key] = where, RuleTable(None, imagined.topology(Config()), traits)
        return self._rules[key]

    def call(self, case: Case) -> Signature:
        """Return the call of a case."""
        return self.rules(case).called(call_signature(case.collective, case.nbytes))

    def built_in(self, case: Case) -> Choice:
        """Return the built-in choice."""
        return self.rules(case).decide(self.call(case)).choice

    def traits(self, case: Case) -> NodeTraits:
        """Return the traits of the machine's nodes."""
        return self._place(case)[0].imagined().traits

    def choice(self, case: Case) -> Choice:
        """Return what han chooses on a machine of this class."""
        rules = replace(self.rules(case), traits=self.traits(case))
        return rules.decide(self.call(case)).choice

    def seconds(self, case: Case, choice: Choice) -> float | None:
        """Return the predicted time of a choice; None if it cannot serve the call."""
        choice = replace(choice, rule="")
        key = case, choice
        if key not in self._known:
            self._known[key] = self._predict(case, choice)
        return self._known[key]

    def _predict(self, case: Case, choice: Choice) -> float | None:
        where, rules = self._place(case)
        signature = self.call(case)
        if rules.objection(signature, choice, blocking=False) is not None:
            return None
        try:
            plan = plan_of_choice(rules.topology, signature, choice, Config().memory)
            runs = calls_in_a_row(case.nbytes) if self.in_a_row else 1
            return predict(where, plan, runs=runs).seconds
        except (HanError, RuntimeError, ValueError, KeyError):  # no model of its operations
            return None

    def of_use(self, case: Case, use: Use | None) -> float | None:
        """Return the predicted time of a use; None is the built-in choice."""
        if use is None:
            return self.seconds(case, self.built_in(case))
        return self.seconds(case, self.rules(case).made(use, "", self.call(case)))

    def use(self, case: Case, choice: Choice) -> Use:
        """Return a choice as rows write it, for the levels on which the call communicates."""
        rules = self.rules(case)
        view = as_called(rules.topology, self.call(case), choice.composition)
        names = {level: view.names[level] for level in levels_of(view, self.call(case))}
        return use_of(choice, names)


# ---- anchors ------------------------------------------------------------------------------------


def improved(lab: Laboratory, case: Case, limits: Limits) -> list[tuple[float, Choice]]:
    """Return the best choice found of each composition that is not hopeless, the best one first."""
    first = composed(lab, case)
    hopeful = [one for one in first if one[0] < HOPELESS * first[0][0]]
    return sorted((_descended(lab, case, *one, limits) for one in hopeful), key=lambda one: one[0])


def composed(lab: Laboratory, case: Case) -> list[tuple[float, Choice]]:
    """Return the built-in choice of each composition, the best one first."""
    call, rules = lab.call(case), lab.rules(case)
    choices = (choose(call, rules.topology, rules.traits, name) for name in COMPOSITIONS)
    found = [(lab.seconds(case, choice), choice) for choice in choices]
    return sorted([(s, c) for s, c in found if s is not None], key=lambda one: one[0])


def _descended(
    lab: Laboratory, case: Case, seconds: float, choice: Choice, limits: Limits
) -> tuple[float, Choice]:
    """Improve a choice: algorithms of levels, the segment, then a parameter of each level."""
    call = lab.call(case)
    view = as_called(lab.rules(case).topology, call, choice.composition)
    active = levels_of(view, call)

    def better(best: tuple[float, Choice], others: Iterable[Choice]) -> tuple[float, Choice]:
        found = ((lab.seconds(case, other), other) for other in others)
        known = [(time, other) for time, other in found if time is not None]
        return min([best, *known], key=lambda one: one[0])

    best = seconds, choice
    for plain in (True, False):
        for level in reversed(active):
            usual = best[1].levels[level]
            every = options(call, view, level, choice.composition, limits)
            some = (o for o in every if _tried(o, usual, plain))
            best = better(best, (_with(best[1], level, o) for o in some))
        if plain and len(active) > 1:
            segments = (None, *(s for s in SEGMENTS if s < call.nbytes))
            best = better(best, (replace(best[1], segment=s) for s in segments))
    return best


def _tried(option: LevelChoice, usual: LevelChoice, plain: bool) -> bool:
    """Return whether an option is an algorithm by itself, or a variant of the usual one."""
    if plain:
        return not option.parameters
    same = (option.submodule, option.algorithm) == (usual.submodule, usual.algorithm)
    return same and bool(option.parameters)


def _with(choice: Choice, level: int, option: LevelChoice) -> Choice:
    levels = (*choice.levels[:level], option, *choice.levels[level + 1 :])
    return replace(choice, levels=levels)


# ---- the portfolio ------------------------------------------------------------------------------


def winners(labs: Sequence[Laboratory], case: Case, limits: Limits = EVERYTHING) -> list[Use]:
    """Return the uses that win, or nearly do, on a machine where the built-in choice does not."""
    found: dict[str, Use] = {}
    for lab in labs:
        usual, ranked = lab.of_use(case, None) or math.inf, improved(lab, case, limits)
        for seconds, choice in ranked:
            if seconds < CLOSE * ranked[0][0] and CLOSE * seconds < usual:
                use = lab.use(case, choice)
                found[repr(use)] = use
    return [*found.values()]


def composition_winners(labs: Sequence[Laboratory], case: Case) -> list[Use]:
    """Return the built-in choices of the composition that wins on a machine, if another one does.

    They need no search, so shapes of many ranks have them too.
    """
    found: dict[str, Use] = {}
    for lab in labs:
        usual, (seconds, choice) = lab.of_use(case, None) or math.inf, composed(lab, case)[0]
        if CLOSE * seconds < usual:
            use = lab.use(case, choice)
            found[repr(use)] = use
    return [*found.values()]


def portfolio(won: Iterable[Sequence[Use]], most: int) -> list[Use | None]:
    """Return the uses that win most often on a collective's anchors, the built-in one first."""
    counts, known = Counter[str](), dict[str, Use]()
    for uses in won:
        for use in uses:
            known[repr(use)] = use
            counts[repr(use)] += 1
    return [None, *(known[key] for key, _ in counts.most_common(most))]


def portfolios(
    grid: Grid, won: Iterable[tuple[Case, Sequence[Use]]]
) -> dict[str, list[Use | None]]:
    """Return the portfolio of each collective from the uses that win cases."""
    by_name = grouped((case.collective, uses) for case, uses in won)
    return {name: portfolio(by_name.get(name, ()), USES) for name in grid.collectives}


def predicted(
    labs: Sequence[Laboratory], cases: Sequence[Case], uses: Sequence[Use | None]
) -> list[dict[int, float]]:
    """Return the geometric means of a use's times over the least, by its number, for each case.

    The cases are of one call on more and more nodes. A use that takes too long is not tried on
    more of them: large shapes take most of the time.
    """
    found: list[dict[int, float]] = []
    hopeful = [*range(len(uses))]
    for case in cases:
        ratios = compared(labs, case, {k: uses[k] for k in hopeful})
        found.append({k: geometric_mean(some) for k, some in ratios.items()})
        hopeful = [k for k in hopeful if k == 0 or found[-1].get(k, 1.0) < HOPELESS]
    return found


def compared(
    labs: Sequence[Laboratory], case: Case, uses: Mapping[int, Use | None]
) -> dict[int, list[float]]:
    """Return a use's time over the least on each machine, by its number.

    The built-in choice, which serves all calls, has number 0. A use that does not serve a call on
    some machine is left out.
    """
    found: dict[int, list[float]] = {}
    for lab in labs:
        times = {k: lab.of_use(case, use) for k, use in uses.items()}
        least = min(time for time in times.values() if time is not None)
        for k, time in times.items():
            found.setdefault(k, []).append(math.inf if time is None else time / least)
    return {k: ratios for k, ratios in found.items() if all(map(math.isfinite, ratios))}


def chosen(times: Mapping[Case, Mapping[int, float]], grid: Grid, error: float) -> dict[Case, int]:
    """Return which use each case runs: of those that differ by less than `error`, a simple one.

    It is the built-in choice if that is one of them, else the use that most neighbours run, cases
    that differ by one step of the grid.
    """
    found = {case: min(ratios, key=lambda k: (ratios[k], k)) for case, ratios in times.items()}
    for _ in range(3):
        for case, ratios in times.items():
            able = {k for k, ratio in ratios.items() if ratio <= error * min(ratios.values())}
            if 0 in able:
                found[case] = 0
                continue
            near = Counter(found[one] for one in _neighbours(case, grid) if one in found)
            found[case] = max(able, key=lambda k: (near[k], -ratios[k]))
    return found


def _neighbours(case: Case, grid: Grid) -> Iterator[Case]:
    for name in ("nodes", "ppn", "nbytes"):
        values: tuple[int, ...] = getattr(grid, name)
        place = values.index(getattr(case, name))
        for other in (place - 1, place + 1):
            if 0 <= other < len(values):
                step: dict[str, Any] = {name: values[other]}
                yield case._replace(**step)
