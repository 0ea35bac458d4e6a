"""Wrong arguments on all ranks or on one: the errors, and the state of the communicator after."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from _support import (
    APART,
    FLAT,
    FORMS,
    SECONDS,
    TWO_BY_TWO,
    TWO_LEVELS,
    WORLD,
    check_works,
    finish,
    mapped,
    method_of,
    new_comm,
    outcome,
    run,
)
from mpi4py import MPI
from tensors import OnDevice, Tensor

import han

ALL_VARIANTS = True  # the first MPI library runs all of them, the others none

usual = pytest.mark.mpi(ranks=[2, 4], timeout=120, unit="s")


# ---- wrong calls ------------------------------------------------------------------------------


def masked(n):
    tensor = OnDevice(f(n))
    tensor.__cuda_array_interface__["mask"] = f(n, "i1")
    return tensor


class NeedsGradient:
    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **kwargs):
        raise BufferError("a tensor that requires grad; use tensor.detach()")


def damaged(damage):
    return Tensor(f(4), damage=damage)


def used_capsule(shown):
    shown.major = 7


def no_shape(shown):
    shown.tensor.shape = None


def apart(shown):
    shown.tensor.shape[0], shown.tensor.strides[0] = 2, 2


class Hostile:
    @property
    def __array_interface__(self):
        raise KeyError("nothing here")

    def __buffer__(self, flags):
        raise RuntimeError("no")


def read_only(n):
    array = np.zeros(n)
    array.flags.writeable = False
    return array


def overlapping():
    memory = np.zeros(12)
    return memory[:8], memory[4:]


def same():
    memory = np.zeros(8)
    return memory, memory


def f(n, dtype="f8"):
    return np.zeros(n, dtype)


@dataclass(frozen=True)
class Bad:
    """A call that every rank refuses, and a part of its error."""

    collective: str
    arguments: Callable[[], tuple[Any, ...]]
    says: tuple[str, ...]
    error: type[Exception] = han.ArgumentError


KIND = han.ArgumentTypeError
BAD = [
    Bad(
        "Allreduce",
        lambda: (f(16), f(12)),
        ("recvbuf holds 96 bytes", "128 expected", "16 x float64"),
    ),
    Bad("Allreduce", lambda: (f(16), f(20)), ("recvbuf holds 160 bytes", "128 expected")),
    Bad("Allreduce", lambda: (f(4), f(4, "f4")), ("float64", "float32", "must be the same")),
    Bad("Allreduce", lambda: (f(4), f(4), MPI.BAND), ("MPI.BAND", "4 x float64", "MPI.SUM")),
    Bad("Allreduce", lambda: (f(4, "c16"), f(4, "c16"), MPI.MAX), ("MPI.MAX", "complex128")),
    Bad("Allreduce", lambda: (f(4), f(4), MPI.MINLOC), ("MPI.MINLOC", "pairs", "float64")),
    Bad("Allreduce", lambda: (f(4), f(4), "sum"), ("op", "'sum'", "MPI.Op"), KIND),
    Bad("Allreduce", lambda: (f(4), f(4), None), ("op", "None"), KIND),
    Bad("Allreduce", lambda: (f(4), f(4), MPI.OP_NULL), ("OP_NULL",)),
    Bad("Allreduce", lambda: (f(4), f(4), MPI.REPLACE), ("REPLACE",)),
    Bad("Allreduce", lambda: (f(4), read_only(4)), ("recvbuf is read-only",)),
    Bad("Allreduce", lambda: (f(4).tobytes(), bytes(32)), ("recvbuf is read-only",)),
    Bad("Allreduce", overlapping, ("sendbuf and recvbuf overlap", "MPI.IN_PLACE")),
    Bad("Allreduce", same, ("sendbuf and recvbuf overlap", "MPI.IN_PLACE")),
    Bad("Allreduce", lambda: (f(4), MPI.IN_PLACE), ("recvbuf", "IN_PLACE")),
    Bad("Allreduce", lambda: (f(4), None), ("recvbuf", "None"), KIND),
    Bad("Allreduce", lambda: (masked(4), f(4)), ("sendbuf", "OnDevice", "masked")),
    Bad("Allreduce", lambda: (OnDevice(f(3)), f(4)), ("recvbuf holds 32 bytes", "24 expected")),
    Bad("Allreduce", lambda: (f(4), OnDevice(f(4), True)), ("recvbuf is read-only",)),
    Bad("Allreduce", lambda: (f(4), Tensor(f(4), readonly=True)), ("recvbuf is read-only",)),
    Bad("Allreduce", lambda: (NeedsGradient(), f(4)), ("sendbuf", "use tensor.detach()")),
    Bad("Allreduce", lambda: (damaged(used_capsule), f(4)), ("sendbuf", "DLPack 7", "1 expected")),
    Bad("Allreduce", lambda: (damaged(no_shape), f(4)), ("sendbuf", "the shape", "damaged")),
    Bad("Allreduce", lambda: (damaged(apart), f(2)), ("sendbuf", "Tensor is not contiguous")),
    Bad("Allreduce", lambda: (Hostile(), f(4)), (), Exception),
    Bad("Allreduce", lambda: ("text", f(4)), ("sendbuf", "str"), KIND),
    Bad("Allreduce", lambda: (object(), f(4)), ("sendbuf", "object has no buffer"), KIND),
    Bad("Allreduce", lambda: (3.5, f(1)), ("sendbuf", "float has no buffer"), KIND),
    Bad("Allreduce", lambda: (f(2, "U3"), f(2)), ("sendbuf", "strings", "<U3"), KIND),
    Bad("Allreduce", lambda: (f(2, object), f(2)), ("sendbuf", "Python objects"), KIND),
    Bad("Allreduce", lambda: (f((8, 8))[:, ::2], f(32)), ("sendbuf", "(8, 4)", "(64, 16)")),
    Bad("Allreduce", lambda: (f(32), f((8, 8))[:, ::2]), ("recvbuf", "not contiguous")),
    Bad("Allreduce", lambda: (f(4, ">f8"), f(4)), ("sendbuf", ">f8", "byte order")),
    Bad(
        "Allreduce",
        lambda: ([f(4), 8, MPI.DOUBLE], f(8)),
        ("sendbuf holds 32 bytes", "64 expected"),
    ),
    Bad("Allreduce", lambda: ([f(4), -1, MPI.DOUBLE], f(8)), ("sendbuf", "-1", "negative")),
    Bad("Allreduce", lambda: ([f(4), 1.5, MPI.DOUBLE], f(8)), ("sendbuf", "1.5"), KIND),
    Bad("Allreduce", lambda: ([f(4), 4, "no such"], f(8)), ("sendbuf", "'no such'"), KIND),
    Bad("Allreduce", lambda: ([f(4), 1, 2, 3, 4, 5], f(8)), ("sendbuf", "list of 6"), KIND),
    Bad("Allreduce", lambda: ([f(4), MPI.DATATYPE_NULL], f(4)), ("sendbuf", "DATATYPE_NULL")),
    Bad("Bcast", lambda: ([1, 2, 3],), ("a list is [array, count, type]", "np.array"), KIND),
    Bad("Bcast", lambda: (f(4), 4), ("root 4", "0..")),
    Bad("Bcast", lambda: (f(4), -1), ("root -1", "0..")),
    Bad("Bcast", lambda: (f(4), 1 << 40), ("root 1099511627776",)),
    Bad("Bcast", lambda: (f(4), "0"), ("root", "'0'", "not a rank"), KIND),
    Bad("Bcast", lambda: (f(4), None), ("root", "None"), KIND),
    Bad("Bcast", lambda: (MPI.IN_PLACE,), ("buf", "IN_PLACE")),
    Bad("Bcast", lambda: (f((4, 4))[:, 1],), ("buf", "(4,)", "(32,)")),
    Bad("Bcast", lambda: ("text",), ("buf", "str"), KIND),
    Bad("Reduce", lambda: (f(4), f(4), MPI.SUM, 99), ("root 99", "0..")),
    Bad("Reduce", lambda: (f(4), f(4), MPI.LXOR, 0), (), han.ArgumentError),
    Bad("Reduce", lambda: (masked(4), f(4), MPI.SUM, 1), ("sendbuf", "masked")),
    Bad("Reduce", lambda: (f(4, "i4"), f(4, "i4"), min, 1), ("op", "min"), KIND),
]


SIZE = MPI.COMM_WORLD.size
BAD_BLOCKS = [
    Bad("Allgather", lambda: (f(4), f(4 * SIZE + 1)), ("recvbuf", "equal blocks", f"{SIZE}")),
    Bad(
        "Allgather",
        lambda: (f(4), f(5 * SIZE)),
        (f"recvbuf holds {40 * SIZE} bytes", f"{32 * SIZE} expected", "sendbuf", "4 x float64"),
    ),
    Bad("Allgather", lambda: (f(4), None), ("recvbuf", "None"), KIND),
    Bad("Allgather", lambda: (f(4), MPI.IN_PLACE), ("recvbuf", "IN_PLACE")),
    Bad("Allgather", lambda: (f(4), read_only(4 * SIZE)), ("recvbuf is read-only",)),
    Bad("Allgather", lambda: (lambda a: (a[:4], a))(f(4 * SIZE)), ("overlap", "MPI.IN_PLACE")),
    Bad("Allgather", lambda: (f(4), [f(4 * SIZE), 5, MPI.DOUBLE]), ("recvbuf holds", "expected")),
    Bad("Alltoall", lambda: (f(4 * SIZE + 1), f(4 * SIZE)), ("sendbuf", "equal blocks")),
    Bad("Alltoall", lambda: (f(4 * SIZE), f(3 * SIZE)), ("recvbuf holds", "as in sendbuf")),
    Bad("Gather", lambda: (f(4), f(4 * SIZE), SIZE), (f"root {SIZE}", "0..")),
    Bad("Gather", lambda: ("text", f(4 * SIZE), 0), ("sendbuf", "str"), KIND),
    Bad("Scatter", lambda: (f(4 * SIZE), f(4), -1), ("root -1",)),
    Bad("Reduce_scatter_block", lambda: (f(4 * SIZE), f(5)), ("recvbuf holds 40", "32 expected")),
    Bad("Reduce_scatter_block", lambda: (f(4 * SIZE), f(4), MPI.BAND), ("MPI.BAND", "float64")),
    Bad("Reduce_scatter_block", lambda: (MPI.IN_PLACE, f(SIZE + 1)), ("recvbuf", "equal blocks")),
    Bad("Allgatherv", lambda: (f(4), [f(9), [4] * (SIZE - 1)]), ("counts", f"{SIZE} expected")),
    Bad("Allgatherv", lambda: (f(4), [f(9), [-1] * SIZE]), ("recvbuf: counts", "-1 is negative")),
    Bad("Allgatherv", lambda: (f(4), [f(9), [1.5] * SIZE]), ("counts", "whole number"), KIND),
    Bad("Allgatherv", lambda: (f(4), [f(9), (1, 2, 3)]), ("a tuple is (counts",), KIND),
    Bad("Allgatherv", lambda: (f(4), [f(4 * SIZE - 1), [4] * SIZE]), (f"{32 * SIZE} expected",)),
    Bad("Allgatherv", lambda: (f(4), [f(8 * SIZE), [3] * SIZE]), ("24 expected: block", "recvbuf")),
    Bad("Allgatherv", lambda: (f(4), [f(8 * SIZE), (4, 3)]), ("ranks 0 and 1 overlap", "at 3")),
    Bad("Allgatherv", lambda: (f(4), [read_only(4 * SIZE), 4]), ("recvbuf is read-only",)),
    Bad("Allgatherv", lambda: (lambda a: (a[:4], a))(f(4 * SIZE)), ("overlap", "MPI.IN_PLACE")),
    Bad("Reduce_scatter", lambda: (f(4 * SIZE), f(4), [3] * SIZE), ("sum of recvcounts (3, ",)),
    Bad("Reduce_scatter", lambda: (f(4 * SIZE), f(3), [4] * SIZE), ("recvbuf", "4 elements expec")),
    Bad("Reduce_scatter", lambda: (f(4), f(4), [4]), ("recvcounts: 1 numbers",)),
    Bad("Reduce_scatter", lambda: (MPI.IN_PLACE, f(4)), ("recvcounts: None",), KIND),
    Bad("Reduce_scatter", lambda: (f(4 * SIZE), f(4), None, "sum"), ("op", "'sum'"), KIND),
]


def refuse(call, bad: Bad):
    with pytest.raises(bad.error) as caught:
        call(*bad.arguments())
    for part in bad.says:
        assert part in str(caught.value), caught.value


# ---- on all ranks -----------------------------------------------------------------------------


def test_all_ranks_refuse_and_go_on(mpi_ranks, levels, comm):
    for k, bad in enumerate([*BAD, *(BAD_BLOCKS if levels is FLAT else ())]):
        for variant in FORMS:
            if k % 7 == comm.rank:
                time.sleep(0.002)  # ranks receive the others' notices early or late
            refuse(method_of(comm, variant, bad.collective), bad)
            check_works(comm)


def test_errors_in_a_row_do_not_pile_up(mpi_ranks, comm):
    for _ in range(300):
        refuse(comm.Allreduce, BAD[0])
    check_works(comm)
    comm.Barrier()
    notices = comm._han.health.notices
    notices.receive(comm._han.parts.engines.own.issued)
    assert len(notices._mine) <= 300
    assert not notices._early


def test_an_error_is_not_taken_for_one_of_an_earlier_call(mpi_ranks, levels, comm):
    """All ranks fail in the call after a reduction; the root hears of it while it still reduces.

    It must not treat that as an error of the reduction.
    """
    last = comm.size - 1
    for n in (1, 100, 3000):
        send, recv = np.ones(n), np.zeros(n)
        for _ in range(3):
            if comm.rank == last - 1:
                time.sleep(0.1)
            comm.Reduce(send, recv, root=last)
            refuse(comm.Allreduce, BAD[0])
            assert comm.rank != last or (recv == comm.size).all()
    check_works(comm)


def test_errors_while_others_are_under_way(mpi_ranks, levels, comm):
    for n in (1, 50_000):
        for delay in (0, 0.05):
            send, recv = np.full(n, comm.rank + 1.0), np.zeros(n)
            if comm.rank == 0:
                time.sleep(delay)
            request = comm.Iallreduce(send, recv)
            if comm.rank == 1:
                time.sleep(delay)
            refuse(comm.Ibcast, BAD[-7])
            other = comm.Ibarrier()
            han.Request.Waitall([request, other])
            assert (recv == comm.size * (comm.size + 1) / 2).all()
    check_works(comm)


def test_test_does_not_wait_when_it_hears_of_an_error_elsewhere(mpi_ranks, comm):
    """After an error of all ranks, rank 1 enters the next call only when rank 0's Test returned."""
    refuse(comm.Allreduce, BAD[0])
    if comm.rank == 1:
        WORLD.recv(source=0)
    request = comm.Ibarrier()
    if comm.rank == 0:
        time.sleep(0.2)
        for _ in range(5):
            request.Test()
        WORLD.send(None, dest=1)
    request.Wait()
    check_works(comm)


def test_a_freed_communicator_leaves_nothing_to_the_next(mpi_ranks):
    """MPI may reuse the context of a freed communicator whose notices are still on their way."""
    for _ in range(20):
        comm = new_comm(FLAT)
        refuse(comm.Allreduce, BAD[0])
        comm.Free()
        check_works(new_comm(FLAT))


# ---- on one rank ------------------------------------------------------------------------------

GOOD = {
    "Allreduce": lambda: (f(16), f(16)),
    "Bcast": lambda: (f(16), 0),
    "Reduce": lambda: (f(16), f(16), MPI.SUM, 0),
    "Allgather": lambda: (f(16), f(16 * SIZE)),
    "Reduce_scatter_block": lambda: (f(16 * SIZE), f(16)),
    "Allgatherv": lambda: (f(16), [f(16 * SIZE), 16]),
    "Reduce_scatter": lambda: (f(16 * SIZE), f(16), [16] * SIZE),
}
# the collective, the arguments of one rank, a part of its error
ODD = [
    ("Allreduce", lambda: (f(16), f(12)), "128 expected"),
    ("Allreduce", lambda: (f(16), f(16), "sum"), "'sum'"),
    ("Allreduce", lambda: (masked(16), f(16)), "masked"),
    ("Bcast", lambda: (f((16, 2))[:, 0], 0), "not contiguous"),
    ("Bcast", lambda: (f(16), 77), "root 77"),
    ("Reduce", lambda: (f(16, ">f8"), f(16), MPI.SUM, 0), "byte order"),
]
ODD_BLOCKS = [
    ("Allgather", lambda: (f(16), f(15 * SIZE)), "expected: "),
    ("Reduce_scatter_block", lambda: (f(16 * SIZE), f(16), "sum"), "'sum'"),
    ("Allgatherv", lambda: (f(15), [f(16 * SIZE), 16]), "128 expected: block"),
    ("Reduce_scatter", lambda: (f(16 * SIZE), f(16), [15] * SIZE), "sum of recvcounts"),
]


def call_oddly(comm, variant, odd, row):
    """Let rank `odd` fail in its own call; return this rank's error, or None."""
    collective, wrong, text = row
    call = method_of(comm, variant, collective)
    try:
        finish(call(*(wrong if comm.rank == odd else GOOD[collective])()))
    except (han.ArgumentError, han.PeerError, han.RevokedError) as raised:
        error = raised
    else:
        error = None
    assert isinstance(error, han.ArgumentError) == (comm.rank == odd), error
    assert comm.rank != odd or text in str(error)
    return error


def two_barriers(comm):
    comm.Barrier()
    comm.Barrier()


def check_told(error, odd, text):
    assert isinstance(error, han.PeerError), error
    assert f"rank {odd} raised" in str(error)
    assert "Argument" in str(error)
    assert text in str(error)


def test_one_rank_fails_and_the_others_hear_of_it(mpi_ranks, levels):
    apart = levels is TWO_BY_TWO and mpi_ranks > 2  # the next test makes persistent requests there
    for k, row in enumerate([*ODD, *(ODD_BLOCKS if levels is FLAT else ())]):
        for variant in FORMS[: 2 if apart else 3]:
            comm, odd = new_comm(levels), (k + 1) % mpi_ranks
            begun = time.monotonic()
            error = call_oddly(comm, variant, odd, row)
            if comm.rank == odd:
                time.sleep(0.1)
            if error is None:  # its call needed no peer: it raises in its next wait
                with pytest.raises(han.PeerError) as caught:
                    comm.Barrier()
                error = caught.value
            if comm.rank != odd:
                check_told(error, odd, row[2])
            else:
                with pytest.raises(han.RevokedError, match="after an error of this rank"):
                    two_barriers(comm)  # the other ranks may have entered the first
            assert time.monotonic() - begun < SECONDS
            for again in (comm.Barrier, lambda c=comm: c.Allreduce(f(2), f(2)), comm.Ibarrier):
                with pytest.raises(han.RevokedError, match=r"cannot be used any more.*rank"):
                    again()
            with pytest.raises(han.RevokedError):
                comm.Barrier_init()
            MPI.COMM_WORLD.Barrier()
            comm.Free()


def test_one_rank_fails_to_make_a_persistent_request_between_nodes(mpi_ranks):
    comm = new_comm(TWO_LEVELS)
    for k, row in enumerate(ODD):
        odd = k % mpi_ranks
        error = call_oddly(comm, "{}_init", odd, row)
        if comm.rank != odd:
            check_told(error, odd, row[2])
        check_works(comm)  # all ranks know of the error, so the communicator stays usable
    comm.Free()


def test_several_ranks_fail_differently(mpi_ranks, levels):
    comm = new_comm(levels)
    wrong = [lambda: (f(16), f(12)), lambda: ("text", f(12))]
    if comm.rank < 2:
        with pytest.raises(han.ArgumentError):
            comm.Allreduce(*wrong[comm.rank]())
    else:
        with pytest.raises(han.PeerError, match=r"rank [01] raised Argument"):
            comm.Allreduce(f(16), f(16))
    if comm.size > 2:
        with pytest.raises((han.PeerError, han.RevokedError), match=r"rank [01] raised Argument"):
            comm.Barrier()
    else:
        comm.Barrier()


# ---- checked mode -----------------------------------------------------------------------------

DIFFERENT = {
    "count": (lambda c: c.Allreduce(f(8), f(8)), ("64B",)),
    "dtype": (lambda c: c.Allreduce(f(16, "i8"), f(16, "i8")), ("int64",)),
    "op": (lambda c: c.Allreduce(f(16), f(16), MPI.MAX), ("max",)),
    "root": (lambda c: c.Bcast(f(16), 1), ("root 1",)),
    "collective": (lambda c: c.Barrier(), ("barrier",)),
    "reduce's root": (lambda c: c.Reduce(f(16), f(16), MPI.SUM, 1), ("root 1",)),
}
USUAL = {
    "root": lambda c: c.Bcast(f(16), 0),
    "reduce's root": lambda c: c.Reduce(f(16), f(16), MPI.SUM, 0),
}


@pytest.mark.mpi(ranks=[3, 4], timeout=120, unit="s")
@pytest.mark.parametrize("asked", ["configuration", "environment"])
def test_checked_mode_names_the_odd_rank(mpi_ranks, levels, asked, monkeypatch):
    if asked == "environment":
        monkeypatch.setenv("HAN_CHECK", "1")
        monkeypatch.setenv("HAN_CONFIG", "virtual-2x2" if len(levels) == 2 else "flat")
        comm = han.Comm(MPI.COMM_WORLD.Dup())
    else:
        comm = new_comm(levels, check=True)
    for k, (what, (call, says)) in enumerate(DIFFERENT.items()):
        odd = k % comm.size
        usual = USUAL.get(what, lambda c: c.Allreduce(f(16), f(16)))
        with pytest.raises(han.MismatchError) as caught:
            (call if comm.rank == odd else usual)(comm)
        for part in (f"rank {odd} calls", *says, "the others call"):
            assert part in str(caught.value), caught.value
        check_works(comm)
    odd = comm.size - 1
    error = call_oddly(comm, "{}", odd, ODD[0])
    if comm.rank != odd:
        check_told(error, odd, ODD[0][2])
    check_works(comm)
    comm.Free()


# ---- not in checked mode ----------------------------------------------------------------------


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_who_is_far_ahead_or_raised_as_all_did_calls_nothing_else(mpi_ranks):
    comm, empty = new_comm(FLAT), f(0)
    if comm.rank:
        time.sleep(0.3)
    for _ in range(70_000):  # more than fit the 16 bits that peers compare
        comm.Bcast(empty, root=0)
    comm.Barrier()
    mine, block = np.arange(4.0) + comm.rank, np.empty(2)
    if comm.rank:  # MPI lets one rank be in place and another not
        comm.Reduce_scatter(mine, block, [2, 2])
    else:
        comm.Reduce_scatter(MPI.IN_PLACE, mine, [2, 2])
    assert (mine[:2] if comm.rank == 0 else block).tolist() == ([5, 7] if comm.rank else [1, 3])
    for _ in range(3):
        with pytest.raises(TypeError):
            comm.Bcast("text")

    def bcasts():
        for _ in range(80):
            comm.Bcast(f(9 + comm.rank), 0)
            comm.Barrier()

    with pytest.raises((han.MismatchError, han.PeerError, han.RevokedError)):
        bcasts()
    comm.Free()


# ---- configurations ---------------------------------------------------------------------------


def rule(**level):
    return {"levels": FLAT, "rules": [{"use": {"levels": {"everyone": level}}}]}


@pytest.mark.mpi(ranks=3, timeout=60, unit="s")
def test_configurations_that_differ_or_are_wrong_raise_on_all_ranks(mpi_ranks):
    cases = [
        ({"levels": FLAT, "memory": "8MiB"}, ("differs between ranks", "rank(s) 1 ")),
        (rule(submodule="smm"), ("rank 1:", "smm", "sm")),
        (rule(submodule="sm", algorithm="no_such"), ("rank 1:", "no_such", "knomial")),
        (rule(submodule="sm", radixx=4), ("rank 1:", "radixx")),
        ({"levels": FLAT, "no_such_key": 1}, ("rank 1:", "no_such_key")),
        ("no-such-config", ("rank 1:", "no-such-config")),
        ("/no/such/file.yaml", ("rank 1:", "/no/such/file.yaml")),
    ]
    for wrong, says in cases:
        with pytest.raises(han.ConfigError) as caught:
            han.Comm(WORLD, config=wrong if WORLD.rank == 1 else {"levels": FLAT})
        for part in says:
            assert part in str(caught.value), caught.value
    for wrong, says in cases[1:]:  # wrong on all ranks
        with pytest.raises(han.ConfigError) as caught:
            han.Comm(WORLD, config=wrong)
        assert "rank 0" not in str(caught.value), "said once"
        assert says[-1] in str(caught.value)
    check_works(han.Comm(WORLD, config={"levels": FLAT}))


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_refused_configurations_use_nothing_up(mpi_ranks):
    for _ in range(2500):  # more than an MPI library has context ids
        with pytest.raises(han.ConfigError):
            han.Comm(MPI.COMM_WORLD, config={"levels": []})


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_a_second_configuration_for_one_communicator_is_refused(mpi_ranks):
    comm = han.Comm(WORLD, config={"levels": FLAT})
    assert han.Comm(WORLD)._han is han.Comm(WORLD, config={"levels": FLAT})._han is comm._han
    with pytest.raises(han.ConfigError, match=r"already has a han\.Comm with another config"):
        han.Comm(WORLD, config={"levels": TWO_BY_TWO})
    with pytest.raises(han.ArgumentTypeError, match=r"takes an MPI\.Intracomm, not int"):
        han.Comm(3)
    with pytest.raises(han.RevokedError, match="COMM_NULL"):
        han.Comm().Barrier()
    check_works(comm)


# ---- a root that raised alone -------------------------------------------------------------------

TO_ROOT = {
    "Gatherv": lambda n: (f(n), [f(n * SIZE), [n] * SIZE]),
    "Gather": lambda n: (f(n), f(n * SIZE)),
    "Reduce": lambda n: (f(n), f(n)),
}


@pytest.mark.mpi(ranks=3, timeout=60, unit="s")
@pytest.mark.parametrize("name", [*TO_ROOT])
def test_a_root_that_raised_alone_gets_no_old_data(mpi_ranks, name):
    """The others need not wait for the root. It may go on, or find that they made another call."""
    for count in (4, 3000, 40_000):
        comm = new_comm(timeout=20.0)
        for k in range(4):
            send, recv = TO_ROOT[name](count)
            send[:] = k
            try:
                getattr(comm, name)("text" if (k, comm.rank) == (0, 0) else send, recv, root=0)
            except (TypeError, han.HanError):
                if k:
                    break
                continue
            if comm.rank == 0:
                whole = recv[0] if isinstance(recv, list) else recv
                assert (whole == k * (SIZE if name == "Reduce" else 1)).all(), (count, k, whole)
        MPI.COMM_WORLD.Barrier()


# ---- calls by blocks between nodes --------------------------------------------------------------

BLOCKS = {
    "Allgather": lambda n: (f(n), f(n * SIZE)),
    "Alltoall": lambda n: (f(n * SIZE), f(n * SIZE)),
    "Reduce_scatter": lambda n: (f(n * SIZE), f(n), [n] * SIZE),
    "Allgatherv": lambda n: (f(n), [f(n * SIZE), [n] * SIZE]),
}


def call_and_wait(comm, variant, collective, arguments, waitall):
    answer = method_of(comm, variant, collective)(*arguments)
    if answer is not None and waitall:
        if answer.persistent:
            answer.Start()
        han.Request.Waitall([answer])
    else:
        finish(answer)


def test_a_wrong_argument_in_a_call_by_blocks_is_told(mpi_ranks):
    for k, (collective, arguments) in enumerate(BLOCKS.items()):
        for variant in FORMS:
            odd = k % mpi_ranks
            comm = new_comm(APART, wait={"timeout": 20})
            for bad in ("text", f((4, 4))[:, 1]):  # wrong on all ranks: they go on
                with pytest.raises((TypeError, ValueError, BufferError)):
                    method_of(comm, variant, collective)(bad, *arguments(4)[1:])
                call_and_wait(comm, variant, collective, arguments(4), False)
            MPI.COMM_WORLD.Barrier()  # a slow rank may hear of the next call's error
            given = ("text", *arguments(4)[1:]) if comm.rank == odd else arguments(4)
            error, _ = outcome(
                lambda: call_and_wait(comm, variant, collective, given, k % 2)  # noqa: B023
            )
            if comm.rank == odd:
                assert isinstance(error, TypeError), error
            else:
                assert isinstance(error, han.PeerError), error
                assert f"rank {odd} raised ArgumentTypeError" in str(error)
            MPI.COMM_WORLD.Barrier()


def test_checked_mode_compares_calls_by_blocks(mpi_ranks):
    comm = new_comm(APART, check=True)
    for collective, arguments in BLOCKS.items():
        for variant in FORMS:
            given = arguments(5 if comm.rank == 1 else 4)
            with pytest.raises(han.MismatchError, match="rank"):
                method_of(comm, variant, collective)(*given)
            call_and_wait(comm, variant, collective, arguments(4), False)
    freed = comm.Allgather_init(f(1), f(comm.size))
    freed.Free()
    with pytest.raises(ValueError, match="has been freed"):
        freed.Start()
    check_works(comm)
    comm.Free()


def test_a_request_by_blocks_that_is_never_freed_keeps_no_shared_memory(mpi_ranks):
    before = mapped("/han-")
    comm = new_comm(APART)
    comm.Allreduce(f(4), f(4))
    assert mapped("/han-") > before
    request = comm.Allgather_init(f(1), f(comm.size))
    run(request)
    comm.Free()
    assert mapped("/han-") == before
