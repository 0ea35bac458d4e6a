"""Compute the rows of a class of machines, or regret, by processes that take cases in turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from multiprocessing import get_context
from typing import Any, TypeVar

from han.common.grouped import grouped
from han.common.units import format_size
from han.config.machine import load_machine
from han.config.rules import Use
from han.tuning.search.class_rows import computed, records
from han.tuning.search.limits import Limits
from han.tuning.search.portfolio import (
    LIMITS,
    ON_NODE,
    Case,
    Grid,
    Laboratory,
    chosen,
    compared,
    composition_winners,
    portfolios,
    predicted,
    winners,
)
from han.tuning.search.regret import Regret, regret_of

Progress = Callable[[int, str], AbstractContextManager[Callable[[], None]]]
T = TypeVar("T")
R = TypeVar("R")
_labs: list[Laboratory] = []  # of this process


@dataclass(frozen=True)
class Processes:
    """So many processes, each of which predicts calls on some machine models.

    `machines` are names or documents of models. `in_a_row`: of calls back to back.
    """

    machines: Sequence[Any]
    workers: int
    progress: Progress
    in_a_row: bool = False

    def rows(self, grid: Grid, error: float) -> Iterator[dict[str, Any]]:
        """Yield the rows of a grid: of choices that differ by less than `error`, simple ones."""
        cases = [*grid.cases()]
        asked = [(case, _is_anchor(case, grid)) for case in cases]
        won = [*self._spread(_winners, asked, "searching")]
        uses = portfolios(grid, zip(cases, won, strict=True))
        series = grouped((case._replace(nodes=0), case) for case in cases).values()
        known = [(some, uses[some[0].collective]) for some in series]
        told = self._spread(_predicted, known, "predicting")
        pairs = (zip(*one, strict=True) for one in zip(series, told, strict=True))
        times = dict(chain.from_iterable(pairs))
        found = computed(chosen(times, grid, error), times, uses, grid)
        return records(found, grid, bounded=grid.nodes == (1,))

    def winners(self, cases: Sequence[Case]) -> Iterator[Sequence[Use]]:
        """Yield the uses that win each case on some machine."""
        return self._spread(_winners, [(case, True) for case in cases], "searching")

    def compared(
        self, asked: Sequence[tuple[Case, Sequence[Use | None]]]
    ) -> Iterator[dict[int, list[float]]]:
        """Yield how some uses compare in each case, on each machine."""
        return self._spread(_compared, asked, "predicting")

    def regret(self, cases: Iterable[Case], search: bool) -> list[Regret]:
        """Return the regret of what han chooses, on each machine."""
        asked = [(case, search) for case in cases]
        return [one for ones in self._spread(_regret, asked, "predicting") for one in ones]

    def _spread(self, work: Callable[[T], R], over: Sequence[T], what: str) -> Iterator[R]:
        """Yield the results of some work for all items, which processes take in turn."""
        with (
            self.progress(len(over), what) as advance,
            ProcessPoolExecutor(
                self.workers, get_context("spawn"), _open, (self.machines, self.in_a_row)
            ) as pool,
        ):
            for result in pool.map(work, over):
                advance()
                yield result


def called(collective: str, on_one_node: bool) -> str:
    """Return the name of the calls that a grid is for."""
    return f"{collective} on one node" if on_one_node else collective


def call_of(row: Mapping[str, Any]) -> str:
    """Return the same name for a row as files have it."""
    when = row["when"]
    return called(str(when.get("collective")), when.get("nodes") == {"min": 1, "max": 1})


def spelled(grid: Grid, error: float, machines: Sequence[str]) -> dict[str, Any]:
    """Return a grid as files have it, and on which machine models it was computed."""
    return {
        "machines": [*machines],
        "nodes": [*grid.nodes],
        "ppn": [*grid.ppn],
        "bytes": [format_size(n) for n in grid.nbytes],
        "ranks": grid.ranks,
        "error": error,
    }


def text_of(record: Any) -> str:
    """Return a class as JSON, a row on a line."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in record["rows"])
    grids = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(grid)}" for name, grid in record["grids"].items()
    )
    others = {key: value for key, value in record.items() if key not in ("rows", "grids")}
    head = json.dumps(others, indent=1)[:-2]
    return f'{head},\n "grids": {{\n{grids}\n }},\n "rows": [\n{rows}\n ]\n}}\n'


def _is_anchor(case: Case, grid: Grid) -> bool:
    """Return whether a case is on every second shape of the grid, and not among the largest."""
    places = grid.nodes.index(case.nodes) + grid.ppn.index(case.ppn)
    return places % 2 == 1 and case.nodes * case.ppn <= max(64, grid.ranks // 4) and case.ppn > 1


# ---- what a process does ------------------------------------------------------------------------


def _open(machines: Iterable[Any], in_a_row: bool) -> None:
    _labs[:] = [Laboratory(load_machine(one), in_a_row) for one in machines]


def _limits_of(case: Case) -> Limits:
    """Return what a search of a case tries."""
    return LIMITS if case.nodes > 1 else ON_NODE


def _winners(asked: tuple[Case, bool]) -> Any:
    case, searched = asked
    return winners(_labs, case, _limits_of(case)) if searched else composition_winners(_labs, case)


def _predicted(asked: tuple[Sequence[Case], Any]) -> list[dict[int, float]]:
    return predicted(_labs, *asked)


def _compared(asked: tuple[Case, Any]) -> dict[int, list[float]]:
    case, uses = asked
    return compared(_labs, case, dict(enumerate(uses)))


def _regret(asked: tuple[Case, bool]) -> list[Regret]:
    case, searched = asked
    return [regret_of(lab, case, _limits_of(case) if searched else None) for lab in _labs]
