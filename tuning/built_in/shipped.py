"""The table of built-in choices that comes with han, read once in a process."""

from __future__ import annotations

import warnings
from functools import cache

from han.config.source import READY
from han.tuning.built_in.reading import content_of, digest_of, parse
from han.tuning.built_in.safe import SAFE
from han.tuning.built_in.table import UNUSED, ChoicesError, ChoiceTable

FILE = READY / "tuned" / "built-in.json"


@cache
def content() -> bytes:
    """Return the content of the file as this process first found it; empty if there is none."""
    try:
        return content_of(FILE)
    except ChoicesError:
        return b""


@cache
def digest() -> str:
    """Return what stands for the table: ranks with the same one make the same built-in choices."""
    return digest_of(content())


@cache
def shipped() -> ChoiceTable:
    """Return the table; safe choices, after a warning, if it cannot be used."""
    try:
        return parse(content() or content_of(FILE), str(FILE))
    except ChoicesError as error:
        warnings.warn(f"built-in choices: {error}; {UNUSED}", UserWarning, stacklevel=2)
        return safe_table()


@cache
def safe_table() -> ChoiceTable:
    """Return a table that decides for the safe choices only."""
    return ChoiceTable(SAFE)
