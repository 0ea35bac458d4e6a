"""Measure messages between two nodes and within one, and print what each rank sees of its node.

    python emulate.py run --nodes 4 --ppn 2 -- python pingpong.py [BYTES]

Rank 0 prints one line of JSON. "hosts", "shared" and "shm" have one entry per rank: its host name,
the size of its shared-memory communicator, and the device of its /dev/shm. "between" and "within"
hold times in ms: "latency" of an 8-byte message (half a round trip), "message" of one of many
consecutive messages of BYTES. "within" is null with one rank per node.
"""

import json
import os
import sys

import numpy as np
from mpi4py import MPI


def pingpong(comm: MPI.Comm, peer: int, nbytes: int, repeats: int) -> float:
    """Return half a round trip in ms between rank 0 and `peer`; both call it."""
    buffer = np.zeros(nbytes, np.uint8)
    start = MPI.Wtime()
    for _ in range(repeats):
        if comm.rank == 0:
            comm.Send(buffer, peer)
            comm.Recv(buffer, peer)
        else:
            comm.Recv(buffer, 0)
            comm.Send(buffer, 0)
    return (MPI.Wtime() - start) * 1e3 / repeats / 2


def stream(comm: MPI.Comm, peer: int, nbytes: int, repeats: int) -> float:
    """Return the time in ms of each of `repeats` messages from rank 0 to `peer`; both call it.

    A short reply ends the measurement.
    """
    buffer = np.zeros(nbytes, np.uint8)
    start = MPI.Wtime()
    for _ in range(repeats):
        if comm.rank == 0:
            comm.Send(buffer, peer)
        else:
            comm.Recv(buffer, 0)
    if comm.rank == 0:
        comm.Recv(buffer[:1], peer)
    else:
        comm.Send(buffer[:1], 0)
    return (MPI.Wtime() - start) * 1e3 / repeats


def measure(comm: MPI.Comm, peer: int | None, nbytes: int) -> dict[str, float] | None:
    """Measure messages from rank 0 to `peer` while the others wait; all ranks call it."""
    times = None
    if peer is not None and comm.rank in (0, peer):
        pingpong(comm, peer, nbytes, 2)  # opens the connection
        times = {
            "latency": pingpong(comm, peer, 8, 200),
            "message": stream(comm, peer, nbytes, 20),
        }
    comm.Barrier()
    return times


def main() -> None:
    comm = MPI.COMM_WORLD
    nbytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 20
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    hosts = comm.allgather(MPI.Get_processor_name())
    others = [rank for rank, host in enumerate(hosts) if host != hosts[0]]
    peers = [rank for rank, host in enumerate(hosts) if rank and host == hosts[0]]
    report = {
        "library": MPI.Get_library_version().split("\n")[0].strip("\0 "),
        "hosts": hosts,
        "shared": comm.allgather(node.size),
        "shm": comm.allgather(os.stat("/dev/shm").st_dev),
        "bytes": nbytes,
        "between": measure(comm, others[0] if others else None, nbytes),
        "within": measure(comm, peers[0] if peers else None, nbytes),
    }
    if comm.rank == 0:
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
