"""Processes that predict calls, each in laboratories of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

from han.cli.progress import progress
from han.config.machine import load_machine
from han.tuning.search.portfolio import (
    LIMITS,
    Case,
    Laboratory,
    compared,
    predicted,
    winners,
)

T = TypeVar("T")
R = TypeVar("R")
_labs: list[Laboratory] = []  # of this process


def spread(
    work: Callable[[T], R], over: Sequence[T], machines: Sequence[Any], workers: int, what: str,
    in_a_row: bool = False,
) -> Iterator[R]:  # fmt: skip
    """Yield the results of some work for all items, which processes take in turn.

    `machines` are names or documents of models; 0 workers are one for each processor.
    """
    count = workers or len(os.sched_getaffinity(0))
    with (
        progress(len(over), what) as advance,
        ProcessPoolExecutor(count, get_context("spawn"), _open, (machines, in_a_row)) as pool,
    ):
        for result in pool.map(work, over):
            advance()
            yield result


def _open(machines: Iterable[Any], in_a_row: bool) -> None:
    _labs[:] = [Laboratory(load_machine(one), in_a_row) for one in machines]


def laboratories() -> Sequence[Laboratory]:
    """Return the laboratories of this process."""
    return _labs


def winners_of(case: Case) -> Any:
    """Return the uses that win a case on some machine."""
    return winners(_labs, case, LIMITS)


def predicted_of(asked: tuple[Case, Any]) -> dict[int, float]:
    """Return how some uses compare in a case, on all machines together."""
    return predicted(_labs, *asked)


def compared_of(asked: tuple[Case, Any]) -> dict[int, list[float]]:
    """Return how some uses compare in a case, on each machine."""
    return compared(_labs, *asked)
