"""How much of a nonblocking allreduce hides behind a computation, with han and with MPI.

    mpiexec -n 2 python examples/overlap.py

For each size and each way of progress (HAN_PROGRESS) the ranks time the allreduce alone, a
computation that takes as long, and both at once. If all of the allreduce is hidden, both together
take as long as the computation alone: 100 %. The ways take turns; each number is a median.

Below 0 % both at once take longer than one after the other: where ranks and their threads outnumber
the processors, they stop each other, and a rank that computes keeps its peer waiting.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

import han

WAYS = ("off", "auto", "thread")
WORLD = MPI.COMM_WORLD
DATA = np.random.default_rng(1).random(2000)


def compute(turns: int) -> None:
    """Keep the processor busy without any communication."""
    for _ in range(turns):
        np.sin(DATA)


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that the slowest rank takes."""
    WORLD.Barrier()
    begun = time.perf_counter()
    work()
    return WORLD.allreduce(time.perf_counter() - begun, MPI.MAX)


def hidden(comm: MPI.Intracomm, nbytes: int, repeats: int) -> tuple[float, float]:
    """Return the seconds of the allreduce alone, and the share of it that is hidden."""
    mine, total = np.ones(nbytes // 8), np.empty(nbytes // 8)

    def both(turns: int) -> None:
        request = comm.Iallreduce(mine, total)
        compute(turns)
        request.Wait()

    for _ in range(3):
        both(0)
    alone = statistics.median(seconds(lambda: both(0)) for _ in range(repeats))
    turn = statistics.median(seconds(lambda: compute(100)) for _ in range(3)) / 100
    turns = max(1, round(alone / turn))
    computing = statistics.median(seconds(lambda: compute(turns)) for _ in range(repeats))
    together = statistics.median(seconds(lambda: both(turns)) for _ in range(repeats))
    return alone, (alone + computing - together) / min(alone, computing)


def measure(way: str, nbytes: int, repeats: int) -> tuple[float, float]:
    """Measure a way of progress, or "MPI" for the MPI library."""
    if way == "MPI":
        return hidden(WORLD, nbytes, repeats)
    comm = han.Comm(WORLD.Dup(), config={"wait": {"progress": way}})
    try:
        return hidden(comm, nbytes, repeats)
    finally:
        comm.Free()


def main() -> None:
    """Print a table: for each size and way the time alone, and the hidden share."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mib", type=float, nargs="+", default=[1, 8], help="sizes in MiB")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each way")
    parser.add_argument("--repeats", type=int, default=5, help="measurements in a turn")
    options = parser.parse_args()
    if not WORLD.rank:
        library = MPI.Get_library_version().partition("\n")[0]
        print(f"{WORLD.size} ranks, {os.cpu_count()} processors, {library}")
        print("hidden: 100 %: the allreduce costs nothing beside the computation; 0 %: as much as")
        print("alone; below: both at once take longer than one after the other, as ranks that")
        print("outnumber processors, or a thread without one of its own, stop each other")
        print(f"{'size':>8} {'':>8} {'alone':>10} {'hidden':>8}")
    for mib in options.mib:
        found: dict[str, list[tuple[float, float]]] = {}
        for _ in range(options.rounds):
            for way in ("MPI", *WAYS):
                found.setdefault(way, []).append(measure(way, int(mib * 2**20), options.repeats))
        for way, rows in found.items():
            alone, share = (statistics.median(column) for column in zip(*rows, strict=True))
            if not WORLD.rank:
                name = way if way == "MPI" else f"han {way}"
                print(f"{mib:>5g}MiB {name:>10} {alone * 1e3:>7.2f} ms {share:>7.0%}", flush=True)


if __name__ == "__main__":
    main()
