"""Communicators of MPI's sessions, attributes of the program, and what a program has deleted."""

from __future__ import annotations

import pytest
from _jobs import job
from _support import APART, FLAT, new_comm
from mpi4py import MPI

SESSION = """
import sys
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
import numpy as np
session = MPI.Session.Init()
group = session.Create_group("mpi://WORLD")
plain = MPI.Intracomm.Create_from_group(group, "tests.of.han")
import han
comm = han.Comm(plain)
for made in (comm, comm.Dup(), comm.Split(comm.rank % 2, 0)):
    total = np.empty(3)
    made.Allreduce(np.ones(3), total)
    made.Barrier()
    assert (total == made.size).all()
    if made is not comm:
        made.Free()
comm.Free()
group.Free()
session.Finalize()
print("fine", flush=True)
"""
WITHOUT_RC = """
import mpi4py
from mpi4py import MPI
del mpi4py.rc
import han
comm = han.Comm(MPI.COMM_WORLD)
assert comm.allreduce(1) == comm.size
print("fine", flush=True)
"""


@pytest.mark.parametrize("ranks", [1, 3])
def test_communicators_of_sessions(tmp_path, ranks):
    if "Intel" in MPI.Get_library_version():
        pytest.skip("MPI_Initialized of Intel MPI 2021.18 is true in processes with sessions only")
    status, said, _ = job(tmp_path, SESSION, ranks)
    assert said.count("fine") == ranks, said
    assert status == 0


def test_a_program_may_delete_the_settings_of_mpi4py(tmp_path):
    status, said, _ = job(tmp_path, WITHOUT_RC, 2)
    assert said.count("fine") == 2, said
    assert status == 0


@pytest.mark.mpi(ranks=[2, 4], timeout=60, unit="s")
def test_the_attributes_of_the_program_are_not_copied(mpi_ranks):
    log = []
    key = MPI.Comm.Create_keyval(
        lambda comm, key, value: log.append(f"copy {value}") or value + 1,
        lambda comm, key, value: log.append(f"delete {value}"),
    )
    for levels in (FLAT, APART):
        whole = new_comm(levels)
        made = whole.Dup()
        made.Set_attr(key, 10)
        made.Barrier()
        made.Bcast(bytearray(100_000))
        assert log == []
        made.Free()
        assert log == ["delete 10"]
        log.clear()
        whole.Free()
    MPI.Comm.Free_keyval(key)
