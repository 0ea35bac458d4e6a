"""Plans as files: versioned JSON, which any machine can read and verify."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from han.common.errors import ConfigError, HanError
from han.common.json_files import Format
from han.model.program import INSTRUCTION, Code, Program, StreamInfo
from han.model.topology import Topology
from han.tasks.choice import Choice, LevelChoice
from han.tasks.contract import Submodule
from han.tasks.files.store_checks import (
    check_counts,
    check_message,
    check_segments,
    check_topology,
    problems,
)
from han.tasks.lower import lower
from han.tasks.plan import Plan, make_plan
from han.tasks.signature import Signature

FORMAT, VERSION = "han-plan", 4
Resolve = Callable[[str], Submodule]  # finds a submodule by its name; raises LookupError
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]
Short = Annotated[int, Field(ge=0, lt=1 << 16)]  # the fields of han.model.program.INSTRUCTION
Index = Annotated[int, Field(ge=0, lt=1 << 32)]
Peer = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
Size = Annotated[int, Field(ge=0, lt=1 << 48)]  # bytes, or elements
Word = Annotated[int, Field(ge=0, lt=1 << 64)]
Bases = Annotated[tuple[Short, ...], Field(min_length=4, max_length=4)]
Offsets = Annotated[tuple[Word, ...], Field(min_length=4, max_length=4)]


class PlanFileError(HanError, ValueError):
    """A plan's file cannot be used: names the file, the place in it and what is wrong."""


_FORMAT = Format(FORMAT, VERSION, "plan", "write", PlanFileError)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Topology(_Model):
    names: tuple[str, ...]
    symbols: tuple[str, ...]
    domains: tuple[tuple[Natural, ...], ...]
    memory: tuple[Natural, ...]
    homes: tuple[tuple[Natural, ...], ...]
    attach: bool
    sockets: tuple[Natural, ...] = ()
    rails: tuple[Natural, ...] = ()


class _Signature(_Model):
    collective: str
    count: Size
    element: Annotated[int, Field(gt=0, lt=1 << 32)]
    op: str
    dtype: str
    commutative: bool
    native: bool
    root: Natural
    mapped: bool
    counts: tuple[Natural, ...] = ()
    in_place: bool = False
    device: bool = False
    canonical: bool = False


class _Level(_Model):
    submodule: str
    algorithm: str
    parameters: tuple[tuple[str, int | bool | str | tuple[int, ...]], ...]
    kinds: tuple[tuple[str, _Level], ...] = ()


class _Choice(_Model):
    levels: tuple[_Level, ...]
    segment: Positive | None
    schedule: Literal["dataflow", "lockstep"]
    composition: str
    rule: str


class _Stream(_Model):
    name: str
    kind: str
    level: Natural
    start: Natural
    stop: Natural


class _Program(_Model):
    """Operations are rows: code, stream, peer, four bases, four offsets, n, slot, task."""

    rank: Natural
    code: tuple[tuple[str, Short, Peer, Bases, Offsets, Word, Index, Index], ...]
    streams: tuple[_Stream, ...]
    tasks: tuple[str, ...]
    requests: Natural
    scratch: Size
    operand: Size
    footprint: tuple[Natural, ...]
    writes: tuple[Natural, ...]
    sync: bool
    comms: tuple[tuple[Natural, tuple[Natural, ...]], ...]


class _File(_Model):
    format: Literal["han-plan"]
    version: int
    memory: Size
    topology: _Topology
    signature: _Signature
    choice: _Choice
    tasks: tuple[str, ...]
    edges: tuple[tuple[str, str, str], ...]
    programs: tuple[_Program, ...]


def to_json(plan: Plan, memory: int) -> str:
    """Return a plan for one size, its graph and all ranks' programs as JSON.

    `memory` is that of make_plan.
    """
    record = {
        "format": FORMAT,
        "version": VERSION,
        "memory": memory,
        "topology": asdict(plan.topology),
        "signature": {k: getattr(plan.signature, k) for k in _Signature.model_fields},
        "choice": asdict(plan.choice),
        **_graph(plan),
        "programs": [_program(lower(plan, r)) for r in range(plan.topology.size)],
    }
    return json.dumps(record, default=int)


def _graph(plan: Plan) -> dict[str, Any]:
    place = {task: k for k, task in enumerate(plan.tasks)}
    links = sorted(plan.tasks.links, key=lambda link: place[link.first])
    return {
        "tasks": [str(t) for t in plan.tasks],
        "edges": [(str(a), str(b), why) for a, b, why in links],
    }


def _program(program: Program) -> dict[str, Any]:
    columns = [program.code[name].tolist() for name in INSTRUCTION.names or ()]
    rows = [(Code(code).name, *rest) for code, *rest in zip(*columns, strict=True)]
    return {
        **{k: getattr(program, k) for k in _Program.model_fields},
        "tasks": list(program.tasks),
        "code": rows,
        "streams": [asdict(s) for s in program.streams],
    }


def load(path: Path, resolve: Resolve) -> tuple[Plan, list[Program]]:
    """Read a plan and its programs; `resolve` finds a submodule by its name.

    Raises PlanFileError if the file holds no plan, a plan of another version, or parts that do not
    fit each other. ``verify`` examines whether the programs are right.
    """
    return from_json(_FORMAT.read(path), resolve, str(path))


def from_json(text: str, resolve: Resolve, name: str = "plan") -> tuple[Plan, list[Program]]:
    """Read what :func:`to_json` wrote; `name` stands for the file in errors."""
    record = _FORMAT.validate(_File, text, name)
    try:
        plan = _plan(record, resolve)
        programs = [_read_program(p) for p in record.programs]
        plan.footprint()
    except (ValueError, TypeError, LookupError, ArithmeticError, AssertionError) as error:
        raise PlanFileError(f"{name}: its parts make no plan: {error}") from None
    _check(plan, programs, record, name)
    return plan, programs


def _plan(record: _File, resolve: Resolve) -> Plan:
    topology = Topology(**record.topology.model_dump())
    signature = Signature(**record.signature.model_dump())
    choice = record.choice.model_dump()
    levels = tuple(map(_level, choice.pop("levels")))
    parts = tuple(resolve(level.submodule) for level in levels)
    for level, part in zip(levels, parts, strict=True):
        for one in level.each:
            if one.submodule != level.submodule or one.algorithm not in part.algorithms:
                raise ConfigError(
                    f"submodule {level.submodule!r} has no algorithm {one.algorithm!r}"
                )
    check_topology(topology, len(levels))
    check_counts(signature, topology.size)
    if topology.size > 1:
        moved = sum(n for p in record.programs for *_, n, _, _ in p.code)
        check_message(signature, moved)
    check_segments(signature, choice["segment"], len(record.tasks), topology.size)
    return make_plan(topology, signature, Choice(levels, **choice), record.memory, parts)


def _level(record: dict[str, Any]) -> LevelChoice:
    kinds = tuple((kind, _level(own)) for kind, own in record.pop("kinds"))
    return LevelChoice(**record, kinds=kinds)


def _read_program(p: _Program) -> Program:
    rows = [(Code[code], *rest) for code, *rest in p.code]
    fields = {k: getattr(p, k) for k in _Program.model_fields}
    fields["code"] = np.array(rows, INSTRUCTION)
    fields["streams"] = tuple(StreamInfo(**s.model_dump()) for s in p.streams)
    return Program(**fields)


def _check(plan: Plan, programs: list[Program], record: _File, name: str) -> None:
    if [p.rank for p in programs] != list(range(plan.topology.size)):
        raise PlanFileError(
            f"{name}: programs: they are of ranks {[p.rank for p in programs]}, expected one for "
            f"each of {plan.topology.size} ranks"
        )
    made = _graph(plan)
    if list(record.tasks) != made["tasks"] or list(record.edges) != made["edges"]:
        raise PlanFileError(
            f"{name}: tasks, edges: not the graph that this han makes for this call and choice; "
            "the file was edited, or written by another version of han"
        )
    for program in programs:
        bounds = [(s.start, s.stop) for s in program.streams]
        expected = [0, *(stop for _, stop in bounds)]
        if expected != [*(start for start, _ in bounds), len(program.code)]:
            raise PlanFileError(
                f"{name}: programs.{program.rank}.streams: {bounds} do not divide "
                f"{len(program.code)} operations"
            )
    for text in problems(plan, programs):
        raise PlanFileError(f"{name}: {text}")
