"""Compositions between nodes, on 1 to 9 ranks of uneven and interleaved virtual nodes."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from _support import WORLD, Call, Checker, Reference, comm_with, comms_of, interleaved, opened, run
from machines import topology_of
from mpi4py import MPI

from han.model.topology import Topology
from han.tasks.lanes import inner_levels, outer_levels

Shape = Callable[[int], list[list[int]]]  # the domains of each level but the outermost
FLAT_SHAPES: dict[str, Callable[[int], list[int]]] = {
    "twos": lambda size: [r // 2 for r in range(size)],
    "threes": lambda size: [r // 3 for r in range(size)],
    "uneven": lambda size: [min(r // 2, 1) + r // 6 for r in range(size)],
    "interleaved": lambda size: interleaved(size)[0],
    "in turn": lambda size: [r % max(1, size // 2) for r in range(size)],
}
SHAPES: dict[str, Shape] = {
    **{name: (lambda size, nodes=nodes: [nodes(size)]) for name, nodes in FLAT_SHAPES.items()},
    "sockets": lambda size: [[r // 2 for r in range(size)], [r // 4 for r in range(size)]],
    "sockets in turn": lambda size: [[r % 4 for r in range(size)], [r % 2 for r in range(size)]],
    "switches": lambda size: [[r // 2 for r in range(size)], [r // 4 for r in range(size)]],
}
USES = {
    "flat": [{}],
    "nap": [
        {},
        {"levels": {"level0": {"submodule": "sm", "algorithm": "each", "chunk": 1000}}},
        {"levels": {"level0": {"submodule": "exchange", "chunk": 1000}}},
        {"levels": {"level0": {"submodule": "exchange", "algorithm": "cyclic"}}},
        {"levels": {"level0": {"submodule": "exchange", "algorithm": "tree", "chunk": 1000}}},
        {"levels": {"level0": {"submodule": "exchange", "writes": True}}},
    ],
    "lanes": [
        {"segment": 3000},
        {"levels": {"level0": {"submodule": "sm", "algorithm": "shares", "lanes": 1}}},
        {"levels": {"level0": {"submodule": "sm", "algorithm": "shares", "lanes": 2}}},
        {"levels": {"level0": {"submodule": "exchange", "algorithm": "shares", "chunk": 1000}}},
        {"levels": {"level0": {"submodule": "exchange", "algorithm": "cyclic_shares", "lanes": 2}}},
        {"segment": 3000, "levels": {"level0": {"submodule": "exchange", "algorithm": "shares"}}},
        {"segment": 5000, "levels": {"network": {"submodule": "adapt", "algorithm": "chain"}}},
        {"schedule": "lockstep", "levels": {"network": {"submodule": "libnbc"}}},
    ],
    "ring": [
        {},
        {"segment": 5000, "schedule": "lockstep"},
        {"levels": {"network": {"submodule": "ring", "segment": 500, "window": 2}}},
    ],
}
CASES = [(name, use) for name, uses in USES.items() for use in uses]
COUNTS = (0, 1, 2, 5, 300, 9001)


def calls_of(name: str, size: int) -> Iterator[Call]:
    """Yield allreduces of several sizes, types and operations, and barriers between them."""
    for k, count in enumerate(COUNTS):
        yield Call("allreduce", count, "int64", ("sum", "max")[k // 2 % 2], in_place=count % 2 == 1)
        yield Call("barrier")
    for op in ("prod", "min"):
        yield Call("allreduce", 77, "float64", op)
        yield Call("allreduce", 1500, "float32", op, in_place=True)
    yield from (Call("allreduce", 1, "float64", "sum") for _ in range(20))
    if name != "nap":
        for root in {0, size - 1}:
            for count in (1, 700, 9001):
                yield Call("bcast", count, root=root)
                yield Call("reduce", count, root=root, in_place=count == 700)


def serves(topology: Topology) -> bool:
    """Return whether there are several nodes, and two ranks on one of them."""
    return bool(inner_levels(topology) and outer_levels(topology))


def check_one(comm: MPI.Intracomm, reference: Reference, name: str, about: tuple[object, ...]):
    shape, use, shared_to = about
    levels = [*SHAPES[shape](comm.size), [0] * comm.size]
    shared_to = min(len(levels) - 1, 2 * shared_to if shape == "switches" else shared_to)
    shared_to += "sockets" in shape
    with opened(comm_with(comm, levels, {"composition": name, **use}, shared_to)) as ours:
        check = Checker(ours, reference)
        check.every(calls_of(name, comm.size), (comm.size, name, *about))
        found = ours.explain("allreduce", nbytes=800)
        topology = topology_of(levels, shared_to)
        served = name == "flat" or serves(topology)
        if name == "ring":
            served = not (len(topology.active) < 2 and topology.whole is not None)
        if served and "level0" not in use.get("levels", {}):
            assert found.plan.choice.composition == name, str(found)
        elif not served or found.plan.choice.composition == "tree":
            assert found.plan.choice.composition == "tree"
            assert f"{name}: " in str(found) or "level0: " in str(found), "the reason"


@pytest.mark.mpi(ranks=9, timeout=300, unit="s")
@pytest.mark.parametrize("name", USES)
def test_compositions_on_one_to_nine_ranks(mpi_ranks, name):
    """Where there are many uses, each is for every second number of ranks."""
    every = 1 if len(USES[name]) < 3 else 2
    for comm in comms_of(range(1, WORLD.size + 1)):
        reference = Reference(comm.Dup())
        for turn, (case, use) in enumerate(CASES, comm.size):
            if case == name and turn % every == 0:
                shape = [*SHAPES][turn % len(SHAPES)]
                check_one(comm, reference, name, (shape, use, (turn - comm.size) % 2))


@pytest.mark.mpi(ranks=6, timeout=60, unit="s")
def test_operations_that_do_not_commute_keep_their_order(mpi_ranks):
    def joined(a, b, dtype):
        x, y = (np.frombuffer(m, np.int64) for m in (a, b))
        y[:] = [int(f"{left}{right}") for left, right in zip(x, y, strict=True)]

    op = MPI.Op.Create(joined, commute=False)
    shapes = ("twos", "uneven", "sockets")
    for name, shape in itertools.product(("flat", "nap", "lanes"), shapes):
        levels = [*SHAPES[shape](WORLD.size), [0] * WORLD.size]
        with opened(comm_with(WORLD, levels, {"composition": name}, len(levels) - 2)) as comm:
            recv = np.zeros(3, np.int64)
            for _ in range(3):
                comm.Allreduce(np.full(3, WORLD.rank + 1), recv, op)
                assert recv.tolist() == [123456] * 3
    op.Free()


@pytest.mark.mpi(ranks=4, timeout=60, unit="s")
def test_requests_run_compositions(mpi_ranks):
    for name in ("nap", "lanes", "ring"):
        with opened(comm_with(WORLD, [[0, 0, 1, 1], [0] * 4], {"composition": name})) as comm:
            send, recv = np.arange(500.0) + WORLD.rank, np.empty(500)
            wanted = 4 * np.arange(500.0) + 6
            request = comm.Allreduce_init(send, recv)
            for _ in range(5):
                recv[:] = 0
                run(request)
                np.testing.assert_array_equal(recv, wanted)
            request.Free()
            recv[:] = 0
            comm.Iallreduce(send, recv).Wait()
            np.testing.assert_array_equal(recv, wanted)
