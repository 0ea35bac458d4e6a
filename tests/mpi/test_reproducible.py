"""Reproducible reductions give the bits of the canonical order, in any placement and by any plan.

The expected bits are computed here, by NumPy and by the definition. So ranks of all MPI libraries
are held against the same bits.
"""

from typing import Any

import numpy as np
import pytest
from _support import WORLD, comm_with, in_python, opened, run
from machines import PLACEMENTS
from mpi4py import MPI

COUNTS = (1, 5_003)
DTYPES = ("float32", "float64", "complex64", "float16")
INNER: list[dict[str, Any]] = [
    {"submodule": "sm", "algorithm": "flat", "chunk": "4KiB"},
    {"submodule": "solo", "algorithm": "pull", "chunk": "3000B"},
]
ALONE: list[dict[str, Any]] = [
    {"submodule": "sm", "algorithm": "split", "chunk": "1KiB"},
    {"submodule": "exchange", "algorithm": "recursive"},
    {"submodule": "solo", "algorithm": "each", "chunk": "1KiB"},
]
SHARES = {"submodule": "sm", "algorithm": "shares", "chunk": "1KiB"}
OUTER: list[dict[str, Any]] = [
    {"submodule": "exchange", "algorithm": "halving", "segment": "2KiB"},
    {"submodule": "exchange", "algorithm": "recursive_doubling"},
    {"submodule": "adapt", "algorithm": "by_rank", "segment": "3000B"},
]


def operand(rank: int, count: int, dtype: str) -> np.ndarray:
    """Return values of many magnitudes, whose sum depends on the order."""
    draw = np.random.default_rng([rank, count])
    low, high = (-3, 3) if dtype == "float16" else (-8, 8)
    values = draw.standard_normal(count) * 10.0 ** draw.integers(low, high, count)
    if dtype.startswith("complex"):
        values = values + 1j * draw.standard_normal(count)
    return values.astype(dtype)


def combined(values: list[np.ndarray], first: int, width: int) -> np.ndarray | None:
    """Return the sum of a block of ranks by the definition of the canonical order."""
    if width == 1:
        return values[first] if first < len(values) else None
    left, right = (combined(values, at, width // 2) for at in (first, first + width // 2))
    return left if right is None or left is None else left + right


def uses(turn: int, nodes: int) -> dict[str, Any]:
    """Return what a rule runs in a turn; the built-in choice serves what it cannot serve."""
    if turn == 0:
        return {}
    if nodes == 1:
        return {"segment": "16KiB", "levels": {"level0": ALONE[turn % len(ALONE)]}}
    composition = ("tree", "flat", "lanes")[turn % 3]
    inner = SHARES if composition == "lanes" else INNER[turn % len(INNER)]
    return {
        "segment": ("16KiB", "whole", "1000B")[turn % 3],
        "composition": composition,
        "levels": {"level0": inner, "network": OUTER[turn // 2 % len(OUTER)]},
    }


def check(comm: Any, expected: dict[tuple[str, int], np.ndarray], about: object) -> None:
    """Make reductions of all forms, and compare their bits."""
    for (dtype, count), wanted in expected.items():
        send, recv = operand(comm.rank, count, dtype), np.empty(count, dtype)
        comm.Allreduce(send, recv)
        assert recv.tobytes() == wanted.tobytes(), (about, "allreduce", dtype, count)
        if dtype != "float32":
            continue
        root = count % comm.size
        comm.Reduce(send, recv if comm.rank == root else None, root=root)
        assert comm.rank != root or recv.tobytes() == wanted.tobytes(), (about, "reduce", dtype)
        recv[:] = send
        comm.Iallreduce(MPI.IN_PLACE, recv).Wait()
        assert recv.tobytes() == wanted.tobytes(), (about, "in place", dtype, count)
    wanted, recv = expected[dtype, count], np.empty(count, dtype)
    request = comm.Allreduce_init(send, recv)
    for _ in range(2):
        recv[:] = 0
        run(request)
        assert recv.tobytes() == wanted.tobytes(), (about, "persistent", dtype, count)
    request.Free()


@pytest.mark.mpi(ranks=[4, 7], timeout=120, unit="s")
def test_all_placements_and_plans_give_the_canonical_bits(mpi_ranks):
    size = WORLD.size
    values = {(d, n): [operand(rank, n, d) for rank in range(size)] for d in DTYPES for n in COUNTS}
    width = 1 << (size - 1).bit_length()
    expected = {key: combined(each, 0, width) for key, each in values.items()}
    others = [
        key for key, each in values.items() if (sum(each[1:], each[0]) != expected[key]).any()
    ]
    assert len(others) >= 4, "most sums depend on the order, or bits say nothing"
    used = 0
    for turn, (name, nodes) in enumerate(PLACEMENTS.items()):
        for k in (turn + 1,) if turn else (0, 1, 2, 3):
            use = uses(k, len(set(nodes)))
            rule = {"reproducible": True, **use}
            with opened(comm_with(WORLD, [nodes[:size], [0] * size], rule)) as comm:
                check(comm, expected, (name, use))
                used += k > 0 and "rules[0]" in str(comm.explain("allreduce", "64KiB").rule)
    assert used >= 3, "rules decide, and not the built-in choice alone"


@pytest.mark.mpi(ranks=4, timeout=60, unit="s")
def test_a_users_function_gets_the_same_operands_everywhere():
    """Its result depends on which operand is the left one."""
    function = in_python(lambda left, right: left - right / 3, "f8")
    count = 700
    values = [operand(rank, count, "float64") for rank in range(4)]
    pairs = [values[0] - values[1] / 3, values[2] - values[3] / 3]
    wanted = pairs[0] - pairs[1] / 3
    for commutes in (True, False):
        op = MPI.Op.Create(function, commute=commutes)
        for nodes in PLACEMENTS.values():
            rule = {"reproducible": True}
            with opened(comm_with(WORLD, [nodes[:4], [0] * 4], rule)) as comm:
                recv = np.empty(count)
                comm.Allreduce(values[comm.rank], recv, op)
                assert recv.tobytes() == wanted.tobytes(), (nodes, commutes)
        op.Free()
