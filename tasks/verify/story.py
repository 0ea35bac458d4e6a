"""The message of a failed proof: the place, what was found, what was expected."""

from __future__ import annotations

import numpy as np

from han.model.program import PEER, Area, Base, Code, PeerBase, Program

NAMES = {Base.SEND: "send", Base.RECV: "recv", Base.SCRATCH: "scratch"}
BEGIN, END, JOINT = -1, -2, -3  # in place of the row of an operation
MOMENTS = {BEGIN: "its beginning", END: "its end", JOINT: "with its peers"}
AREAS = {Area.SMALL: "slot", Area.CELLS: "cells", Area.FLAGS: "flags"}
FORMS = {
    Code.COPY: "{n} B {0} <- {1}",
    Code.REDUCE: "{n} elements {0} <- {1} op {2}",
    Code.ACCUMULATE: "{n} elements {0} <- {1} op {2}",
    Code.REDUCE2: "{n} elements {0}, {3} <- {1} op {2}",
    Code.POST: "{0} = {n}",
    Code.WAIT: "{0} >= {n} of rank {peer}",
    Code.ISEND: "{n} B {1} to rank {peer}, request {slot}",
    Code.IRECV: "{n} B {0} from rank {peer}, request {slot}",
    Code.TEST: "request {slot}",
    Code.AWAIT: "stream {peer} at {n}",
    Code.PULL: "{n} B {0} <- {1} of rank {peer}",
    Code.PUSH: "{n} B {0} of rank {peer} <- {1}",
    Code.COLL: "{n} root {peer}, request {slot}",
    Code.EXPECT: "{0} of rank {peer} is {n}",
    Code.PACK: "{n} B {0} <- slots {1}",
    Code.UNPACK: "{n} B slots {0} <- {1} of rank {peer}",
    Code.TALLY: "{0} counts small blocks of {1}",
}


class Refuted(AssertionError):
    """A property, `subject`, does not hold; `where` is the operation, or empty."""

    def __init__(self, subject: str, where: str, found: str, expected: str) -> None:
        self.subject, self.where, self.found, self.expected = subject, where, found, expected
        place = f"{where}: " if where else ""
        super().__init__(f"{subject}: {place}found {found}; expected {expected}")


def place(run: int, rank: int, row: int, program: Program) -> str:
    """Return the place of an event: `row` is that of the rank's program, BEGIN, END or JOINT."""
    if row < 0:
        return f"run {run}, rank {rank}, {MOMENTS[row]}"
    found = program.code[row]
    stream = next(s for s in program.streams if s.start <= row < s.stop)
    task = program.tasks[found["task"]] if program.tasks else "?"
    return f"run {run}, rank {rank}, {stream.name} {task}, operation {row} {operation(found)}"


def operation(row: np.void) -> str:
    """Format an instruction: ``COPY 4096 B recv+0 <- cells(0)+8192``."""
    code, numbers = Code(int(row["code"])), {name: int(row[name]) for name in ("n", "peer", "slot")}
    refs = map(reference, row["base"].tolist(), row["off"].tolist())
    return f"{code.name} {FORMS[code].format(*refs, **numbers)}"


def reference(base: int, offset: int) -> str:
    """Format an address: ``recv+0``."""
    if base >= PEER:
        buffer, channel, slot = PeerBase.of(base)
        return f"{NAMES.get(Base(buffer), 'nowhere')}+{offset} of slot {slot} in channel {channel}"
    if base < Base.CHANNEL:
        return f"{NAMES.get(Base(base), 'nowhere')}+{offset}"
    channel, area = divmod(base - Base.CHANNEL, len(Area))
    return f"{AREAS[Area(area)]}({channel})+{offset}"
