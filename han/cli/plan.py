"""The command ``han plan``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from han.cli import imagined, options
from han.cli.common import answer, check_files, drawn, rank, write_file
from han.cli.progress import phases
from han.cli.words import call_of
from han.common.errors import ArgumentError, HanError
from han.model.channel_layout import PAGE, SMALL_BANKS
from han.model.program import Program
from han.plots.tasks import plan_picture
from han.submodules.registry import submodule
from han.tasks.files.store import load, to_json
from han.tasks.inspect.listing import disassemble, listing_record
from han.tasks.inspect.pictures import dot, mermaid
from han.tasks.lower import lower
from han.tasks.plan import Plan
from han.tasks.samples import lower_as_run
from han.tasks.verify import Progress, Refuted, Report, Unproved, lower_all, verify, verify_class
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.explanation import Explanation


class Form(str, Enum):
    """How a plan is written."""

    STAGES = "stages"
    DOT = "dot"
    MERMAID = "mermaid"


def plan(
    words: options.Call,
    nodes: options.Nodes = None,
    ppn: options.Ppn = None,
    ranks: options.Ranks = None,
    machine: options.OtherMachine = None,
    oversubscribed: options.Oversubscribed = False,
    mesh: options.Mesh = False,
    cores: options.Cores = 0,
    rdma: options.Rdma = False,
    sockets: options.Sockets = 1,
    op: options.Op = "sum",
    dtype: options.Dtype = "f8",
    root: options.Root = 0,
    config: options.Config = None,
    form: Annotated[Form, typer.Option("--as", help="The format of the task graph.")] = Form.STAGES,
    disassemble: Annotated[
        int | None, typer.Option(min=0, metavar="RANK", help="List the operations of a rank.")
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Prove the programs of all ranks, of this size and of all of "
            "its class, or show a counterexample.",
        ),
    ] = False,
    plot: options.Plot = None,
    save: Annotated[
        Path | None, typer.Option(help="Write graph and programs to a file for 'han verify'.")
    ] = None,
    json_file: options.JsonFile = None,
) -> None:
    """Show what each rank would do for a call, and prove it right.

    \b
    Examples:
      han plan allreduce 1MiB --nodes 4 --ppn 2
      han plan bcast 64KiB --nodes 4 --ppn 2 --disassemble 3
      han plan allreduce 4MiB --nodes 8 --ppn 8 --verify
      han plan bcast 1MiB --nodes 4 --ppn 2 --as dot | dot -Tsvg -o bcast.svg
      han plan allreduce 8MiB --ppn 16 --config four-levels-virtual --plot tasks.png
    """
    check_files(save, json_file, plot=plot)
    call = call_of(words, op, dtype, root)
    traits = NodeTraits(oversubscribed, mesh, cores, rdma)
    shape = imagined.usual(nodes, ppn, ranks, machine, traits, sockets)
    found = imagined.imagine_on(shape, config, call)
    drawn(plot, partial(plan_picture, found.plan))
    if save is not None and not rank():
        write_file(save, stored(found))
    if verify:
        with phases() as progress:
            of_class = imagined.class_of_call(found, config)
            proof = prove(found, of_class, progress)
        answer(json_file, lambda: str(proof), proof.as_dict)
    elif disassemble is not None:
        answer(json_file, *listing(found, disassemble))
    else:
        record = partial(imagined.explanation_record, found)
        answer(json_file, lambda: picture(found, form.value), record)


# ---- texts and proofs ---------------------------------------------------------------------------


RUNS = 3  # calls in a row; up to MOST_RUNS where fewer do not reuse shared memory
MOST_RUNS = SMALL_BANKS + 1


def picture(found: Explanation, form: str) -> str:
    """Return the task graph as text."""
    if form == "dot":
        return dot(found.graph, found.plan.signature.describe())
    return mermaid(found.graph) if form == "mermaid" else str(found)


def listing(
    found: Explanation, rank: int
) -> tuple[Callable[[], str], Callable[[], object]]:  # fmt: skip
    """Return the operations of a rank, to be made as text and as data. Raises ArgumentError."""
    if rank >= found.plan.topology.size:
        last = found.plan.topology.size - 1
        raise ArgumentError(f"--disassemble {rank}: expected a rank in 0..{last}")
    program = lower(found.plan, rank)
    return partial(disassemble, found.plan, program), partial(listing_record, found.plan, program)


def stored(found: Explanation) -> str:
    """Return a plan and all ranks' programs in the format that ``han verify`` reads."""
    geometry = next((g for g in found.plan.geometries if g is not None), None)
    return to_json(found.plan, geometry.memory if geometry else 0)


@dataclass(frozen=True)
class ClassProof:
    """What is proved of all sizes of a class: more than `above` bytes, up to `largest`.

    `why` says why nothing is; then `events` is 0. So many ranks' programs are `sampled`: made from
    those of two smaller messages.
    """

    above: int
    largest: int
    events: int
    why: str = ""
    sampled: int = 0

    def __str__(self) -> str:
        sizes = f"all sizes of its class, above {self.above} and up to {self.largest} bytes"
        if self.why:
            return f"not proved for {sizes}: {self.why}"
        return f"proved for {sizes} ({self.events} events)"

    @property
    def programs(self) -> str:
        """What these proofs are about."""
        if not self.sampled:
            return "the programs are those that run"
        return f"the programs are those that run; {self.sampled} are made from smaller messages"


@dataclass(frozen=True)
class Proof:
    """A proof and its duration; `in_place`: it also holds with MPI.IN_PLACE.

    `of_class` is None for a call whose plan serves no other size, and for a plan in a file.
    """

    report: Report
    in_place: bool
    seconds: float
    of_class: ClassProof | None = None

    def __str__(self) -> str:
        also = "; also with MPI.IN_PLACE" if self.in_place else ""
        more = f"\n{self.of_class}\n{self.of_class.programs}" if self.of_class else ""
        return f"{self.report}{also}{more}\n  in {self.seconds:.1f} s"

    def as_dict(self) -> dict[str, object]:
        """Return the proof as plain data."""
        record = asdict(self.report)
        del record["apart"]
        of_class = asdict(self.of_class) if self.of_class else None
        return {
            **record, "in_place": self.in_place, "class": of_class, "seconds": self.seconds,
        }  # fmt: skip


def prove(
    found: Explanation, of_class: tuple[Plan, int] | None, progress: Progress | None = None
) -> Proof:
    """Prove a few calls in a row, and a plan for all sizes of their class (see `class_of_call`).

    The programs are those that run: those of the class, of the call's size.
    """
    if of_class is None:
        return _prove(found.plan, None, progress)
    plan, above = of_class
    start, nbytes = time.perf_counter(), found.plan.signature.nbytes
    made = [lower_as_run(plan, rank) for rank in range(plan.topology.size)]
    programs, sampled = [one for one, _ in made], sum(of_samples for _, of_samples in made)
    of_size = plan.of_size(nbytes)
    proof = _prove(of_size, [[one.at(nbytes) for one in programs]] * runs_of(of_size), progress)
    proved = replace(_prove_class(plan, above, programs, progress), sampled=sampled)
    return replace(proof, of_class=proved, seconds=time.perf_counter() - start)


def _prove_class(
    plan: Plan, above: int, programs: Sequence[Program], progress: Progress | None
) -> ClassProof:
    """Prove a plan for all sizes of a class. Raises HanError with the counterexample."""
    proved = partial(verify_class, plan, programs=programs, progress=progress)
    try:
        report = _both_ways(proved, plan)
    except Unproved as unproved:
        return ClassProof(above, plan.signature.nbytes, 0, str(unproved))
    return ClassProof(above, plan.signature.nbytes, report.events)


def prove_file(path: Path, progress: Progress | None = None) -> Proof:
    """Prove the plan in a file."""
    plan, programs = load(path, submodule)
    return _prove(plan, [programs] * runs_of(plan), progress)


def runs_of(plan: Plan) -> int:
    """Return how many runs to prove: enough to reuse shared memory, if MOST_RUNS suffice."""
    rings = [g.ring for g in plan.geometries if g is not None]
    wraps = [
        ring // taken + 2 for ring, taken in zip(rings, plan.footprint(), strict=True) if taken
    ]
    small = MOST_RUNS if plan.signature.nbytes <= PAGE else RUNS
    return max([small, *(n for n in wraps if n <= MOST_RUNS)])


def _prove(
    plan: Plan, programs: Sequence[Sequence[Program]] | None, progress: Progress | None
) -> Proof:
    """Prove a plan with separate and in-place buffers. Raises HanError with the counterexample."""
    plans, start = [plan] * runs_of(plan), time.perf_counter()
    programs = programs or lower_all(plans, progress)
    report = _both_ways(partial(verify, plans, programs=programs, progress=progress), plan)
    return Proof(report, plan.signature.reduces, time.perf_counter() - start)


def _both_ways(proved: Callable[..., Report], plan: Plan) -> Report:
    """Prove a plan with in-place and with separate buffers. Raises HanError if it is refuted."""
    try:
        report = proved(in_place=plan.signature.reduces)
        return report if report.apart else proved()  # a counterexample, or a proof of its own
    except Unproved:
        raise
    except Refuted as refuted:
        raise HanError(f"refuted: {refuted}") from None
