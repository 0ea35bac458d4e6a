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
        engine = self.state.engine
        rows = np.frombuffer(engine.events(), EVENT)
        engine.trace(0)
        self.times += [time for row in rows if (time := self._time(row)) is not None]

    def _time(self, row: np.void) -> TaskTime | None:
        """Name what an event is about; a rank that is alone copies outside of any task."""
        prepared = self.state.engine.on_error.known(int(row["signature"]))
        if prepared is None:
            return None
        program = prepared.program
        number = int(row["task"])
        return TaskTime(
            self.state.rank,
            int(row["epoch"]),
            program.streams[row["stream"]].name,
            program.tasks[number] if number < len(program.tasks) else "copy",
            float(row["begin"]) * 1e-9,
            float(row["end"]) * 1e-9,
        )
