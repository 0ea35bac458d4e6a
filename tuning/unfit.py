"""Why a choice cannot serve a call: what its composition needs, and what submodules can do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from han.model.collectives import FUSED, ROWS
from han.model.topology import Topology
from han.submodules.registry import registered, submodule
from han.tasks.choice import Choice, LevelChoice
from han.tasks.compositions import Composition, Need, composition, side_of
from han.tasks.contract import Question, Submodule, order_kept
from han.tasks.lanes import folds
from han.tasks.outline import levels_of
from han.tasks.signature import Signature

REMEMBERED = 4096  # choices of levels


def unfit(topology: Topology, signature: Signature, choice: Choice, blocking: bool) -> str | None:
    """Return why a choice cannot serve a call, or None; `topology` is as the call sees it."""
    row = composition(choice.composition)
    misfit = row.unfit(topology, signature, choice)
    if misfit is not None:
        return misfit
    active = levels_of(topology, signature)
    for level in active:
        repeats = bool(row.sides) and _repeats(row, topology, level)
        own, segment = choice.levels[level], choice.segment
        question = Question(topology, level, signature, own, segment, blocking, "", repeats)
        last = level == active[-1]
        reason = _unfit(question, choice, last) if row.sides else _no_tree(question, last)
        reason = reason or _untaken(submodule(question.choice.submodule), question.choice)
        if reason is not None:
            return f"{topology.names[level]}: {choice.levels[level].submodule}: {reason}"
    return None


@lru_cache(REMEMBERED)
def _untaken(part: Submodule, choice: LevelChoice) -> str | None:
    """Return which parameter an algorithm of a level does not read, or None."""
    return next((reason for one in choice.each if (reason := part.untaken(one))), None)


def _repeats(row: Composition, topology: Topology, level: int) -> bool:
    """Whether a segment has several tasks on a level."""
    return any(need.repeats for need in row.needs(side_of(topology, level)))


def _unfit(question: Question, choice: Choice, outermost: bool) -> str | None:
    """Return why a level cannot carry out its part of a composition that has sides, or None."""
    view, own = question.topology, question.choice
    side, collective = side_of(view, question.level), question.signature.collective
    part = submodule(own.submodule)
    asked = _asked(part, own, choice.composition, side, collective)
    if asked is None:
        return _no_tree(question, outermost)
    reason = asked.reason
    for kind, one in asked.kinds:
        reason = reason or _refusal(part, question.of_kind(kind, one) if kind else question)
    return reason or (_crowded(question) if asked.lanes and folds(view, choice) else None)


class _Asked(NamedTuple):
    """What a composition asks of a level's choice: of which `kinds` of tasks it is asked whether
    it serves a call; the kind "" is the choice itself. `reason` says why it cannot serve any."""

    reason: str | None
    kinds: tuple[tuple[str, LevelChoice], ...]
    lanes: bool


@lru_cache(REMEMBERED)
def _asked(
    part: Submodule, own: LevelChoice, name: str, side: str, collective: str
) -> _Asked | None:
    """Return what a composition asks of a level's choice; None if it is a tree there."""
    needs = composition(name).needs(side, collective)
    if not needs:
        return None
    reason = _unmet(own, needs, name) or _no_such_kind(own, name, side)
    lanes = any(need.family == "lane" for need in needs)
    return _Asked(reason, _kinds_asked(part, own, needs), lanes)


def _no_such_kind(choice: LevelChoice, name: str, side: str) -> str | None:
    """Return which kind of tasks with a choice of its own a level does not have, or None."""
    kinds = {kind for need in composition(name).needs(side) for kind in need.kinds}
    at_once = (
        "allreduce" in kinds and submodule(choice.submodule).algorithms[choice.algorithm].fuses
    )
    for kind, _ in choice.kinds:
        if at_once:
            return f"{choice.algorithm} has no {kind} tasks of its own"
        if kind not in kinds:
            return f"{name} has no {kind} tasks here: {', '.join(sorted(kinds))}"
    return None


def _kinds_asked(
    part: Submodule, own: LevelChoice, needs: Sequence[Need]
) -> tuple[tuple[str, LevelChoice], ...]:
    """Return the kinds of tasks with a choice of their own; and "" if any runs the level's."""
    kinds = {kind for need in needs if _met(part, own, need) for kind in need.kinds}
    several = tuple((kind, one) for kind, one in own.kinds if kind in kinds)
    return several if kinds <= {kind for kind, _ in several} else (("", own), *several)


def _met(part: Submodule, choice: LevelChoice, need: Need) -> bool:
    """Return whether what runs the kinds of tasks of a level carries out a composition's need."""
    return all(part.meets(choice.of(kind).algorithm, need.of(kind)) for kind in need.kinds)


def _crowded(question: Question) -> str | None:
    """Return why ranks cannot carry several lanes: flags in shared memory count for all lanes."""
    view, level, own = question.topology, question.level, question.choice
    if not view.shared[level] or submodule(own.submodule).sends(view, level, own):
        return None
    return f"{own.algorithm} works in shared memory, and ranks of small nodes have several lanes"


def _unmet(choice: LevelChoice, needs: Sequence[Need], name: str) -> str | None:
    """Return why an algorithm meets none of the needs of a composition, or None."""
    if any(_met(submodule(choice.submodule), choice, need) for need in needs):
        return None
    able = [
        f"{other} {algorithm}"
        for other, part in registered().items()
        for algorithm in part.algorithms
        if part.correct and any(part.meets(algorithm, need) for need in needs)
    ]
    own = "".join(f", {kind}: {one.algorithm}" for kind, one in choice.kinds)
    return f"{choice.algorithm}{own} does not serve {name} here; known: {', '.join(able)}"


def _no_tree(question: Question, outermost: bool) -> str | None:
    """Return why a level's choice cannot carry out its tasks of a tree, or None."""
    choice = question.choice
    part = submodule(choice.submodule)
    kinds = _kinds(question, outermost)
    tasks, reason = _tasks_of(part, choice, question.signature.collective, outermost, kinds)
    ask = _refusal if question.signature.canonical else part.__class__.supports
    for kind, one in tasks:
        other = ask(part, question if one is choice else question.of_kind(kind, one))
        if other is not None:
            return other
    return reason


def _kinds(question: Question, outermost: bool) -> tuple[str, ...]:
    """Return the kinds of tasks that a level's choice carries out in a tree.

    Inside nodes, what scans hands down the prefix too, unless another algorithm does.
    """
    signature = question.signature
    if not signature.prefix or len(question.topology.active) < 2:
        return ROWS[signature.collective].task_kinds
    own = [kind for kind, _ in question.choice.kinds if kind == "bcast"]
    return ("exscan",) if outermost else (signature.collective, *own)


def _refusal(part: Submodule, question: Question) -> str | None:
    """Return why a submodule does not serve a level; it need not know of reproducible calls."""
    reason = part.supports(question)
    if reason is None and question.signature.canonical and part.correct:
        reason = order_kept(question, part.algorithms[question.choice.algorithm])
    return reason


@lru_cache(REMEMBERED)
def _tasks_of(
    part: Submodule, choice: LevelChoice, collective: str, outermost: bool, kinds: tuple[str, ...]
) -> tuple[tuple[tuple[str, LevelChoice], ...], str | None]:
    """Return what kinds of tasks run on a level, up to the first that nothing can carry out.

    With the reason, if there is one. Kinds that all run the same are the kind "".
    """
    found: list[tuple[str, LevelChoice]] = []
    if "leaders" not in part.algorithms[choice.algorithm].families:
        return (), f"{choice.algorithm} serves compositions other than tree and flat"
    about = part.algorithms[choice.algorithm]
    at_once = outermost and collective in FUSED
    if about.fuses and (at_once or not {*kinds} <= {*about.kinds}):
        reason = _not_fused(part, choice, collective, outermost)
        return (() if reason else (("", choice),)), reason
    alike = not any(kind in kinds for kind, _ in choice.kinds)
    for kind in ("",) if alike else kinds:
        one = choice.of(kind)
        algorithm = part.algorithms[one.algorithm]
        if not {*((kind,) if kind else kinds)} <= {*algorithm.kinds}:
            return tuple(found), f"{one.algorithm} serves {', '.join(algorithm.kinds)} only"
        found.append((kind, one))
    return tuple(found), None


def _not_fused(
    part: Submodule, choice: LevelChoice, collective: str, outermost: bool
) -> str | None:
    """Return why an algorithm that reduces and broadcasts at once cannot serve a level, or None."""
    if collective not in FUSED:
        return f"{choice.algorithm} serves {' and '.join(FUSED)} only"
    if not outermost:
        kinds = {*ROWS[collective].task_kinds}
        rows = part.algorithms.items()
        able = [a for a, row in rows if kinds <= {*row.kinds} and "leaders" in row.families]
        others = f"; of {part.name}, {', '.join(able)} may serve this one" if able else ""
        return f"{choice.algorithm} serves the outermost level only{others}"
    own = [kind for kind, _ in choice.kinds if kind in ROWS[collective].task_kinds]
    return f"{choice.algorithm} has no {own[0]} tasks of its own" if own else None
