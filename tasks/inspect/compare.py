"""The comparison of two plans: their choices, and figures of their Programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import reduce
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from han.common.units import format_size, plural
from han.model.program import Code, Program, bytes_moved
from han.tasks.graph import summarise
from han.tasks.inspect.traffic import Traffic
from han.tasks.plan import Plan

BYTES = ("copied", "reduced", "library", "scratch", "cells")  # fields of Work in bytes


# ---- figures ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """The work of one rank in a call, or of all ranks; sizes in bytes.

    `copied` and `reduced` are the bytes that Traffic counts as copied and combined. `messages` and
    their bytes `sent` are by level, and count at the sender. `library` is the bytes in collectives
    of the MPI library, `cells` the bytes of the rings.
    """

    operations: Mapping[str, int]
    messages: Mapping[str, int]
    sent: Mapping[str, int]
    copied: int
    reduced: int
    library: int
    requests: int
    scratch: int
    cells: int

    def __add__(self, other: Work) -> Work:
        ours, theirs = vars(self), vars(other)
        return Work(**{f.name: _sum(ours[f.name], theirs[f.name]) for f in fields(self)})

    @property
    def handled(self) -> int:
        """Bytes that the rank copies, combines, sends or passes to collectives of MPI."""
        return self.copied + self.reduced + self.library + sum(self.sent.values())


@dataclass(frozen=True)
class Figures:
    """A plan in numbers: its graph, the work of all ranks, and that of the busiest rank."""

    segments: int
    tasks: int
    stages: tuple[str, ...]
    total: Work
    busiest_rank: int
    busiest: Work


def figures(plan: Plan, programs: Sequence[Program]) -> Figures:
    """Count what the ranks' programs do; of equally busy ranks the lowest is taken."""
    works = [work(plan, program) for program in programs]
    busiest = max(range(len(works)), key=lambda r: (works[r].handled, -r))
    return Figures(
        segments=plan.segments,
        tasks=len(plan.tasks),
        stages=tuple(plan.tasks.stage_names()),
        total=reduce(Work.__add__, works),
        busiest_rank=programs[busiest].rank,
        busiest=works[busiest],
    )


def work(plan: Plan, program: Program) -> Work:
    """Count what one rank's program does."""
    code, element = program.code, plan.signature.element
    moved = Traffic.of(program, element)
    sends = {plan.topology.names[s.level]: Counter[str]() for s in program.streams}
    for stream in program.streams:
        rows = code[stream.start : stream.stop]
        found = rows["n"][rows["code"] == Code.ISEND]
        sends[plan.topology.names[stream.level]] += Counter(
            count=found.size, bytes=int(found.sum())
        )
    return Work(
        operations={Code(c).name: int(k) for c, k in zip(*_counts(code["code"]), strict=True)},
        messages={name: sent["count"] for name, sent in sends.items() if sent["count"]},
        sent={name: sent["bytes"] for name, sent in sends.items() if sent["count"]},
        copied=moved.copied,
        reduced=moved.combined,
        library=int(bytes_moved(code, element)[code["code"] == Code.COLL].sum()),
        requests=program.requests,
        scratch=program.scratch,
        cells=sum(program.footprint),
    )


def _counts(codes: npt.NDArray[np.uint16]) -> tuple[list[int], list[int]]:
    values, counts = np.unique(codes, return_counts=True)
    return values.tolist(), counts.tolist()


def _sum(a: Any, b: Any) -> Any:
    if not isinstance(a, Mapping):
        return a + b
    return {key: a.get(key, 0) + b.get(key, 0) for key in dict.fromkeys([*a, *b])}


# ---- side by side -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """One of the two plans: its name, the plan and its figures."""

    name: str
    plan: Plan
    figures: Figures

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        topology, choice = self.plan.topology, asdict(replace(self.plan.choice, levels=()))
        levels = self.plan.choice.levels
        return {
            "name": self.name,
            "call": asdict(self.plan.signature),
            "topology": {"ranks": topology.size, "nodes": topology.nodes, "ppn": topology.ppn},
            "choice": choice | {
                "levels": {
                    name: level.record() for name, level in zip(topology.names, levels, strict=True)
                }
            },
            "figures": asdict(self.figures),
        }  # fmt: skip


def side(name: str, plan: Plan, programs: Sequence[Program]) -> Side:
    """Make a side of a comparison."""
    return Side(name, plan, figures(plan, programs))


@dataclass(frozen=True)
class Row:
    """One property of both sides as text; the title of a section has no values."""

    label: str
    first: str = ""
    second: str = ""

    @property
    def differs(self) -> bool:
        """Whether the sides differ in it."""
        return self.first != self.second


NOTHING = "-"


def rows(first: Side, second: Side) -> list[Row]:
    """Return the properties of both sides, one row for each."""
    found: list[Row] = []
    for (title, ours), (_, theirs) in zip_longest(_sections(first), _sections(second)):
        found.append(Row(title))
        found += [
            Row(f"  {label}", ours.get(label, NOTHING), theirs.get(label, NOTHING))
            for label in _merged(list(ours), list(theirs))
        ]
    return found


def _merged(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    """Merge labels; one that only `theirs` has goes behind its predecessor there."""
    labels = list(ours)
    for k, label in enumerate(theirs):
        if label not in labels:
            before = labels.index(theirs[k - 1]) + 1 if k else 0
            labels.insert(before, label)
    return labels


def _sections(one: Side) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the title and the properties of each section; all sides have the same titles."""
    plan, found = one.plan, one.figures
    yield (
        "call",
        {
            "call": plan.signature.describe(),
            "machine": plan.topology.describe(),
            "levels": " < ".join(plan.topology.names),
        },
    )
    yield "choice", _choice(plan)
    yield (
        "tasks",
        {
            "segments": str(found.segments),
            "tasks": str(found.tasks),
            "stages": f"{len(found.stages)}: {summarise(found.stages)}" if found.stages else "0",
        },
    )
    yield "all ranks together", _work(found.total)
    yield "the busiest rank", {"rank": str(found.busiest_rank), **_work(found.busiest)}


def _choice(plan: Plan) -> dict[str, str]:
    choice = plan.choice
    shown = {
        "rule": choice.rule,
        "composition": choice.composition,
        "segment": "whole" if choice.segment is None else format_size(choice.segment),
        "schedule": choice.schedule,
    }
    for k in plan.topology.active:
        name, level = plan.topology.names[k], choice.levels[k]
        shown[name] = f"{level.submodule} {level.algorithm}"
        shown |= {f"{name}: {key}": text for key, text in level.spelled().items()}
        for kind, own in level.kinds:
            shown[f"{name}: {kind}"] = own.algorithm
            shown |= {f"{name}: {kind} {key}": text for key, text in own.spelled().items()}
    return shown


def _work(done: Work) -> dict[str, str]:
    shown = {"operations": str(sum(done.operations.values()))}
    shown |= {f"operations: {code.name}": str(done.operations[code.name])
              for code in Code if code.name in done.operations}  # fmt: skip
    for level, count in done.messages.items():
        sent = format_size(done.sent[level])
        shown[f"sent @ {level}"] = f"{plural(count, 'message')}, {sent}"
    about = {"library": "in MPI's collectives"}
    shown |= {about.get(name, name): format_size(getattr(done, name)) for name in BYTES}
    return shown | {"requests": str(done.requests)}


def remarks(first: Side, second: Side) -> Iterator[str]:
    """Yield remarks that a reader needs to compare the numbers."""
    if first.plan.signature != second.plan.signature:
        yield "the calls differ, so that more work need not mean a worse plan"
    if first.plan.topology != second.plan.topology:
        yield "the topologies differ: numbers of all ranks are of different machines"
    if not any(row.differs for row in rows(first, second)):
        yield "no difference: both are the same plan"
