"""The executor counts the traffic that programs predict, in every algorithm."""

import numpy as np
import pytest
from _support import COLLECTIVES, WORLD, comm_with, new_comm, opened
from mpi4py import MPI
from test_conformance import PARTS, force, meant_for, segment_of

from han.measure.bench_calls import Buffers, Case, prepare
from han.measure.modes import Mode
from han.model.collectives import BY_BLOCKS
from han.submodules.registry import registered
from han.tasks.inspect.traffic import Counted, Traffic
from han.tasks.lower import lower

SIZES = (0, 8, 50_008)
CALLS = 2
CASES = [Case(name, n, root=1) for name in (*COLLECTIVES, *BY_BLOCKS) for n in SIZES]
CASES = [case for case in CASES if bool(case.nbytes) == (case.collective != "barrier")]
ALONE = 1 << 20  # bytes


def run(comm, case, mode=Mode.BLOCKING, shared=False, calls=CALLS):
    """Make calls, and return what `explain` says of them before they are freed."""
    prepared = prepare(comm, Buffers(case, comm.rank, comm.size, shared), mode)
    for _ in range(calls):
        prepared.call()
    call = {"dtype": case.dtype, "root": case.root, "shared": shared}
    said = comm.explain(case.collective, case.nbytes, **call)
    prepared.free()
    return said


def check(comm, case, about, **how):
    """Compare the counted traffic of some calls with that of their programs; return the latter."""
    said = run(comm, case, **how)
    if said.counted is None:
        return Traffic()  # the call is the MPI library's own
    predicted = Traffic.of(lower(said.plan, comm.rank), said.plan.signature.element)
    assert said.counted == Counted(CALLS, sum([predicted] * CALLS, Traffic())), (case, about)
    return predicted


def run_all(comm, domains, level, parts, cases, **how):
    """Check every case with every algorithm; return the traffic of all ranks together."""
    moved = Traffic()
    for name, algorithm in parts:
        segment = segment_of(name, algorithm)
        use = force(level, name, algorithm, segment=segment)
        with opened(comm_with(comm, domains, use)) as forced:
            for case in meant_for((name, algorithm), cases):
                moved += check(forced, case, (name, algorithm, level, how), **how)
    return comm.allreduce(moved)


@pytest.mark.any_library
@pytest.mark.mpi(ranks=4, timeout=120, unit="s")
def test_what_is_counted_is_what_programs_say(mpi_ranks):
    inside = run_all(WORLD, [[0] * 4] * 2, "level0", PARTS, CASES)
    assert min(inside.copied, inside.combined) > 0
    with opened(new_comm()) as plain:
        assert (inside.attached > 0) == (not plain._han.parts.shared.attach_refused)
    between = run_all(WORLD, [[0, 0, 1, 1], [0] * 4], "network", PARTS, CASES)
    assert min(between.copied, between.combined, between.sent) > 0
    assert between.sent == between.received
    readers = [part for part in PARTS if registered()[part[0]].reads_peers]
    shared = {"mode": Mode.PERSISTENT, "shared": True}
    mapped = run_all(WORLD, [[0] * 4] * 2, "level0", readers, CASES, **shared)
    assert mapped.mapped > mapped.attached


def copies(comm, name, algorithm, nbytes):
    """Broadcast ordinary arrays by an algorithm; return the copies per byte of each rank."""
    use = force("level0", name, algorithm, segment="whole")
    with opened(comm_with(comm, [[0] * comm.size] * 2, use)) as forced:
        said = run(forced, Case("bcast", nbytes))
        assert said.plan.choice.levels[0].submodule == name
        assert f"counted   {CALLS} calls, " in str(said)
        mine = said.counted.traffic.copied / nbytes / said.counted.calls
        return comm.allgather(mine)


@pytest.mark.mpi(ranks=[2, 4], timeout=60, unit="s")
def test_a_broadcast_is_one_copy_a_receiver_by_attach_and_through_cells_one_more_at_the_root(
    mpi_ranks,
):
    others = WORLD.size - 1
    assert (
        copies(WORLD, "sm", "flat", ALONE) == [1] + [1] * others
    )  # the root copies in, each other rank out
    with opened(new_comm()) as plain:
        reason = plain._han.parts.shared.attach_refused
    if reason:
        pytest.skip(f"this machine refuses cross-memory attach: {reason}")
    assert copies(WORLD, "solo", "pull", ALONE) == [0] + [1] * others


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_what_stays_where_it_is_does_not_count(mpi_ranks):
    count = 5000
    with opened(comm_with(MPI.COMM_WORLD, [[0] * 2] * 2, force("level0", "sm", "flat"))) as comm:

        def counted(collective, nbytes):
            return comm.explain(collective, nbytes).counted

        send, recv = np.arange(count) + comm.rank, np.empty((2, count), int)
        comm.Allgather(send, recv)
        before = counted("allgather", send.nbytes)
        recv[comm.rank] = send
        comm.Allgather(MPI.IN_PLACE, recv)
        after = counted("allgather", send.nbytes)
        np.testing.assert_array_equal(recv[1], recv[0] + 1)
        assert after.traffic.copied - before.traffic.copied == before.traffic.copied - send.nbytes
