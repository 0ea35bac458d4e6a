"""Checks over several keys of a configuration, and of names against the catalogue."""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from han.common.suggest import unknown
from han.config.catalogue import not_taken
from han.config.errors import KeyPath, Problem
from han.config.parts import Level, Scope, SizeScope, as_document
from han.config.rules import KINDS
from han.model.topology import MAX_LEVELS

if TYPE_CHECKING:
    from han.config.catalogue import Catalogue, ParameterValue, SubmoduleInfo
    from han.config.rules import KindUse, LevelUse, Rule

FIELDS = ("submodule", "algorithm", *KINDS)  # keys of a level's use that are not parameters
SOCKETS = ("l3", "numa", "socket")
_WIDTH = {"l3": 0, "numa": 0, "socket": 1, "shared_memory": 2, "all": 3}


def with_symbols(levels: tuple[Level, ...]) -> tuple[Level, ...]:
    """Return ``levels`` with a symbol for each level that has none.

    It is ``i`` for the outermost level and ``s`` for the innermost. Otherwise, or if another level
    has it, it is the first free letter of the name, or else of the alphabet.
    """
    symbols = [level.symbol for level in levels]
    preferred = {0: "s", len(levels) - 1: "i"} if levels else {}
    named = [(k, letter) for k, letter in preferred.items() if not symbols[k]]
    for k, letter in named:
        symbols[k] = letter if letter not in symbols else ""
    for k, level in enumerate(levels):
        letters = (*level.name.lower(), *string.ascii_letters)
        free = (c for c in letters if c in string.ascii_letters and c not in symbols)
        symbols[k] = symbols[k] or next(free, "")
    return tuple(
        replace(level, symbol=symbol) for level, symbol in zip(levels, symbols, strict=True)
    )


def level_problems(levels: tuple[Level, ...]) -> Iterator[Problem]:
    """Yield problems with the names, symbols and scopes of ``levels``, innermost first."""
    if not levels:
        yield Problem(("levels",), "needs at least one level", [])
        return
    if len(levels) > MAX_LEVELS:
        yield Problem(("levels",), f"{len(levels)} levels, at most {MAX_LEVELS}")
    for k, level in enumerate(levels):
        for key in ("name", "symbol"):
            value = getattr(level, key)
            if value in (getattr(other, key) for other in levels[:k]):
                yield Problem(("levels", k, key), "is taken by another level", value)
    yield from _scope_problems(levels)


def _scope_problems(levels: tuple[Level, ...]) -> Iterator[Problem]:
    outermost = len(levels) - 1
    widest, largest = 0, 0
    for k, level in enumerate(levels):
        path, scope = ("levels", k, "scope"), level.scope
        shown = scope if isinstance(scope, str) else as_document(scope)
        if k == outermost and scope != "all":
            yield Problem(path, "the outermost level, written last, must have 'all'", shown)
        elif k < outermost and scope == "all":
            yield Problem(path, "only the outermost level, written last, has 'all'", scope)
        elif isinstance(scope, str) and _WIDTH[scope] < widest:
            yield Problem(path, "lies inside a level before it; write the innermost first", scope)
        elif isinstance(scope, SizeScope) and scope.size <= largest:
            reason = f"must be larger than the {largest} of a level inside it"
            yield Problem((*path, "size"), reason, scope.size)
        widest = max(widest, _WIDTH[scope]) if isinstance(scope, str) else widest
        largest = max(largest, scope.size) if isinstance(scope, SizeScope) else largest


def socket_problems(scope: Scope) -> Iterator[Problem]:
    """Yield a problem if ``scope`` cannot define sockets."""
    if isinstance(scope, SizeScope) or scope in SOCKETS:
        return
    shown = scope if isinstance(scope, str) else as_document(scope)
    yield Problem(("sockets",), f"expected {', '.join(SOCKETS)} or {{size: k}}", shown)


def rule_problems(rules: tuple[Rule, ...], levels: tuple[Level, ...]) -> Iterator[Problem]:
    """Yield a problem for each level that a rule names and the configuration does not have."""
    known = [level.name for level in levels]
    for k, rule in enumerate(rules):
        for name in rule.use.levels:
            if name not in known:
                yield Problem(("rules", k, "use", "levels", name), unknown("level", name, known))


def named_rules(
    rules: tuple[Rule, ...], catalogue: Catalogue
) -> tuple[tuple[Rule, ...], list[Problem]]:
    """Return ``rules`` with parsed parameters, and problems with names and values."""
    problems: list[Problem] = []
    parsed = []
    for k, rule in enumerate(rules):
        levels = {
            name: _named_use(use, catalogue, ("rules", k, "use", "levels", name), problems)
            for name, use in rule.use.levels.items()
        }
        parsed.append(replace(rule, use=replace(rule.use, levels=levels)))
    return tuple(parsed), problems


def composition_problems(
    rules: tuple[Rule, ...], levels: tuple[Level, ...], catalogue: Catalogue
) -> Iterator[Problem]:
    """Yield a problem for each level of a rule that cannot serve the rule's composition.

    Of more than two levels, only the outermost one is known to be between nodes.
    """
    names = [level.name for level in levels]
    for k, rule in enumerate(rules):
        for name, use in rule.use.levels.items():
            known = name in names and use.submodule in catalogue.submodules
            if rule.use.composition is None or not known:
                continue
            side = "between" if name == names[-1] else "inside" if len(names) == 2 else ""
            reason = _serves_not(rule.use.composition, side, use, catalogue) if side else None
            if reason is not None:
                path = ("rules", k, "use", "levels", name, "submodule")
                yield Problem(path, reason, use.submodule)


def impossible_problems(
    rules: tuple[Rule, ...], levels: tuple[Level, ...], catalogue: Catalogue
) -> Iterator[Problem]:
    """Yield a problem for each rule that can serve no call, on any machine.

    Parameters must have been parsed. What depends on a call or a machine is no problem here: then
    the rule is passed over, and ``comm.explain`` says why.
    """
    for k, rule in enumerate(rules):
        served = catalogue.collectives.get(rule.use.composition or "")
        asked = rule.when.collective
        if served and asked and not {*asked} & {*served}:
            reason = f"serves {', '.join(served)}; the rule is for {', '.join(asked)} only"
            yield Problem(("rules", k, "use", "composition"), reason, rule.use.composition)
        for name, use in rule.use.levels.items():
            path = ("rules", k, "use", "levels", name)
            yield from _never_taken(use, catalogue, path)
            yield from _too_many_lanes(rule, use, len(levels), path)


def _never_taken(use: LevelUse, catalogue: Catalogue, path: KeyPath) -> Iterator[Problem]:
    """Yield a problem for parameters that an algorithm of a level can never take."""
    info = catalogue.submodules.get(use.submodule)
    if info is None:
        return
    own = [(kind, one.algorithm, one.parameters) for kind, one in use.kinds.items()]
    for kind, algorithm, parameters in ((None, use.algorithm, use.parameters), *own):
        algorithm = algorithm or use.algorithm
        if algorithm not in info.algorithms:
            continue  # chosen later, for each call; or unknown
        where = (*path, kind) if kind else path
        reason = info.never(algorithm, parameters)
        if reason is not None:
            yield Problem((*where, "factors"), reason.removeprefix("factors: "))
        taken = info.takes.get(algorithm, (*info.parameters,))
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


def _serves_not(composition: str, side: str, use: LevelUse, catalogue: Catalogue) -> str | None:
    """Return why a level's use cannot serve a composition, or None."""
    table = {
        name: getattr(info, side).get(composition) for name, info in catalogue.submodules.items()
    }
    able = table[use.submodule]
    if able is None or (able and use.algorithm in (None, *able)):
        return None
    known = [
        f"{name} {one}" for name, ones in table.items() if name != "null" for one in ones or ()
    ]
    what = f"{use.algorithm} of {use.submodule}" if use.algorithm else use.submodule
    where = "between nodes" if side == "between" else "inside nodes"
    return f"{what} does not serve composition {composition!r} {where}; known: {', '.join(known)}"


def _named_use(
    use: LevelUse, catalogue: Catalogue, path: KeyPath, problems: list[Problem]
) -> LevelUse:
    info = catalogue.submodules.get(use.submodule)
    if info is None:
        reason = unknown("submodule", use.submodule, catalogue.submodules)
        problems.append(Problem((*path, "submodule"), reason, use.submodule))
        return use
    kinds = {}
    for kind, own in use.kinds.items():
        _check_algorithm(use.submodule, own.algorithm, info, (*path, kind), problems)
        parsed = _parsed_parameters(use.submodule, own, info, (*path, kind), problems)
        kinds[kind] = replace(own, parameters=parsed)
    _check_algorithm(use.submodule, use.algorithm, info, path, problems)
    parsed = _parsed_parameters(use.submodule, use, info, path, problems)
    return replace(use, parameters=parsed, kinds=kinds)


def _check_algorithm(
    submodule: str, algorithm: str | None, info: SubmoduleInfo, path: KeyPath,
    problems: list[Problem],
) -> None:  # fmt: skip
    if algorithm is not None and algorithm not in info.algorithms:
        reason = unknown(f"algorithm of {submodule}", algorithm, info.algorithms)
        problems.append(Problem((*path, "algorithm"), reason, algorithm))


def _parsed_parameters(
    submodule: str, use: LevelUse | KindUse, info: SubmoduleInfo, path: KeyPath,
    problems: list[Problem],
) -> dict[str, ParameterValue]:  # fmt: skip
    parsed, of_kind = {}, path[-1] in KINDS
    for name, value in use.parameters.items():
        if name not in info.parameters:
            keys = [*info.parameters, *(FIELDS[1:2] if of_kind else FIELDS)]
            reason = unknown(f"parameter of {submodule}", name, keys)
            problems.append(Problem((*path, name), reason))
            continue
        if of_kind and info.parameters[name].joint:
            problems.append(Problem((*path, name), f"is for the level: write it beside {path[-1]}"))
            continue
        try:
            parsed[name] = info.parameters[name].parse(value)
        except ValueError as error:
            shown = list(value) if isinstance(value, tuple) else value
            problems.append(Problem((*path, name), str(error), shown))
    return parsed
