"""Run every collective over network links, compare results with MPI's, and print a JSON line."""

import json

import numpy as np
from mpi4py import MPI

import han


def main() -> None:
    """Compare blocking, nonblocking and persistent calls, from all roots, small and large."""
    world = MPI.COMM_WORLD.Dup()
    comm = han.Comm(MPI.COMM_WORLD)
    rank, checked = world.rank, 0
    for count in (1, 1000, 60_000):
        send = np.arange(count) % 1000 * (rank + 1)
        mine, theirs = np.zeros_like(send), np.zeros_like(send)
        world.Allreduce(send, theirs)
        persistent = comm.Allreduce_init(send, mine)
        for call in (
            lambda s=send, m=mine: comm.Allreduce(s, m),
            lambda s=send, m=mine: comm.Iallreduce(s, m).Wait(),
            lambda p=persistent: (p.Start(), p.Wait()),
        ):
            mine[:] = -1
            call()
            assert np.array_equal(mine, theirs)
            checked += 1
        persistent.Free()
        for root in range(world.size):
            comm.Reduce(send, mine, root=root)
            assert rank != root or np.array_equal(mine, theirs)
            data = send.copy() if rank == root else np.zeros_like(send)
            comm.Bcast(data, root=root)
            assert np.array_equal(data, np.arange(count) % 1000 * (root + 1))
            checked += 2
        comm.Barrier()
    nodes = comm.explain("bcast", 1 << 20).plan.topology.nodes
    if rank == 0:
        print(json.dumps({"checked": checked, "nodes": nodes}))


if __name__ == "__main__":
    main()
