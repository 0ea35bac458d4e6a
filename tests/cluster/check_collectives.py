"""Run every collective over network links, compare results, and print a JSON line.

First as built in, then by every exchange in messages between the nodes.
"""

import json
from collections.abc import Callable, Iterator

import numpy as np
from mpi4py import MPI

import han
from han.submodules.exchange.exchange import Exchange

WORDS = (1, 500, 60_000)


def rules(algorithm: str, more: dict[str, object]) -> dict[str, object]:
    """Return a configuration in which an algorithm serves the level between the nodes."""
    use = {"submodule": "exchange", "algorithm": algorithm, **more}
    return {"rules": [{"use": {"levels": {"network": use}}}]}


def choices(nodes: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield every algorithm among leaders, and exchanges with factors for so many nodes."""
    for algorithm, about in Exchange.algorithms.items():
        if "leaders" in about.families:
            yield algorithm, {}
    yield "recursive", {"factors": [nodes], "whole": 0}
    yield "recursive", {"factors": [-nodes, nodes], "whole": 0, "segment": 4096}
    yield "cyclic", {"factors": [-2, -2, nodes], "segment": 4096}


def calls(comm: han.Comm, send: np.ndarray, mine: np.ndarray) -> Iterator[Callable[[], object]]:
    """Yield allreduces of each kind: blocking, nonblocking, persistent."""
    yield lambda: comm.Allreduce(send, mine)
    yield lambda: comm.Iallreduce(send, mine).Wait()
    request = comm.Allreduce_init(send, mine)
    yield lambda: (request.Start(), request.Wait())
    request.Free()


def check(comm: han.Comm, expected: str = "") -> int:
    """Compare the results of one choice, which `explain` names; return how many were compared."""
    size, rank, checked = comm.size, comm.rank, 0
    for count in WORDS:
        send = np.arange(count) % 1000 + rank
        total = np.arange(count) % 1000 * size + size * (size - 1) // 2
        mine = np.zeros_like(send)
        assert expected in str(comm.explain("allreduce", send.nbytes))
        for call in calls(comm, send, mine):
            mine[:] = -1
            call()
            assert np.array_equal(mine, total)
            checked += 1
        for root in range(size):
            comm.Reduce(send, mine, root=root)
            assert rank != root or np.array_equal(mine, total)
            data = send.copy()
            comm.Bcast(data, root=root)
            assert np.array_equal(data, np.arange(count) % 1000 + root)
            checked += 2
        comm.Barrier()
    return checked


def main() -> None:
    """Check all choices one after the other."""
    built_in = han.Comm(MPI.COMM_WORLD)
    checked = {"built-in": check(built_in)}
    nodes = built_in.explain("bcast", 1 << 20).plan.topology.nodes
    for number, (algorithm, more) in enumerate(choices(nodes)):
        comm = han.Comm(MPI.COMM_WORLD.Dup(), rules(algorithm, more))
        checked[f"{number} {algorithm}"] = check(comm, f"exchange {algorithm}")
        comm.Free()
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps({"checked": checked, "nodes": nodes}))


if __name__ == "__main__":
    main()
