"""Sort numbers that are distributed over the ranks: sample sort, with one alltoallv.

    mpiexec -n 4 python examples/sample_sort.py --count 1000000 --comm han

Each rank sorts its numbers and shows some of them. All ranks choose the same splitters from these,
and send each number to the rank between whose splitters it lies.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer
from _common import (
    Check,
    CommKind,
    CommOption,
    CompareOption,
    ConfigOption,
    Done,
    How,
    JsonOption,
    Stopwatch,
    all_agree,
    conclude,
    run,
)
from mpi4py import MPI

SAMPLES = 32
"""Numbers that each rank shows for each other rank: more make the parts more alike."""


def numbers(rank: int, count: int, seed: int) -> np.ndarray:
    """Return a rank's numbers: of a distribution with a long tail, with many alike."""
    random = np.random.default_rng([seed, rank])
    return np.floor(random.pareto(1.5, count) * 1000)


def splitters(comm: MPI.Intracomm, mine: np.ndarray) -> np.ndarray:
    """Return the numbers that part those of all ranks, one fewer than ranks; collective."""
    wanted = SAMPLES * comm.size
    places = np.linspace(0, max(mine.size - 1, 0), wanted).astype(int)
    shown = mine[places] if mine.size else np.full(wanted, np.nan)
    everyones = np.empty(wanted * comm.size)
    comm.Allgather(shown, everyones)
    found = np.sort(everyones[~np.isnan(everyones)])
    if not found.size:
        return np.zeros(comm.size - 1)
    return found[np.arange(1, comm.size) * found.size // comm.size]


def exchange(comm: MPI.Intracomm, mine: np.ndarray, parting: np.ndarray) -> np.ndarray:
    """Send each number to the rank between whose splitters it lies; collective."""
    ends = np.searchsorted(mine, parting, side="right")
    sends = np.diff(np.concatenate([[0], ends, [mine.size]]))
    takes = np.empty_like(sends)
    comm.Alltoall(sends, takes)
    taken = np.empty(int(takes.sum()))
    comm.Alltoallv([mine, sends], [taken, takes])
    return taken


def sort(comm: MPI.Intracomm, given: np.ndarray, watch: Stopwatch) -> np.ndarray:
    """Return this rank's part of the sorted numbers of all ranks; collective."""
    comm.Barrier()
    with watch("total"):
        with watch("compute"):
            mine = np.sort(given)
        with watch("communicate"):
            taken = exchange(comm, mine, splitters(comm, mine))
        with watch("compute"):
            taken.sort(kind="stable")
    return taken


def is_right(comm: MPI.Intracomm, given: np.ndarray, mine: np.ndarray) -> bool:
    """Tell whether the parts are sorted, follow each other, and have all numbers; collective."""
    ends = comm.allgather((mine[0], mine[-1]) if mine.size else None)
    edges = [edge for pair in ends if pair is not None for edge in pair]
    sums = np.array([given.size, given.sum(), -mine.size, -mine.sum()])
    comm.Allreduce(MPI.IN_PLACE, sums)
    sorted_here = bool(np.all(mine[:-1] <= mine[1:]))
    return all_agree(
        comm,
        sorted_here and edges == sorted(edges) and not (sums[0] + sums[2] or sums[1] + sums[3]),
    )


def main(
    kind: CommOption = CommKind.HAN,
    config: ConfigOption = None,
    compare: CompareOption = 0,
    count: Annotated[int, typer.Option(min=0, help="Numbers of each rank.")] = 200_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the numbers.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Sort numbers that are distributed over the MPI ranks.

    Times are the slowest rank's, without the check. Exits with 1 if the check fails.
    """
    given = numbers(MPI.COMM_WORLD.rank, count, seed)

    def work(comm: MPI.Intracomm) -> Done:
        watch = Stopwatch("total", "compute", "communicate")
        mine = sort(comm, given, watch)
        facts = {
            "numbers": comm.allreduce(given.size),
            "largest_part": comm.allreduce(mine.size, op=MPI.MAX),
        }
        return Done(facts, watch, is_right(comm, given, mine))

    check = Check("sorted", "the numbers are not sorted, or not all there")
    conclude(work, check, How(kind, config, compare, as_json))


if __name__ == "__main__":
    run(main)
