"""Measure allreduces of each composition and of the MPI library in turns, with few other messages.

    mpiexec -n 64 python compositions.py --out measured.json --sizes 8:8KiB:4 tree nap lanes

Where messages take tens of milliseconds, ranks leave a barrier tens of milliseconds apart. Here
they begin a turn, a number of calls, at a moment on the clock that all emulated nodes share.
Writes {"bytes": {"composition": [ms of each turn]}}, of the slowest rank.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from mpi4py import MPI

import han
from han.common.units import parse_sizes

LIBRARY = "MPI library"
AHEAD = 0.5  # seconds within which all ranks learn when to begin, from the last one's arrival
Call = Callable[[np.ndarray, np.ndarray], None]


def calls_of(compositions: list[str]) -> dict[str, Call]:
    """Return what is measured, by name."""
    calls: dict[str, Call] = {}
    for name in compositions:
        rule = {"when": {"collective": "allreduce"}, "use": {"composition": name}}
        calls[name] = han.Comm(MPI.COMM_WORLD.Dup(), {"rules": [rule]}).Allreduce
    return calls | {LIBRARY: MPI.COMM_WORLD.Allreduce}


def turn(call: Call, send: np.ndarray, recv: np.ndarray, iterations: int) -> float:
    """Return the time of a call in ms, counted from a moment at which all ranks begin."""
    start = MPI.COMM_WORLD.allreduce(time.monotonic(), MPI.MAX) + AHEAD
    time.sleep(max(0.0, start - time.monotonic()))
    for _ in range(iterations):
        call(send, recv)
    return (time.monotonic() - start) * 1e3 / iterations


def measure(calls: dict[str, Call], nbytes: int, rounds: int, iterations: int) -> np.ndarray:
    """Return the times of all calls and rounds; each call is made twice before."""
    send = np.full(nbytes // 8, MPI.COMM_WORLD.rank + 1.0)
    recv = np.empty_like(send)
    size = MPI.COMM_WORLD.size
    for name, call in calls.items():
        for _ in range(2):
            call(send, recv)
        assert (recv == size * (size + 1) / 2).all(), f"{name}: {nbytes} bytes: wrong result"
    every = [[turn(c, send, recv, iterations) for c in calls.values()] for _ in range(rounds)]
    return np.array(every).T


def main(
    compositions: Annotated[list[str], typer.Argument(help="tree, nap, lanes, flat.")],
    out: Annotated[Path, typer.Option(help="A JSON file.")],
    sizes: Annotated[str, typer.Option(help="As han bench takes them.")] = "8:8KiB:4",
    rounds: Annotated[int, typer.Option(help="Turns of each composition.")] = 5,
    iterations: Annotated[int, typer.Option(help="Calls in a turn.")] = 3,
) -> None:
    """Measure all sizes."""
    calls, document = calls_of(compositions), {}
    for nbytes in parse_sizes(sizes):
        mine = measure(calls, nbytes, rounds, iterations)
        slowest = np.empty_like(mine)
        MPI.COMM_WORLD.Allreduce(mine, slowest, MPI.MAX)
        document[nbytes] = {n: t.tolist() for n, t in zip(calls, slowest, strict=True)}
        if not MPI.COMM_WORLD.rank:
            out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
