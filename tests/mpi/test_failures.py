"""Collectives that cannot finish: a rank does not enter, dies, is interrupted, or has no memory."""

import contextlib
import errno
import os
import shutil
import signal
import threading
import time
from functools import partial

import numpy as np
import pytest
from _jobs import PRELUDE, job
from _support import (
    FLAT,
    SECONDS,
    TWO_BY_TWO,
    WORLD,
    error_of,
    errors_if_late,
    new_comm,
    run,
    tiny_memory,
)
from mpi4py import MPI

import han

LARGE = 200_000  # elements, in many pieces


# ---- paths other than the tree ----------------------------------------------------------------

RAILS = {"rails": {"count": 2, "bind": "local_rank"}}


def path(composition, node=None, network=None, **more):
    """Return settings of a communicator whose calls take a path."""
    levels = {"node": node, "network": network}
    levels = {name: use for name, use in levels.items() if use}
    return {"rules": [{"use": {"composition": composition, "levels": levels}}], **more}


SHARES = {"submodule": "exchange", "algorithm": "shares"}
CYCLIC = {"submodule": "exchange", "algorithm": "cyclic_shares"}
RING = {"submodule": "exchange", "algorithm": "ring"}
PATHS = {
    "lanes": path("lanes", SHARES),
    "lanes in pieces": path("lanes", {**SHARES, "chunk": 1024}),
    "cyclic lanes": path("lanes", CYCLIC),
    "nap": path("nap", {"submodule": "exchange", "algorithm": "recursive"}),
    "nap in pieces": path("nap", {"submodule": "exchange", "algorithm": "tree", "chunk": 1024}),
    "ring": path("ring", **RAILS),
    "rings over rails": path("lanes", SHARES, RING, **RAILS),
}
COUNTS = (8, 20_000)


def comm_on_path(name, **more):
    """Return a communicator that takes a path, as its plans say."""
    comm, use = new_comm(TWO_BY_TWO, **more, **PATHS[name]), PATHS[name]["rules"][0]["use"]
    found = comm.explain("allreduce", nbytes=160_000).plan.choice
    assert found.composition == use["composition"]
    inside = use["levels"].get("node", {})
    assert found.levels[0].algorithm == inside.get("algorithm", found.levels[0].algorithm)
    return comm


# ---- timeouts ---------------------------------------------------------------------------------

CALLS = {
    "small allreduce": lambda c: c.Allreduce(np.zeros(1), np.zeros(1)),
    "large allreduce": lambda c: c.Allreduce(np.zeros(LARGE), np.zeros(LARGE)),
    "nonblocking": lambda c: c.Iallreduce(np.zeros(8), np.zeros(8)).Wait(),
    "bcast": lambda c: c.Bcast(np.zeros(LARGE), root=c.size - 1),
    "barrier": lambda c: c.Barrier(),
}


def check_late(comm, call, missing, task):
    """Let a rank come late to a call; return the texts of the timeouts of the others."""
    errors = errors_if_late(comm, missing, call)
    others = [e for r, e in enumerate(errors) if r != missing]
    timeouts = [text for name, text, _ in others if name == "CollectiveTimeoutError"]
    assert timeouts, errors
    assert {name for name, _, _ in others} <= {"CollectiveTimeoutError", "PeerError"}, errors
    assert max(seconds for _, _, seconds in errors) < SECONDS
    assert all("waited for 0.5 s in" in text and "HAN_TIMEOUT" in text for text in timeouts)
    waited = [text.partition(" for 0.5 s in ")[2] or text for _, text, _ in others]
    assert any(f" rank {missing}" in t or f"rank(s) {missing}" in t for t in waited), errors
    assert all(task in text for text in timeouts), errors
    with contextlib.suppress(han.PeerError, han.RevokedError):
        comm.Barrier()
    with pytest.raises(han.RevokedError, match="CollectiveTimeoutError"):
        comm.Barrier()
    return timeouts


@pytest.mark.mpi(ranks=[2, 4], timeout=90, unit="s")
def test_a_rank_that_does_not_come_is_named(mpi_ranks, levels):
    for what, call in CALLS.items():
        comm = new_comm(levels, timeout=0.5)
        missing = comm.size - 1
        comm.Barrier()
        task = {"barrier": "barrier", "bcast": "bcast of 1600000B"}.get(what, "allreduce of")
        timeouts = check_late(comm, partial(call, comm), missing, task)
        if levels is FLAT:
            assert any(f"rank(s) {missing} have not entered this call" in t for t in timeouts)


@pytest.mark.mpi(ranks=4, timeout=120, unit="s")
@pytest.mark.parametrize("name", PATHS)
def test_a_rank_that_does_not_come_is_named_on_every_path(mpi_ranks, name):
    comm, count = comm_on_path(name, timeout=0.5), COUNTS[[*PATHS].index(name) % 2]
    call = partial(comm.Allreduce, np.ones(count), np.zeros(count))
    call()
    comm.Barrier()
    check_late(comm, call, 3, f"allreduce of {8 * count}B")


@pytest.mark.skipif(
    "Open MPI" in MPI.Get_library_version(),
    reason="Open MPI 5 writes all of a large message over a shorter receive buffer's end",
)
@pytest.mark.mpi(ranks=4, timeout=60, unit="s")
def test_another_size_is_told_between_nodes(mpi_ranks):
    comm = new_comm(TWO_BY_TWO, timeout=0.5)
    n = 100_000 if comm.rank >= 2 else 8
    name, text, seconds = error_of(lambda: comm.Allreduce(np.zeros(n), np.zeros(n)))
    assert name == "MismatchError", (name, text)
    assert seconds < SECONDS


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_timeout_of_the_environment(mpi_ranks, monkeypatch):
    monkeypatch.setenv("HAN_TIMEOUT", "0.4")
    comm = han.Comm(MPI.COMM_WORLD.Dup())
    if comm.rank:
        name, text, seconds = error_of(comm.Barrier)
        assert name == "CollectiveTimeoutError"
        assert "rank 1 waited for 0.4 s in barrier" in text
        assert "rank(s) 0 have not entered this call" in text
        assert 0.4 <= seconds < SECONDS
    MPI.COMM_WORLD.Barrier()


@pytest.mark.mpi(ranks=3, timeout=60, unit="s")
def test_a_persistent_request_times_out(mpi_ranks, levels):
    comm = new_comm(levels, timeout=0.5)
    request = comm.Allreduce_init(np.ones(100), np.zeros(100))
    run(request)
    request.Start()
    MPI.COMM_WORLD.Barrier()
    request.Wait()
    if comm.rank == 0:
        request.Start()
        with pytest.raises(han.CollectiveTimeoutError, match="allreduce of 800"):
            request.Wait()
        with pytest.raises(han.RevokedError):
            request.Start()
    MPI.COMM_WORLD.Barrier()
    request.Free()


# ---- interrupts -------------------------------------------------------------------------------


@pytest.mark.own_job("a late SIGINT would interrupt the next test")
@pytest.mark.mpi(ranks=3, timeout=60, unit="s")
def test_an_interrupt_reaches_a_rank_in_a_collective(mpi_ranks, levels):
    for call in CALLS.values():
        comm = new_comm(levels)
        comm.Barrier()
        if comm.rank == 1:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        errors = errors_if_late(comm, 2, partial(call, comm))
        name, text, seconds = errors[comm.rank]
        if comm.rank == 1:
            assert name == "KeyboardInterrupt"
        elif name:  # a root need not wait, and so may finish
            assert name == "PeerError"
            assert "rank 1 raised HanError: rank 1 was interrupted in " in text
        assert seconds < SECONDS
        assert any(name == "PeerError" for name, _, _ in errors)
        if name:
            with pytest.raises(han.RevokedError):
                comm.Barrier()
        WORLD.Barrier()


# ---- no memory --------------------------------------------------------------------------------


@pytest.mark.mpi(ranks=[2, 4], timeout=60, unit="s")
def test_no_room_for_shared_memory(mpi_ranks, levels, monkeypatch):
    with tiny_memory(512) as place:
        monkeypatch.setenv("HAN_SHM_DIR", str(place))
        for _ in range(2):
            with pytest.raises(han.SharedMemoryError) as caught:
                new_comm(levels, memory="4MiB")
            for part in ("no room for ", "KiB of shared memory", str(place), "KiB free",
                         "remount", "HAN_MEMORY"):  # fmt: skip
                assert part in str(caught.value), caught.value
            assert caught.value.errno == errno.ENOSPC
            WORLD.Barrier()
            assert not list(place.iterdir())
        monkeypatch.setenv("HAN_SHM_DIR", str(place / "missing"))
        with pytest.raises(han.SharedMemoryError, match=r"missing: No such file") as caught:
            new_comm(levels)
        assert caught.value.errno == errno.ENOENT
    monkeypatch.delenv("HAN_SHM_DIR")
    new_comm(levels).Barrier()


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_no_room_for_a_persistent_request(mpi_ranks, monkeypatch):
    with tiny_memory(8192) as place:
        monkeypatch.setenv("HAN_SHM_DIR", str(place))
        comm = new_comm(FLAT, memory="512KiB")
        comm._han.parts.shared.reach = None  # channels are made in files
        send, recv = np.ones(60_000), np.zeros(60_000)
        requests = []
        with pytest.raises(han.SharedMemoryError, match="no room"):
            requests.extend(comm.Allreduce_init(send, recv) for _ in range(600))
        assert requests
        assert not list(place.iterdir())
        for request in requests:
            run(request)
            assert (recv == 2).all()
            request.Free()
        comm.Allreduce(send, recv)
        request = comm.Allreduce_init(send, recv)  # takes memory that was freed
        request.Free()
        comm.Free()


# ---- messages of the application --------------------------------------------------------------


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_a_pending_send_of_the_application_moves_on(mpi_ranks, levels):
    """Rank 1 enters the collective after it has a message that rank 0 sends inside the call."""
    comm = new_comm(levels)
    data = np.arange(1 << 20, dtype="f8")
    for call in (CALLS["small allreduce"], CALLS["large allreduce"], CALLS["barrier"],
                 CALLS["nonblocking"]):  # fmt: skip
        begun = time.monotonic()
        if WORLD.rank == 0:
            request = WORLD.Isend(data, dest=1)
            call(comm)
            request.Wait()
        elif WORLD.rank == 1:
            time.sleep(0.1)
            received = np.empty_like(data)
            WORLD.Recv(received, source=0)
            call(comm)
            np.testing.assert_array_equal(received, data)
        else:
            call(comm)
        assert time.monotonic() - begun < SECONDS
    comm.Free()


# ---- whole jobs -------------------------------------------------------------------------------


KILLED = (
    PRELUDE
    + """
comms = [han.Comm(MPI.COMM_WORLD.Dup(), config={"levels": LEVELS, "wait": {"timeout": 5}, **path})
         for path in PATHS]
send, recv = np.ones(COUNT), np.zeros(COUNT)
for comm in comms:
    for k in range(100):
        comm.Allreduce(send, recv)
request = comm.Allreduce_init(send, recv)
MPI.COMM_WORLD.Barrier()
if rank == VICTIM:
    os.kill(os.getpid(), signal.SIGKILL)
told = []
for comm in comms:
    begun = time.monotonic()
    try:
        CALL
    except BaseException as error:
        told.append(f"{time.monotonic() - begun:.3f} {type(error).__name__}: {error}")
note("\\n\\n".join(told))
time.sleep(len(comms) > 1)  # others may still wait for this rank's notices
os._exit(3)
"""
)

# A launcher kills the process groups of survivors, so each rank gets a session of its own.
APART = ("setsid", "--wait")
needs_setsid = pytest.mark.skipif(
    not shutil.which("setsid"), reason="there is no setsid (util-linux)"
)


def killed(levels, victim, call="comm.Allreduce(send, recv)", count=1000, paths=({},)):
    """Return a program in which a rank is killed before a call on each of several paths."""
    values = {"LEVELS": levels, "VICTIM": victim, "COUNT": count, "PATHS": list(paths)}
    source = KILLED.replace("CALL", call)
    for name, value in values.items():
        source = source.replace(name, repr(value))
    return source


def check_survivors(folder, ranks, victim, task, source, calls=1):
    """Run such a program; each rank that is left must name the one that died, in each call."""
    _, output, _ = job(folder, source, ranks, *APART)
    for rank in {*range(ranks)} - {victim}:
        assert (folder / f"rank{rank}").exists(), output
        told = (folder / f"rank{rank}").read_text().split("\n\n")
        assert len(told) == calls, told
        for seconds, _, error in (text.partition(" ") for text in told):
            assert float(seconds) < SECONDS  # the error comes at once, not at a time limit
            assert error.startswith("PeerError: "), told
            assert f"rank {victim} died (its process is gone)" in error, told
            assert f"in {task}" in error, told


@needs_setsid
@pytest.mark.parametrize(
    ("call", "task"),
    [
        ("comm.Allreduce(send, recv)", "allreduce of 8000B"),
        ("request.Start(); request.Wait()", "allreduce of 8000B"),
        ("comm.allreduce(1)", "allreduce of objects"),
        ("comm.gather('x' * 5_000_000, VICTIM)", "gather of objects"),
        ("comm.gather('x' * 5_000_000, 1)", "gather of objects"),
    ],
)
def test_survivors_name_the_rank_that_was_killed(tmp_path, call, task):
    for victim in (0, 2):
        folder = tmp_path / str(victim)
        folder.mkdir()
        check_survivors(folder, 3, victim, task, killed(FLAT, victim, call))


@needs_setsid
def test_survivors_name_the_rank_that_was_killed_on_every_path(tmp_path):
    source = killed(TWO_BY_TWO, 3, count=20_000, paths=PATHS.values())
    check_survivors(tmp_path, 4, 3, "allreduce of 160000B", source, len(PATHS))


WITHIN = (
    PRELUDE
    + """
import threading
solo = {"levels": {"everyone": {"submodule": "solo"}}}
config = {"levels": LEVELS, "wait": {"timeout": 5}, "rules": [{"use": solo}]}
comm = han.Comm(MPI.COMM_WORLD, config=config)
SETUP
comm.Barrier()
if rank == 1:
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGKILL)).start()
try:
    while True:
        STEP
except BaseException as error:
    note(f"{type(error).__name__}: {error}")
os._exit(3)
"""
)
STARTED = "request.Start(); request.Wait()"
WITHIN_CALLS = {
    "pulled": ("data = np.ones(1 << 20); request = comm.Bcast_init(data, root=1)", STARTED),
    "mapped": (
        "data = comm.empty(1 << 20); data[:] = 1; "
        "request = comm.Allreduce_init(MPI.IN_PLACE, data, op=MPI.MAX)",
        STARTED,
    ),
    "gathered objects": ("data = np.ones(1 << 20)", "comm.gather(data)"),
    "gathered small objects": ("data = np.ones(2048)", "comm.gather(data)"),
    "combined objects": ("data = np.ones(1 << 20)", "comm.reduce(data)"),
}


@needs_setsid
@pytest.mark.parametrize("what", WITHIN_CALLS)
def test_a_rank_is_killed_within_calls(tmp_path, what):
    """At any moment: survivors get an error, whether its memory is read or its messages come."""
    setup, step = WITHIN_CALLS[what]
    source = WITHIN.replace("LEVELS", repr(FLAT)).replace("SETUP", setup).replace("STEP", step)
    status, output, _ = job(tmp_path, source, 3, *APART)
    if "objects" in what and "Assertion failed" in output and "cma_read_nbytes" in output:
        assert status  # Intel MPI reads the memory of a sender, and ends the job if it is gone
        return
    for rank in (0, 2):
        assert (tmp_path / f"rank{rank}").exists(), output
        error = (tmp_path / f"rank{rank}").read_text()
        assert error.startswith("PeerError: "), error
        gone = ("rank 1 died (its process is gone)", "could not read the memory of rank 1")
        assert any(text in error for text in gone), error


def test_a_job_with_a_killed_rank_ends(tmp_path, levels):
    status, output, seconds = job(tmp_path, killed(levels, 1, "comm.Barrier()"), 3)
    assert status, output
    assert seconds < 20


LEAVING = (
    PRELUDE
    + """
comm = han.Comm(MPI.COMM_WORLD, config={"levels": LEVELS})
send, recv = np.ones(5000), np.zeros(5000)
parts = [comm.Dup(), comm.Split(rank % 2), han.Comm(MPI.COMM_SELF)]
for part in (comm, *parts):
    part.Allreduce(send, recv)
    assert (recv == part.size).all()
request = comm.Allreduce_init(send, recv)
other = parts[0].Bcast_init(send)
request.Start(); request.Wait()
comm.Iallreduce(send, recv).Wait()
done = comm.Ibarrier()
done.Wait()
try:
    comm.Bcast(send, root=-1)
except han.ArgumentError:
    pass
note("done")
"""
)


def test_leaving_without_free_is_clean(tmp_path, levels):
    status, output, seconds = job(tmp_path, LEAVING.replace("LEVELS", repr(levels)), 4)
    assert not status, output
    assert not output.strip()
    assert [(tmp_path / f"rank{r}").read_text() for r in range(4)] == ["done"] * 4
    assert seconds < 20
