"""The listing of a Program: every operation with its task, and the names of ranks and flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from string import Formatter
from typing import Any

from han.common.units import format_size, plural, spans
from han.model.channel_layout import FLAGS, LINE, SMALL
from han.model.opcodes import STARTS
from han.model.program import (
    PEER,
    Area,
    Base,
    Code,
    Coll,
    PeerBase,
    Program,
    StreamInfo,
    bytes_moved,
)  # fmt: skip
from han.tasks.plan import Plan

Details = Mapping[str, Any]
OFFSETS = {Base.SEND: "send", Base.RECV: "recv", Base.SCRATCH: "scratch"}
AREAS = {Area.SMALL: ("slot", SMALL), Area.CELLS: ("cells", 0), Area.FLAGS: ("", LINE * FLAGS)}

KEY = (  # words in a listing, and what they mean
    ((" send", " recv"), "send, recv  the caller's arrays"),
    ((" buffer",), "buffer      the caller's array"),
    ((" scratch",), "scratch     private memory of this rank"),
    ((" cells[",), "cells[r]    rank r's cells in shared memory"),
    ((" slot[",), "slot[r]     rank r's small slot in shared memory: a flag and a page of data"),
    (("POST",), "POST        store a value in a flag; f[r] is flag f of rank r"),
    ((" WAIT",), "WAIT        until a flag of another rank has reached a value"),
    (("AWAIT",), "AWAIT       until an operation of another stream is done"),
    (("TEST",), "TEST        until a request is complete"),
)


@dataclass(frozen=True)
class Operation:
    """One operation: its index, stream, task, code and details."""

    index: int
    stream: str
    task: str
    code: str
    details: Details

    def __str__(self) -> str:
        shown = {k: format_size(v) if k == "bytes" else v for k, v in self.details.items()}
        return f"{self.code:<7} {FORMS[Code[self.code]].format(**shown)}"


# ---- reading operations -------------------------------------------------------------------------


class Reader:
    """Formats the operations of one rank's Program."""

    def __init__(self, plan: Plan, program: Program) -> None:
        self.plan, self.program = plan, program
        self.code = program.code
        self.levels = plan.channels
        self.moved = bytes_moved(program.code, plan.signature.element)
        self.one_channel = len({*self.levels} & {*plan.topology.active}) < 2
        self.started: dict[int, int] = {}  # request -> the operation that started it

    def operations(self) -> Iterator[Operation]:
        """Yield all operations in the order of the code."""
        for stream in self.program.streams:
            for k in range(stream.start, stream.stop):
                yield self._operation(stream, k)

    def _operation(self, stream: StreamInfo, k: int) -> Operation:
        code = Code(int(self.code["code"][k]))
        if code in STARTS:
            self.started[int(self.code["slot"][k])] = k
        details = {name: self.detail(k, name) for name in NAMES[code]}
        return Operation(k, stream.name, self.task(k), code.name, details)

    def task(self, k: int) -> str:
        """Return the task of an operation; empty if the communicator has one rank."""
        number = int(self.code["task"][k])
        return self.program.tasks[number] if number < len(self.program.tasks) else ""

    def ref(self, k: int, which: int) -> str:
        """Format an address: ``recv+64KiB``, ``cells[3]``, ``released[0]``."""
        base, offset = int(self.code["base"][k][which]), int(self.code["off"][k][which])
        if base >= PEER:
            peer = PeerBase.of(base)
            home = self.plan.topology.home(self.levels[peer.channel], self.program.rank)
            rank = home[peer.slot] if peer.slot < len(home) else "nobody"
            return f"{self._own(peer.buffer, offset)} of rank {rank}"
        if base >= Base.CHANNEL:
            return self._shared(base - Base.CHANNEL, offset)
        return self._own(base, offset)

    def _own(self, base: int, offset: int) -> str:
        """Format an address in a rank's own memory."""
        if base == Base.NONE:
            return "nothing"
        whole = "buffer" if self.plan.signature.collective == "bcast" else ""
        return _at(whole if whole and base == Base.RECV else OFFSETS[Base(base)], offset)

    def _shared(self, number: int, offset: int) -> str:
        channel, area = divmod(number, len(Area))
        level = self.levels[channel]
        name, stride = AREAS[Area(area)]
        slot, rest = divmod(offset, stride or self.plan.geometry(level).ring)
        if Area(area) == Area.FLAGS:
            name, rest = self._flag_name(level, rest // LINE), 0
        where = "" if self.one_channel else f"@{self.plan.topology.names[level]}"
        rank = self.plan.topology.home(level, self.program.rank)[slot]
        return _at(f"{name}[{rank}]{where}", rest)

    def _flag_name(self, level: int, number: int) -> str:
        """Return the name that the level's submodule gives a flag."""
        names = self.plan.parts[level].flags
        return names[number] if number < len(names) else f"flag{number}"

    # ---- details

    def detail(self, k: int, name: str) -> Any:
        """Return a detail of an operation by its name."""
        if name in OPERANDS:
            return self.ref(k, OPERANDS[name])
        if name in NUMBERS:
            return int(self.code[NUMBERS[name]][k])
        return DETAILS[name](self, k)

    def _awaited(self, k: int) -> int | None:
        """Return the operation that another one waits for."""
        if self.code["code"][k] == Code.TEST:
            return self.started.get(int(self.code["slot"][k]))
        return int(self.code["n"][k]) - 1

    def _kind(self, k: int) -> str:
        """Return the kind of a collective of the MPI library."""
        kind = int(self.code["off"][k][2])
        blocking = "blocking " if kind & Coll.BLOCKING else ""
        return f"{blocking}{Coll(kind & ~Coll.BLOCKING).name.lower()}"

    def _members(self, k: int) -> tuple[int, ...]:
        """Return the ranks of a collective of the MPI library."""
        return self.program.comms[int(self.code["off"][k][3])][1]


OPERANDS = {"to": 0, "from": 1, "first": 1, "second": 2, "also": 3, "flag": 0}  # by index
NUMBERS = {"value": "n", "rank": "peer", "request": "slot"}  # by field
DETAILS: Mapping[str, Callable[[Reader, int], Any]] = {
    "bytes": lambda reader, k: int(reader.moved[k]),
    "operation": Reader._awaited,
    "task": lambda reader, k: reader.task(int(reader.code["n"][k]) - 1),
    "stream": lambda reader, k: reader.program.streams[int(reader.code["peer"][k])].name,
    "kind": Reader._kind,
    "root": lambda reader, k: reader._members(k)[int(reader.code["peer"][k])],
    "ranks": lambda reader, k: spans(reader._members(k)),
}
FORMS: Mapping[Code, str] = {
    Code.COPY: "{bytes:>8}  {to} <- {from}",
    Code.REDUCE: "{bytes:>8}  {to} <- {first} op {second}",
    Code.ACCUMULATE: "{bytes:>8}  {to} <- {first} op {second}, in any order",
    Code.REDUCE2: "{bytes:>8}  {to}, {also} <- {first} op {second}",
    Code.POST: "          {flag} = {value}",
    Code.WAIT: "          {flag} >= {value}",
    Code.ISEND: "{bytes:>8}  rank {rank} <- {from}  (request {request})",
    Code.IRECV: "{bytes:>8}  {to} <- rank {rank}  (request {request})",
    Code.TEST: "          request {request}, of operation {operation}",
    Code.AWAIT: "          operation {operation}: {task} of {stream}",
    Code.COLL: "{bytes:>8}  {kind} of ranks {ranks}, root {root}: {to} <- {from}"
    "  (request {request})",
    Code.PULL: "{bytes:>8}  {to} <- {from} of rank {rank}",
    Code.PUSH: "{bytes:>8}  {to} of rank {rank} <- {from}",
    Code.EXPECT: "          {flag} of rank {rank} is {value}",
    Code.PACK: "{bytes:>8}  {to} <- slots {from}",
    Code.UNPACK: "{bytes:>8}  slots {to} <- {from}, of rank {rank}",
    Code.TALLY: "          {to} counts small blocks of {from}",
}
# The details that a form names.
NAMES = {
    code: [name for _, name, _, _ in Formatter().parse(form) if name]
    for code, form in FORMS.items()
}


def _at(name: str, offset: int) -> str:
    return f"{name}+{format_size(offset)}" if offset else name


# ---- the listing --------------------------------------------------------------------------------


def operations(plan: Plan, program: Program) -> list[Operation]:
    """Return a rank's operations in the order of the code, stream after stream."""
    return list(Reader(plan, program).operations())


def disassemble(plan: Plan, program: Program) -> str:
    """Return the listing of a rank's operations, stream by stream, with a key to its words."""
    lines = [_head(plan, program)]
    listed = operations(plan, program)
    width = max([len(op.task) for op in listed], default=0)
    for stream, ops in groupby(listed, key=lambda op: op.stream):
        lines += ["", stream, *_lines(list(ops), width)]
    return "\n".join([*lines, *_key(lines[1:])])


def _head(plan: Plan, program: Program) -> str:
    return (
        f"rank {program.rank} of {plan.topology.size}, {plan.signature.describe()}: "
        f"{plural(len(program.code), 'operation')} in {plural(len(program.streams), 'stream')}, "
        f"{plural(program.requests, 'request')}, {format_size(program.scratch)} of scratch, "
        f"{format_size(sum(program.footprint))} of cells"
    )


def _lines(ops: Sequence[Operation], width: int) -> Iterator[str]:
    """Yield one line for each operation; only the first one of a task names it."""
    before = None
    for op in ops:
        yield f"  {op.index:5d}  {op.task if op.task != before else '':<{width}}  {op}"
        before = op.task


def _key(lines: Sequence[str]) -> Iterator[str]:
    """Yield the meanings of the words that occur."""
    text = "\n".join(lines)
    found = [meaning for words, meaning in KEY if any(word in text for word in words)]
    yield from ["", *found] if found else []


def listing_record(plan: Plan, program: Program) -> dict[str, Any]:
    """Return the listing as plain data."""
    return {
        "rank": program.rank,
        "ranks": plan.topology.size,
        "call": plan.signature.describe(),
        "requests": program.requests,
        "scratch": program.scratch,
        "cells": sum(program.footprint),
        "operations": [
            {"index": op.index, "stream": op.stream, "task": op.task, "code": op.code}
            | dict(op.details)
            for op in operations(plan, program)
        ],
    }
