"""When tasks began and ended: what overlaps with what, measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from han.state import State

EVENT = np.dtype(
    [
        ("epoch", "u8"),
        ("signature", "u8"),
        ("begin", "u8"),
        ("end", "u8"),
        ("stream", "u4"),
        ("task", "u4"),
    ]
)


@dataclass(frozen=True)
class TaskTime:
    """One task of one call on one rank; times in seconds of the machine's monotonic clock."""

    rank: int
    call: int
    stream: str
    task: str
    begin: float
    end: float


class Trace:
    """Records while it is entered; :attr:`times` holds the tasks of this rank."""

    def __init__(self, state: State, events: int) -> None:
        self.state = state
        self.events = events
        self.times: list[TaskTime] = []

    def __enter__(self) -> Trace:
        self.state.engine.trace(self.events)
        return self

    def __exit__(self, *exc: object) -> None:
        engine, known = self.state.engine, self.state.engine.on_error.known
        for row in np.frombuffer(engine.events(), EVENT):
            prepared = known(int(row["signature"]))
            if prepared is None:
                continue
            program = prepared.program
            self.times.append(
                TaskTime(
                    self.state.rank,
                    int(row["epoch"]),
                    program.streams[row["stream"]].name,
                    program.tasks[row["task"]],
                    float(row["begin"]) * 1e-9,
                    float(row["end"]) * 1e-9,
                )
            )
        engine.trace(0)
