"""Trace broadcasts over nodes: overlap of both levels, and clocks of the nodes.

To han the nodes are different machines, but they have one clock. So the measured offset of a
node's clock is the error of its measurement. Run in the emulated cluster; prints one JSON line:

    python tests/cluster/emulate.py run --nodes 4 --ppn 2 -- python tests/cluster/overlap.py
"""

import json
import statistics
import sys

import numpy as np
from mpi4py import MPI

import han


def measure(comm: han.Comm, nbytes: int, rounds: int) -> list[float]:
    """Return, for each round, how much the intra-node part adds to the inter-node part.

    This is the latest end of all tasks over that of the inter-node tasks.

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


def merged(comm: han.Comm) -> dict[str, object]:
    """Return the offsets of all ranks with their uncertainty, and what a merged timeline holds."""
    reading = comm._han.parts.tracing.read_clock()
    with comm.trace(align=True) as trace:
        comm.Bcast(np.ones(1 << 20, np.uint8))
    timeline = trace.timeline()
    clocks = comm.gather((reading.offset, reading.uncertainty))
    if timeline is None or clocks is None:
        return {}
    first = min(t.start for t in timeline.times if t.rank == 0)
    return {
        "clocks": clocks,
        "uncertainty": timeline.uncertainty,
        "nodes": timeline.nodes,
        "kinds": {
            r: sorted({t.kind for t in timeline.times if t.rank == r}) for r in timeline.ranks
        },
        "first_arrival": min(t.end - first for t in timeline.times if t.kind == "sb"),
    }


def main() -> None:
    """Print the median and the ratios of all rounds, less one, and what a timeline holds."""
    nbytes = int(sys.argv[1]) if len(sys.argv) > 1 else 4 << 20
    comm = han.Comm(MPI.COMM_WORLD)
    added = [round(r - 1, 4) for r in measure(comm, nbytes, 9)]
    found = {"bytes": nbytes, "added": statistics.median(added), "rounds": added, **merged(comm)}
    if comm.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
