"""Costs of tasks that a table keeps: what tells the costs of other numbers of nodes and ranks.

A strategy measures tasks in short calls, of one segment or of as few as fill a pipeline. Such a
call, the ranks that made it and its time are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from han.common.units import format_size, parse_size
from han.config.rules import Use
from han.tuning.row_reading import collectives_of, known_keys, use_of
from han.tuning.tuned.uses import use_record

TASKS = "tasks"  # the section of a table
KEYS = ("collective", "bytes", "nodes", "ppn", "levels", "use", "us", "in_a_row", "together")
NEEDED = KEYS[:7]
DIGITS = 6  # of a time


@dataclass(frozen=True)
class TaskCost:
    """The seconds of a short call on the slowest of `nodes` x `ppn` ranks.

    `in_a_row`: the call was one of several back to back. `together`: nodes share processors, as
    containers of one system do.
    """

    collective: str
    nbytes: int
    nodes: int
    ppn: int
    levels: tuple[str, ...]
    use: Use
    seconds: float
    in_a_row: bool = False
    together: bool = False

    @property
    def call(self) -> tuple[object, ...]:
        """What a later measurement replaces."""
        return self.collective, self.nbytes, self.nodes, self.ppn, self.levels, repr(self.use)

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes, and ranks of each."""
        return self.nodes, self.ppn


def joined(old: Iterable[TaskCost], new: Iterable[TaskCost]) -> tuple[TaskCost, ...]:
    """Return the costs of two runs; of one call, the later one."""
    return tuple({one.call: one for one in (*old, *new)}.values())


def task_record(one: TaskCost) -> dict[str, Any]:
    """Return a cost as plain data for JSON."""
    record = {
        "collective": one.collective, "bytes": format_size(one.nbytes), "nodes": one.nodes,
        "ppn": one.ppn, "levels": [*one.levels], "use": use_record(one.use),
        "us": float(f"{one.seconds * 1e6:.{DIGITS}g}"),
    }  # fmt: skip
    flags = {"in_a_row": one.in_a_row, "together": one.together}
    return record | {name: True for name, value in flags.items() if value}


def tasks_of(records: object) -> tuple[TaskCost, ...]:
    """Return the costs of the section of a file; raises ValueError, which names the entry."""
    if not isinstance(records, list):
        raise ValueError(f"{TASKS}: expected a list of costs")
    return tuple(_placed(record, k) for k, record in enumerate(records))


def _placed(record: object, k: int) -> TaskCost:
    try:
        return _task(known_keys(record, KEYS, "", NEEDED))
    except (TypeError, AttributeError, OverflowError):
        raise ValueError(f"{TASKS}[{k}]: expected {', '.join(NEEDED)}") from None
    except ValueError as error:
        raise ValueError(f"{TASKS}[{k}]: {error}") from None


def _task(given: Mapping[str, Any]) -> TaskCost:
    (collective,) = collectives_of(given["collective"]) or ("",)
    use, nodes, ppn = use_of(given["use"]), int(given["nodes"]), int(given["ppn"])
    seconds = float(f"{float(given['us']) * 1e-6:.{DIGITS}g}")
    if use is None or not collective or min(nodes, ppn) < 1 or not 0 < seconds < 1e6:
        raise ValueError("expected a collective, positive numbers, and what levels run")
    levels = tuple(str(name) for name in given["levels"])
    flags = bool(given.get("in_a_row")), bool(given.get("together"))
    nbytes = parse_size(given["bytes"])
    return TaskCost(collective, nbytes, nodes, ppn, levels, use, seconds, *flags)
