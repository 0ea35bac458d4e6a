"""The command ``han calibrate``: this machine measured, what is kept, printed and written."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from han.cli import options
from han.cli.common import answer, check_files, world, write_file
from han.cli.info import distance_line
from han.cli.progress import progress
from han.cli.validate import validate
from han.common.errors import ArgumentError
from han.common.tables import shown_table
from han.common.units import plural
from han.config.machine import load_machine, ready_machines
from han.measure.bench_machine import heading, look
from han.ranks.discover import has_rdma, shared_with
from han.ranks.meeting import Meeting
from han.runtime.calibrating import Measured
from han.runtime.calibrating import calibrate as measure
from han.runtime.measured import ROUNDS
from han.runtime.probes import STEP
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.built_in.machine_classes import Standing, standing
from han.tuning.measured_machine import machine_with
from han.tuning.profile import UNKNOWN, Profile, profile_of
from han.tuning.tuned.calibrated import Calibration, CalibrationError, file_of, write
from han.tuning.tuned.combined import unit_of

LIMIT = 60.0  # seconds that ranks wait for each other
HEADS = ("value", "measured", "unit", "spread", "nearest")


def calibrate(
    files: Annotated[list[Path] | None, typer.Argument(hidden=True)] = None,
    machine: Annotated[str, typer.Option(hidden=True)] = "",
    fit: Annotated[Path | None, typer.Option(hidden=True)] = None,
    plot: Annotated[Path | None, typer.Option(hidden=True)] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write a machine file for the simulator.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Keep also what was disturbed.")] = False,
    json_file: options.JsonFile = None,
) -> None:
    """Measure this machine, and keep what was found.

    All ranks measure in at most 5 s how fast messages, copies and reductions are. Later jobs on
    this machine choose by it what calls run.

    \b
    Examples:
      mpiexec -n 8 han calibrate
      mpiexec -n 8 han calibrate --out here.yaml
    """
    if files or machine or fit or plot:  # the call of 'han validate' before it was a command
        if not (files and machine) or out or force:
            raise ArgumentError("files are for 'han validate --machine MACHINE FILE...'")
        validate(files, machine, fit, plot, json_file)
    else:
        _calibrate(out, force, json_file)


def _calibrate(out: Path | None, force: bool, json_file: Path | None) -> None:
    """Measure the machine on all ranks; keep, print and write what was found; collective."""
    check_files(out, json_file)
    comm = world()
    meeting = Meeting(comm.Dup(), LIMIT)
    machine = look(comm, None)
    with progress(ROUNDS) as advance:
        found = measure(meeting, shared_with(meeting.comm), advance)
    where = standing_of(found.values.profile)
    problems = found.values.problems
    refused = not found.values.profile.known() or (bool(problems) and not force)
    kept = None if refused else _keep(meeting, found)
    head = heading("calibrate", "what this machine can do", machine)
    lines = partial(_lines, found, where, kept)
    answer(json_file, lambda: "\n".join([head, *lines()]), partial(_record, found, where, kept))
    if refused:
        raise typer.Exit(1)
    if out is not None:
        write_file(out, yaml.safe_dump(_model(found), sort_keys=False))


def standing_of(profile: Profile) -> Standing:
    """Return to which class of machines one with a profile belongs."""
    return standing(NodeTraits(cores=int(profile.cores), rdma=has_rdma(), profile=profile))


def _keep(meeting: Meeting, found: Measured) -> Calibration:
    """Write the calibration on rank 0; raises ArgumentError on all ranks."""
    kept, problem = found.calibration, ""
    try:
        kept = kept if meeting.rank else write(file_of(found.machine), kept)
    except CalibrationError as error:
        problem = str(error)
    problem = meeting.allgather(problem, STEP)[0]
    if problem:
        raise ArgumentError(problem)
    return kept


def _model(found: Measured) -> dict[str, Any]:
    profile, made, nodes = found.values.profile, found.calibration.made, found.nodes
    return machine_with(profile, base_of(profile), len(nodes), len(nodes[0]), made)


def base_of(profile: Profile) -> str:
    """Return the ready machine that is nearest: of several nodes, if messages were measured."""
    every = {name: profile_of(load_machine(name)) for name in ready_machines()}
    alike = {n: one for n, one in every.items() if one.has_network == profile.has_network}
    return min(alike, key=lambda name: profile.distance(alike[name]))


def _record(found: Measured, where: Standing, kept: Calibration | None) -> dict[str, Any]:
    return {
        **found.calibration.document(),
        "spread": {name: round(spread, 3) for name, spread in found.values.spreads.items()},
        "rounds": found.rounds,
        "seconds": round(found.seconds, 3),
        "problems": [*found.values.problems],
        "kept": None if kept is None else kept.source,
        "class": None if where.found is None else where.found.name,
        "nearest": where.machine,
        "distance": where.distance if where.machine else None,
    }


def _lines(found: Measured, where: Standing, kept: Calibration | None) -> Iterator[str]:
    values = found.values
    nearest = dict(where.found.machines)[where.machine] if where.found else UNKNOWN
    rows = [
        [name, f"{value:.4g}", "" if name == "cores" else unit_of(name),
         f"{values.spreads[name]:.2f}" if name in values.spreads else "",
         f"{theirs:.4g}" if (theirs := getattr(nearest, name)) else ""]
        for name, value in values.profile.known().items()
    ]  # fmt: skip
    yield shown_table("", HEADS, rows, left=["unit"])
    yield f"# {plural(found.rounds, 'round')} in {found.seconds:.1f} s"
    yield f"# {told(where)}"
    yield from (f"# {problem}" for problem in values.problems)
    if kept is None:
        yield "# not kept; calibrate again when the machine is idle, or with --force"
    else:
        yield f"# kept in {kept.source}; later jobs use it"


def told(where: Standing) -> str:
    """Return ``class fabric; nearest machine stampede2, values differ 1.38 times (...)``."""
    if where.found is None:
        return "no class of machines is near: the built-in choices decide"
    far = distance_line(where.machine, where.distance, where.shared)
    return f"class {where.found.name}; {far}"
