"""Agreement on the arguments of a set-up step, before any rank takes it.

The MPI library does not compare them. A rank that raises before the step, or that passes other
arguments, would leave its peers waiting in it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

from han.common.errors import MismatchError, PeerError
from han.ranks.meeting import Meeting

Exchange: TypeAlias = Callable[[int], list[int]]

RAISED = -1  # the word of a rank whose arguments are wrong


def agree(
    meeting: Meeting,
    together: AbstractContextManager[None],
    step: str,
    read: Callable[[], object],
    exchange: Exchange | None = None,
) -> None:
    """Read the arguments of `step` on all ranks; return when all have done so (collective).

    `exchange` returns the numbers that all ranks pass, by rank; None: MPI's Iallgather does.

    `read` returns what all ranks must pass alike, or raises. If it raises on a rank, that rank
    raises the error, and the others PeerError. If the values differ, all raise MismatchError. The
    communicator stays usable. Only errors of the exchange itself leave the block `together`.
    """
    word, value, problem = RAISED, None, None
    with together:
        try:
            value = read()
            word = zlib.crc32(repr(value).encode())
        except Exception as error:
            problem = error
        words = exchange(word) if exchange is not None else _exchange(meeting, word, step)
        alike = words.count(words[0]) == len(words)
        text = repr(value) if problem is None else f"{type(problem).__name__}: {problem}"
        texts = [] if alike else meeting.allgather(text, step)
    if problem is not None:
        raise problem
    if not alike:
        raise _difference(step, words, texts)


def _exchange(meeting: Meeting, word: int, step: str) -> list[int]:
    return [number for (number,) in meeting.numbers([word], step)]


def _difference(step: str, words: list[int], texts: list[str]) -> PeerError | MismatchError:
    """Return the error of a rank whose own arguments are right."""
    wrong = [f"rank {r} raised {texts[r]}" for r, word in enumerate(words) if word == RAISED]
    if wrong:
        return PeerError(f"{step}: {'; '.join(wrong)}")
    seen: dict[str, int] = {}
    for rank, text in enumerate(texts):
        seen.setdefault(text, rank)
    calls = "; ".join(f"rank {rank} passes {text}" for text, rank in seen.items())
    return MismatchError(f"{step}: the ranks do not agree: {calls}; pass the same on all ranks")
