"""Scan and Exscan in all forms, on one node and on several, beside the MPI library's."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from _support import (
    FORMS,
    WORLD,
    Call,
    Checker,
    Reference,
    comm_with,
    finish,
    in_python,
    method_of,
    opened,
)
from mpi4py import MPI

import han
from han.tasks.signature import Signature

COUNTS = (0, 1, 6, 7, 513, 30_000)
SIGNATURE = Signature("scan", 1000, 8, "sum", "float64")
KINDS = (("float64", "sum"), ("int32", "max"), ("complex128", "prod"))
ALL_VARIANTS = True


def check_all(comm):
    ways = itertools.product(("scan", "exscan"), COUNTS, KINDS, (False, True))
    calls = [Call(name, n, *kind, in_place=in_place) for name, n, kind, in_place in ways]
    for form in FORMS:
        Checker(comm, Reference(WORLD), form).every(calls, form)


@pytest.mark.mpi(ranks=[1, 2, 3, 4, 5], timeout=120, unit="s")
def test_scans_on_one_node(mpi_ranks):
    with opened(han.Comm(WORLD.Dup())) as comm:
        check_all(comm)
        hits = comm._han.calls.hits
        for name in ("scan", "exscan"):
            Checker(comm, Reference(WORLD))(Call(name, 513, *KINDS[0]))
        assert comm._han.calls.hits == hits + 2, "the look-up in C serves known calls"
        assert not comm._han.parts.planner.leaves(SIGNATURE)


@pytest.mark.mpi(ranks=[3, 4, 5], timeout=120, unit="s")
@pytest.mark.parametrize("nodes", ["consecutive", "in turn"])
def test_scans_on_several_nodes(mpi_ranks, nodes):
    size = WORLD.size
    inner = [r // 2 if nodes == "consecutive" else r % 2 for r in range(size)]
    with opened(comm_with(WORLD, [inner, [0] * size])) as comm:
        check_all(comm)
        assert not comm._han.parts.planner.leaves(replace(SIGNATURE, collective="exscan"))


NODES = {"of two": [0, 0, 1, 1, 2, 2, 3, 3, 4], "uneven": [0, 1, 1, 1, 2, 3, 3, 3, 3]}


@pytest.mark.mpi(ranks=[3, 4, 5, 9], timeout=120, unit="s")
@pytest.mark.parametrize("nodes", NODES)
def test_scans_inside_nodes_and_between_them(mpi_ranks, nodes):
    inner = NODES[nodes][: WORLD.size]
    use = {"composition": "tree", "segment": "64KiB"}
    with opened(comm_with(WORLD, [inner, [0] * WORLD.size], use)) as comm:
        assert comm.explain("exscan", nbytes=8000).stages()[-1] == "ir"
        check_all(comm)


@pytest.mark.mpi(ranks=4, timeout=60, unit="s")
def test_scans_over_nodes_give_the_same_in_each_run(mpi_ranks):
    send = np.random.default_rng(WORLD.rank).random(20_000)
    with opened(comm_with(WORLD, [[0, 0, 1, 1], [0] * 4], {"composition": "tree"})) as comm:
        first, again = np.empty_like(send), np.empty_like(send)
        comm.Scan(send, first)
        for form in FORMS:
            finish(method_of(comm, form, "Scan")(send, again), 2)
            np.testing.assert_array_equal(again, first)


@pytest.mark.mpi(ranks=[1, 2, 3, 4, 5], timeout=60, unit="s")
@pytest.mark.parametrize("name", ["Scan", "Exscan"])
def test_types_and_operations_that_the_user_defines(mpi_ranks, name):
    check_definitions(han.Comm(WORLD.Dup()), name)


@pytest.mark.mpi(ranks=[3, 5], timeout=60, unit="s")
@pytest.mark.parametrize("name", ["Scan", "Exscan"])
def test_definitions_of_the_user_over_nodes(mpi_ranks, name):
    levels = [NODES["of two"][: WORLD.size], [0] * WORLD.size]
    check_definitions(comm_with(WORLD, levels, {"composition": "tree"}), name)


def product(left, right):
    """Multiply matrices of 2 x 2 numbers, which does not commute."""
    a, b = (m.reshape(-1, 2, 2) for m in (left, right))
    return (a @ b % 10007).ravel()


def check_definitions(scanning, name):
    """Compare calls with types and operations of the user with the MPI library's."""
    op = MPI.Op.Create(in_python(product), commute=False)
    matrix = MPI.INT64_T.Create_contiguous(4).Commit()
    pairs = np.dtype([("value", "f8"), ("at", "i4")], align=True)
    with opened(scanning) as comm:
        for count in (1, 3, 100, 5000):
            send = np.random.default_rng(comm.rank).integers(0, 100, (count, 2, 2))
            numbers = np.zeros(count, pairs)
            numbers["value"], numbers["at"] = np.arange(count) % 5 - comm.rank, comm.rank
            for one, kind, how in ((send, matrix, op), (numbers, MPI.DOUBLE_INT, MPI.MAXLOC)):
                wanted, found = np.zeros_like(one), np.zeros_like(one)
                getattr(WORLD, name)([one, count, kind], [wanted, count, kind], how)
                getattr(comm, name)([one, count, kind], [found, count, kind], how)
                if name == "Exscan" and comm.rank == 0:
                    wanted = np.zeros_like(one)
                np.testing.assert_array_equal(found, wanted)
    matrix.Free()
    op.Free()
