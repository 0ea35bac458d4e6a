"""One run of ``han tune``: what it finds is kept after each input, so that it can be resumed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from mpi4py import MPI

from han.common.atomic import write_whole
from han.common.errors import ArgumentError
from han.common.units import plural
from han.config.config import Config, load_config
from han.measure.bench_calls import Case
from han.measure.tune.lab import Lab
from han.measure.tune.tuner import Input, Plans, Tuner, served
from han.model.collectives import ROWS
from han.ranks.machine import fingerprint
from han.tuning.search.limits import EVERYTHING
from han.tuning.search.space import Pruned
from han.tuning.shapes.costs import chosen_costs
from han.tuning.tuned.files import (
    TunedError,
    as_text,
    check_conditions,
    check_machine,
    merged,
    read,
    write,
)
from han.tuning.tuned.find import OFF, default_file
from han.tuning.tuned.fingerprint import Fingerprint
from han.tuning.tuned.points import Conditions, MeasuredCall, Point
from han.tuning.tuned.table import TunedTable, of_points
from han.tuning.tuned.tasks import TaskCost, joined

Tell = Callable[[str], None]
Step = Callable[[int, int], None]


@dataclass(frozen=True)
class Outcome:
    """The points of a run, those of an interrupted run included.

    `complete`: all inputs were searched without running out of time. For those that are `left`
    nothing was compared. `problem` says why the table was not written, or "".
    """

    table: TunedTable
    pruned: tuple[Pruned, ...]
    complete: bool
    left: tuple[Input, ...]
    path: Path
    problem: str = ""


def tuned_config(source: Any) -> Config:
    """Return a configuration for tuning: its levels, without rules and without a tuned table.

    A table serves ordinary calls, so it is not tuned for reproducible ones.
    """
    return replace(load_config(source), rules=(), tuned=OFF, reproducible=False)


def partial_file(path: Path) -> Path:
    """Return the file that keeps what an interrupted run has found."""
    return path.with_name(f".{path.name}.partial")


def tune(
    comm: MPI.Intracomm, config: Any, plans: Plans, path: Path | None, *,
    fresh: bool = False, restart: bool = False, step: Step | None = None, warn: Tell = print,
) -> Outcome:  # fmt: skip
    """Tune all inputs within the budget, and write the table; collective.

    `step` is called after each input with the numbers of inputs done and of all; `warn` on rank 0.
    Raises ArgumentError on all ranks, before anything runs, if the table could not take the points.
    """
    path = comm.bcast(path or default_file(fingerprint()))
    settings = tuned_config(config)
    keeper = Keeper(path, fingerprint(settings.wait), comm.rank == 0, warn)
    unfit = comm.bcast(keeper.unfit())
    if unfit:
        raise ArgumentError(unfit)
    found = comm.bcast(() if restart or comm.rank else keeper.resumed())
    case = partial(Case, dtype=plans.dtype, op=plans.op)
    with Lab(comm, settings, case, fresh, plans.shared) as lab:
        plans, unserved = served(lab, plans, warn)
        tuner = Tuner(lab, plans)
        conditions = partial(conditions_of, plans, fresh)
        before = {
            one: _known(tuner, one, conditions(one.collective), found) for one in plans.inputs
        }
        known = {one: point for one, point in before.items() if point is not None}
        same = {one for one, point in known.items() if point.complete}
        keeper.begin(known.values(), found)

        def keep(point: Point, todo: Sequence[Input]) -> None:
            keeper.know(tuner.tasks())
            if point.compares:
                keeper.add(replace(point, conditions=conditions(point.key.collective)))
            if step is not None:
                step(len(plans.inputs) - len(todo), len(plans.inputs))

        try:
            complete = tuner.run(keep, same)
        except KeyboardInterrupt:
            keeper.tell_interrupted()
            raise
    done = known.keys() | {one for one, point in tuner.done.items() if point.compares}
    left = tuple(one for one in plans.inputs if one not in done)
    problem = comm.bcast(keeper.finish(complete))
    pruned = (*unserved, *tuner.pruned)
    return Outcome(keeper.table, pruned, complete, left, path, problem)


def conditions_of(plans: Plans, fresh: bool, collective: str) -> Conditions:
    """Return the conditions of the searches for inputs of a collective."""
    restricted = [repr(x) for x in (plans.limits, plans.machine) if x not in (EVERYTHING, None)]
    space = blake2b("".join(restricted).encode(), digest_size=8).hexdigest() if restricted else ""
    op = plans.op if ROWS[collective].reduces else ""
    return Conditions(plans.dtype, op, fresh, space)


def _known(
    tuner: Tuner, one: Input, conditions: Conditions, points: Sequence[Point]
) -> Point | None:
    """Return what a run with the same versions, strategy and conditions has found for an input."""
    place = tuner.key(one), one.nbytes
    for p in points:
        if (p.key, p.nbytes) == place and p.machine is None and p.conditions == conditions:
            return p if p.strategy == tuner.plans.strategy else None
    return None


class Keeper:
    """Writes what was found: on rank 0 into a partial file after each input, then into `path`."""

    def __init__(self, path: Path, machine: Fingerprint, writes: bool, warn: Tell) -> None:
        self.path, self.part, self.machine = path, partial_file(path), machine
        self._writes, self._warn, self._warned = writes, warn, False
        self._points: dict[tuple[MeasuredCall, int], Point] = {}  # of this run, by input
        self._tasks: tuple[TaskCost, ...] = ()
        self._others: dict[
            tuple[MeasuredCall, int], Point
        ] = {}  # of other runs, which stay for these

    def know(self, tasks: Iterable[TaskCost]) -> None:
        """Keep the costs of tasks that tell most, beside those that are known."""
        self._tasks = tuple(chosen_costs(joined(self._tasks, tasks)))

    def begin(self, points: Iterable[Point], found: Iterable[Point]) -> None:
        """Take the points that are known from an interrupted run, of all that were found."""
        self._points = {(p.key, p.nbytes): p for p in points}
        self._others = {(p.key, p.nbytes): p for p in found}
        if self._points and self._writes:
            self._warn(f"resumed: {plural(len(self._points), 'known input')} in {self.part}")

    @property
    def table(self) -> TunedTable:
        """The points so far as a table of this machine."""
        return replace(of_points(self._points.values(), self.machine), tasks=self._tasks)

    def unfit(self) -> str:
        """Return why the points of this run could not be added to the table, or ""."""
        if not self._writes or not self.path.exists():
            return ""
        try:
            known = read(self.path)
            check_machine(known, self.table)
            check_conditions(known, self.table, "")
        except TunedError as error:
            told = str(error).removesuffix("; ")
            return f"{told}; name another file with --out, or remove this one"
        return ""

    def tell_interrupted(self) -> None:
        """Say on rank 0 what is kept of a run that the user interrupts."""
        if self._writes:
            known = plural(len(self._points), "input")
            self._warn(f"interrupted: {known} in {self.part}; the same command goes on from there")

    def resumed(self) -> tuple[Point, ...]:
        """Return the points of interrupted runs on this machine; none if there were none.

        Those that were measured with other versions name their machine.
        """
        if not self.part.exists():
            return ()
        try:
            found = merged(read(self.part), of_points((), self.machine))
            self._tasks = found.tasks
            return found.points
        except TunedError as error:
            self._warn(f"{error}; tuning begins anew")
            return ()

    def add(self, point: Point) -> None:
        """Keep a point; a file that cannot be written is told of once.

        A resumed run searches again if the search was not complete.
        """
        known = self._points.get((point.key, point.nbytes))
        if known is None or point.replaces(known):
            self._points[point.key, point.nbytes] = point
        if not self._writes:
            return
        problem = self._keep(self._others | self._points)
        if problem and not self._warned:
            self._warn(f"{problem}; tuning goes on")
            self._warned = True

    def _keep(self, found: Mapping[tuple[MeasuredCall, int], Point]) -> str:
        """Write the partial file; return why that failed, or ""."""
        points = found.values()
        try:
            self.part.parent.mkdir(parents=True, exist_ok=True)
            table = replace(of_points(points, self.machine), tasks=self._tasks)
            write_whole(self.part, as_text(table))
        except OSError as error:
            return f"{self.part}: cannot be written: {error.strerror}"
        return ""

    def finish(self, complete: bool) -> str:
        """Write the table; return why that failed, or "".

        The partial file stays if the table was not written, if inputs are left, or for other runs.
        """
        if not self._writes or not self._points:
            return ""
        try:
            write(self.path, self.table)
        except TunedError as error:
            problem = self._keep(self._others | self._points)
            lost = f"{problem}; make room there, or name another file with --out"
            return f"{error}; {lost if problem else f'what was found is in {self.part}'}"
        if complete:
            self._leave_others()
        return ""

    def _leave_others(self) -> None:
        """Leave in the partial file what other runs have found; remove it if there is nothing."""
        rest = {k: p for k, p in self._others.items() if k not in self._points}
        if rest:
            told = f"of other runs: {plural(len(rest), 'input')} in {self.part}"
            self._warn(self._keep(rest) or told)
        else:
            with contextlib.suppress(OSError):
                self.part.unlink()
