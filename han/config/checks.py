"""Checks over several keys of a configuration."""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from han.common.suggest import unknown
from han.config.errors import Problem
from han.config.parts import Level, Scope, SizeScope, as_document
from han.model.topology import MAX_LEVELS

if TYPE_CHECKING:
    from han.config.rules import Rule

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
