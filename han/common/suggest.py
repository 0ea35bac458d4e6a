"""Messages about unknown names. They list the known names."""

from __future__ import annotations

from collections.abc import Iterable

from han.common.errors import ArgumentError


def unknown(kind: str, name: object, known: Iterable[str], advice: str = "") -> str:
    """Return ``"unknown <kind>; did you mean 'x'? Known: x, y, z"``.

    `advice` replaces the question. The text does not quote the name: the caller writes it into
    `kind` or before the text.
    """
    import difflib

    names = sorted(set(known))
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    hint = f"; {advice}." if advice else hint
    return f"unknown {kind}{hint} Known: {', '.join(names) or '(none)'}"


def expect_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raise ArgumentError, which quotes the name, if `name` is not among `known`."""
    known = list(known)
    if name not in known:
        raise ArgumentError(unknown(f"{kind} {name!r}", name, known))
