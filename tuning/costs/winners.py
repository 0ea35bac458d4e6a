"""Winners of earlier sizes: what won below and above a size is hardly beaten between them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace

from han.tasks.choice import Choice
from han.tasks.signature import Signature

APART = 64  # times the smaller one of two sizes is the larger one, at most
NEAR = 1.03  # times the best one: such a choice wins too


class Winners:
    """The choices that won in searches, by call and size."""

    def __init__(self) -> None:
        self._of: dict[Signature, dict[int, list[Choice]]] = {}

    def add(self, signature: Signature, measured: Mapping[Choice, float]) -> None:
        """Enter the seconds of the candidates that a search measured."""
        limit = NEAR * min(measured.values(), default=0.0)
        near = [choice for choice, seconds in measured.items() if seconds <= limit]
        self._of.setdefault(_call(signature), {})[signature.nbytes] = near

    def around(self, signature: Signature) -> list[Choice]:
        """Return the choices that won at both of the sizes next to that of a call.

        There are none if these sizes are too far apart.
        """
        known = self._of.get(_call(signature), {})
        sizes = sorted(known)
        above = bisect_left(sizes, signature.nbytes)
        if above in (0, len(sizes)) or sizes[above] == signature.nbytes:
            return []
        low, high = sizes[above - 1], sizes[above]
        if high > APART * low:
            return []
        return [choice for choice in known[high] if choice in known[low]]


def _call(signature: Signature) -> Signature:
    """Return what calls have in common that differ in their sizes only."""
    return replace(signature, count=0)
