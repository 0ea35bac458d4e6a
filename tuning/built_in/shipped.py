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
def content() -> bytes | ChoicesError:
    """Return the content of the file as this process first found it, or why it has none.

    It is not read again: the ranks have agreed on what they found.
    """
    try:
        return content_of(FILE)
    except ChoicesError as error:
        return error


@cache
def digest() -> str:
    """Return what stands for the table: ranks with the same one make the same built-in choices."""
    found = content()
    return digest_of(b"" if isinstance(found, ChoicesError) else found)


@cache
def shipped() -> ChoiceTable:
    """Return the table; safe choices, after a warning, if it cannot be used."""
    found = content()
    try:
        if isinstance(found, ChoicesError):
            raise found
        return parse(found, str(FILE))
    except ChoicesError as error:
        warnings.warn(f"built-in choices: {error}; {UNUSED}", UserWarning, stacklevel=2)
        return safe_table()


@cache
def safe_table() -> ChoiceTable:
    """Return a table that decides for the safe choices only."""
    return ChoiceTable(SAFE)
