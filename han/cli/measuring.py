"""Cases, printing and JSON documents of all measuring commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mpi4py import MPI

from han.cli.common import say, write_file
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


def prints(json_file: Path | None) -> Callable[[str], None]:
    """Return a function that prints on rank 0; it does nothing if JSON goes to standard output."""
    return (lambda text: None) if str(json_file) == "-" else say


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


def keep(record: Mapping[str, Any], json_file: Path | None) -> None:
    """Write the JSON document of a measurement on rank 0, if a file is given."""
    text = json.dumps(record, indent=1)
    if str(json_file) == "-":
        say(text)
    elif json_file is not None:
        write_file(json_file, text + "\n")
