"""The message of a failed proof: the place, what was found, what was expected."""

from __future__ import annotations

from dataclasses import dataclass

from han.model.program import PEER, Area, Base, Code, PeerBase, Program

NAMES = {Base.SEND: "send", Base.RECV: "recv", Base.SCRATCH: "scratch"}
BEGIN, END, JOINT = -1, -2, -3  # in place of the row of an operation
MOMENTS = {BEGIN: "its beginning", END: "its end", JOINT: "with its peers"}
AREAS = {Area.SMALL: "slot", Area.CELLS: "cells", Area.FLAGS: "flags"}


class Refuted(AssertionError):
    """A property, `subject`, does not hold; `where` is the operation, or empty."""

    def __init__(self, subject: str, where: str, found: str, expected: str) -> None:
        self.subject, self.where, self.found, self.expected = subject, where, found, expected
        place = f"{where}: " if where else ""
        super().__init__(f"{subject}: {place}found {found}; expected {expected}")


@dataclass(frozen=True)
class Where:
    """The place of an event: its run, its rank and the row of the rank's program."""

    run: int
    rank: int
    row: int  # or BEGIN, END or JOINT
    program: Program

    def __str__(self) -> str:
        if self.row < 0:
            return f"run {self.run}, rank {self.rank}, {MOMENTS[self.row]}"
        row = self.program.code[self.row]
        stream = next(s for s in self.program.streams if s.start <= self.row < s.stop)
        task = self.program.tasks[row["task"]] if self.program.tasks else "?"
        return (
            f"run {self.run}, rank {self.rank}, {stream.name} {task}, "
            f"operation {self.row} {operation(row)}"
        )


def operation(row: object) -> str:
    """Format an instruction: ``COPY 4096 B recv+0 <- cells(0)+8192``."""
    code = Code(int(row["code"]))  # type: ignore[index]
    n, peer, slot = (int(row[k]) for k in ("n", "peer", "slot"))  # type: ignore[index]
    refs = [
        reference(int(b), int(o))
        for b, o in zip(row["base"], row["off"], strict=True)  # type: ignore[index]
    ]
    match code:
        case Code.COPY:
            return f"COPY {n} B {refs[0]} <- {refs[1]}"
        case Code.REDUCE:
            return f"REDUCE {n} elements {refs[0]} <- {refs[1]} op {refs[2]}"
        case Code.ACCUMULATE:
            return f"ACCUMULATE {n} elements {refs[0]} <- {refs[1]} op {refs[2]}"
        case Code.REDUCE2:
            return f"REDUCE2 {n} elements {refs[0]}, {refs[3]} <- {refs[1]} op {refs[2]}"
        case Code.POST:
            return f"POST {refs[0]} = {n}"
        case Code.WAIT:
            return f"WAIT {refs[0]} >= {n} of rank {peer}"
        case Code.ISEND:
            return f"ISEND {n} B {refs[1]} to rank {peer}, request {slot}"
        case Code.IRECV:
            return f"IRECV {n} B {refs[0]} from rank {peer}, request {slot}"
        case Code.TEST:
            return f"TEST request {slot}"
        case Code.AWAIT:
            return f"AWAIT stream {peer} at {n}"
        case Code.PULL:
            return f"PULL {n} B {refs[0]} <- {refs[1]} of rank {peer}"
        case Code.PUSH:
            return f"PUSH {n} B {refs[0]} of rank {peer} <- {refs[1]}"
        case Code.COLL:
            return f"COLL {n} root {peer}, request {slot}"


def reference(base: int, offset: int) -> str:
    """Format an address: ``recv+0``."""
    if base >= PEER:
        buffer, channel, slot = PeerBase.of(base)
        return f"{NAMES.get(Base(buffer), 'nowhere')}+{offset} of slot {slot} in channel {channel}"
    if base < Base.CHANNEL:
        return f"{NAMES.get(Base(base), 'nowhere')}+{offset}"
    channel, area = divmod(base - Base.CHANNEL, len(Area))
    return f"{AREAS[Area(area)]}({channel})+{offset}"
