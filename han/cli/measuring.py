"""Cases of all measuring commands, and what they tell of the run."""

from __future__ import annotations

import sys
from collections.abc import Callable

from mpi4py import MPI

from han.cli.words import Words
from han.common.units import parse_sizes
from han.measure.bench_calls import Case, check_case
from han.measure.session import Session, note
from han.model.collectives import DATALESS


def cases_of(words: Words, make: Callable[[str, int], Case]) -> list[Case]:
    """Return the cases of collectives and sizes. Raises ArgumentError before anything runs.

    A collective that carries no data has one case.
    """
    wanted = parse_sizes(words.sizes)
    cases = [make(name, n) for name in words.names for n in ([0] if name in DATALESS else wanted)]
    for case in cases:
        check_case(case, MPI.COMM_WORLD.size)
    return cases


def tell_alone(command: str) -> None:
    """Tell on standard error of a run in which the rank has no peer."""
    if MPI.COMM_WORLD.size == 1:
        print(f"Only one rank, without a peer: start with mpiexec -n 2 {command}", file=sys.stderr)


def tell_others(running: Session, tell: Callable[[str], None]) -> float:
    """Tell of other programs that used processors; return how many they used; collective."""
    processors = running.others()
    if text := note(processors):
        tell(text)
    return processors
