"""The compiled module: engines, plans, requests, arenas and kernels (``han/native``).

``tests/native/test_native_stub.py`` compares this file with the compiled module.
"""

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeAlias, TypeVar, final

import numpy.typing as npt
from _typeshed import ReadableBuffer, WriteableBuffer
from mpi4py import MPI

_Array: TypeAlias = npt.NDArray[Any]  # for NumPy, arrays are buffers from Python 3.12 on
# of a task: its number, where it starts and stops, and the streams and positions that it awaits
_Turn: TypeAlias = tuple[int, int, int, tuple[tuple[int, int], ...]]
_Readable: TypeAlias = ReadableBuffer | _Array
_Writable: TypeAlias = WriteableBuffer | _Array
_Pair: TypeAlias = tuple[int, int]
_Records: TypeAlias = tuple[_Readable, _Readable | None, tuple[_Pair, ...]]
_Triple: TypeAlias = tuple[int, int, int]
_Five: TypeAlias = tuple[int, int, int, int, int]
_Seven: TypeAlias = tuple[int, int, int, int, int, int, int]
_Library: TypeAlias = tuple[str, int, int, int, int, int, int, int]
_Channel: TypeAlias = tuple[
    WriteableBuffer, int, int, int, int, int, int, int, int, int, int, int, bool
]
_Started = TypeVar("_Started", bound=MPI.Request)
_Run: TypeAlias = Callable[..., bool]
# Addresses to send from and receive at, size, the objects that own the buffers, sizes of blocks.
_Maker: TypeAlias = Callable[..., object]

NUMBERS: dict[str, dict[str, int]]

def progress() -> None:
    """Step every active engine of this process once."""

def orphans() -> list[Any]:
    """Return the requests that were dropped while their collectives run."""

def request_class(
    base: type[MPI.Request], handle: int, null: int, library: _Library, status: _Five, /
) -> type[Any]:
    """Return the class of requests, which extends mpi4py's.

    `handle` is the offset of MPI's handle in an object, `null` is MPI_REQUEST_NULL. `status` holds
    the offsets of source, tag and error in a status, MPI_ANY_SOURCE and MPI_ANY_TAG.

    """

def helper(off: bool, multiple: bool, look: float, /) -> None:
    """Say how the helper thread works.

    `multiple` lets it call MPI. `look` are the seconds between two looks at what is under way; 0
    lets it work from the start.
    """

def stop_helper() -> None:
    """End the helper thread, for ever."""

def open_door(
    begin: Callable[[int], bool],
    first: Callable[..., tuple[int, object, object]],
    failed: Callable[[int, BaseException], int],
    free: Callable[[int], int],
    forget: Callable[[int], int],
    end: Callable[[], int],
    rest: Callable[[int], int],
    operations: dict[int, Any],
    wide: bool,
    code: int,
    no_type: int,
    /,
) -> bool:
    """Serve the preloaded library; return whether there is one."""

def by_mpi(function: Callable[..., Any], /, *arguments: object) -> Any:
    """Call a function that calls MPI; the preloaded library leaves its calls to MPI."""

def lose(handle: int, /) -> None:
    """Let the preloaded library forget what han held for a communicator."""

def close_requests() -> None:
    """Let requests call MPI no more: it is about to be finalized."""

def helper_runs() -> bool:
    """Return whether the helper thread exists."""

def inside_op() -> bool:
    """Return whether this thread runs a user's reduction operation inside a collective."""

def isa() -> str:
    """Return the instruction set of the reduction kernels in use."""

def on_mesh() -> bool:
    """Return whether cores exchange cache lines over a mesh, and therefore slowly."""

def let_attach() -> None:
    """Allow other ranks to access this process's memory, as far as the system lets it."""

def peek(pid: int, address: int, /) -> int:
    """Return the 8-byte word at an address of another process; raises OSError."""

def poke(pid: int, address: int, value: int, /) -> None:
    """Store an 8-byte word at an address of another process; raises OSError."""

def simulate(
    arrays: tuple[_Array, ...],
    sizes: tuple[int, int, int, int, int, int, int, int, int, bool],
    lengths: tuple[int, int, int, int, int, int, int, int],
    tell: Callable[[], object] | None,
    /,
) -> bytes:
    """Run programs in virtual time; write the results into arrays and return spans as bytes.

    `arrays` and what they hold: native/simulate/world.h.
    """

def has_kernel(op: int, dtype: int, /) -> bool:
    """Return whether han has a kernel for a pair of operation and element type."""

def plain_copy(dst: _Writable, src: _Readable, streaming: bool = False, /) -> None:
    """Copy a buffer; with `streaming` by stores past the caches, if the processor has these."""

def plain_combine(dst: _Writable, a: _Readable, b: _Readable, kernel: _Pair, /) -> None:
    """Store ``a op b`` in `dst`, for whole elements; `kernel` is the pair (op, dtype)."""

def hand_over(line: _Writable, first: bool, rounds: int, seconds: float, /) -> float | None:
    """Hand a cache line of zeros over to a peer and back, so many times.

    Return the seconds of all, or None if the peer does not take part in `seconds`.
    """

def read_dlpack(capsule: object, /) -> tuple[int, int, int, int, int, bool, bool]:
    """Return address, bytes, type code, bits, lanes, read-only and contiguous of a DLPack capsule.

    The capsule is not consumed. Raises BufferError.
    """

def room(folder: bytes, /) -> int:
    """Return the bytes that are left below the memory limit of a control group."""

def arena_open(
    fd: int, size: int, keep: int, touch: bool = False, groups: tuple[bytes, ...] = (), /
) -> object:
    """Open an arena in a sparse file; return NumPy's handle of it.

    The arena owns the file descriptor. It respects the memory limits of the control groups whose
    folders are given.
    """

def arena_use(handler: object, /) -> object:
    """Make NumPy allocate in an arena in this context; return the handler used before."""

def arena_holds(arena: object, address: int, nbytes: int, /) -> bool:
    """Return whether these bytes are in the arena."""

def arena_take(arena: object, nbytes: int, bare: bool = False, /) -> int:
    """Return the address of so many zeros; of memory to be filled, if it is bare.

    Raises OSError.
    """

def arena_fill(arena: object, address: int, nbytes: int, /) -> None:
    """Reserve memory for bytes that were taken bare; raises OSError."""

def arena_give(arena: object, address: int, /) -> None:
    """Give back what was taken."""

def arena_tell(arena: object, /) -> _Seven:
    """Return the fields of ``han.memory.arena.Usage``."""

def read_vector(
    reader: Reader, spec: object, size: int, /
) -> tuple[tuple[int, int, int, int, int, bool], bytes] | None:
    """Return what ``reader.read`` does, and in 64 bits each the counts of blocks and their places.

    None: the reader leaves the arguments to the parser.
    """

def map_file(fd: int, size: int, writes: bool = False, /) -> tuple[object, int]:
    """Map a file, for reading only unless it `writes`; return (owner, address)."""

def load_word(address: int, /) -> int:
    """Load 8 bytes of this process's memory, with acquire order."""

def store_word(address: int, value: int, /) -> None:
    """Store 8 bytes in this process's memory, with release order."""

def map_again(address: int, nbytes: int, /) -> tuple[object, int]:
    """Map shared memory a second time; return (owner, address)."""

@final
class Ref:
    """An address in a program: `offset` bytes from a base, behind `blocks` whole messages.

    Memory that holds a part of the message has its byte `origin` at that offset. The address is
    that of the message's byte `at`. In user buffers, the origin is 0.
    """

    @property
    def base(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def at(self) -> int: ...
    @property
    def origin(self) -> int: ...
    @property
    def blocks(self) -> int: ...
    def __new__(
        cls, base: int, offset: int = 0, at: int = 0, origin: int = 0, blocks: int = 0
    ) -> Ref: ...
    def __add__(self, nbytes: int, /) -> Ref:
        """Return the address of memory behind this one."""
    def __radd__(self, nbytes: int, /) -> Ref: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def to(self, at: int, /) -> Ref:
        """Return the address of the message's byte `at` in the same memory."""
    def holding(self, at: int, /) -> Ref:
        """Return the same address, where a part of the message begins with its byte `at`."""
    def behind(self, blocks: int, /) -> Ref:
        """Return the address behind so many blocks of the message's size."""
    def within(self, base: int, /) -> Ref:
        """Return the same place in another base."""
    def start(self, nbytes: int, /) -> int:
        """Return the offset from the base for a message of `nbytes` bytes."""

class Operations:
    """The operations of one stream, as they are emitted.

    `tag` is the stream's part of a message tag. A message has `nbytes` bytes in elements of
    `element` bytes, and is cut at multiples of `grain` bytes. `grains` is 0 in a program for one
    size. In an `uneven` one blocks differ in size, and each operation names the `block` of which it
    moves bytes. In one for `own` sizes it moves a whole block, of more than `above` and at most
    `upto` bytes (0: of any size), or nothing.
    """

    task: int
    """The number of the task that operations belong to from now on."""

    def __init__(
        self, tag: int, nbytes: int, element: int, grain: int, grains: int, uneven: bool = False,
        own: bool = False, /,
    ) -> None: ...  # fmt: skip
    def __len__(self) -> int: ...
    @property
    def operand(self) -> int:
        """The most bytes that one operation combines."""
    @property
    def writes(self) -> bytes:
        """Bits for what is written, by channel."""
    def copy(
        self, dst: Ref, src: Ref, nbytes: int, /, *, block: int | None = None, count: int = 0,
        above: int = 0, upto: int = 0,
    ) -> None:  # fmt: skip
        """Copy, unless there are no bytes or both addresses are the same.

        With a `count`, the bytes are those of so many whole blocks, from `block` on.
        """
    def reduce(
        self,
        dst: Ref,
        a: Ref,
        b: Ref,
        nbytes: int,
        /,
        *,
        also: Ref | None = None,
        block: int | None = None,
    ) -> None:
        """Combine ``dst = a op b``; write the result to `also` too, if given."""
    def accumulate(self, dst: Ref, operand: Ref, nbytes: int, /) -> None:
        """Combine ``dst = dst op operand``; several of these may be carried out in any order."""
    def pull(
        self, dst: Ref, src: Ref, nbytes: int, peer: _Triple, /, *, block: int | None = None,
        above: int = 0, upto: int = 0, from_: Ref | None = None,
    ) -> None:  # fmt: skip
        """Copy from `src` in the memory of a peer, which has shown its buffers.

        `peer` is its rank, and the channel and slot where it shows them. At `from_` it has stored
        how far behind `src` to read.
        """
    def push(
        self, dst: Ref, src: Ref, nbytes: int, peer: _Triple, /, *, block: int | None = None,
        above: int = 0, upto: int = 0, from_: Ref | None = None,
    ) -> None:  # fmt: skip
        """Copy to `dst` in the memory of a peer, which has allowed its peers to write."""
    def post(self, flag: Ref, k: int, /) -> None:
        """Store-release ``epoch + k`` to a flag of this rank."""
    def wait(
        self, flag: Ref, k: int, rank: int, /, *,
        block: int | None = None, above: int = 0, upto: int = 0,
    ) -> None:  # fmt: skip
        """Load-acquire `rank`'s flag until it reaches ``epoch + k``."""
    def expect(
        self, number: Ref, nbytes: int, rank: int, /, *,
        block: int | None = None, above: int = 0, upto: int = 0,
    ) -> None:  # fmt: skip
        """Raise an error unless the number that `rank` has stored is the size of a block."""
    def wait_each(self, flags: tuple[Ref, ...], k: int, ranks: tuple[int, ...], /) -> None:
        """Wait for the flag of each of `ranks` as ``wait`` does, one after the other."""
    def again(self, first: int, second: int, n: int, turns: tuple[_Turn, ...], /) -> list[int]:
        """Append the `n` operations of each of more turns; return where each turn ends.

        Two turns tell how they change: that whose operations begin with number `first`, and the
        next one, from number `second` on. The new turns follow this one.

        Raises:
            ValueError: operations of both turns are not of the same kinds.
        """
    def show_each(
        self, cells: tuple[Ref, ...], offset: int, src: Ref,
        bounds: tuple[tuple[int, int], ...], part: tuple[int, int, int], /,
    ) -> None:  # fmt: skip
        """Copy a part of each share of a message to the memory `offset` bytes behind a cell.

        `bounds` say where each share starts and stops, behind byte ``part[0]`` of the message. Of
        each share, at most ``part[2]`` bytes from its byte ``part[1]`` on are copied.
        """
    def take_each(
        self, dst: Ref, cells: tuple[Ref, ...], offset: int,
        bounds: tuple[tuple[int, int], ...], part: tuple[int, int, int],
        flags: tuple[Ref, ...], k: int, ranks: tuple[int, ...], /,
    ) -> None:  # fmt: skip
        """Copy a part of each share of a message to `dst`, from the memory that `show_each` names.

        Wait for the flag of each share before it, once for shares in turn with one flag.
        """
    def fold_each(
        self, dst: Ref, operands: tuple[Ref, ...], mine: int, start: int, nbytes: int,
        order: tuple[int, ...], partials: tuple[Ref, ...],
        waits: tuple[tuple[Ref, ...], int, tuple[int, ...]] | None, also: Ref | None,
        block: int | None = None, /,
    ) -> None:  # fmt: skip
        """Combine operands of several members into `dst`, and into `also` if it is given.

        They are combined as `han.submodules.parts.fold.fold` does, with the places `partials`, of
        which one may be `dst`. `block` is what is combined, where blocks differ in size.
        Operands are memory that holds the message from byte `start` on; number `mine` is this
        rank's own one, in its buffer. `waits` has flags of all operands, a value and ranks: wait
        for the flag of each other operand before it.
        """
    def isend(
        self, src: Ref, nbytes: int, rank: int, request: int, /, *,
        block: int | None = None, count: int = 0, above: int = 0, upto: int = 0,
        told: Ref | None = None, some: Ref | None = None,
    ) -> None:  # fmt: skip
        """Start sending to `rank` what ``copy`` would copy.

        With `told` it is as many bytes as the number there says, at most `nbytes`. There is no
        message if the number at `some` is 0.
        """
    def irecv(
        self, dst: Ref, nbytes: int, rank: int, request: int, /, *,
        block: int | None = None, count: int = 0, above: int = 0, upto: int = 0,
        told: Ref | None = None, some: Ref | None = None,
    ) -> None:  # fmt: skip
        """Start receiving from `rank`.

        With `told` the message may have fewer bytes; the number there says how many when it has
        arrived. There is none if the number at `some` is 0.
        """
    def pack(self, dst: Ref, src: Ref, message: Ref, nbytes: int, slot: int, /) -> None:
        """Append slots of `slot` bytes, `nbytes` in all, to a parcel.

        `message` is where its numbers are, right before it. `dst` is where the slots would be if
        all slots were full: if the parcel begins there, it has no others yet.
        """
    def tally(self, dst: Ref, sizes: Ref, nbytes: int, slot: int, first: bool, /) -> None:
        """Count, of so many bytes of sizes, those of blocks that fit into slots of `slot` bytes.

        `dst` is where a parcel's numbers are. `first`: nothing has been counted there yet.
        """
    def unpack(
        self, dst: Ref, src: Ref, message: Ref, nbytes: int, slot: int, rank: int, /
    ) -> None:
        """Put all slots of a parcel of `rank`, which has come at `src`, to `dst`.

        `message` is where its numbers are.
        """
    def test(self, request: int, /) -> None:
        """Wait until a request is complete; the message of a receive must have its size."""
    def coll(
        self, kind: int, dst: Ref, src: Ref, n: int, root: int, comm: int, request: int, /
    ) -> None:
        """Start a collective of the MPI library, of `n` elements, on communicator number `comm`.

        Elements of a broadcast are bytes.
        """
    def await_stream(self, stream: int, position: int, /) -> None:
        """Wait until a stream of this rank has passed so many operations, unless this one has."""

def each_piece(
    rows: tuple[tuple[Any, ...], ...],
    turns: tuple[_Turn, ...],
    step: int,
    index: int,
    first: int,
    stop: int,
    /,
) -> list[int]:
    """Emit the operations that rows name for each piece of some tasks, in steps [first, stop).

    ``han.submodules.parts.series`` says what rows are. `turns` are the tasks. Pieces have at most
    `step` bytes, and are numbered from `index` on. Returns where streams end the tasks, in the
    order of the rows.

    Raises:
        TypeError, ValueError, OverflowError: no such row, or operands of other types.
    """

def joined(streams: tuple[Operations, ...], /) -> tuple[memoryview, memoryview]:
    """Return the records of all streams, and their terms; none in a program for one size.

    The streams have no records afterwards: their memory is the program's.
    """

def rolled(
    code: _Readable, terms: _Readable | None, streams: tuple[_Pair, ...], /
) -> tuple[memoryview, memoryview, memoryview, tuple[_Pair, ...]] | None:
    """Return records with loops, their terms, strides and streams; None if loops save too little.

    See :mod:`han.model.loops`. Raises ValueError unless the streams divide the code.
    """

def period(code: _Readable, terms: _Readable | None, streams: tuple[_Pair, ...], /) -> int:
    """Return after how many grains of the message all streams repeat; 0: none was found."""

def repeated(
    shorter: _Records, longer: _Records, grains: int, scratch: int, times: int, /
) -> tuple[memoryview, memoryview, memoryview, tuple[_Pair, ...]] | None:
    """Return records with loops for a longer message than those of two samples.

    The samples are code, terms and streams. The second one's message is `grains` grains longer, and
    it needs `scratch` bytes more. The result's message is longer than that of the first one by
    `times` times this. None if the samples differ in more than a group of operations that the
    second one carries out once more, in each stream. See :mod:`han.model.loops`.
    """

@final
class Plan:
    """A native plan: a program with its resources. Made by :meth:`Engine.plan`."""

    @property
    def calls_mpi(self) -> bool:
        """Whether its runs call MPI."""
    @property
    def counts(self) -> _Seven:
        """Runs finished; bytes copied, combined, attached, mapped, sent and received.

        Attached bytes are those copied by cross-memory attach. Mapped bytes are those of the
        copied and combined ones that were read from peers' arrays.
        """
    @property
    def alternative(self) -> Plan | None:
        """The plan that all ranks run instead if the buffers of all ranks are in their arenas."""
    @alternative.setter
    def alternative(self, plan: Plan) -> None: ...
    @property
    def rival(self) -> Plan | None:
        """The plan that all ranks run instead where trials find it faster."""
    @rival.setter
    def rival(self, plan: Plan) -> None: ...

def encode(object: object, /) -> bytes:
    """Return bytes that stand for an object: pickled, or the memory of an array or scalar."""

def decode(data: _Readable, /) -> Any:
    """Return the object for which the bytes of a buffer stand; no bytes stand for None.

    Raises ValueError for a damaged array, and what unpickling raises.
    """

def learn_pickle(
    pickle: object, dumps: Callable[..., bytes], loads: Callable[..., object],
    reducers: dict[Any, Any], /,
) -> None:  # fmt: skip
    """Learn of mpi4py's MPI.pickle, its functions by default, and pickle's functions by class."""

@final
class Eager:
    """The eager blocks of a communicator, in bytearrays: `one`, and `every`, one for each rank.

    The methods call `run`, a collective of bytes, with the arrays of them, and return objects;
    `unplanned` if `run` returned False; or large(blocks, size of each), blocks as they are, if an
    object does not fit into its block, or a block is of another call.
    """

    most: int
    """The most bytes of a block in gather_up_to."""
    call: int
    """The number of the call whose collective of bytes is under way; 0: none."""
    def __new__(
        cls, one: bytearray, every: bytearray, one_array: _Array, every_array: _Array,
        large: Callable[[bytearray, int], object], /,
    ) -> Eager: ...  # fmt: skip
    @property
    def done(self) -> bool:
        """Whether no rank waits for this one in its last gather."""
    @property
    def unplanned(self) -> object:
        """What a method returns if the collective of bytes has no plan yet."""
    def tell(self, run: _Run, data: bytes, call: int, root: int, wanted: bool, /) -> Any:
        """Tell all ranks an object by run(one, every); return all, or encoded unless wanted."""
    def gather(self, run: _Run, data: bytes, call: int, root: int, wanted: bool, /) -> Any:
        """Gather an object of each rank by run(one, every, root); return all on the root."""
    def gather_up_to(self, run: _Run, data: bytes, call: int, root: int, wanted: bool, /) -> Any:
        """Gather in the same way blocks of at most `most` bytes that come as long as they are."""
    def bcast(self, run: _Run, data: bytes | None, call: int, root: int, /) -> Any:
        """Broadcast an object by run(one, root); return it."""
    def scatter(self, run: _Run, items: list[bytes] | None, call: int, root: int, /) -> Any:
        """Scatter objects of the root by run(every, one, root); return this rank's."""
    def alltoall(self, run: _Run, items: list[bytes], call: int, root: int, /) -> Any:
        """Send an object to each rank by run(None, every); return those that arrive."""

@final
class Engine:
    """Runs plans one after the other over the channels of one group of ranks.

    `mpi` is (library, wide handles, MPI_ANY_SOURCE, tag of notices, MPI_IN_PLACE, MPI_BYTE), or
    None for an engine that sends no messages. `channels` are (memory, ranks, rank, offsets of
    control records, flags and small slots, bytes of a bank, number of banks, offset of the cells,
    bytes of a ring, address of the arena that lends the memory or 0, whether ranks sleep in the
    kernel). `wait` is
    (spins, least spins, nanoseconds asleep, time limit in seconds, whether to sleep in the
    kernel). `on_error` is called with a status, its detail, and whether the error cannot be raised
    now, so that it must be kept for a later call. It raises, or returns to go on waiting.
    """

    messages: int
    """The handle of the communicator that runs send messages on; it can only be set."""
    held: int
    """The run that an early notice is about, counted from 1; 0: none."""

    def __init__(
        self,
        mpi: _Library | None,
        comm: int,
        channels: tuple[_Channel, ...],
        tag_base: int,
        wait: tuple[int, int, int, float, bool, bool],
        on_error: Callable[[int, int, bool], bool],
    ) -> None: ...
    @property
    def epoch(self) -> int:
        """The number of runs finished."""
    @property
    def issued(self) -> int:
        """The number of runs started, including queued and finished ones."""
    @property
    def alternatives(self) -> int:
        """The number of runs of an alternative."""
    @property
    def failed(self) -> bool:
        """Whether an error has stopped the engine."""
    @property
    def on_error(self) -> Callable[[int, int, bool], bool]:
        """The function that is called on errors."""
    def plan(
        self,
        *,
        code: ReadableBuffer,
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
        operand: int,
        comms: tuple[int, ...],
        scratch: _Writable | None,
        keep: object,
        number: int = 0,
        shifts: _Readable | None = None,
        arena: _Pair = (0, 0),
        whole: int = 0,
        terms: ReadableBuffer | None = None,
        grains: int = 0,
        grain: int = 0,
        blocks: int = 0,
        strides: ReadableBuffer | None = None,
        tried: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0),
        unpacks: bool = False,
    ) -> Plan:
        """Make a Plan from the records of a program, which serves many sizes if it has `terms`.

        If its code has loops, `strides` are theirs (:mod:`han.model.loops`).

        `kernel` is (op, dtype), or (-1, -1) to call MPI_Reduce_local with the handles `op` and
        `dtype`. The plan may get an alternative if `arena` (address, bytes) is not empty. It may
        get a rival if it is `tried`: the number of its class of calls, the runs before the first
        trial, this rank, how many there are, and the runs of a burst if the ranks meet before and
        after it.
        The plan keeps `keep` alive.
        """
    def run(
        self,
        plan: Plan,
        send: int,
        recv: int,
        keep: object,
        nbytes: int = 0,
        sizes: bytes = b"",
        /,
    ) -> None:
        """Run a plan on two addresses, and wait until it has finished.

        `nbytes` is the size of the message or of the largest block, if the plan serves many sizes.
        `sizes` are the bytes of each block, as numbers of 64 bits, if they differ.
        """
    def fail(self) -> None:
        """Cancel the runs under way; later runs raise."""
    def stop(self) -> None:
        """Cancel the runs under way, and unmap the channels."""
    def look(self, waited: float, /) -> None:
        """Raise if `waited` seconds exceed the time limit, or if a peer has died."""
    def rest(self) -> None:
        """Take an engine without runs off the list of engines that waiting threads step."""
    def leave(self) -> None:
        """Tell peers that share memory that this rank begins no more runs."""
    def blocked(self) -> tuple[int, int, list[_Triple]]:
        """Return signature and size of a run, and (code, peer, task) of blocked streams."""
    def trace(self, memory: _Writable | None, tsc: bool = False, /) -> None:
        """Record tasks in `memory` from now on; None stops recording.

        With `tsc` times are ticks of the processor's counter.
        """

@final
class Reader:
    """Reads buffer arguments; facts of an element type are (size, handle of MPI's type, kind)."""

    def __init__(
        self,
        library: str,
        wide: bool,
        comm_self: int,
        datatype: type[MPI.Datatype],
        handle: int,
        refused: tuple[type, ...],
        buffer: type[MPI.buffer],
        in_place: object,
        error: type[Exception],
        combiners: tuple[int, ...],
        order_c: int,
    ) -> None: ...
    def learn(self, source: str, key: int, facts: _Triple, /) -> None:
        """Learn the elements for which a key of a source stands (han.message.reader)."""
    def read(self, spec: object, blocks: int = 1, /) -> tuple[int, int, int, int, int, bool] | None:
        """Return address, bytes, size, handle and kind of elements, and read-only.

        None if the argument is refused. A count in `spec` is that of one of `blocks` blocks.
        """

def packer(
    reader: Reader,
    datatype: MPI.Datatype,
    elements: int,
    address: int,
    nbytes: int,
    packed: int,
    owner: object,
    packs: bool,
    /,
) -> Callable[[], None]:
    """Return a function that packs elements of a type, or unpacks them.

    `nbytes`: of their data; `packed`: the address of the packed bytes, which `owner` keeps.
    """

def run_start(reader: Reader, datatype: MPI.Datatype, elements: int, /) -> int | None:
    """Return where the data of elements begins, from their address, if it is one run."""

@final
class Board:
    """Where ranks agree on the slots of persistent requests. The rank at place 0 leads."""

    def __init__(self, memory: _Writable, stride: int, size: int, me: int, spins: int) -> None: ...
    def publish(self, slot: int, call: int, /) -> bool:
        """Publish the choice for the next request; return False if a rank is too far behind."""
    def read(self) -> _Pair | None:
        """Return the choice for the next request and the leader's call, or None."""
    def gathered(self) -> bool:
        """Return whether all ranks have come to the next request."""
    def leave(self, slot: int, /) -> None:
        """Log that this rank leaves a slot."""
    def reclaim(self) -> int:
        """Return a slot that all ranks have left, each once; -1 if there is none."""

@final
class Calls(Generic[_Started]):
    """The look-up of plans by the arguments of calls; `request` is the class of requests.

    A method returns False if the reader refuses the arguments or the plan is not known. Otherwise a
    blocking call runs and returns True, and a nonblocking one returns its request. For a persistent
    one it returns what its function returns.
    """

    def __init__(
        self,
        engine: Engine,
        reader: Reader,
        request: type[_Started],
        rank: int,
        size: int,
        bounds: tuple[int, ...],
    ) -> None: ...
    @property
    def entries(self) -> int:
        """The number of entries."""
    @property
    def hits(self) -> int:
        """The number of calls that found their plan here."""
    def add(
        self,
        plan: Plan | _Maker,
        collective: int,
        root: int,
        op: object,
        key: _Triple,
        uneven: bool,
        /,
    ) -> None:
        """Enter a plan, or a function that makes persistent requests.

        `op` may be None, `key` is (bound of its class, kind, handle).
        `uneven` says whether blocks differ in size.
        """
    def meet(self, own: bytes, same: bytes, /) -> None:
        """Take the neighbours of this rank, for calls that the C door brings.

        To each of them goes a block of its `own`, or the `same`.
        """
    def clear(self) -> None:
        """Remove all plans."""
    def barrier(self) -> bool: ...
    def bcast(self, buf: object, root: object, /) -> bool: ...
    def reduce(self, send: object, recv: object, op: object, root: object, /) -> bool: ...
    def allreduce(self, send: object, recv: object, op: object, /) -> bool: ...
    def gather(self, send: object, recv: object, root: object, /) -> bool: ...
    def scatter(self, send: object, recv: object, root: object, /) -> bool: ...
    def allgather(self, send: object, recv: object, /) -> bool: ...
    def alltoall(self, send: object, recv: object, /) -> bool: ...
    def reduce_scatter_block(self, send: object, recv: object, op: object, /) -> bool: ...
    def allgatherv(self, send: object, recv: object, /) -> bool: ...
    def reduce_scatter(self, send: object, recv: object, counts: object, op: object, /) -> bool: ...
    def gatherv(self, send: object, recv: object, root: object, /) -> bool: ...
    def scatterv(self, send: object, recv: object, root: object, /) -> bool: ...
    def alltoallv(self, send: object, recv: object, /) -> bool: ...
    def alltoallw(self, send: object, recv: object, /) -> bool: ...
    def neighbours(self, ranks: bytes, send: object, recv: object, /) -> bool: ...
    def recvcounts(self, recv: object, counts: object, /) -> bool:
        """Gather the numbers of elements of the ranks' `recv`; returns False as calls do."""
    def gather_up_to(self, send: object, recv: object, root: object, /) -> bool:
        """Gather blocks of up to an equal part of the root's `recv`; returns False as calls do."""
    def ibarrier(self) -> _Started | Literal[False]: ...
    def ibcast(self, buf: object, root: object, /) -> _Started | Literal[False]: ...
    def ireduce(
        self, send: object, recv: object, op: object, root: object, /
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
    def scan(self, send: object, recv: object, op: object, /) -> bool: ...
    def iscan(self, send: object, recv: object, op: object, /) -> Any: ...
    def scan_init(self, send: object, recv: object, op: object, /) -> Any: ...
    def exscan(self, send: object, recv: object, op: object, /) -> bool: ...
    def iexscan(self, send: object, recv: object, op: object, /) -> Any: ...
    def exscan_init(self, send: object, recv: object, op: object, /) -> Any: ...
    def ireduce_scatter_block(
        self, send: object, recv: object, op: object, /
    ) -> _Started | Literal[False]: ...
    def barrier_init(self) -> Any: ...
    def bcast_init(self, buf: object, root: object, /) -> Any: ...
    def reduce_init(self, send: object, recv: object, op: object, root: object, /) -> Any: ...
    def allreduce_init(self, send: object, recv: object, op: object, /) -> Any: ...
    def gather_init(self, send: object, recv: object, root: object, /) -> Any: ...
    def scatter_init(self, send: object, recv: object, root: object, /) -> Any: ...
    def allgather_init(self, send: object, recv: object, /) -> Any: ...
    def alltoall_init(self, send: object, recv: object, /) -> Any: ...
    def reduce_scatter_block_init(self, send: object, recv: object, op: object, /) -> Any: ...
    def allgatherv_init(self, send: object, recv: object, /) -> Any: ...
    def reduce_scatter_init(
        self, send: object, recv: object, counts: object, op: object, /
    ) -> Any: ...
    def igatherv(
        self, send: object, recv: object, root: object, /
    ) -> _Started | Literal[False]: ...
    def iscatterv(
        self, send: object, recv: object, root: object, /
    ) -> _Started | Literal[False]: ...
    def ialltoallv(self, send: object, recv: object, /) -> _Started | Literal[False]: ...
    def ialltoallw(self, send: object, recv: object, /) -> _Started | Literal[False]: ...
    def gatherv_init(self, send: object, recv: object, root: object, /) -> Any: ...
    def scatterv_init(self, send: object, recv: object, root: object, /) -> Any: ...
    def alltoallv_init(self, send: object, recv: object, /) -> Any: ...
    def alltoallw_init(self, send: object, recv: object, /) -> Any: ...
    def ineighbours(
        self, ranks: bytes, send: object, recv: object, /
    ) -> _Started | Literal[False]: ...
    def neighbours_init(self, ranks: bytes, send: object, recv: object, /) -> Any: ...
    def iallgatherv(self, send: object, recv: object, /) -> _Started | Literal[False]: ...
    def ireduce_scatter(
        self, send: object, recv: object, counts: object, op: object, /
    ) -> _Started | Literal[False]: ...
