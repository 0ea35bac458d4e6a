"""Errors of ranks that make different calls: each names what the ranks were in, once."""

from __future__ import annotations

from collections.abc import Mapping

from han.common.errors import MismatchError
from han.tasks.signature import ON_DEVICE

REMEDY = "HAN_CHECK=1 compares calls before they are made"
DEVICES = "pass memory of a device on all ranks, or on none"
FORMS = "this call or an earlier one; blocking and nonblocking calls do not match"


def mismatch(
    between: tuple[int, int], rank: int, stories: Mapping[int, str], shown: str = ""
) -> MismatchError:
    """Return the error of `rank` for two ranks that make different calls: the peer and its finder.

    `stories` is what each rank was in, as far as known, such as ``barrier: barrier(0) for ...``.
    `shown` is how the finder saw the difference.
    """
    peer, finder = between
    said = [f"rank {r} was in {stories[r]}" for r in sorted({*between, rank}) if r in stories]
    calls = [stories[r].partition(":")[0] for r in between if r in stories]
    remedy = FORMS if len(calls) == 2 and calls[0] == calls[1] else REMEDY
    if any(ON_DEVICE in story for story in stories.values()):
        remedy = DEVICES
    how = f" ({shown})" if shown else ""
    error = MismatchError(
        f"rank {peer} does not make the same calls as rank {finder}{how}: {'; '.join(said)} "
        f"({remedy})"
    )
    error.between, error.story = between, stories.get(rank, "")
    return error
