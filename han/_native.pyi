from collections.abc import Callable
from typing import Any

MAX_STREAMS: int
EPOCH_TAGS: int
MAX_CHANNELS: int
SMALL_BANKS: int

def isa() -> str: ...
def has_kernel(op: int, dtype: int) -> bool: ...

class Plan: ...

class Engine:
    epoch: int
    issued: int
    held: int
    failed: bool
    on_error: Callable[[int, int], bool]
    def __init__(
        self,
        mpi: tuple[str, int, int, int, int, int] | None,
        comm: int,
        channels: tuple[tuple[Any, ...], ...],
        tag_base: int,
        wait: tuple[int, int, int, float],
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
        quick: bool,
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
    ) -> Plan: ...
    def run(self, plan: Plan, send: int, recv: int) -> None: ...
    def stop(self) -> None: ...
    def blocked(self) -> tuple[int, list[tuple[int, int, int]]]: ...
    def trace(self, n: int) -> None: ...
    def events(self) -> bytes: ...

class Request:
    active: bool
    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        send: int,
        recv: int,
        keep: object = ...,
        begin: Callable[[], None] | None = ...,
        end: Callable[[], None] | None = ...,
    ) -> None: ...
    def Start(self) -> None: ...
    def Wait(self) -> bool: ...
    def Test(self) -> bool: ...
    def _free(self) -> None: ...

class Calls:
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
