"""Checked mode: the ranks compare a call before any of them makes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from han.common.errors import MismatchError, PeerError
from han.tasks.signature import Signature


def compare(answers: Sequence[Signature | str], problem: Exception | None) -> None:
    """Raise on all ranks unless all of them make the same call.

    `answers` holds for each rank the Signature of its call, or the text of the error that it is
    about to raise. `problem` is this rank's own error.

    Raises `problem`, or PeerError that names the ranks with an error, or MismatchError that names
    the ranks whose call differs from the most frequent one.
    """
    if problem is not None:
        raise problem
    errors = [f"rank {r} raised {s}" for r, s in enumerate(answers) if isinstance(s, str)]
    if errors:
        raise PeerError("; ".join(errors))
    calls = [s for s in answers if isinstance(s, Signature)]
    usual, _ = Counter(calls).most_common(1)[0]
    odd = [f"rank {r} calls {c.describe()}" for r, c in enumerate(calls) if c != usual]
    if odd:
        raise MismatchError(
            f"the ranks do not agree: {'; '.join(odd)}; the others call {usual.describe()}"
        )
