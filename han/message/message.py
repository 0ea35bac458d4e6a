"""The arguments of a call become a Message. Below this room no code reads user objects."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from han.common.errors import ArgumentError, ArgumentTypeError
from han.message.buffers import Buffer, parse
from han.message.dtypes import canonical, is_in_packed_form, library_refusal, op_name, pair_name
from han.message.packing import Hook, overlap, packer, unpacker
from han.message.reader import NO_KIND, kind_of
from han.message.unlocked import is_commutative
from han.model.element_types import PAIRS, WIDE, kernel, ops_of
from han.model.program import AT_MOST
from han.tasks.signature import PACKED, Signature


class CallKey(NamedTuple):
    """What the look-up in C compares, beside collective, root and operation.

    `kind` is the number of the element type (:mod:`han.message.reader`), 0 if any type will do.
    `handle` is MPI's type if the MPI library or a user's function reduces, else 0.
    """

    nbytes: int
    kind: int = 0
    handle: int = 0


# The operation's object, the handle of MPI's type, and whether operands are unpacked.
Reducer = tuple[int, int, bool] | None


@dataclass(frozen=True)
class Message:
    """A call: its :class:`Signature` and this rank's buffers.

    `send` and `recv` are addresses. `keep` owns their memory. `begin` packs before a run; `end`
    unpacks after it. `numbers` identify the native kernel of a reduction. Without them the MPI
    library reduces, with `op` and `datatype`; `unpacks`: operands are packed elements of
    `datatype`, which this rank unpacks to combine them. `own` are the sizes and places of the
    blocks that this rank sends or receives, where the signature has no sizes. `key` is that of the
    look-up in C, or None if it cannot serve the call.
    """

    signature: Signature
    send: int = 0
    recv: int = 0
    keep: tuple[object, ...] = ()
    begin: Hook | None = None
    end: Hook | None = None
    op: MPI.Op | None = None
    datatype: MPI.Datatype | None = None
    numbers: tuple[int, int] | None = None
    unpacks: bool = False
    key: CallKey | None = None
    own: bytes = b""

    @property
    def sizes(self) -> bytes:
        """What a run brings about blocks that differ in size, as numbers of 64 bits."""
        return self.own or self.signature.sizes

    @property
    def own_sizes(self) -> list[int]:
        """The bytes of the blocks to all ranks, then of those from them, with own sizes."""
        sizes = memoryview(self.own).cast("Q")[: len(self.own) // 16]
        return [size & ~AT_MOST for size in sizes]

    @property
    def keeps_plan(self) -> bool:
        """Whether a plan may serve a later call: a derived type may be freed before it."""
        return self.numbers is not None or not self.signature.reduces or self.key is not None

    @property
    def reducer(self) -> Reducer:
        """What the MPI library or a user's function reduces with; kinds keep the operation."""
        if self.numbers is not None or not self.signature.reduces or self.datatype is None:
            return None
        return id(self.op), self.datatype.handle, self.unpacks

    def without_buffers(self, signature: Signature) -> Message:
        """Return what messages of this kind have in common; `signature` is that of their class."""
        return replace(
            self, signature=signature, send=0, recv=0, keep=(), begin=None, end=None, key=None,
            own=b"",
        )  # fmt: skip


def barrier(comm: MPI.Comm) -> Message:
    """Make the message of a barrier."""
    return Message(Signature("barrier"), key=CallKey(0))


def allreduce(comm: MPI.Comm, sendbuf: object, recvbuf: object, op: object) -> Message:
    """Make the message of an allreduce."""
    return _of_whole_messages("allreduce", sendbuf, recvbuf, op)


def scan(comm: MPI.Comm, sendbuf: object, recvbuf: object, op: object) -> Message:
    """Make the message of a scan."""
    return _of_whole_messages("scan", sendbuf, recvbuf, op)


def exscan(comm: MPI.Comm, sendbuf: object, recvbuf: object, op: object) -> Message:
    """Make the message of an exclusive scan; rank 0 receives nothing, so it unpacks nothing."""
    message = _of_whole_messages("exscan", sendbuf, recvbuf, op)
    return replace(message, end=None) if comm.Get_rank() == 0 else message


def _of_whole_messages(collective: str, sendbuf: object, recvbuf: object, op: object) -> Message:
    """Make the message of a reduction whose result every rank receives."""
    recv = _writable(parse(_no_in_place(recvbuf, "recvbuf"), "recvbuf"))
    send = recv if in_place(sendbuf) else parse(sendbuf, "sendbuf")
    return _reduction(collective, send, recv, op, 0)


def reduce(comm: MPI.Comm, sendbuf: object, recvbuf: object, op: object, root: object) -> Message:
    """Make the message of a reduce; only the root's `recvbuf` is used."""
    root = root_of(comm, root)
    if comm.Get_rank() != root:
        if sendbuf is MPI.IN_PLACE:
            raise ArgumentError(f"sendbuf: MPI.IN_PLACE is for the root ({root}) only")
        return _reduction("reduce", parse(sendbuf, "sendbuf"), None, op, root)
    recv = _writable(parse(_no_in_place(recvbuf, "recvbuf"), "recvbuf"))
    send = recv if in_place(sendbuf) else parse(sendbuf, "sendbuf")
    return _reduction("reduce", send, recv, op, root)


def _reduction(
    collective: str,
    send: Buffer,
    recv: Buffer | None,
    op: object,
    root: int,
    whole: Buffer | None = None,
) -> Message:
    """Make the message of a reduction; `send` is one block of `whole` where there are several.

    Elements of derived types travel packed: ranks may have types of one signature whose layouts
    differ. The rank that combines them unpacks them.
    """
    operation = _op(op)
    if recv is not None and recv is not send:
        _match(send, recv)
    name = op_name(operation)
    numbers = _combinable(send, operation, name)
    signature = Signature(
        collective,
        send.count if send.size else 0,
        send.extent if send.predefined else max(send.size, 1),
        name or "user-defined",
        _type_name(send),
        commutative=bool(name) or is_commutative(operation),
        native=numbers is not None,
        root=root,
        device=send.device or (recv is not None and recv.device),
    )
    message = Message(
        signature,
        send.address,
        0 if recv is None else recv.address,
        (send.owner, recv and recv.owner, operation, send.datatype),
        op=operation,
        datatype=send.datatype,
        numbers=numbers,
        unpacks=not (send.predefined or is_in_packed_form(send.datatype)),
        key=None if signature.device else _key(send, numbers),
    )
    if message.unpacks:
        return _packed(message, whole or send, recv)
    return message if recv is None or recv.size == recv.extent else _staged(message, recv)


def _key(send: Buffer, numbers: tuple[int, int] | None) -> CallKey | None:
    kind = kind_of(send.name or pair_name(send.datatype))
    if kind == NO_KIND:
        return None
    return CallKey(send.span, kind, 0 if numbers else send.datatype.handle)


def _type_name(buffer: Buffer) -> str:
    if buffer.predefined:
        return buffer.name or f"{buffer.size} of {buffer.extent} bytes"
    return f"{PACKED} of {buffer.size} bytes"


def _packed(message: Message, send: Buffer, recv: Buffer | None) -> Message:
    """Send packed elements, and unpack the result."""
    operand = np.empty(send.count * send.size, np.uint8)
    result = np.empty(0 if recv is None else recv.count * recv.size, np.uint8)
    return replace(
        message,
        send=operand.ctypes.data,
        recv=0 if recv is None else result.ctypes.data,
        keep=(*message.keep, operand, result),
        begin=packer(send, operand),
        end=None if recv is None else unpacker(recv, result),
    )


def _staged(message: Message, recv: Buffer) -> Message:
    """Receive pairs with gaps into a temporary buffer; copy only their data to the user's."""
    stage = np.empty(max(recv.span, 1), np.uint8)
    packed = np.empty(recv.count * recv.size, np.uint8)
    pack = packer(replace(recv, address=stage.ctypes.data, owner=stage), packed)
    unpack = unpacker(recv, packed)

    def end() -> None:
        pack()
        unpack()

    return replace(message, recv=stage.ctypes.data, keep=(*message.keep, stage, packed), end=end)


def whole_of(number: object) -> int:
    """Return a root, a colour, a key or a tag as mpi4py reads it: by ``__int__``.

    Counts and displacements are read by ``__index__``. Raises TypeError if there is no ``__int__``,
    as for texts.
    """
    if isinstance(number, int):
        return operator.index(number)
    convert = getattr(type(number), "__int__", None)
    if convert is None:
        raise TypeError(f"{number!r} is no number")
    found: int = convert(number)
    return found


def root_of(comm: MPI.Comm, root: object) -> int:
    """Return the root of a call; raises ArgumentError if it is no rank."""
    try:
        number = whole_of(root)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentTypeError(f"root: {root!r} is not a rank") from None
    if not 0 <= number < comm.Get_size():
        raise ArgumentError(f"root {number} is not in 0..{comm.Get_size() - 1}")
    return number


def in_place(buf: object) -> bool:
    """Return whether an argument says that data is in place; mpi4py takes None for it."""
    return buf is None or buf is MPI.IN_PLACE


def _no_in_place(buf: object, what: str) -> object:
    if buf is MPI.IN_PLACE:
        raise ArgumentError(f"{what}: MPI.IN_PLACE is not allowed for this argument")
    return buf


def _writable(buffer: Buffer) -> Buffer:
    if buffer.readonly:
        raise ArgumentError(f"{buffer.what} is read-only, but receives the result")
    return buffer


def _op(op: object) -> MPI.Op:
    if not isinstance(op, MPI.Op):
        raise ArgumentTypeError(f"op: {op!r} is not an MPI.Op such as MPI.SUM")
    if op in (MPI.OP_NULL, MPI.REPLACE, MPI.NO_OP):
        raise ArgumentError("op: MPI.OP_NULL, REPLACE and NO_OP do not reduce")
    return canonical(op)


def _match(send: Buffer, recv: Buffer) -> None:
    """Raise ArgumentError for buffers of different types or sizes, and for overlapping ones."""
    same_type = send.name == recv.name if send.name or recv.name else send.datatype == recv.datatype
    if not same_type:
        raise ArgumentError(
            f"sendbuf is {send.describe()}, recvbuf is {recv.describe()}: "
            "the element types must be the same"
        )
    if send.count != recv.count:
        raise ArgumentError(
            f"recvbuf holds {recv.span} bytes ({recv.describe()}), {send.span} expected "
            f"({send.describe()})"
        )
    if overlap(send, recv):
        raise ArgumentError(
            "sendbuf and recvbuf overlap; pass MPI.IN_PLACE as sendbuf to reduce in place"
        )


def _combinable(buffer: Buffer, op: MPI.Op, name: str) -> tuple[int, int] | None:
    """Return the numbers of the native kernel, or None if the MPI library must reduce.

    Raises ArgumentError if the operation is not defined on the type.
    """
    if not name:  # a user-defined operation accepts any type
        if buffer.datatype == MPI.DATATYPE_NULL:
            raise ArgumentError(f"{buffer.what}: MPI has no type for {buffer.name}")
        return None
    if name in PAIRS:
        if not pair_name(buffer.datatype):
            raise ArgumentError(
                f"op MPI.{name.upper()} takes pairs (MPI.DOUBLE_INT, MPI.TWOINT ...), "
                f"not {buffer.describe()}"
            )
        _check_library(op, buffer.datatype)
        return None
    numbers = kernel(name, buffer.name)
    if numbers is None and name not in WIDE.get(buffer.name, ()):
        known = ", ".join(f"MPI.{op.upper()}" for op in ops_of(buffer.name)) or "none"
        raise ArgumentError(
            f"op MPI.{name.upper()} is not defined on {buffer.describe()}; defined there: {known}"
        )
    if numbers is None:
        _check_library(op, buffer.datatype)
    return numbers


def _check_library(op: MPI.Op, datatype: MPI.Datatype) -> None:
    """Raise what the MPI library raises for an operation that it does not have on a type."""
    code = library_refusal(op, datatype)
    if code != MPI.SUCCESS:
        raise MPI.Exception(code)
