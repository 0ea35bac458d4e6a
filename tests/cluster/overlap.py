"""Measure by traces how much time the intra-node part adds to the inter-node part of a broadcast.

Run in the emulated cluster; prints one JSON line:

    python tests/cluster/emulate.py run --nodes 4 --ppn 2 -- python tests/cluster/overlap.py
"""

import json
import statistics
import sys

import numpy as np
from mpi4py import MPI

import han


def measure(comm: han.Comm, nbytes: int, rounds: int) -> list[float]:
    """Return, for each round, the latest end of all tasks over that of the inter-node tasks.

    Times of each rank are from its own first task, after a barrier.
    """
    data = np.ones(nbytes, np.uint8)
    comm.Bcast(data)
    ratios = []
    for _ in range(rounds):
        MPI.Comm.Barrier(comm)
        with comm.trace() as trace:
            comm.Bcast(data)
        begin = min(t.begin for t in trace.times)
        inter = max((t.end - begin for t in trace.times if "network" in t.stream), default=0.0)
        whole = max(t.end - begin for t in trace.times)
        ratios.append(comm.allreduce(whole, MPI.MAX) / comm.allreduce(inter, MPI.MAX))
    return ratios


def main() -> None:
    """Print the median and the ratios of all rounds, less one."""
    nbytes = int(sys.argv[1]) if len(sys.argv) > 1 else 4 << 20
    comm = han.Comm(MPI.COMM_WORLD)
    ratios = measure(comm, nbytes, 9)
    if comm.rank == 0:
        added = [round(r - 1, 4) for r in ratios]
        print(json.dumps({"bytes": nbytes, "added": statistics.median(added), "rounds": added}))


if __name__ == "__main__":
    main()
