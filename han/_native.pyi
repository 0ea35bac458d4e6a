from collections.abc import Callable
from typing import Any

MAX_STREAMS: int
EPOCH_TAGS: int
MAX_CHANNELS: int
SMALL_BANKS: int

def progress() -> None: ...
def orphans() -> list[Request]: ...
def inside_op() -> bool: ...
def isa() -> str: ...
def let_attach() -> None: ...
def peek(pid: int, address: int) -> int: ...
def fence(
    *,
    code: bytes,
    streams: tuple[tuple[int, int], ...],
    channels: tuple[tuple[int, int, int], ...],
    comms: tuple[int, ...],
    ranks: int,
    tasks: int,
    requests: int,
    count: int,
    element: int,
    native: bool,
    operand: int,
    lengths: tuple[int, int, int],
) -> None: ...
def has_kernel(op: int, dtype: int) -> bool: ...

class Plan: ...

class Engine:
    epoch: int
    issued: int
    held: int
    failed: bool
    on_error: Any
    def __init__(
        self,
        mpi: tuple[str, int, int, int, int, int] | None,
        comm: int,
        channels: tuple[tuple[Any, ...], ...],
        tag_base: int,
        wait: tuple[int, int, int, float, int],
        on_error: Callable[[int, int], bool],
    ) -> None: ...
    def plan(
        self,
        *,
        code: bytes,
        streams: tuple[tuple[int, int], ...],
        requests: int,
        footprint: tuple[int, ...],
        writes: bytes,
        sync: bool,
        brief: bool,
        signature: int,
        kernel: tuple[int, int],
        element: int,
        op: int,
        dtype: int,
        commutative: bool,
        operand: int,
        comms: tuple[int, ...],
        scratch: Any,
        keep: object,
        number: int = ...,
    ) -> Plan: ...
    def run(self, plan: Plan, send: int, recv: int, keep: object) -> None: ...
    def fail(self) -> None: ...
    def stop(self) -> None: ...
    def look(self, waited: float) -> None: ...
    def blocked(self) -> tuple[int, list[tuple[int, int, int]]]: ...
    def trace(self, memory: Any, tsc: bool = ...) -> None: ...

class Request:
    active: bool
    persistent: bool
    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        send: int,
        recv: int,
        keep: object = ...,
        begin: Callable[[], None] | None = ...,
        end: Callable[[], None] | None = ...,
        persistent: bool = ...,
    ) -> None: ...
    def Start(self) -> None: ...
    _engine: Engine
    def Wait(self, status: Any = ...) -> bool: ...
    def Test(self, status: Any = ...) -> bool: ...
    def _peek(self) -> bool: ...
    def _free(self) -> None: ...

class Calls:
    hits: int
    def __init__(self, engine: Engine, in_place: object, request: type[Request]) -> None: ...
    def bcast(self, buf: object, root: object) -> bool: ...
    def reduce(
        self, send: object, recv: object, op: object, root: object, at_root: bool
    ) -> bool: ...
    def allreduce(self, send: object, recv: object, op: object) -> bool: ...
    def barrier(self) -> bool: ...
    def ibcast(self, buf: object, root: object) -> Any: ...
    def ireduce(
        self, send: object, recv: object, op: object, root: object, at_root: bool
    ) -> Any: ...
    def iallreduce(self, send: object, recv: object, op: object) -> Any: ...
    def ibarrier(self) -> Any: ...
    def add(
        self, plan: Plan, collective: int, nbytes: int, dtype: int, op: object, root: int
    ) -> None: ...
    def clear(self) -> None: ...
