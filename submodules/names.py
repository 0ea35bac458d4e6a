"""The names in a configuration's rules: submodules, algorithms and parameters, as registered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from han.common.suggest import unknown
from han.config.config import Config
from han.config.errors import KeyPath, Problem, config_error
from han.config.parameters import ParameterValue, not_taken
from han.config.rules import KINDS, KindUse, LevelUse, Rule
from han.submodules.registry import registered
from han.tasks.compositions import COMPOSITIONS, TREE
from han.tasks.contract import Submodule

Parts = Mapping[str, Submodule]
AnyUse = TypeVar("AnyUse", LevelUse, KindUse)
FIELDS = ("submodule", "algorithm", *KINDS)  # keys of a level's use that are not parameters
SIDES = {"between": ("outermost",), "inside": ("inside", "node")}  # those of compositions


def validate_names(config: Config) -> Config:
    """Return `config` with the parameters of its rules parsed by the submodules.

    Raises ConfigError for unknown submodules, algorithms and parameters, with the known names, and
    for values that a parameter does not take.
    """
    parts = registered()
    rules, problems = _named_rules(config.rules, parts)
    problems += _composition_problems(config, parts)
    problems += _impossible_problems(rules, len(config.levels), parts)
    if problems:
        raise config_error(problems, config.origin)
    return replace(config, rules=rules)


def _named_rules(rules: tuple[Rule, ...], parts: Parts) -> tuple[tuple[Rule, ...], list[Problem]]:
    """Return ``rules`` with parsed parameters, and problems with names and values."""
    problems: list[Problem] = []
    parsed = []
    for k, rule in enumerate(rules):
        levels = {
            name: _named_use(use, parts, ("rules", k, "use", "levels", name), problems)
            for name, use in rule.use.levels.items()
        }
        parsed.append(replace(rule, use=replace(rule.use, levels=levels)))
    return tuple(parsed), problems


def _composition_problems(config: Config, parts: Parts) -> Iterator[Problem]:
    """Yield a problem for each level of a rule that cannot serve the rule's composition.

    Of more than two levels, only the outermost one is known to be between nodes.
    """
    names = [level.name for level in config.levels]
    for k, rule in enumerate(config.rules):
        for name, use in rule.use.levels.items():
            known = name in names and use.submodule in parts
            if rule.use.composition is None or not known:
                continue
            side = "between" if name == names[-1] else "inside" if len(names) == 2 else ""
            reason = _serves_not(rule.use.composition, side, use, parts) if side else None
            if reason is not None:
                path = ("rules", k, "use", "levels", name, "submodule")
                yield Problem(path, reason, use.submodule)


def _impossible_problems(rules: tuple[Rule, ...], depth: int, parts: Parts) -> Iterator[Problem]:
    """Yield a problem for each rule that can serve no call, on any machine.

    Parameters must have been parsed. What depends on a call or a machine is no problem here: then
    the rule is passed over, and ``comm.explain`` says why.
    """
    for k, rule in enumerate(rules):
        served = COMPOSITIONS[rule.use.composition or TREE].collectives
        asked = rule.when.collective
        if served and asked and not {*asked} & {*served}:
            reason = f"serves {', '.join(served)}; the rule is for {', '.join(asked)} only"
            yield Problem(("rules", k, "use", "composition"), reason, rule.use.composition)
        for name, use in rule.use.levels.items():
            path = ("rules", k, "use", "levels", name)
            yield from _never_taken(use, parts, path)
            yield from _too_many_lanes(rule, use, depth, path)


def _never_taken(use: LevelUse, parts: Parts, path: KeyPath) -> Iterator[Problem]:
    """Yield a problem for parameters that an algorithm of a level can never take."""
    part = parts.get(use.submodule)
    if part is None:
        return
    own = [(kind, one.algorithm, one.parameters) for kind, one in use.kinds.items()]
    for kind, algorithm, parameters in ((None, use.algorithm, use.parameters), *own):
        algorithm = algorithm or use.algorithm
        if algorithm is None or algorithm not in part.algorithms:
            continue  # chosen later, for each call; or unknown
        where = (*path, kind) if kind else path
        reason = part.never(algorithm, parameters)
        if reason is not None:
            yield Problem((*where, "factors"), reason.removeprefix("factors: "))
        taken = part.taken(algorithm)
        for name in parameters:
            if name not in taken and not (name == "factors" and reason is not None):
                yield Problem((*where, name), not_taken(algorithm, name, taken))


def _too_many_lanes(rule: Rule, use: LevelUse, depth: int, path: KeyPath) -> Iterator[Problem]:
    """Yield a problem if a rule for nodes of some ranks asks for more lanes than these."""
    lanes, ppn = use.parameters.get("lanes"), rule.when.ends("ppn")
    if rule.use.composition != "lanes" or depth != 2 or not isinstance(lanes, int):
        return
    if ppn is not None and lanes > ppn[1]:
        reason = f"but the rule is for nodes of at most {ppn[1]} ranks (ppn)"
        yield Problem((*path, "lanes"), reason, lanes)


def _serves_not(composition: str, side: str, use: LevelUse, parts: Parts) -> str | None:
    """Return why a level's use cannot serve a composition, or None."""
    needs = [need for one in SIDES[side] for need in COMPOSITIONS[composition].needs(one)]
    table = {
        name: [one for one in part.algorithms if any(part.meets(one, need) for need in needs)]
        for name, part in parts.items()
    }
    able = table[use.submodule]
    if not needs or (able and use.algorithm in (None, *able)):
        return None
    known = [f"{name} {one}" for name, ones in table.items() if name != "null" for one in ones]
    what = f"{use.algorithm} of {use.submodule}" if use.algorithm else use.submodule
    where = "between nodes" if side == "between" else "inside nodes"
    return f"{what} does not serve composition {composition!r} {where}; known: {', '.join(known)}"


def _named_use(use: LevelUse, parts: Parts, path: KeyPath, problems: list[Problem]) -> LevelUse:
    part = parts.get(use.submodule)
    if part is None:
        reason = unknown("submodule", use.submodule, parts)
        problems.append(Problem((*path, "submodule"), reason, use.submodule))
        return use
    kinds = {kind: _parsed(part, own, (*path, kind), problems) for kind, own in use.kinds.items()}
    return replace(_parsed(part, use, path, problems), kinds=kinds)


def _parsed(part: Submodule, use: AnyUse, path: KeyPath, problems: list[Problem]) -> AnyUse:
    """Return what a level or one kind of its tasks runs, with parsed parameters."""
    if use.algorithm is not None and use.algorithm not in part.algorithms:
        reason = unknown(f"algorithm of {part.name}", use.algorithm, part.algorithms)
        problems.append(Problem((*path, "algorithm"), reason, use.algorithm))
    parsed: dict[str, ParameterValue] = {}
    of_kind: bool = path[-1] in KINDS
    for name, value in use.parameters.items():
        if name not in part.parameters:
            keys = [*part.parameters, *(FIELDS[1:2] if of_kind else FIELDS)]
            reason = unknown(f"parameter of {part.name}", name, keys)
            problems.append(Problem((*path, name), reason))
            continue
        if of_kind and part.parameters[name].joint:
            problems.append(Problem((*path, name), f"is for the level: write it beside {path[-1]}"))
            continue
        try:
            parsed[name] = part.parameters[name].parse(value)
        except ValueError as error:
            shown = list(value) if isinstance(value, tuple) else value
            problems.append(Problem((*path, name), str(error), shown))
    return replace(use, parameters=parsed)
