"""``han tune`` itself: the plans that options make, the measurement, and what is printed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from mpi4py import MPI

from han.cli.common import check_files, keep, prints, rank, say, wrote
from han.cli.measuring import cases_of, tell_alone
from han.cli.progress import phases
from han.cli.words import Words
from han.common.atomic import write_whole
from han.common.errors import ArgumentError
from han.common.grouped import grouped
from han.common.suggest import expect_known
from han.common.tables import shown_table
from han.common.units import format_size, format_us, plural
from han.common.version import __version__
from han.config.machine import load_machine
from han.measure.bench_calls import Case
from han.measure.tune import session
from han.measure.tune.session import Outcome
from han.measure.tune.tuner import Input, Plans
from han.model.collectives import DATALESS
from han.model.element_types import element_type
from han.tuning.search.limits import EVERYTHING, load_limits
from han.tuning.search.space import IN_A_ROW, LATE, LEFT, Pruned
from han.tuning.search.strategies import STRATEGIES
from han.tuning.tuned.files import as_text
from han.tuning.tuned.find import left_out_file
from han.tuning.tuned.points import Point
from han.tuning.tuned.table import TunedTable
from han.tuning.tuned.uses import spell

SECONDS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}
FORMAT, VERSION = "han-tuning", 2
USUAL, USUAL_BUDGET = "task+heuristic", "2min"
HEADS = ("size", "tuned us", "built-in us", "MPI us", "gain", "over MPI", "tried", "choice")
TOLD, MOST_TOLD = (IN_A_ROW, LEFT, LATE), 5  # groups of what is left out that are told one by one


def plans_of(
    strategies: Sequence[str], usual: str, *, words: Words, budget: str | None,
    limit: str | None, space: Path | None, machine: str | None, dtype: str, op: str, shared: bool,
) -> Plans:  # fmt: skip
    """Return what options say; `usual` is the usual budget. Raises before anything runs."""
    for name in strategies:
        expect_known("strategy", name, STRATEGIES)
    modelled = [name for name in strategies if STRATEGIES[name].models]
    if modelled and machine is None:
        raise ArgumentError(f"strategy {modelled[0]}: name the machine model with --machine")
    case = partial(Case, dtype=element_type(dtype).name, op=op)
    return Plans(
        _inputs(words, case),
        strategies[0],
        _seconds("budget", budget or usual),
        EVERYTHING if space is None else load_limits(space),
        load_machine(machine) if modelled and machine is not None else None,
        element_type(dtype).name,
        op,
        shared,
        _seconds("limit", limit or "0"),
    )


def _inputs(words: Words, case: Callable[[str, int], Case]) -> tuple[Input, ...]:
    for name in (name for name in words.names if name in DATALESS):
        raise ArgumentError(f"{name} carries no data: its choice follows from the ranks alone")
    cases = cases_of(words, case)
    return tuple(Input(one.collective, one.nbytes) for one in cases if one.nbytes)


def _seconds(option: str, text: str) -> float | None:
    """Return the seconds of ``90s``, ``2min`` or ``1h``; None for 0, no limit."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(s|min|h|)\s*", text)
    if found is None:
        raise ArgumentError(f"{option} {text!r}: expected a time such as 90s, 2min or 1h")
    return float(found[1]) * SECONDS[found[2]] or None


def run(
    make: Callable[..., Plans], strategy: str | None, config: Any, out: Path | None, fresh: bool,
    restart: bool, json_file: Path | None, verbose: bool,
) -> None:  # fmt: skip
    """Tune, with a bar that shows how many inputs are done, and tell the result; collective."""
    check_files(out, json_file)
    plans, tell = make([strategy or USUAL], USUAL_BUDGET), prints(json_file)
    comm = MPI.COMM_WORLD
    if comm.size == 1 and out is None:
        raise ArgumentError(
            "one rank has no calls to tune, and later programs would read the table of this "
            "machine; write 'mpiexec -n 4 han tune', with as many ranks as your programs have, or "
            "name another table with --out"
        )
    tell_alone("han tune")
    tell(head(plans, comm.size))
    with phases() as bar:
        found = session.tune(
            comm, config, plans, out, fresh=fresh, restart=restart,
            step=partial(bar, "tuning"), warn=say,
        )  # fmt: skip
    _tell_end(found, plans, tell, json_file, verbose)


def _tell_end(
    found: Outcome, plans: Plans, tell: Callable[[str], None], json_file: Path | None, verbose: bool
) -> None:
    """Print the table and what is left, and write JSON; raises ArgumentError for a lost table."""
    tell(table_text(found.table.points))
    _tell_pruned(found, tell, verbose)
    if not found.complete:
        tell(f"# {_left(found.left)}; run the same command again to go on")
    if not found.problem and found.table.points and not rank():
        wrote(found.path)
        _tell_shapes(found.table, tell)
    keep(_record(found, plans), json_file)
    if found.problem:
        raise ArgumentError(found.problem)


def _tell_shapes(table: TunedTable, tell: Callable[[str], None]) -> None:
    """Say how a table answers for other shapes, if it keeps what they follow from."""
    if table.tasks:
        tell(
            "# han tune shapes predicts other numbers of nodes and ranks from these costs, and "
            "says which are worth a run"
        )


def _tell_pruned(found: Outcome, tell: Callable[[str], None], verbose: bool) -> None:
    """Write what was left out beside the table, and print a summary of it, or all of it.

    It is printed whole if it cannot be written.
    """
    if not found.pruned:
        return
    file, everything = left_out_file(found.path), pruned_list(found.pruned)
    try:
        if not rank():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, everything + "\n")
    except OSError as error:
        say(f"# {file}: cannot be written: {error.strerror or error}")
        verbose = True
    lines = "\n".join(f"#   {line}" for line in everything.splitlines())
    tell(f"# left out:\n{lines}" if verbose else pruned_text(found.pruned, str(file)))


def _left(left: Sequence[Input]) -> str:
    if not left:
        return "the budget was spent before some candidates were measured"
    more = ", ..." if len(left) > 4 else ""
    return (
        f"the budget was spent before {plural(len(left), 'input')}: "
        f"{', '.join(map(str, left[:4]))}{more}"
    )


def _record(found: Outcome, plans: Plans) -> dict[str, Any]:
    """Return what was measured, predicted and left out as plain data."""
    table = json.loads(as_text(found.table))
    return {
        "format": FORMAT,
        "version": VERSION,
        "han": __version__,
        "unit": "s",
        "machine": table["machines"][0],
        "strategy": plans.strategy,
        "complete": found.complete,
        "left": [asdict(one) for one in found.left],
        "pruned": [*map(str, found.pruned)],
        "rows": table["calls"],
    }


# ---- texts --------------------------------------------------------------------------------------


def head(plans: Plans, ranks: int) -> str:
    """Return the comment lines above the tables."""
    limit = "no limit" if plans.budget is None else f"{plans.budget:g} s"
    return (
        f"# han tune: {plural(len(plans.inputs), 'input')} on {plural(ranks, 'rank')}, strategy "
        f"{plans.strategy}, budget {limit}\n"
        "# microseconds of the slowest rank, median; gain: built-in / tuned; tried: candidates "
        "measured as a whole"
    )


def table_text(points: Sequence[Point]) -> str:
    """Return a table for each collective, and the geometric means of the gains."""
    parts = []
    for name in dict.fromkeys(point.key.call for point in points):
        mine = sorted((p for p in points if p.key.call == name), key=lambda p: p.nbytes)
        parts += ["", shown_table(name, HEADS, map(_row, mine), left=["choice"])]
    over_default = [p.default.median / p.best.median for p in points]
    over_mpi = [p.library.median / p.best.median for p in points if p.library is not None]
    for beside, gains in (("built-in choices", over_default), ("MPI library", over_mpi)):
        if gains:
            mean = geometric_mean(gains)
            parts.append(f"# geometric mean of gains over the {beside}: {mean:.2f}")
    return "\n".join(parts)


def _row(point: Point) -> list[str]:
    best, library = point.best.median, point.library
    return [
        format_size(point.nbytes),
        format_us(best * 1e6),
        format_us(point.default.median * 1e6),
        "-" if library is None else format_us(library.median * 1e6),
        f"{point.default.median / best:.2f}",
        "-" if library is None else f"{library.median / best:.2f}",
        str(point.tried),
        "built-in" if point.use is None else spell(point.use),
    ]


def pruned_text(pruned: Sequence[Pruned], where: str) -> str:
    """Return comment lines about what was left out: a count and an example for each group.

    Those of some groups are told one by one. `where` names the file that lists all.
    """
    found = [f"# left out, listed with reasons in {where} (--verbose prints it):"]
    for group, mine in _groups(pruned).items():
        shown = min(MOST_TOLD, len(mine)) if group in TOLD else 1
        found.append(f"#   {len(mine)} {group}{'' if group in TOLD else ', such as'}")
        found += [f"#     {one}" for one in mine[:shown]]
        if group in TOLD and shown < len(mine):
            found.append(f"#     and {len(mine) - shown} more")
    return "\n".join(found)


def pruned_list(pruned: Sequence[Pruned]) -> str:
    """Return a line for everything that was left out, with the reason, by groups of reasons."""
    lines = []
    for group, mine in _groups(pruned).items():
        lines += [f"{group}:", *(f"  {one}" for one in mine)]
    return "\n".join(lines)


def _groups(pruned: Sequence[Pruned]) -> dict[str, list[Pruned]]:
    """Return what was left out by the group of its reason, those that are told one by one first."""
    found = grouped((one.group, one) for one in pruned)
    return {name: found[name] for name in dict.fromkeys([*TOLD, *found]) if name in found}
