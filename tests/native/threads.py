"""Calls of many kinds in three threads at once, for the thread sanitizer: see threads.sh."""

import threading

import numpy as np
from mpi4py import MPI

import han

ROUNDS = 40


def calls(comm: han.Comm, length: int) -> None:
    """Make blocking, nonblocking and persistent calls, of buffers, lists and objects."""
    each, total = np.full(length, comm.rank + 1.0), np.empty(length)
    large, sums = np.full(40_000, comm.rank + 1), np.empty(40_000, int)
    request = comm.Allreduce_init(each, total)
    for number in range(ROUNDS):
        comm.Allreduce([each, MPI.DOUBLE], total)
        comm.Bcast(total)
        assert comm.bcast({"number": number}) == {"number": number}
        started = comm.Iallreduce(large, sums)
        request.Start()
        request.Wait()
        started.Wait()
        comm.Barrier()
    request.Free()
    expected = comm.size * (comm.size + 1) // 2
    assert (total == expected).all()
    assert (sums == expected).all()


def main() -> None:
    """Give each thread a communicator of its own."""
    comm = han.Comm(MPI.COMM_WORLD)
    parts = [comm.Dup() for _ in range(3)]
    threads = [
        threading.Thread(target=calls, args=(part, 1000 * (k + 1))) for k, part in enumerate(parts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for part in parts:
        part.Free()
    comm.Free()


if __name__ == "__main__":
    main()
