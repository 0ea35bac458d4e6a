"""Checked mode: the ranks compare what they call before they call it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from han.common.errors import MismatchError, PeerError
from han.tasks.signature import Signature


def compare(said: Sequence[Signature | str], problem: Exception | None) -> None:
    """Compare what every rank says of its call: a Signature, or what it is about to raise.

    Raises this rank's own `problem`, PeerError naming ranks that have one, or MismatchError
    naming the ranks that differ from most.
    """
    if problem is not None:
        raise problem
    errors = [f"rank {r} raised {s}" for r, s in enumerate(said) if isinstance(s, str)]
    if errors:
        raise PeerError("; ".join(errors))
    calls = [s for s in said if isinstance(s, Signature)]
    usual, _ = Counter(calls).most_common(1)[0]
    odd = [f"rank {r} calls {c.describe()}" for r, c in enumerate(calls) if c != usual]
    if odd:
        raise MismatchError(
            f"the ranks do not agree: {'; '.join(odd)}; the others call {usual.describe()}"
        )
