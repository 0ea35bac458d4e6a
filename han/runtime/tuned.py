"""The tuned table of a communicator: found on each rank, used if all ranks found the same."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial

from han.common.units import plural
from han.config.config import Config
from han.config.parts import Wait
from han.ranks.machine import fingerprint
from han.tuning.tuned.find import OFF, Search, find_table

LISTED = 8  # ranks in a message, at most


def tuned_table(config: Config | None) -> Search:
    """Return the table that this rank found for a configuration; it never raises."""
    wanted = OFF if config is None else config.tuned
    wait = Wait() if config is None else config.wait
    return find_table(wanted, partial(fingerprint, wait))


def agreed_table(mine: Search, others: Sequence[int]) -> Search:
    """Return the table that all ranks use; `others` found another one, or none, than rank 0."""
    if not others:
        return mine
    ranks = ", ".join(map(str, others[:LISTED])) + (", ..." if len(others) > LISTED else "")
    return mine.without_table(
        f"{plural(len(others), 'rank')} ({ranks}) found another tuned table than rank 0, so the "
        "built-in choices are used; give all ranks the same file: HAN_TUNED=FILE"
    )


def tell_problem(search: Search, rank: int) -> None:
    """Warn on rank 0 about a table that cannot be used."""
    if search.problem and rank == 0:
        warnings.warn(f"tuned table: {search.problem}", UserWarning, stacklevel=5)
