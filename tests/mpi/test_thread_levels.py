"""Programs that initialise MPI for one thread only."""

from _jobs import PRELUDE, job

PROGRAM = (
    """
import mpi4py
mpi4py.rc.thread_level = "single"
"""
    + PRELUDE
    + """
import warnings
warnings.simplefilter("ignore", RuntimeWarning)  # of what progresses only inside of calls
comm = han.Comm(MPI.COMM_WORLD, config={"levels": LEVELS, "wait": {"timeout": 30}})
ranks, sums = comm.size, []
for n in (1, 1000, 100_000):
    send, total = np.full(n, 1.0 + rank), np.empty(n)
    comm.Allreduce(send, total)
    sums.append(total.copy())
    request = comm.Iallreduce(send, total)
    time.sleep(0.02)  # the helper may step the run meanwhile
    request.Wait()
    sums.append(total.copy())
    request = comm.Iallreduce(send, total)
    MPI.Request.Waitall([request])
    sums.append(total.copy())
    again = comm.Allreduce_init(send, total)
    for _ in range(3):
        again.Start()
        again.Wait()
    again.Free()
    sums.append(total)
assert all((total == ranks * (ranks + 1) / 2).all() for total in sums)
assert comm.allgather({"rank": rank}) == [{"rank": r} for r in range(ranks)]
child = comm.Split(rank % 2)
child.Barrier()
child.Free()
note(str(MPI.Query_thread() == MPI.THREAD_SINGLE))
comm.Free()
"""
)


def test_a_program_of_one_thread(tmp_path, levels):
    status, output, _ = job(tmp_path, PROGRAM.replace("LEVELS", repr(levels)), 4)
    assert status == 0, output
    assert [(tmp_path / f"rank{r}").read_text() for r in range(4)] == ["True"] * 4
