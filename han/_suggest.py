"""How an unknown name is answered: with the known ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """Return ``"unknown <kind>; did you mean 'x'? Known: x, y, z"``."""
    names = sorted(set(known))
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return f"unknown {kind}{hint} Known: {', '.join(names) or '(none)'}"
