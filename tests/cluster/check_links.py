"""Measure what a latency and rails are for: a ping, a barrier, an allreduce, and bytes of adapters.

    python emulate.py run --nodes 2 --ppn 2 --latency 20ms --rails 2 -- python check_links.py

Rank 0 prints one line of JSON. "ping" is the least round trip of a packet from rank 0 to the last
node, "barrier" and "allreduce" are means of consecutive calls, "single" is the least time of a
message of "bytes" between them after a pause, all in ms. "sent" has for each local
rank the bytes that every adapter of the first node sent while only that rank sent a message of
"bytes" to the rank of the same place on the last node. "adapter" has the variables that bind ranks.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import numpy as np
from mpi4py import MPI

REPEATS = 6
NBYTES = 1 << 18
PAUSE = 0.02  # seconds: links are at rest
VARIABLES = ("UCX_NET_DEVICES", "OMPI_MCA_btl_tcp_if_include", "FI_TCP_IFACE")


def times(call: Callable[[], object]) -> list[float]:
    """Return the times of several calls in ms."""
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        found.append((time.perf_counter() - start) * 1e3)
    return found


def ping(comm: MPI.Comm, last: int) -> float | None:
    """Return the round trip of a packet between rank 0 and `last`; all ranks call it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.bind(("", 0))
        ends = comm.allgather((MPI.Get_processor_name(), end.getsockname()[1]))
        found = None
        if comm.rank == 0:
            end.connect(ends[last])
            found = min(times(lambda: (end.send(b"?"), end.recv(1))))
        elif comm.rank == last:
            for _ in range(REPEATS):
                end.sendto(*end.recvfrom(1))
        comm.Barrier()
    return found


def single(comm: MPI.Comm, last: int) -> float:
    """Return what a message from rank 0 to `last` takes after a pause; all ranks call it.

    All nodes have one clock.
    """
    data, found = np.zeros(NBYTES, np.uint8), []
    for _ in range(REPEATS):
        comm.Barrier()
        moment = time.monotonic()
        if comm.rank == 0:
            time.sleep(PAUSE)
            moment = time.monotonic()
            comm.Send(data, last)
        elif comm.rank == last:
            comm.Recv(data, 0)
            moment = time.monotonic()
        moments = comm.allgather(moment)
        found.append((moments[last] - moments[0]) * 1e3)
    return min(found)


def sent() -> list[int]:
    """Return the bytes that each adapter of this node has sent."""
    adapters = sorted(Path("/sys/class/net").glob("eth*"))
    return [int((adapter / "statistics/tx_bytes").read_text()) for adapter in adapters]


def sends(comm: MPI.Comm, local: int, ppn: int) -> list[int]:
    """Return the bytes of each adapter while one local rank sends; all ranks call it."""
    data = np.zeros(NBYTES, np.uint8)
    comm.Barrier()
    before = sent()
    comm.Barrier()  # nobody sends before all have read
    if comm.rank == local:
        comm.Ssend(data, comm.size - ppn + local)
    elif comm.rank == comm.size - ppn + local:
        comm.Recv(data, local)
    comm.Barrier()
    return [after - first for first, after in zip(before, sent(), strict=True)]


def main() -> None:
    comm = MPI.COMM_WORLD
    ppn = comm.Split_type(MPI.COMM_TYPE_SHARED).size
    one, total = np.ones(1), np.zeros(1)
    comm.Barrier()
    report = {
        "ping": ping(comm, comm.size - ppn),
        "barrier": fmean(times(comm.Barrier)),
        "allreduce": fmean(times(lambda: comm.Allreduce(one, total))),
        "single": single(comm, comm.size - ppn),
        "bytes": NBYTES,
        "sent": [sends(comm, local, ppn) for local in range(ppn)],
        "adapter": comm.gather({k: v for k, v in os.environ.items() if k in VARIABLES}),
    }
    if comm.rank == 0:
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
