"""The words of a command line that name calls: collectives, and sizes.

A word that begins with a digit holds sizes, any other one names collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from han.cli.common import known_op, size_of
from han.cli.grammar import is_size
from han.common.errors import ArgumentError
from han.model.collectives import calls, carried, expect_size

Call = tuple[str, int, str, str, int]  # collective, bytes, operation, type, root


class Words(NamedTuple):
    """The names of collectives, and sizes as :func:`han.common.units.parse_sizes` takes them."""

    names: tuple[str, ...]
    sizes: str


def calls_of(
    words: Sequence[str] | None, names: Sequence[str] = (), sizes: str = "0"
) -> Words:  # fmt: skip
    """Return the collectives and sizes that words name, or the usual ones where they name none."""
    found = [part for word in words or () for part in word.split(",")]
    named = tuple(part for part in found if not is_size(part))
    if "" in named:
        raise ArgumentError(f"{' '.join(words or ())!r}: a name or a size is missing at a comma")
    return Words(named or tuple(names), ",".join(filter(is_size, found)) or sizes)


def collective_of(words: Words) -> str:
    """Return the only collective; raises ArgumentError if there are none or several."""
    if len(words.names) != 1:
        known = ", ".join(calls())
        raise ArgumentError(f"{' '.join(words.names) or 'no collective'}: name one of {known}")
    return carried(words.names[0])


def call_of(words: Sequence[str], op: str, dtype: str, root: int) -> Call:
    """Return the call that words name. Raises ArgumentError for unknown or several names."""
    found = calls_of(words, sizes="")
    name = collective_of(found)
    expect_size(name, found.sizes)
    return name, size_of(found.sizes or "0"), known_op(op), dtype, root


def action_of(
    words: Sequence[str] | None, actions: Sequence[str]
) -> tuple[str, list[str]]:  # fmt: skip
    """Return the action that words name, by default the first, and the other words."""
    rest = list(words or ())
    named = next((word for word in rest if word in actions), None)
    if named is None:
        return actions[0], rest
    rest.remove(named)
    return named, rest


def file_of(words: list[str], because: str) -> str:
    """Take the first of some words, which names a file; raises ArgumentError without one."""
    if not words:
        raise ArgumentError(because)
    return words.pop(0)
