"""Failures on paths other than the tree: lanes and nap by exchanges, and rings over rails.

Each test meets all paths in turn, on four ranks of two nodes.
"""

import contextlib
import shutil
from functools import partial

import numpy as np
import pytest
from _jobs import PRELUDE, job
from _support import SECONDS, TWO_BY_TWO, errors_if_late, new_comm

import han

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
on_four = pytest.mark.mpi(ranks=4, timeout=120, unit="s")


def comm_on_path(name, **more):
    """Return a communicator that takes a path, as its plans say."""
    comm, use = new_comm(TWO_BY_TWO, **more, **PATHS[name]), PATHS[name]["rules"][0]["use"]
    found = comm.explain("allreduce", nbytes=160_000).plan.choice
    assert found.composition == use["composition"]
    inside = use["levels"].get("node", {})
    assert found.levels[0].algorithm == inside.get("algorithm", found.levels[0].algorithm)
    return comm


def allreduce(comm, count):
    comm.Allreduce(np.ones(count), np.zeros(count))


@on_four
@pytest.mark.parametrize("name", PATHS)
def test_a_rank_that_does_not_come_is_named(mpi_ranks, name):
    comm, count = comm_on_path(name, timeout=0.5), COUNTS[[*PATHS].index(name) % 2]
    allreduce(comm, count)
    comm.Barrier()
    errors = errors_if_late(comm, 3, partial(allreduce, comm, count))
    others, kinds = errors[:3], {kind for kind, _, _ in errors[:3]}
    assert kinds <= {"CollectiveTimeoutError", "PeerError"}, errors
    timeouts = [text for kind, text, _ in others if kind == "CollectiveTimeoutError"]
    assert timeouts, errors
    assert all("waited for 0.5 s in" in text for text in timeouts), errors
    assert any(f"allreduce of {8 * count}B" in text for text in timeouts), errors
    assert any(" rank 3" in t or "rank(s) 3" in t for _, t, _ in others), errors
    assert max(seconds for _, _, seconds in errors) < SECONDS
    with contextlib.suppress(han.PeerError, han.RevokedError):
        comm.Barrier()
    with pytest.raises(han.RevokedError, match="CollectiveTimeoutError"):
        comm.Barrier()


KILLED = (
    PRELUDE
    + """
comms = [han.Comm(MPI.COMM_WORLD.Dup(), config={"levels": LEVELS, "wait": {"timeout": 5}, **path})
         for path in PATHS]
for comm in comms:
    comm.Allreduce(np.ones(20_000), np.zeros(20_000))
MPI.COMM_WORLD.Barrier()
if rank == VICTIM:
    os.kill(os.getpid(), signal.SIGKILL)
told = []
for comm in comms:
    begun = time.monotonic()
    try:
        comm.Allreduce(np.ones(20_000), np.zeros(20_000))
    except BaseException as error:
        told.append(f"{time.monotonic() - begun:.3f} {type(error).__name__}: {error}")
note("\\n\\n".join(told))
time.sleep(1)  # others may still wait for this rank's notices
os._exit(3)
"""
)


@pytest.mark.skipif(not shutil.which("setsid"), reason="there is no setsid (util-linux)")
def test_survivors_name_the_rank_that_was_killed(tmp_path):
    source = KILLED.replace("LEVELS", repr(TWO_BY_TWO)).replace("PATHS", repr([*PATHS.values()]))
    _, output, _ = job(tmp_path, source.replace("VICTIM", "3"), 4, "setsid", "--wait")
    for rank in range(3):
        assert (tmp_path / f"rank{rank}").exists(), output
        told = (tmp_path / f"rank{rank}").read_text().split("\n\n")
        assert len(told) == len(PATHS), told
        for text, name in zip(told, PATHS, strict=True):
            seconds, _, error = text.partition(" ")
            assert float(seconds) < SECONDS, (name, text)
            assert error.startswith("PeerError: "), (name, text)
            assert "rank 3 died (its process is gone)" in error, (name, text)
            assert "allreduce of 160000B" in error, (name, text)
