"""The space of a search: all choices that can serve a call, from the registry of submodules.

A submodule of another package is in the space like han's own. What is left out is listed with the
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, product

from han.common.grouped import grouped
from han.model.collectives import ROWS
from han.model.topology import Topology
from han.submodules.registry import registered
from han.tasks.choice import Choice, LevelChoice, Value
from han.tasks.compositions import COMPOSITIONS, TREE, as_called, composition, side_of
from han.tasks.contract import Algorithm, Parameter, Submodule
from han.tasks.outline import levels_of
from han.tasks.signature import Signature
from han.tuning.built_in.choosing import choose
from han.tuning.rules import RuleTable
from han.tuning.search.limits import EVERYTHING, Limits

KiB = 1024
SEGMENTS = tuple(1 << k for k in range(14, 21))  # 16 KiB to 1 MiB
SIZES = (16 * KiB, 64 * KiB, 256 * KiB, 1024 * KiB)  # of parameters in bytes
COUNTS = (1, 2, 4, 8, 16)  # of parameters that are whole numbers
SCHEDULES = ("dataflow", "lockstep")


# Groups of reasons for leaving out candidates, as summaries count them.
UNFIT = "cannot serve these calls on these ranks"
UNWANTED = "not in the space that was asked for"
UNTRIED = "parameters and combinations that are not tried"
HEURISTIC = "not expected to be the best, by heuristics"
SLOW = "not predicted, as the same algorithms are slow"
SAME = "run the same programs as others"
IN_A_ROW = "not clearly faster than the built-in choice in calls back to back"
LATE = "the time was over"
PREDICTED = "predicted, and not measured"
SETTLED = "not predicted, as others won at smaller and at larger sizes"
LEFT = "calls that are left to the MPI library"


@dataclass(frozen=True)
class Pruned:
    """Candidates that are left out: what they have in common, the reason, and its group."""

    what: str
    reason: str
    group: str = UNFIT

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"


ALIKE = Pruned("the same programs", "a parameter or a shape changes nothing on these ranks", SAME)


@dataclass(frozen=True)
class Space:
    """The candidates of a call, the built-in choice first, and what is left out."""

    candidates: tuple[Choice, ...]
    pruned: tuple[Pruned, ...]


def space_of(
    rules: RuleTable, signature: Signature, limits: Limits = EVERYTHING,
    group: Callable[[Choice], Hashable | None] = lambda choice: None,
) -> Space:  # fmt: skip
    """Return every choice that can serve a call on the ranks of `rules`.

    Of choices that have one `group`, as they run the same programs, it has the first one.

    It holds all combinations of algorithms, segments and schedules with default parameters. For
    each level it also holds each algorithm with one parameter at another value, where the other
    levels run the built-in choice. Where a level has several kinds of tasks, each of them may run
    its own algorithm of a submodule, or have its own value of a parameter. On several nodes the
    other compositions follow, with one deviation each from their built-in choices.
    """
    signature = rules.called(signature)
    topology = as_called(rules.topology, signature)
    active = levels_of(topology, signature)
    first = replace(rules, config=None, tuned=None).decide(signature).choice
    built_in = replace(first, rule="")
    pruned: dict[Pruned, None] = {}
    plain, varied = [], []
    for level, usual in enumerate(built_in.levels):
        kinds = _kinds(signature, outermost=level == active[-1]) if level in active else []
        found = [*_options(kinds, limits, pruned, topology.widest(level))]
        several = len(ROWS[signature.collective].task_kinds) > 1
        found += _by_kind(tuple(found)) if several else ()
        default = [x for x in found if not any(one.parameters for one in x.each)]
        plain.append(list(dict.fromkeys([usual, *default])))
        varied.append([x for x in found if any(one.parameters for one in x.each)])
    combinations = [*product(*plain), *_one_varied(built_in.levels, varied)]
    nested = len(active) > 1
    segments: Sequence[int | None] = _segments(signature, limits) if nested else (None,)
    schedules = limits.schedules if nested else SCHEDULES[:1]
    kept, seen = {built_in: None}, {group(built_in)}
    trees = (Choice(*one) for one in product(combinations, segments, schedules))
    for choice in chain(trees, _composed(rules, signature, limits, pruned)):
        own = group(choice)
        if own is not None and own in seen:
            pruned[ALIKE] = None
            continue
        reason = _objection(rules, signature, choice)
        if reason is None:
            kept[choice] = None
            seen.add(own)
        else:
            pruned[reason] = None
    return Space(tuple(kept), tuple(pruned))


def _composed(
    rules: RuleTable, signature: Signature, limits: Limits, pruned: dict[Pruned, None]
) -> Iterator[Choice]:
    """Yield the choices of other compositions than a tree: the built-in one, then its neighbours.

    A neighbour has another segment, or one level with another algorithm or parameter.
    """
    names = [name for name in COMPOSITIONS if name != TREE]
    if rules.topology.nodes == 1:
        pruned[Pruned(", ".join(names), "all ranks are on one node")] = None
        return
    for name in names:
        usual = replace(choose(signature, rules.topology, rules.traits, name), rule="")
        view = as_called(rules.topology, signature, name)
        active = levels_of(view, signature)
        unlike = _unlike(name, usual, active, limits)
        reason = unlike or rules.objection(signature, usual)
        if reason is not None:
            pruned[Pruned(name, reason, UNWANTED if unlike else UNFIT)] = None
            continue
        yield usual
        for segment in _segments(signature, limits) if len(active) > 1 else ():
            yield replace(usual, segment=segment)
        for level in active:
            for option in options(signature, view, level, name, limits, pruned):
                levels = (*usual.levels[:level], option, *usual.levels[level + 1 :])
                yield replace(usual, levels=levels)
        pruned[Pruned(name, "combinations of deviations from its built-in choice", UNTRIED)] = None


def options(
    signature: Signature, view: Topology, level: int, name: str, limits: Limits,
    pruned: dict[Pruned, None] | None = None,
) -> Iterator[LevelChoice]:  # fmt: skip
    """Yield what a level may run in a composition, with one parameter at another value at most."""
    side = side_of(view, level) if composition(name).sides else ""
    needs = composition(name).needs(side, signature.collective)
    outermost = level == levels_of(view, signature)[-1]
    kinds = [{*need.kinds} for need in needs] or _kinds(signature, outermost)
    yield from _options(kinds, limits, {} if pruned is None else pruned, view.widest(level))


def _unlike(name: str, usual: Choice, active: Sequence[int], limits: Limits) -> str | None:
    """Return which limit rules out a composition, or None."""
    if limits.compositions is not None and name not in limits.compositions:
        return "not among the wanted compositions"
    needed = {
        "submodules": (limits.submodules, [usual.levels[level].submodule for level in active]),
        "algorithms": (limits.algorithms, [usual.levels[level].algorithm for level in active]),
    }
    for what, (wanted, names) in needed.items():
        for one in names:
            if wanted is not None and one not in wanted:
                return f"it needs {one}, which is not among the wanted {what}"
    return None


@lru_cache(64)
def _by_kind(found: tuple[LevelChoice, ...]) -> tuple[LevelChoice, ...]:
    """Return levels whose reductions run otherwise than their broadcasts.

    They have other algorithms, or one of them has one parameter at another value.
    """
    parts, made = registered(), list[LevelChoice]()
    for name, some in grouped((one.submodule, one) for one in found).items():
        part = parts[name]
        joint = {key for key, parameter in part.parameters.items() if parameter.joint}
        serves = {kind: [one for one in some if kind in part.algorithms[one.algorithm].kinds]
                  for kind in ("bcast", "reduce")}  # fmt: skip
        for release, gather in product(serves["bcast"], serves["reduce"]):
            if release is gather or (release.parameters and gather.parameters):
                continue
            varied = {key for key, _ in (*release.parameters, *gather.parameters)}
            one_differs = (release.algorithm == gather.algorithm) == bool(varied)
            if one_differs and joint.isdisjoint(varied):
                made.append(release.where("reduce", gather))
    return tuple(made)


def _one_varied(
    usual: tuple[LevelChoice, ...], varied: Sequence[Sequence[LevelChoice]]
) -> Iterator[tuple[LevelChoice, ...]]:
    for level, options in enumerate(varied):
        for option in options:
            yield (*usual[:level], option, *usual[level + 1 :])


def _kinds(signature: Signature, outermost: bool) -> list[set[str]]:
    """Return the sets of task kinds of which an algorithm of a level serves one."""
    kinds = [set(ROWS[signature.collective].task_kinds)]
    return [*kinds, {"allreduce"}] if outermost and signature.collective == "allreduce" else kinds


def _segments(signature: Signature, limits: Limits) -> list[int | None]:
    wanted = SEGMENTS if limits.segments is None else limits.segments
    return [None, *(s for s in wanted if s < signature.nbytes)]


def _objection(rules: RuleTable, signature: Signature, choice: Choice) -> Pruned | None:
    reason = rules.objection(signature, choice)
    if reason is None:
        return None
    return Pruned(reason.partition(": ")[2].partition(":")[0], reason)


def _options(
    kinds: Sequence[set[str]], limits: Limits, pruned: dict[Pruned, None], members: int
) -> Iterator[LevelChoice]:
    """Yield what may carry out tasks of some kinds on a level, whose groups have `members`."""
    for name, part in registered().items():
        reason = _unwanted(name, part, limits)
        if reason is not None:
            pruned[
                Pruned(name, reason, UNFIT if part.may_block or not part.correct else UNWANTED)
            ] = None
            continue
        for algorithm, about in part.algorithms.items():
            if not any(kind <= set(about.kinds) for kind in kinds):
                continue
            if limits.algorithms is not None and algorithm not in limits.algorithms:
                what, reason = f"{name} {algorithm}", "not among the wanted algorithms"
                pruned[Pruned(what, reason, UNWANTED)] = None
                continue
            yield from _variants(name, part, algorithm, about, limits, pruned, members)


def _unwanted(name: str, part: Submodule, limits: Limits) -> str | None:
    if not part.correct:
        return "its results are wrong by design"
    if part.may_block:
        return "it may block, so calls could not be looked up by their shape alone"
    if limits.submodules is not None and name not in limits.submodules:
        return "not among the wanted submodules"
    return None


def _variants(
    name: str, part: Submodule, algorithm: str, about: Algorithm, limits: Limits,
    pruned: dict[Pruned, None], members: int,
) -> Iterator[LevelChoice]:  # fmt: skip
    """Yield an algorithm with its defaults, then with one parameter at another value each."""
    yield LevelChoice(name, algorithm)
    for key, parameter in part.parameters.items():
        if about.takes is not None and key not in about.takes:
            continue
        values = _values(f"{name}.{key}", key, parameter, limits)
        wanted = key not in (limits.parameters or {})
        if not values and wanted and parameter.kind == "factors" and members > 1:
            values = tuple(part.factor_lists(algorithm, members))
            if not values:
                continue  # it has no factors but its own
        if not values:
            reason = "no values to try: name them in the space's parameters"
            pruned[Pruned(f"{name} {key}", reason, UNTRIED)] = None
        for value in values:
            yield LevelChoice(name, algorithm, ((key, value),))


def _values(full: str, key: str, parameter: Parameter, limits: Limits) -> tuple[Value, ...]:
    """Return the values of a parameter to try, within its bounds."""
    given = limits.parameters or {}
    if full in given or key in given:
        return given.get(full, given.get(key, ()))
    if parameter.asked:
        return ()
    if parameter.kind == "bool":
        return (False, True)
    if parameter.kind == "name":
        return parameter.choices
    wanted: Iterable[int] = {"size": SIZES, "int": COUNTS}.get(parameter.kind, ())
    return tuple(v for v in wanted if parameter.minimum <= v <= parameter.maximum)
