"""A Python program whose extension calls MPI from C, with known results; prints what is wrong.

Its first word is the path of the extension, which is a library in C. A second one leaves threads
out.
"""

import atexit
import ctypes
import sys
import threading

import numpy as np
from mpi4py import MPI

PATH = sys.argv[1]
FREE = ctypes.CDLL(PATH)  # calls without Python's lock
HOLDING = ctypes.PyDLL(PATH)  # with it
WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
TIMES = 12  # more calls than a communicator needs to be served

wrong = 0


def at(handle):
    return ctypes.c_void_p(MPI._addressof(handle))


def expect(right, what):
    global wrong
    if not right:
        wrong += 1
        print(f"rank {RANK} of {SIZE}: {what} is wrong", file=sys.stderr)


def use(comm, library=FREE, n=5):
    for _ in range(TIMES):
        expect(library.calls(at(comm), n) == 0, "a call")


def c_calls():
    """Call from C, with and without Python's lock, and by mpi4py's own methods."""
    comm = WORLD.Dup()
    use(comm)
    use(comm, HOLDING)
    use(WORLD, HOLDING, 3000)
    for _ in range(TIMES):
        expect(comm.allreduce(RANK) == SIZE * (SIZE - 1) // 2, "allreduce of mpi4py")
    comm.Free()


def operations():
    """Reduce with an operation that is written in Python."""

    def larger(a, b, datatype):
        for k in range(0, len(b), 4):
            b[k : k + 4] = max(
                a[k : k + 4], b[k : k + 4], key=lambda x: int.from_bytes(x, "little")
            )

    op = MPI.Op.Create(larger, commute=True)
    comm = WORLD.Dup()
    for k in range(TIMES):
        for library in (FREE, HOLDING):
            expect(library.reduced(at(comm), at(op), RANK + k) == SIZE - 1 + k, "an operation")
    op.Free()
    comm.Free()


def both_doors():
    """Use one communicator from C, by han.Comm and by mpi4py, in turn; free it each way."""
    import han

    mine, result = np.arange(4.0) + RANK, np.empty(4)
    expected = np.arange(4.0) * SIZE + SIZE * (SIZE - 1) / 2
    for end in ("han", "mpi4py", "C") * 2:
        plain = WORLD.Dup()
        comm = han.Comm(plain)
        for _ in range(TIMES):
            for call in (comm.Allreduce, plain.Allreduce):
                result[:] = 0
                call(mine, result)
                expect(np.array_equal(result, expected), f"Allreduce before {end}")
            use(plain)
            expect(comm.allreduce(1) == SIZE, f"allreduce before {end}")
        request = comm.Iallreduce(mine, result)
        use(plain)
        request.Wait()
        expect(np.array_equal(result, expected), "Iallreduce")
        if end == "han":
            comm.Free()
        elif end == "mpi4py":
            plain.Free()
        else:
            expect(FREE.release(at(plain)) == 0, "release")
    child = han.Comm(WORLD).Split(RANK % 2, RANK)
    use(child)
    child.Free()
    for _ in range(2):  # these stay with MPI, and may be used on
        han.Comm(WORLD).Free()
        use(WORLD)


def threads():
    """Call in several threads, each on a communicator of its own; one of them keeps the lock."""
    import han

    comms = [WORLD.Dup() for _ in range(4)]
    one = np.ones(3)
    ways = [
        lambda comm: use(comm, FREE),
        lambda comm: use(comm, HOLDING),
        lambda comm: use(han.Comm(comm), FREE, 2000),
        lambda comm: [comm.Allreduce(one, np.empty(3)) for _ in range(TIMES)],
    ]
    group = [
        threading.Thread(target=way, args=(comm,)) for way, comm in zip(ways, comms, strict=True)
    ]
    for thread in group:
        thread.start()
    for thread in group:
        thread.join()
    for comm in comms:
        comm.Free()


def neighbours():
    """Exchange with neighbours by mpi4py's own methods, which take large counts if MPI has them."""
    ring = WORLD.Create_cart([SIZE], [SIZE > 2])
    ring_of_ranks = [rank for r in range(SIZE) for rank in ((r - 1) % SIZE, (r + 1) % SIZE)]
    graph = WORLD.Create_graph([*range(2, 2 * SIZE + 1, 2)], ring_of_ranks)
    dist = WORLD.Create_dist_graph_adjacent([(RANK - 1) % SIZE], [(RANK + 1) % SIZE])
    for comm in (ring, graph, dist):
        sources, targets = comm.inedges, comm.outedges
        counts = [2] * len(sources), [*range(0, 3 * len(sources), 3)]
        sent_counts = [2] * len(targets), [*range(0, 3 * len(targets), 3)]
        for turn in range(TIMES):
            mine, sent = np.arange(3) + 10 * RANK + turn, np.full((len(targets), 3), RANK + turn)
            for name, whole, sizes in (
                ("allgather", mine, counts), ("alltoall", sent, counts),
            ):  # fmt: skip
                got, parts = np.full((2, len(sources), 3), -1)
                getattr(comm, f"Ineighbor_{name}")(whole, got).Wait()
                if name == "allgather":
                    comm.Neighbor_allgatherv([mine, 2], [parts, sizes])
                else:
                    comm.Neighbor_alltoallv([sent, sent_counts], [parts, sizes])
                for block, part, source in zip(got, parts, sources, strict=True):
                    if source == MPI.PROC_NULL:
                        continue
                    expected = np.arange(3) + 10 * source if name == "allgather" else source
                    expect(np.all(block == expected + turn), f"Ineighbor_{name}")
                    expect(np.all((part == expected + turn)[:2]), f"Neighbor_{name}v")
        comm.Free()


def what_the_library_lacks():
    """Call a function of MPI 4.1, which mpi4py asks the library for: it may be missing."""
    try:
        flag = MPI.Request.Get_status_all([MPI.REQUEST_NULL])
    except (NotImplementedError, MPI.Exception):
        flag = MPI.Get_version() < (4, 1)
    expect(flag, "Get_status_all")


def nothing_is_left():
    """All that was set up for communicators that were freed is gone."""
    left = sys.modules.get("han.preloaded")
    expect(left is None or len(left._comms) <= 1, "what is left of freed communicators")


def the_end():
    """Call in functions that Python calls at its end, and after it."""
    part = WORLD.Split(0 if RANK < 2 else MPI.UNDEFINED)
    if part:
        use(part)  # some ranks have han before the others
    atexit.register(lambda: use(WORLD))
    use(WORLD)
    atexit.register(lambda: use(WORLD))
    FREE.keep(at(WORLD))
    ctypes.pythonapi.Py_AtExit(ctypes.cast(FREE.finish, ctypes.c_void_p))


for part in (c_calls, operations, both_doors, threads, neighbours, what_the_library_lacks):
    if part != threads or len(sys.argv) == 2:
        part()
nothing_is_left()
total = WORLD.reduce(wrong)
if RANK == 0:
    print(f"wrong: {total}", flush=True)
the_end()
