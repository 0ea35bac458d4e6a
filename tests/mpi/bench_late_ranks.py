"""Time a reduce from when its last rank enters, which is late: `order` fixed and arrival.

Run it with ``mpiexec -n 4 python tests/mpi/bench_late_ranks.py``.
"""

import statistics
import time

import numpy as np
from mpi4py import MPI

import han

LATE = 0.03  # seconds
COUNT = (8 << 20) // 8
TIMES, FIRST = 15, 3


def measure(comm: han.Comm) -> float:
    """Return the median in seconds; rank 1 is the first child of the root."""
    send, recv, times = np.ones(COUNT), np.empty(COUNT), []
    for _ in range(TIMES):
        MPI.COMM_WORLD.Barrier()
        start = MPI.Wtime()
        if comm.rank == 1:
            time.sleep(LATE)
        comm.Reduce(send, recv)
        times.append(MPI.Wtime() - start - LATE)
    return statistics.median(times[FIRST:])


for order in ("fixed", "arrival"):
    level = {"submodule": "adapt", "algorithm": "linear", "order": order}
    rule = {"use": {"segment": "whole", "levels": {"network": level}}}
    config = {"levels": [{"name": "network", "scope": "all"}], "rules": [rule]}
    with_order = han.Comm(MPI.COMM_WORLD, config=config)
    seconds = measure(with_order)
    if not with_order.rank:
        print(f"{order}: {1e3 * seconds:.1f} ms after the last rank has entered", flush=True)
    with_order.Free()
