"""Common parts of the tests under MPI: communicators of any topology, calls, expected results."""

import contextlib
import gc
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from machines import topology_of
from mpi4py import MPI
from threaded import run_in_threads as run_in_threads

import han
from han.memory.arena import process_arena
from han.memory.loans import take_back
from han.model.collectives import ROWS
from han.model.element_types import DTYPES, ops_of
from han.model.topology import Topology
from han.ranks.discover import Conditions

WORLD = MPI.COMM_WORLD
FLAT = [{"name": "everyone", "symbol": "e", "scope": "all"}]
NETWORK = {"name": "network", "symbol": "i", "scope": "all"}
TWO_BY_TWO = [{"name": "node", "symbol": "s", "scope": {"size": 2}}, NETWORK]
APART = [{"name": "node", "symbol": "s", "scope": {"size": 1}}, NETWORK]  # a rank on each node
TWO_LEVELS = [  # two nodes
    {"name": "node", "symbol": "s", "scope": {"size": max(1, WORLD.size // 2)}}, NETWORK,
]  # fmt: skip
OF_NUMPY = [name for name in DTYPES if name != "bfloat16"]  # NumPy has no bfloat16
LEVELS = (FLAT, TWO_LEVELS)
SECONDS = 10  # within which a rank must raise: less than the time limits of waits
WAIT = {"timeout": 30}  # seconds: a deadlock becomes an error that names the call
GUARD = 64  # bytes before and after a result that must not change
CHILDREN = {  # ways to make a communicator of another one
    "Split": lambda comm: comm.Split(0, -comm.rank),
    "Dup": lambda comm: comm.Dup(),
    "Create": lambda comm: comm.Create(comm.group),
    "Create_group": lambda comm: comm.Create_group(comm.group),
    "Create_cart": lambda comm: comm.Create_cart([comm.size]),
}
# A rank that has raised frees its communicator soon: the others, which fail, never come.
impatient = mock.patch("han.ranks.health.FLUSH", 0.1)
COLLECTIVES = tuple(name for name, row in ROWS.items() if not row.by_blocks)

on_two = pytest.mark.mpi(ranks=2, timeout=40, unit="s")
on_four = pytest.mark.mpi(ranks=4, timeout=40, unit="s")
on_both = pytest.mark.mpi(ranks=[2, 4], timeout=40, unit="s")

Levels = Sequence[Mapping[str, Any]]


# ---- communicators ------------------------------------------------------------------------------


def levels_of(names: tuple[str, ...], symbols: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return levels of these names for a configuration; callers replace the topology itself."""
    inner = [
        {"name": n, "symbol": s, "scope": {"size": 2 << k}}
        for k, (n, s) in enumerate(zip(names[:-1], symbols[:-1], strict=True))
    ]
    return [*inner, {"name": names[-1], "symbol": symbols[-1], "scope": "all"}]


def settings(levels: Levels, timeout: float = 20.0, **more: Any) -> dict[str, Any]:
    """Return a configuration with small rings and a short time limit of waits."""
    return {"levels": levels, "memory": "2MiB", "wait": {"timeout": timeout}, **more}


def new_comm(levels: Levels = FLAT, timeout: float = 20.0, **more: Any) -> han.Comm:
    """Return a han.Comm of all ranks with these settings."""
    return han.Comm(WORLD.Dup(), config=settings(levels, timeout, **more))


def comms(**more: Any) -> Iterator[han.Comm]:
    """Yield a communicator on one level, then one on two; free each after its use."""
    for levels in LEVELS:
        with opened(new_comm(levels, **more)) as comm:
            yield comm


def comms_of(sizes: Iterable[int]) -> Iterator[MPI.Intracomm]:
    """Yield communicators of so many ranks to those who are in them."""
    for size in sizes:
        comm = WORLD.Split(0 if WORLD.rank < size else MPI.UNDEFINED, WORLD.rank)
        if comm != MPI.COMM_NULL:
            yield comm
            comm.Free()
    WORLD.Barrier()


def comm_on(
    comm: MPI.Intracomm, topology: Topology, use: Mapping[str, Any] | None = None, **more: Any
) -> han.Comm:
    """Return a han.Comm on a duplicate of `comm`, with the given topology.

    `use` is the decision of a rule for all calls; `more` goes into the configuration.
    """
    config: dict[str, Any] = {"wait": WAIT, **more}
    config["levels"] = levels_of(topology.names, topology.symbols)
    if use is not None:
        config["rules"] = [{"use": dict(use)}]
    conditions = Conditions(oversubscribed=True)
    with mock.patch("han.runtime.making.discover", return_value=(topology, conditions)):
        return han.Comm(comm.Dup(), config)


def comm_with(
    comm: MPI.Intracomm, domains: list[list[int]], use: Mapping[str, Any] | None = None,
    shared_to: int = 0,
) -> han.Comm:  # fmt: skip
    """Return a han.Comm with each rank's domain on each level; level `shared_to` shares memory."""
    return comm_on(comm, topology_of(domains, shared_to), use)


@contextlib.contextmanager
def opened(comm: han.Comm) -> Iterator[han.Comm]:
    """Free a communicator at the end, but not after an error, which other ranks may not have."""
    yield comm
    comm.Free()


def interleaved(size: int) -> list[list[int]]:
    """Return domains of nodes of 3, 1 and 2 ranks in the order 0 1 2 0 2 0, repeated."""
    pattern = [0, 1, 2, 0, 2, 0]
    return [[3 * (r // 6) + pattern[r % 6] for r in range(size)], [0] * size]


def check_works(comm: han.Comm) -> None:
    """Make an allreduce and a broadcast on a han.Comm, and check the results."""
    assert isinstance(comm, han.Comm)
    rank, size = comm.Get_rank(), comm.Get_size()
    send, recv = np.arange(100.0) + rank, np.empty(100)
    comm.Allreduce(send, recv)
    np.testing.assert_array_equal(recv, size * (np.arange(100.0) + (size - 1) / 2))
    data = np.full(5000, rank)
    comm.Bcast(data, root=size - 1)
    assert (data == size - 1).all()


@contextlib.contextmanager
def tiny_memory(kib: int) -> Iterator[Path]:
    """Mount a file system of `kib` KiB for the ranks' shared memory; collective."""
    world = MPI.COMM_WORLD
    place: Path = world.bcast(Path(tempfile.mkdtemp()) if world.rank == 0 else None)
    problem = None
    if world.rank == 0:
        command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        problem = done.stderr.strip() if done.returncode else None
    problem = world.bcast(problem)
    if problem:
        pytest.skip(f"cannot mount a small file system: {problem}")
    try:
        yield place
    finally:
        world.Barrier()
        if world.rank == 0:
            subprocess.run(["umount", "--lazy", str(place)], check=True)
            place.rmdir()


# ---- how calls end ------------------------------------------------------------------------------


def outcome(call: Callable[[], object]) -> tuple[BaseException | None, float]:
    """Return the error that a call raises, or None, and the seconds that it took."""
    begun = time.monotonic()
    try:
        call()
    except BaseException as error:
        return error, time.monotonic() - begun
    return None, time.monotonic() - begun


def error_of(call: Callable[[], object]) -> tuple[str, str, float]:
    """Return name and text of the error that a call raises, and the seconds that it took."""
    error, seconds = outcome(call)
    if error is None:
        return "", "", seconds
    if not isinstance(error, han.HanError | MPI.Exception | KeyboardInterrupt):
        raise error
    return type(error).__name__, str(error), seconds


def errors_if_late(comm: han.Comm, late: int, call: Callable[[], object]) -> list[Any]:
    """Make a call that rank `late` enters when it has ended on all others; return `error_of`s."""
    errors = [] if comm.rank == late else [error_of(call)]
    WORLD.Barrier()
    return WORLD.allgather(*(errors or [error_of(call)]))


# ---- data ---------------------------------------------------------------------------------------


def data_of(rank: int, dtype: str, count: int, op: str = "") -> np.ndarray:
    """Return the data that a rank sends: integers of all values, or floats near one.

    Sums and products of 8-bit and 16-bit integers do not overflow, as Open MPI saturates them.
    """
    generator = np.random.default_rng([rank, count])
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return generator.integers(0, 2, count).astype(bool)
    if kind.kind in "iu" and kind.itemsize < 4 and op in ("sum", "prod"):
        return generator.integers(0, 13 if op == "sum" else 2, count).astype(kind)
    if kind.kind in "iu":
        return generator.integers(0, 256, count * kind.itemsize, np.uint8).view(kind)
    values = generator.uniform(0.5, 1.5, count)
    if kind.kind == "c":
        values = values + 1j * generator.uniform(-1, 1, count)
    return values.astype(kind)


def mpi_op(name: str) -> MPI.Op:
    return getattr(MPI, name.upper())


NUMPY = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
    "land": np.logical_and, "lor": np.logical_or, "lxor": np.logical_xor,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
}  # fmt: skip


def by_numpy(size: int, dtype: str, op: str, count: int) -> np.ndarray:
    """Return the reduction of all ranks' data, computed by NumPy."""
    total = data_of(0, dtype, count, op)
    for rank in range(1, size):
        total = NUMPY[op](total, data_of(rank, dtype, count, op)).astype(dtype)
    return total


@dataclass
class Reference:
    """Expected results: from MPI on a duplicate, or from NumPy for types that MPI does not have."""

    comm: MPI.Intracomm
    known: dict[tuple[str, str, int], np.ndarray] = field(default_factory=dict)

    def __call__(self, dtype: str, op: str, count: int) -> np.ndarray:
        """Return the reduction of :func:`data_of`; the first request for it is collective."""
        key = dtype, op, count
        if key not in self.known:
            self.known[key] = self._make(*key)
        return self.known[key]

    def _make(self, dtype: str, op: str, count: int) -> np.ndarray:
        if dtype == "float16" or not count:
            return by_numpy(self.comm.size, dtype, op, count)
        send = data_of(self.comm.rank, dtype, count, op)
        recv = np.empty_like(send)
        self.comm.Allreduce(send, recv, mpi_op(op))
        return recv


def taken():
    """Return the bytes in use of this process's arena, when no rank lends any more."""
    WORLD.Barrier()
    take_back()
    return process_arena().usage().taken


@contextlib.contextmanager
def own_memory(monkeypatch):
    """Let han create shared memory in a folder of this test."""
    place = WORLD.bcast(tempfile.mkdtemp(dir="/dev/shm") if WORLD.rank == 0 else None)
    monkeypatch.setenv("HAN_SHM_DIR", place)
    try:
        yield Path(place)
        WORLD.Barrier()
    finally:
        if WORLD.rank == 0:
            shutil.rmtree(place, ignore_errors=True)


def descriptors() -> int:
    """Return the number of this process's open descriptors."""
    return len(os.listdir("/proc/self/fd"))


def mapped(place):
    """Return the number of mappings of files in a folder."""
    gc.collect()
    return sum(str(place) in line for line in Path("/proc/self/maps").read_text().splitlines())


def guarded(like: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return memory with guards before and after a result, and the part for the result."""
    whole = np.full(like.nbytes + 2 * GUARD, 0x5A, np.uint8)
    return whole, whole[GUARD : GUARD + like.nbytes].view(like.dtype)


# ---- calls --------------------------------------------------------------------------------------

FORMS = ("{}", "I{}", "{}_init")  # of a method's name: blocking, nonblocking, persistent


def method_of(comm: MPI.Intracomm, form: str, name: str) -> Callable[..., Any]:
    """Return the method of a collective in one of the forms."""
    return getattr(comm, form.format(name.lower() if form == "I{}" else name))


def run(request: MPI.Prequest, times: int = 1) -> None:
    """Run a persistent request so many times."""
    for _ in range(times):
        request.Start()
        request.Wait()


def finish(answer: MPI.Request | None, times: int = 1) -> None:
    """Complete what a call of any form has returned; run a persistent request so many times."""
    if getattr(answer, "persistent", isinstance(answer, MPI.Prequest)):
        run(answer, times)
        answer.Free()
    elif answer is not None:
        answer.Wait()


def in_python(combine: Callable[..., Any], dtype: Any = np.int64) -> Callable[..., None]:
    """Return a function for operations: the right operand becomes `combine(left, right)`."""

    def function(left: MPI.buffer, right: MPI.buffer, datatype: MPI.Datatype) -> None:
        x, y = (np.frombuffer(memory, dtype) for memory in (left, right))
        y[:] = combine(x, y)

    return function


class Derived(np.ndarray):
    """A subclass of NumPy's arrays."""


def derived_types() -> dict[str, MPI.Datatype]:
    """Return derived types of two doubles, with gaps and without."""
    double = MPI.DOUBLE
    return {
        "vector": double.Create_vector(2, 1, 2).Commit(),
        "pair": double.Create_contiguous(2).Commit(),
        "wide": double.Create_contiguous(2).Create_resized(0, 40).Commit(),
        "swapped": double.Create_indexed([1, 1], [1, 0]).Commit(),
        "late": double.Create_hindexed([2], [8]).Commit(),
    }


def known(comm: han.Comm, name: str, *arguments: Any) -> None:
    """Make a blocking call until it is known, then expect that the look-up in C finds it."""
    method = getattr(comm, name)
    for _ in range(3):  # the first calls plan, and teach the reader
        method(*arguments)
    before = comm._han.calls.hits
    method(*arguments)
    assert comm._han.calls.hits == before + 1, (name, arguments)


@dataclass(frozen=True)
class Call:
    """One collective call, the same on all ranks."""

    collective: str
    count: int = 0
    dtype: str = "int64"
    op: str = "sum"
    root: int = 0
    in_place: bool = False
    uneven: bool = False  # blocks of some ranks are smaller, or empty

    def counts(self, size: int) -> list[int]:
        """Return the number of elements of each rank's block."""
        if not self.uneven:
            return [self.count] * size
        return [(self.count, 0, self.count // 2 + 1)[(r + self.count) % 3] for r in range(size)]

    @property
    def nbytes(self) -> int:
        return self.count * np.dtype(self.dtype).itemsize

    def data(self, rank: int, blocks: int = 1) -> np.ndarray:
        return data_of(rank, self.dtype, blocks * self.count, self.op)


class Checker:
    """Makes calls of a form on a han.Comm, checks their results, and counts the calls."""

    def __init__(self, comm: han.Comm, reference: Reference, form: str = "{}") -> None:
        self.comm, self.reference, self.form = comm, reference, form
        self.rank = comm.Get_rank()
        self.digest = hashlib.blake2b()
        self.calls = self.left = 0  # all calls, and requests of the MPI library

    def __call__(self, call: Call, about: object = "") -> None:
        """Make a call; check its result, the guards, and that operands have not changed."""
        self.calls += 1
        try:
            getattr(self, "_" + call.collective)(call)
        except AssertionError as error:
            raise AssertionError(f"rank {self.rank}, {call}, {about}: {error}") from None

    def every(self, calls: Iterable[Call], about: object = "") -> None:
        """Make calls, and check that their results agree."""
        for call in calls:
            self(call, about)
        self.agree()

    def agree(self) -> None:
        """Check that all floating-point allreduces gave the same bits on all ranks."""
        digests = self.comm.allgather(self.digest.hexdigest())
        assert len(set(digests)) == 1, "the ranks' results differ in their last bits"

    def _make(self, name: str, *arguments: Any) -> None:
        """Make a call to its end."""
        answer = method_of(self.comm, self.form, name)(*arguments)
        self.left += isinstance(answer, MPI.Request) and not isinstance(answer, han.Request)
        finish(answer)

    def _given(self, call: Call, send: np.ndarray, place: np.ndarray) -> Any:
        """Return what a rank sends: its data, or MPI.IN_PLACE with them in a part of the result."""
        if not call.in_place:
            return send
        place[: send.size] = send
        return MPI.IN_PLACE

    def _barrier(self, call: Call) -> None:
        self._make("Barrier")

    def _bcast(self, call: Call) -> None:
        wanted = call.data(call.root)
        whole, buffer = guarded(wanted)
        if self.rank == call.root:
            buffer[:] = wanted
        self._make("Bcast", buffer, call.root)
        self._compare(call, wanted, whole, buffer)

    def _reduce(self, call: Call) -> None:
        if self.rank == call.root:
            self._reduction(call, "Reduce", call.root)
            return
        send = call.data(self.rank)
        self.reference(call.dtype, call.op, call.count)
        self._make("Reduce", send, None, mpi_op(call.op), call.root)
        self._untouched(call, send)

    def _allreduce(self, call: Call) -> None:
        result = self._reduction(call, "Allreduce")
        if result.dtype.kind in "fc":
            self.digest.update(result.tobytes())

    def _scan(self, call: Call) -> None:
        self._prefix(call, "Scan", self.rank + 1)

    def _exscan(self, call: Call) -> None:
        self._prefix(call, "Exscan", self.rank)

    def _prefix(self, call: Call, name: str, ranks: int) -> None:
        """Call a scan; with no operands before its own, a rank keeps its buffer as it is."""
        send = call.data(self.rank)
        whole, recv = guarded(send)
        recv[:] = send
        wanted = by_numpy(ranks, call.dtype, call.op, call.count) if ranks else recv.copy()
        self._make(name, self._given(call, send, recv), recv, mpi_op(call.op))
        self._untouched(call, send)
        self._compare(call, wanted, whole, recv)

    def _gather(self, call: Call) -> None:
        if self.rank == call.root:
            self._collection(call, "Gather", call.root)
            return
        send = call.data(self.rank)
        self._make("Gather", send, None, call.root)
        self._untouched(call, send)

    def _allgather(self, call: Call) -> None:
        if call.uneven:
            self._allgatherv(call)
            return
        self._collection(call, "Allgather")

    def _allgatherv(self, call: Call) -> None:
        """Call Allgatherv; blocks of an odd count are in reverse order with gaps of one element."""
        size, mine = self.comm.size, self.rank
        counts, odd = call.counts(size), call.count % 2
        order = reversed(range(size)) if odd else range(size)
        starts, at = [0] * size, 0
        for r in order:
            starts[r], at = at, at + counts[r] + odd
        blocks = [data_of(r, call.dtype, counts[r]) for r in range(size)]
        whole, recv = guarded(np.empty(at, call.dtype))
        wanted = recv.copy()
        for start, block in zip(starts, blocks, strict=True):
            wanted[start : start + block.size] = block
        send = blocks[mine].copy()
        target = [recv, (counts, starts)] if odd else [recv, counts]
        self._make("Allgatherv", self._given(call, send, recv[starts[mine] :]), target)
        assert send.tobytes() == blocks[mine].tobytes(), "sendbuf"
        self._compare(call, wanted, whole, recv)

    def _collection(self, call: Call, name: str, *root: int) -> None:
        wanted = np.concatenate([call.data(r) for r in range(self.comm.size)])
        whole, recv = guarded(wanted)
        send = call.data(self.rank)
        self._make(name, self._given(call, send, recv[self.rank * call.count :]), recv, *root)
        self._untouched(call, send)
        self._compare(call, wanted, whole, recv)

    def _scatter(self, call: Call) -> None:
        blocks = call.data(call.root, self.comm.size)
        wanted = blocks[self.rank * call.count :][: call.count]
        whole, recv = guarded(wanted)
        at_root = self.rank == call.root
        send = blocks.copy() if at_root else None
        if at_root and call.in_place:
            self._make("Scatter", send, MPI.IN_PLACE, call.root)
        else:
            self._make("Scatter", send, recv, call.root)
            self._compare(call, wanted, whole, recv)
        assert send is None or send.tobytes() == blocks.tobytes(), "sendbuf"

    def _alltoall(self, call: Call) -> None:
        size, mine = self.comm.size, slice(self.rank * call.count, (self.rank + 1) * call.count)
        wanted = np.concatenate([call.data(r, size)[mine] for r in range(size)])
        send = call.data(self.rank, size)
        whole, recv = guarded(wanted)
        self._make("Alltoall", self._given(call, send, recv), recv)
        self._untouched(call, send, size)
        self._compare(call, wanted, whole, recv)

    def _reduce_scatter(self, call: Call) -> None:
        counts, op = call.counts(self.comm.size), mpi_op(call.op)
        total = self.reference(call.dtype, call.op, sum(counts))
        wanted = total[sum(counts[: self.rank]) :][: counts[self.rank]]
        send = data_of(self.rank, call.dtype, sum(counts), call.op)
        whole, recv = guarded(send if call.in_place else wanted)
        given = self._given(call, send.copy(), recv)
        if call.uneven:
            known = call.in_place or call.count % 2
            self._make("Reduce_scatter", given, recv, counts if known else None, op)
        else:
            self._make("Reduce_scatter_block", given, recv, op)
        assert call.in_place or given.tobytes() == send.tobytes(), "sendbuf"
        self._compare(call, wanted, whole, recv[: wanted.size])

    def _reduction(self, call: Call, name: str, *root: int) -> np.ndarray:
        wanted = self.reference(call.dtype, call.op, call.count)
        send = call.data(self.rank)
        whole, recv = guarded(send)
        self._make(name, self._given(call, send, recv), recv, mpi_op(call.op), *root)
        self._untouched(call, send)
        self._compare(call, wanted, whole, recv)
        return recv

    def _untouched(self, call: Call, send: np.ndarray, blocks: int = 1) -> None:
        assert send.tobytes() == call.data(self.rank, blocks).tobytes(), "sendbuf"

    def _compare(self, call: Call, wanted: np.ndarray, whole: np.ndarray, got: np.ndarray) -> None:
        guards = np.concatenate([whole[:GUARD], whole[whole.size - GUARD :]])
        assert np.all(guards == 0x5A), "written beyond the buffer"
        if got.dtype.kind in "fc" and call.collective != "bcast":
            eps = float(np.finfo(got.dtype).eps)
            np.testing.assert_allclose(got, wanted, rtol=16 * eps * self.comm.size)
        else:
            np.testing.assert_array_equal(got, wanted)


def all_pairs() -> list[tuple[str, str]]:
    """Return every (dtype, op) that is defined."""
    return [(dtype, op) for dtype in OF_NUMPY for op in ops_of(dtype)]
