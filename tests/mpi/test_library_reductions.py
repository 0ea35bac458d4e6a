"""Reductions that the MPI library or a user's function combines: one result on all ranks."""

import numpy as np
import pytest
from _support import TWO_BY_TWO, WORLD, comms, new_comm, opened
from mpi4py import MPI

from han.message.dtypes import FORTRAN_PAIRS, library_refusal

on_ranks = pytest.mark.mpi(ranks=[2, 3, 4, 5], timeout=120, unit="s")
on_four = pytest.mark.mpi(ranks=4, timeout=60, unit="s")
FORTRAN_HANDLES = (*range(20, 30), 0x4C000821, 0x4C001023, 0x4C000820)  # Open MPI's, MPICH's


def is_one(comm: MPI.Intracomm, result: np.ndarray) -> bool:
    """Whether all ranks have the same bytes."""
    return len({*WORLD.allgather(result.tobytes())}) == 1


@on_ranks
def test_the_order_of_operands_is_the_same_on_all_ranks(mpi_ranks):
    first = MPI.Op.Create(lambda x, y, kind: None, commute=True)  # the result is the right operand
    pair = np.dtype([("value", "f8"), ("place", "i4")], align=True)
    levels = [{}] if WORLD.size != 4 else [{}, {"levels": TWO_BY_TWO}]
    for more in levels:
        with opened(new_comm(**more)) as comm:
            for nan in range(comm.size):
                mine = np.full(3, np.nan if comm.rank == nan else comm.rank, "g")
                for op in (MPI.MAX, MPI.MIN):
                    result = np.zeros(3, "g")
                    comm.Allreduce(mine, result, op)
                    assert is_one(comm, result.astype("f8")), (op, nan)
                place = np.zeros(3, pair)
                place["value"], place["place"] = mine, comm.rank
                for op in (MPI.MAXLOC, MPI.MINLOC):
                    found = np.zeros(3, pair)
                    comm.Allreduce([place, 3, MPI.DOUBLE_INT], [found, 3, MPI.DOUBLE_INT], op)
                    assert is_one(comm, found["value"])
                    assert is_one(comm, found["place"]), (op, nan)
            for n in (1, 40, 1000, 100_000):
                result = np.empty(n)
                comm.Allreduce(np.full(n, float(comm.rank)), result, first)
                assert is_one(comm, result), n
    first.Free()


def fortran_pairs() -> dict[str, MPI.Datatype]:
    """Return the pair types of Fortran that this library names, by their names."""
    found = {}
    for handle in FORTRAN_HANDLES:
        try:
            kind = MPI.Datatype.f2py(handle)
            name = kind.Get_name()
        except MPI.Exception:
            continue
        if name in FORTRAN_PAIRS:
            found[name] = kind
    return found


@on_ranks
def test_pairs_of_fortran(mpi_ranks):
    letters = {"MPI_2REAL": "f4", "MPI_2DOUBLE_PRECISION": "f8", "MPI_2INTEGER": "i4"}
    kinds = {name: kind for name, kind in fortran_pairs().items() if kind.Get_size()}
    assert kinds, "this test knows no handle of a pair type of Fortran in this library"
    for comm in comms():
        for name, kind in kinds.items():
            mine = np.array([comm.rank, 10 + comm.rank], letters[name])
            for op, best in ((MPI.MAXLOC, comm.size - 1), (MPI.MINLOC, 0)):
                for _ in range(3):
                    result = np.zeros(2, letters[name])
                    comm.Allreduce([mine, 1, kind], [result, 1, kind], op)
                    assert result.tolist() == [best, 10 + best], (name, best)


@on_four
def test_what_the_library_refuses_is_refused_before_data_moves(mpi_ranks):
    mine, result = np.ones(4, "G"), np.empty(4, "G")
    refusal = library_refusal(MPI.SUM, MPI.COMPLEX32)
    for comm in comms():
        try:
            comm.Allreduce([mine, 4, MPI.COMPLEX32], [result, 4, MPI.COMPLEX32])
        except MPI.Exception:
            assert refusal != MPI.SUCCESS
        except ValueError:
            pass  # the library's type has another size than NumPy's
        else:
            assert refusal == MPI.SUCCESS
        total = np.ones(2)
        comm.Allreduce(MPI.IN_PLACE, total)
        assert total.tolist() == [comm.size] * 2
