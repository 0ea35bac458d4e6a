"""Trace a broadcast over the nodes of an emulated cluster; print one JSON line.

To han the nodes are different machines, but they have one clock. So the measured offset of a
node's clock is the error of its measurement.
"""

import json

import numpy as np
from mpi4py import MPI

import han


def main() -> None:
    """Print the offsets of all ranks with their uncertainty, and what the timeline holds."""
    comm = han.Comm(MPI.COMM_WORLD)
    reading = comm._han.parts.tracing.read_clock()
    with comm.trace(align=True) as trace:
        comm.Bcast(np.ones(1 << 20, np.uint8))
    timeline = trace.timeline()
    clocks = comm.gather((reading.offset, reading.uncertainty))
    if timeline is None or clocks is None:
        return
    kinds = {r: sorted({t.kind for t in timeline.times if t.rank == r}) for r in timeline.ranks}
    first = min(t.start for t in timeline.times if t.rank == 0)
    late = min(t.end - first for t in timeline.times if t.kind == "sb")
    report = {
        "clocks": clocks,
        "uncertainty": timeline.uncertainty,
        "nodes": timeline.nodes,
        "kinds": kinds,
        "first_arrival": late,
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
