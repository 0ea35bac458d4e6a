"""``Revoke`` of a han.Comm, where the MPI library has it."""

import pytest
from _jobs import PRELUDE, job
from _support import check_works, on_two
from mpi4py import MPI

OPEN_MPI = "Open MPI" in MPI.Get_library_version()

REVOKING = (
    PRELUDE
    + """
levels = [
    {"name": "node", "symbol": "s", "scope": {"size": 2}},
    {"name": "network", "symbol": "i", "scope": "all"},
]
said = []
for config in (None, {"levels": levels}):
    comm = han.Comm(MPI.COMM_WORLD.Dup(), config)
    unused = comm.Dup()
    comm.Allreduce(np.ones(1), np.empty(1))
    for _ in range(6):
        child = comm.Dup()
        child.Barrier()
        child.Free()
    heir = comm.Dup()  # inside one node it would take over what the last child had
    if not rank:
        time.sleep(0.2)
        comm.Revoke()
        unused.Revoke()
        heir.Revoke()
    for call in (comm.Barrier, lambda: comm.Allreduce(np.ones(1), np.empty(1)), comm.Split):
        try:
            call()
        except han.HanError as error:
            said.append(f"{type(error).__name__}: {error}")
    for each in (unused, heir):
        try:
            each.Barrier()
        except MPI.Exception as error:
            assert error.Get_error_class() == MPI.ERR_REVOKED
            said.append("revoked")
        except han.PeerError as error:
            said.append(f"PeerError: {error}")
    left = comm.Shrink()
    left.Barrier()
    said.append(f"{type(left).__name__} of {left.size}")
note("|".join(said))
"""
)


@pytest.mark.skipif(not OPEN_MPI, reason="the MPI library has no Revoke")
def test_ranks_that_wait_hear_that_another_rank_revoked(tmp_path):
    status, output, _ = job(tmp_path, REVOKING, 3, "--with-ft", "ulfm")
    assert status == 0, output
    for rank in range(3):
        said = (tmp_path / f"rank{rank}").read_text().split("|")
        assert len(said) == 12, said
        assert said[4] == said[10] == "revoked", "it takes parts over in its first call"
        for first, *later, unused, _, left in (said[:6], said[6:]):
            assert "Revoke was called" in first
            assert first.startswith("PeerError: rank 0 raised" if rank else "RevokedError")
            assert all(each.startswith("RevokedError: this communicator") for each in later)
            assert (unused, left) == ("revoked", "Comm of 3")


@pytest.mark.skipif(OPEN_MPI, reason="Open MPI has Revoke")
@on_two
def test_a_library_without_revoke_says_so_and_nothing_changes(mpi_ranks, comm):
    with pytest.raises(NotImplementedError):
        comm.Revoke()
    check_works(comm)
