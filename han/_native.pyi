"""The compiled part: engines, plans, requests, arenas and kernels (``han/native``).

``tests/test_native_stub.py`` holds this file against the compiled part.
"""

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeAlias, TypeVar, final

import numpy.typing as npt
from _typeshed import ReadableBuffer, WriteableBuffer
from mpi4py import MPI

_Array: TypeAlias = npt.NDArray[Any]  # NumPy declares it as a buffer for Python 3.12 and later only
_Readable: TypeAlias = ReadableBuffer | _Array
_Writable: TypeAlias = WriteableBuffer | _Array
_Pair: TypeAlias = tuple[int, int]
_Triple: TypeAlias = tuple[int, int, int]
_Seven: TypeAlias = tuple[int, int, int, int, int, int, int]
_Library: TypeAlias = tuple[str, int, int, int, int, int]
_Channel: TypeAlias = tuple[WriteableBuffer, int, int, int, int, int, int, int, int]
_Started = TypeVar("_Started", bound=Request)

NUMBERS: dict[str, dict[str, int]]

def progress() -> None:
    """Step every collective that is under way."""

def orphans() -> list[Request]:
    """Return the requests that were dropped while they run."""

def inside_op() -> bool:
    """Whether a user's reduction is running here."""

def isa() -> str:
    """Return the instruction set that the reduction kernels use here."""

def on_mesh() -> bool:
    """Whether cache lines are slow from core to core here."""

def let_attach() -> None:
    """Let the other ranks read this process's memory, as far as the system does."""

def peek(pid: int, address: int, /) -> int:
    """Read a word of 8 bytes of another process; raises OSError."""

def poke(pid: int, address: int, value: int, /) -> None:
    """Write a word of 8 bytes to another process; raises OSError."""

def fence(
    *,
    code: bytes,
    streams: tuple[_Pair, ...],
    channels: tuple[_Triple, ...],
    comms: tuple[int, ...],
    ranks: int,
    tasks: int,
    requests: int,
    count: int,
    element: int,
    native: bool,
    operand: int,
    lengths: _Triple,
) -> None:
    """Raise ValueError unless a Program keeps to its memory.

    `channels` are (members, bytes of a ring, bytes that the run takes); `comms` their sizes;
    `lengths` the bytes of the send buffer, the receive buffer and the scratch.
    """

def has_kernel(op: int, dtype: int, /) -> bool:
    """Whether MPI defines that pair and han has it natively."""

def plain_copy(dst: _Writable, src: _Readable, streaming: bool = False, /) -> None:
    """Copy a buffer; with `streaming` past the caches where the machine can."""

def plain_combine(dst: _Writable, a: _Readable, b: _Readable, kernel: _Pair, /) -> None:
    """Store a op b in dst, in whole elements; `kernel` is the pair (op, dtype)."""

def room(folder: bytes, /) -> int:
    """Return the bytes that the memory limit of a control group leaves."""

def arena_open(
    fd: int, size: int, keep: int, touch: bool = False, groups: tuple[bytes, ...] = (), /
) -> object:
    """Open an arena in a sparse file; return NumPy's handle of it.

    The arena owns the file's descriptor and keeps to the memory limits of control groups, given
    by the names of their folders.
    """

def arena_use(handler: object, /) -> object:
    """Let NumPy allocate there in this context; return the handler that it used before."""

def arena_holds(arena: object, address: int, nbytes: int, /) -> bool:
    """Whether the arena holds these bytes."""

def arena_tell(arena: object, /) -> _Seven:
    """Return what ``han.arena.Usage`` holds."""

def map_file(fd: int, size: int, /) -> tuple[object, int]:
    """Map a file for reading only; return (owner, address)."""

def map_again(address: int, nbytes: int, /) -> tuple[object, int]:
    """Map shared memory once more; return (owner, address)."""

@final
class Plan:
    """A Program with its resources, ready to run. Made by :meth:`Engine.plan`."""

    @property
    def counts(self) -> _Seven:
        """Runs finished; bytes copied, combined, attached, mapped, sent and received.

        Attached bytes are copied by cross-memory attach. Mapped bytes are the share of those
        copied or combined that was read from peers' arrays.
        """
    @property
    def alternative(self) -> Plan | None:
        """The plan that all ranks run instead where the buffers of all are in their arenas."""
    @alternative.setter
    def alternative(self, plan: Plan) -> None: ...
    @property
    def rival(self) -> Plan | None:
        """The plan that all ranks run instead where the leader finds it quicker."""
    @rival.setter
    def rival(self, plan: Plan) -> None: ...

@final
class Engine:
    """Runs plans one after the other over the channels of one group of ranks.

    `mpi` is (library, wide handles, MPI_ANY_SOURCE, tag of notices, MPI_IN_PLACE, MPI_BYTE), or
    None for an engine that sends no messages. `channels` are (memory, ranks, rank, offsets of
    control records, flags, small slots and cells, bytes of a bank and of a ring). `wait` is
    (spins, least spins, nanoseconds asleep, time limit in seconds, whether to sleep in the kernel).
    `on_error` is called with a status and its detail: it raises, or returns to go on waiting.
    """

    held: int
    """The run that an early notice is about, counted from 1; 0: none."""

    def __init__(
        self,
        mpi: _Library | None,
        comm: int,
        channels: tuple[_Channel, ...],
        tag_base: int,
        wait: tuple[int, int, int, float, bool],
        on_error: Callable[[int, int], bool],
    ) -> None: ...
    @property
    def epoch(self) -> int:
        """Runs finished."""
    @property
    def issued(self) -> int:
        """Runs started or in the queue, and finished."""
    @property
    def alternatives(self) -> int:
        """Runs of a plan's alternative."""
    @property
    def failed(self) -> bool:
        """Whether an error has stopped it."""
    @property
    def on_error(self) -> Callable[[int, int], bool]:
        """What is called on errors."""
    def plan(
        self,
        *,
        code: bytes,
        streams: tuple[_Pair, ...],
        requests: int,
        footprint: tuple[int, ...],
        writes: bytes,
        sync: bool,
        brief: bool,
        signature: int,
        kernel: _Pair,
        element: int,
        op: int,
        dtype: int,
        commutative: bool,
        operand: int,
        comms: tuple[int, ...],
        scratch: _Writable | None,
        keep: object,
        number: int = 0,
        shifts: _Readable | None = None,
        arena: _Pair = (0, 0),
        whole: int = 0,
        leader: int = -1,
    ) -> Plan:
        """Make a Plan from a Program's records.

        `kernel` is (op, dtype), or (-1, -1) to call MPI_Reduce_local with the handles `op` and
        `dtype`. The plan may get an alternative if `arena` (address, bytes) holds any bytes, and a
        rival if there is a `leader`: a rank of the channel `whole`. `keep` lives as long as the
        plan.
        """
    def run(self, plan: Plan, send: int, recv: int, keep: object, /) -> None:
        """Run a plan on two addresses and wait for it."""
    def fail(self) -> None:
        """Cancel the runs under way; later runs raise."""
    def stop(self) -> None:
        """Cancel the runs under way and unmap the channels."""
    def look(self, waited: float, /) -> None:
        """Raise if `waited` seconds exceed the time limit, or a peer has died."""
    def blocked(self) -> tuple[int, list[_Triple]]:
        """Return the current run's signature and where its streams stand: code, peer and task."""
    def trace(self, memory: _Writable | None, tsc: bool = False, /) -> None:
        """Record tasks in `memory` from now on; None: stop recording."""

class Request:
    """A plan bound to buffers; started, waited for and tested like an MPI request.

    A subclass has a method ``_empty``, which fills in a status.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        send: int,
        recv: int,
        keep: object = None,
        begin: Callable[[], object] | None = None,
        end: Callable[[], object] | None = None,
        persistent: bool = False,
    ) -> None: ...
    @property
    def active(self) -> bool:
        """Started and not yet waited for."""
    @property
    def persistent(self) -> bool:
        """Whether it can be started again."""
    @property
    def _engine(self) -> Engine | None:
        """The engine that runs it; None once it has been freed."""
    def Start(self) -> None:
        """Begin; progress is made in Wait and Test."""
    def Wait(self, status: MPI.Status | None = None) -> Literal[True]:
        """Wait until complete."""
    def Test(self, status: MPI.Status | None = None) -> bool:
        """Make progress; return whether it is complete. A complete request is inactive."""
    def _peek(self) -> bool:
        """Make progress; return whether it is complete, without making it inactive."""
    def _free(self) -> None:
        """Complete it and release everything."""

@final
class Calls(Generic[_Started]):
    """Plans by what was called; `request` is the class that nonblocking calls return.

    A blocking call returns True once it has run, a nonblocking one its request. Either returns
    False where the arguments are not plain arrays, or their shape is new.
    """

    def __init__(
        self, engine: Engine, in_place: object, request: type[_Started], rank: int, size: int
    ) -> None: ...
    @property
    def hits(self) -> int:
        """Calls that found their plan here."""
    def add(
        self, plan: Plan, collective: int, nbytes: int, dtype: int, op: object, root: int, /
    ) -> None:
        """Remember a plan; `dtype` is NumPy's number, `op` may be None."""
    def clear(self) -> None:
        """Forget all plans."""
    def barrier(self) -> bool: ...
    def bcast(self, buf: object, root: object, /) -> bool: ...
    def reduce(
        self, send: object, recv: object, op: object, root: object, at_root: bool, /
    ) -> bool: ...
    def allreduce(self, send: object, recv: object, op: object, /) -> bool: ...
    def gather(self, send: object, recv: object, root: object, /) -> bool: ...
    def scatter(self, send: object, recv: object, root: object, /) -> bool: ...
    def allgather(self, send: object, recv: object, /) -> bool: ...
    def alltoall(self, send: object, recv: object, /) -> bool: ...
    def reduce_scatter_block(self, send: object, recv: object, op: object, /) -> bool: ...
    def ibarrier(self) -> _Started | Literal[False]: ...
    def ibcast(self, buf: object, root: object, /) -> _Started | Literal[False]: ...
    def ireduce(
        self, send: object, recv: object, op: object, root: object, at_root: bool, /
    ) -> _Started | Literal[False]: ...
    def iallreduce(
        self, send: object, recv: object, op: object, /
    ) -> _Started | Literal[False]: ...
    def igather(self, send: object, recv: object, root: object, /) -> _Started | Literal[False]: ...
    def iscatter(
        self, send: object, recv: object, root: object, /
    ) -> _Started | Literal[False]: ...
    def iallgather(self, send: object, recv: object, /) -> _Started | Literal[False]: ...
    def ialltoall(self, send: object, recv: object, /) -> _Started | Literal[False]: ...
    def ireduce_scatter_block(
        self, send: object, recv: object, op: object, /
    ) -> _Started | Literal[False]: ...
