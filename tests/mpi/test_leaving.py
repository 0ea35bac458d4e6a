"""Ranks that leave between calls: the ranks that wait for them, or come later, raise an error."""

import json
import os
from unittest import mock

import pytest
from _jobs import PRELUDE, job
from _support import FLAT, SECONDS, TWO_BY_TWO

NODES = {"one node": (FLAT, 3), "two nodes": (TWO_BY_TWO, 4)}
on_each = pytest.mark.parametrize("nodes", NODES)

START = (
    PRELUDE
    + """
import json
CALLS = {
    "allreduce": lambda c: c.Allreduce(send, recv),
    "large": lambda c: c.Allreduce(np.ones(200_000), np.empty(200_000)),
    "wait": lambda c: c.Iallreduce(send, recv).Wait(),
    "test": lambda c: test(c.Iallreduce(send, recv)),
    "gather": lambda c: c.Allgather(send, np.empty(send.size * c.size)),
    "igather": lambda c: c.Iallgather(send, np.empty(send.size * c.size)).Wait(),
    "igather, test": lambda c: test(c.Iallgather(send, np.empty(send.size * c.size))),
    "persistent": lambda c: again(requests[id(c)]),
    "split": lambda c: c.Split(0),
    "init": lambda c: again(c.Allreduce_init(send, recv)),
    "create": lambda c: c.Create_group(c.Get_group()),
    "first call": lambda c: children[id(c)].Barrier(),
    "first call of a promised child": lambda c: heir.Barrier(),
    "split, not used yet": lambda c: children[id(c)].Split(0),
}
send, recv = np.ones(100), np.empty(100)

def test(request):
    while not request.Test():
        pass

def again(request):
    request.Start()
    request.Wait()

config = {"levels": LEVELS, "memory": "2MiB"}
comms = {name: han.Comm(MPI.COMM_WORLD.Dup(), config=config) for name in NAMES}
requests = {id(comm): comm.Allreduce_init(send, recv) for comm in comms.values()}
children = {id(comm): comm.Dup() for comm in comms.values()}
parent = comms.get("first call of a promised child", MPI.COMM_SELF)
for _ in range(6):  # until it takes over what the child before it had
    heir = parent.Dup()
    heir.Barrier()
    heir.Free()
heir = parent.Dup()
for name, comm in comms.items():
    for _ in range(3):
        CALLS["allreduce"](comm)
        again(requests[id(comm)])
MPI.COMM_WORLD.Barrier()
"""
)

REPORT = """
heard = {}
for name, call in CALLS.items():
    begun = time.monotonic()
    try:
        call(comms[name])
        heard[name] = "", "", 0
    except han.HanError as error:
        heard[name] = type(error).__name__, str(error), time.monotonic() - begun
note(json.dumps(heard))
WORLD = MPI.COMM_WORLD.size
until = time.monotonic() + 20  # a rank that ends earlier would be heard to leave too
others = [os.path.join(os.environ["HAN_TEST_FOLDER"], f"rank{r}") for r in range(WORLD) if r != 1]
while not all(map(os.path.exists, others)) and time.monotonic() < until:
    time.sleep(0.01)
"""

ENDINGS = {
    "error": ('raise ValueError("no input")', "rank 1 left: it raised ValueError: no input"),
    "interrupt": (
        "os.kill(os.getpid(), signal.SIGINT); time.sleep(9)",
        "rank 1 left: it raised KeyboardInterrupt",
    ),
    "exit": ("sys.exit(0)", "rank 1 left: its program ended"),
    "finalize": ("MPI.Finalize(); sys.exit()", "rank 1 left: its program ended"),
}


def run(folder, source, nodes, **variables):
    """Run a program on one or two nodes; return status, output and what each rank noted."""
    levels, ranks = NODES[nodes]
    names = "list(CALLS)" if "CALLS.items()" in source else '["allreduce", "wait"]'
    source = source.replace("LEVELS", repr(levels)).replace("NAMES", names)
    with mock.patch.dict(os.environ, variables):
        status, output, _ = job(folder, source, ranks)
    notes = [folder / f"rank{rank}" for rank in range(ranks)]
    return status, output, [json.loads(n.read_text()) if n.exists() else None for n in notes]


@pytest.mark.parametrize("ending", ENDINGS)
@on_each
def test_every_wait_hears_why_a_rank_left(tmp_path, nodes, ending):
    """Each communicator has another way of waiting: ranks wait already, or come later."""
    leave, text = ENDINGS[ending]
    source = f"{START}\nif rank == 1:\n    time.sleep(0.3); {leave}\n{REPORT}"
    status, output, notes = run(tmp_path, source, nodes)
    assert bool(status) == (ending in ("error", "interrupt")), output
    for rank in {*range(len(notes))} - {1}:
        assert notes[rank] is not None, output
        for name, (kind, said, seconds) in notes[rank].items():
            assert kind == "PeerError", (rank, name, kind, said)
            assert text in said, (rank, name, said)
            assert f"rank {rank} was in " in said, (rank, name, said)
            assert seconds < SECONDS, (rank, name, seconds)
    assert output.count("Traceback") == (ending in ("error", "interrupt")), output


IN_STEP = (
    START
    + """
comm = comms["allreduce"]
data = np.full(500, rank)
for root in (1, 0):
    if rank != root:
        time.sleep(0.2)
    data[:] = rank
    comm.Bcast(data, root)
    assert (data == root).all()
part = comm.Split(0)
many = [comm.Iallreduce(send, np.empty(100)) for _ in range(5)]
if rank == 1:
    for one in many:
        one.Wait()
    data[:] = 77
    comm.Bcast(data, 1)
    raise ValueError("no input")
time.sleep(0.5)
for one in many:
    one.Wait()
comm.Bcast(data, 1)
assert (data == 77).all()
try:
    comm.Barrier()
except han.PeerError as error:
    note(json.dumps(str(error)))
"""
)


@on_each
def test_calls_that_a_rank_has_finished_complete_after_it_left(tmp_path, nodes):
    _, output, notes = run(tmp_path, IN_STEP, nodes)
    for rank in {*range(len(notes))} - {1}:
        assert notes[rank] is not None, output
        assert "rank 1 left: it raised ValueError: no input" in notes[rank]
        assert f"rank {rank} was in barrier" in notes[rank]


WITHOUT = (
    START
    + """
comm = comms["allreduce"]
if rank == 1:
    sys.exit()
time.sleep(0.3)
group = comm.Get_group().Excl([1])
others = comm.Create_group(group)
others.Allreduce(send, recv)
assert (recv == others.size).all()
others.Free()
note("1")
"""
)


@on_each
def test_ranks_that_are_left_go_on_among_themselves(tmp_path, nodes):
    status, output, notes = run(tmp_path, WITHOUT, nodes)
    assert not status, output
    assert notes == [None if rank == 1 else 1 for rank in range(len(notes))]
    assert not output.strip()


UNDER_WAY = (
    START
    + """
comm = comms["allreduce"]
if rank == 1:
    kept = [comm.Iallreduce(send, np.empty(100)), comm.Ibcast(send, 0)]
    sys.exit()
if rank == 0:
    time.sleep(0.5)
try:
    comm.Allreduce(send, recv)
    comm.Bcast(send, 0)
    comm.Barrier()
except han.HanError as error:
    note(json.dumps([type(error).__name__, str(error)]))
"""
)


@on_each
def test_requests_under_way_at_the_end_are_told(tmp_path, nodes):
    status, output, notes = run(tmp_path, UNDER_WAY, nodes)
    assert not status, output
    assert output.count("RuntimeWarning: rank") == 1, output
    size = len(notes)
    assert f"rank 1 of {size} ended with 2 request(s) under way" in output
    assert "the first in allreduce of 800B" in output
    for rank in {*range(size)} - {1}:
        assert notes[rank] is not None, output
        kind, said = notes[rank]
        assert kind == "PeerError"
        assert "rank 1 left: its program ended" in said


EVERYBODY = (
    START
    + """
comm = comms["allreduce"]
dropped = comm.Iallreduce(send, recv)
comm.Ibarrier()
requests[id(comms["wait"])].Start()
"""
)


@on_each
def test_requests_that_no_rank_waits_for_end_with_the_job(tmp_path, nodes):
    """They complete, or a rank that is too late for the others warns."""
    status, output, _ = run(tmp_path, EVERYBODY, nodes)
    assert not status, output
    assert "Traceback" not in output


ABORTED = PRELUDE + "comm = han.Comm(MPI.COMM_WORLD)\ncomm.Barrier()\nif rank == 1:\n    "
BLOCKED = "\nMPI.COMM_WORLD.recv(source=1)\n"  # han is not asked: only an abort ends this
ABORTS = {
    'raise ValueError("no input")': (1, "ValueError: no input"),
    "os.kill(os.getpid(), signal.SIGINT); time.sleep(9)": (130, "KeyboardInterrupt"),
    "sys.exit(7)": (7, ""),
    'sys.exit("no data")': (1, "no data"),
}


@pytest.mark.parametrize("leave", ABORTS)
def test_an_uncaught_error_aborts_if_asked(tmp_path, leave):
    wanted, text = ABORTS[leave]
    status, output, _ = run(tmp_path, ABORTED + leave + BLOCKED, "one node", HAN_ABORT="1")
    assert status == wanted, output
    assert text in output
    assert "PeerError" not in output


CAUGHT = """
try:
    sys.exit(4)
except SystemExit:
    pass
comm = han.Comm(MPI.COMM_WORLD)
comm.Barrier()
sys.exit(0)
"""


def test_an_exit_that_is_caught_aborts_nothing(tmp_path):
    status, output, _ = run(tmp_path, PRELUDE + CAUGHT, "one node", HAN_ABORT="1")
    assert not status, output
    assert not output.strip()


FORKED = (
    START
    + """
child = os.fork() if rank == 1 else None
if child == 0:
    import atexit
    atexit._run_exitfuncs()
    os._exit(0)
if child:
    os.waitpid(child, 0)
MPI.COMM_WORLD.Barrier()
for name, call in CALLS.items():
    call(comms[name])
"""
)


def test_a_forked_child_does_not_leave_for_its_parent(tmp_path):
    status, output, _ = run(tmp_path, FORKED, "one node")
    assert not status, output


INTERRUPTED = (
    PRELUDE
    + """
import time
import typer
from han.cli import endings, main
def command(**_):
    raise typer.Abort
endings.PATIENCE = 0.2
main.app = command
if MPI.COMM_WORLD.rank:
    main.main()
time.sleep(60)
"""
)


def test_an_interrupt_of_one_rank_ends_the_command_on_all(tmp_path):
    status, output, _ = job(tmp_path, INTERRUPTED, 2)
    assert status
    assert "Error: interrupted" in output
