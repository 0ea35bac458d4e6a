"""Sessions, attributes and settings of the program, calls at exit, handlers that raise."""

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
if comm.size == 1:
    comm.Free()  # with more ranks it is left, as MPI allows
group.Free()
session.Finalize()
print("fine", flush=True)
"""
BESIDE = """
from mpi4py import MPI
import numpy as np
import han
from han.runtime.roots import ROOTS

def mail_of(plain):
    comm, total = han.Comm(plain), np.empty(3)
    comm.Allreduce(np.ones(3), total)
    assert (total == comm.size).all()
    mail = comm._han.parts.health.notices.mail
    comm.Free()
    return mail

session = MPI.Session.Init()
group = session.Create_group("mpi://WORLD")
for number in range(2):
    mails = [mail_of(MPI.Intracomm.Create_from_group(group, f"tests.of.han.{number}"))]
    mails += [mail_of(MPI.COMM_WORLD.Dup()) for _ in range(2)]
    assert mails[0] is not mails[1] is mails[2]
    assert [root.mail for root in ROOTS.kept] == mails[1:2]
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


def test_communicators_of_a_session_and_others_do_not_descend_from_each_other(tmp_path):
    if "Open MPI" not in MPI.Get_library_version():
        pytest.skip("the MPI library does not tell of which session a communicator is")
    status, said, _ = job(tmp_path, BESIDE, 2)
    assert said.count("fine") == 2, said
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


AT_EXIT = """
import atexit, os, signal, sys, time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD

@atexit.register  # before han is imported: it runs after what han registers
def last():
    total = np.empty(100)
    comm.Allreduce(np.ones(100), total)
    print("at exit" if (total == comm.size).all() else "wrong", flush=True)

import han
comm = han.Comm(MPI.COMM_WORLD, config=CONFIG)
comm.Barrier()

class Owner:
    def __del__(self, write=os.write, comm=comm):
        try:
            comm.Barrier()
            write(1, b"in del\\n")
        except BaseException as error:
            write(1, repr(error).encode())

keep = Owner()

class Late(Exception):
    pass

def late(*_):
    raise Late

signal.signal(signal.SIGALRM, late)
if comm.rank == 0:
    time.sleep(0.4)
else:
    signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    comm.Barrier()
    time.sleep(0.01)
except Late:
    print("late", flush=True)
total = np.empty(1)
comm.Allreduce(np.ones(1), total)
assert total[0] == comm.size
"""


@pytest.mark.parametrize("config", [None, "virtual-2x2"])
def test_calls_at_exit_and_around_a_handler_that_raises_complete(tmp_path, config):
    status, said, _ = job(tmp_path, AT_EXIT.replace("CONFIG", repr(config)), 3)
    assert status == 0, said
    assert said.count("late") == 2, said
    assert said.count("at exit") == 3, said
    assert said.count("in del") == 3, said
