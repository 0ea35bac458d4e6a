"""The table of operations: one row for each code.

A row has the facts about an operation that code which reads Programs needs. An operation has up to
four operands, each a base and an offset; rows name operands by their index in the record.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum
from typing import NamedTuple


class Code(IntEnum):
    """Operation codes (``enum han_code``)."""

    COPY = 0
    REDUCE = 1
    ACCUMULATE = 2
    REDUCE2 = 3
    POST = 4
    WAIT = 5
    ISEND = 6
    IRECV = 7
    TEST = 8
    AWAIT = 9
    COLL = 10
    PULL = 11
    PUSH = 12
    EXPECT = 13
    PACK = 14
    UNPACK = 15
    TALLY = 16


class Kind(Enum):
    """What an operation does."""

    COPY = "moves bytes between memories"
    COMBINE = "applies the reduction's operation to elements"
    FLAG = "stores or awaits a flag in shared memory"
    MESSAGE = "starts a message of MPI"
    COLLECTIVE = "starts a collective of MPI"
    TEST = "awaits a request"
    AWAIT = "awaits another stream"
    CHECK = "compares a number of a peer with the size of a block"


class Opcode(NamedTuple):
    """One row.

    `reads` and `writes` are the operands whose `n` bytes (of a COMBINE: `n` elements) the operation
    reads and writes; those of a collective depend on its kind. `attached` is the operand in a
    peer's memory that the operation reads or writes by cross-memory attach. `peer` is true if the
    record names another rank, `request` if it names a request.
    """

    kind: Kind
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    attached: int | None = None
    peer: bool = False
    request: bool = False

    @property
    def calls_mpi(self) -> bool:
        """Whether the operation calls the MPI library for more than the test of a request."""
        return self.kind in (Kind.MESSAGE, Kind.COLLECTIVE)


OPCODES: dict[Code, Opcode] = {
    Code.COPY: Opcode(Kind.COPY, reads=(1,), writes=(0,)),
    Code.REDUCE: Opcode(Kind.COMBINE, reads=(1, 2), writes=(0,)),
    Code.ACCUMULATE: Opcode(Kind.COMBINE, reads=(1, 2), writes=(0,)),
    Code.REDUCE2: Opcode(Kind.COMBINE, reads=(1, 2), writes=(0, 3)),
    Code.POST: Opcode(Kind.FLAG),
    Code.WAIT: Opcode(Kind.FLAG, peer=True),
    Code.ISEND: Opcode(Kind.MESSAGE, reads=(1,), peer=True, request=True),
    Code.IRECV: Opcode(Kind.MESSAGE, writes=(0,), peer=True, request=True),
    Code.TEST: Opcode(Kind.TEST, request=True),
    Code.AWAIT: Opcode(Kind.AWAIT),
    Code.COLL: Opcode(Kind.COLLECTIVE, peer=True, request=True),
    Code.PULL: Opcode(Kind.COPY, reads=(1,), writes=(0,), attached=1, peer=True),
    Code.PUSH: Opcode(Kind.COPY, reads=(1,), writes=(0,), attached=0, peer=True),
    Code.EXPECT: Opcode(Kind.CHECK, peer=True),
    Code.PACK: Opcode(Kind.COPY, reads=(1,), writes=(0,)),
    Code.UNPACK: Opcode(Kind.COPY, reads=(1,), writes=(0,), peer=True),
    Code.TALLY: Opcode(Kind.CHECK),
}


def codes(fits: Callable[[Opcode], bool]) -> tuple[Code, ...]:
    """Return the codes whose rows fit, in order."""
    return tuple(code for code, row in OPCODES.items() if fits(row))


COPIES = codes(lambda row: row.kind == Kind.COPY)
COMBINATIONS = codes(lambda row: row.kind == Kind.COMBINE)
FLAG_OPERATIONS = codes(lambda row: row.kind == Kind.FLAG)
MESSAGES = codes(lambda row: row.kind == Kind.MESSAGE)
DATA = codes(lambda row: row.kind in (Kind.COPY, Kind.COMBINE))
REQUESTS = codes(lambda row: row.request)
STARTS = codes(lambda row: row.calls_mpi)  # they start requests
PEERS = codes(lambda row: row.peer)
READS = {code: row.reads for code, row in OPCODES.items() if row.reads}
ATTACHED = {code: row.attached for code, row in OPCODES.items() if row.attached is not None}
WRITES = {code: row.writes for code, row in OPCODES.items() if row.writes}
