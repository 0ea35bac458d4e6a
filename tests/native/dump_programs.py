"""Write the programs of all ranks of several machines into one file, for test_executor.c.

    python dump_programs.py FILE

This runs the planner only, without MPI. The file holds little-endian 64-bit numbers, names of 64
bytes, and operations. ``programs.c`` reads them in the order in which they are written here.
"""

import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import BinaryIO

import mpi4py

mpi4py.rc.initialize = False
mpi4py.rc.finalize = False

from han.model import loops  # noqa: E402
from han.model.channel_layout import MAX_CHANNELS, Geometry  # noqa: E402
from han.model.collectives import BY_BLOCKS, REDUCING, ROOTED, ROWS  # noqa: E402
from han.model.loops import STRIDES, roll  # noqa: E402
from han.model.program import Program  # noqa: E402
from han.model.topology import Topology, virtual  # noqa: E402
from han.submodules.registry import plan_of_choice  # noqa: E402
from han.tasks.choice import Choice, LevelChoice, level_choice  # noqa: E402
from han.tasks.lower import lower  # noqa: E402
from han.tasks.outline import geometries  # noqa: E402
from han.tasks.signature import Signature  # noqa: E402
from han.tasks.size_classes import bound_of, bounds_of, class_of  # noqa: E402

MAGIC = 0x31474F5250
MEMORY = 64 * 1024  # small channels, so that runs reuse the rings often
COLLECTIVES = {name: int(row.code) for name, row in ROWS.items()}  # enum han_coll
OPS = {"": 0, "sum": 0, "max": 2}  # enum han_op
DTYPES = {"": 4, "int64": 4, "float64": 11}  # enum han_dtype
loops.LEAST = 32  # every other rank's programs have loops, if they have so many records
SMALL, MEDIUM, LARGE = 1, 450, 20011  # elements of 8 bytes, for a line, a page, several rings


@dataclass(frozen=True)
class Case:
    """A call and its choice; the executor's test may run reductions in place.

    With `sized`, the program is that of the call's class of sizes. If it is `varied`, each run
    draws the sizes of its blocks, up to that of the signature.
    """

    signature: Signature
    choice: Choice
    sized: bool = False
    varied: bool = False

    @property
    def name(self) -> str:
        levels = " + ".join(level.describe() for level in self.choice.levels)
        kind = "varied " if self.varied else "class of " if self.sized else ""
        return f"{kind}{self.signature.describe()}: {levels}"

    @property
    def planned(self) -> Signature:
        """The signature of which the program is made."""
        bound = bound_of(self.signature, bounds_of()) if self.sized else 0
        one = replace(self.signature, varied=self.varied)
        return class_of(one, bound) if bound else self.signature


@dataclass(frozen=True)
class World:
    """A machine, and the calls that run on it."""

    name: str
    topology: Topology
    cases: tuple[Case, ...]


# ---- calls ------------------------------------------------------------------------------------


def call(collective: str, count: int = 0, root: int = 0, op: str = "sum") -> Signature:
    """Return a signature; sums are of float64, maxima of int64."""
    if collective == "barrier":
        return Signature("barrier")
    if collective not in REDUCING:
        return Signature(collective, 8 * count, root=root)
    dtype = "float64" if op == "sum" else "int64"
    return Signature(collective, count, 8, op, dtype, root=root)


def everything(ranks: int, counts: tuple[int, ...]) -> Iterator[Signature]:
    """Yield every collective in several sizes, with the first and the last rank as roots."""
    yield call("barrier")
    for count, op in product(counts, ("sum", "max")):
        yield call("allreduce", count, op=op)
    for collective, count, root in product(("bcast", "reduce"), counts, (0, ranks - 1)):
        yield call(collective, count, root)


def shared_cases(ranks: int, levels: int = 1) -> Iterator[Case]:
    """Yield calls in shared memory: each tree of ``sm``, and ``solo``, in parts of many sizes."""

    def choice(part: LevelChoice, segment: int | None, schedule: str = "dataflow") -> Choice:
        return Choice((part,) * levels, segment, schedule)

    counts = (0, SMALL, MEDIUM, LARGE)
    trees = [("flat", 4), ("kary", 2), ("knomial", 2), ("knomial", 3)]
    for (tree, radix), signature in product(trees, everything(ranks, counts)):
        yield Case(signature, choice(level_choice("sm", tree, radix=radix), None))
    for chunk, cells, segment in ((512, 2, 24_000), (4096, 3, 4096), (8192, 8, 100_000)):
        part = level_choice("sm", "knomial", radix=2, chunk=chunk, cells=cells)
        for signature in everything(ranks, (MEDIUM, LARGE)):
            yield Case(signature, choice(part, segment))
    for tree, schedule in product(("flat", "knomial"), ("dataflow", "lockstep")):
        for signature in everything(ranks, (MEDIUM,)):  # a message of one page, in segments
            yield Case(signature, choice(level_choice("sm", tree), 1000, schedule))
    part = level_choice("sm", "flat", inline=0, chunk=4096)
    for signature in everything(ranks, (SMALL, LARGE)):
        yield Case(signature, choice(part, 30_000, "lockstep"))
    for segment, schedule in ((None, "dataflow"), (30_000, "dataflow"), (30_000, "lockstep")):
        part = level_choice("solo", "pull", chunk=8192, block=1000)
        for signature in everything(ranks, (0, SMALL, LARGE)):
            yield Case(signature, choice(part, segment, schedule))
    part = level_choice("solo", "pull", chunk=8192, block=1000)
    for signature in everything(ranks, (SMALL, LARGE)):
        yield Case(replace(signature, mapped=True), choice(part, None))
    for signature in (call("bcast", n, root=ranks - 1) for n in (0, SMALL, LARGE)):
        yield Case(signature, choice(level_choice("solo", "meet", chunk=8192), None))
    if levels == 1:
        yield from fused_cases(choice)
        yield from block_cases(ranks, choice)


def fused_cases(choice) -> Iterator[Case]:
    """Yield allreduces that are one task on each level: those of ``sm``, ``solo``, ``exchange``."""
    yield Case(call("barrier"), choice(level_choice("sm", "direct"), None))
    for count, op in product((0, SMALL, 7, MEDIUM), ("sum", "max")):
        yield Case(call("allreduce", count, op=op), choice(level_choice("sm", "direct"), None))
    parts = [
        level_choice("sm", "split"),
        level_choice("sm", "split", chunk=1024),
        level_choice("solo", "split", chunk=10_000, block=1000),
    ]
    parts += [
        level_choice("exchange", "cyclic", chunk=1024, factors=(-5, 5)),
        level_choice("exchange", "copyin", chunk=1024, factors=(5,)),
    ]
    parts += [level_choice("exchange", name, chunk=4096) for name in ("recursive", "tree")]
    for part, count, segment in product(parts, (SMALL, MEDIUM, LARGE), (None, 17_000)):
        yield Case(call("allreduce", count), choice(part, segment))
        mapped = replace(call("allreduce", count), mapped=True)
        yield Case(mapped, choice(part, segment))


def block_cases(ranks: int, choice) -> Iterator[Case]:
    """Yield calls that move blocks; all blocks together have the bytes of one message."""
    parts = [
        level_choice("sm", "blocks"),
        level_choice("sm", "blocks", chunk=512, cells=2),
        level_choice("sm", "blocks", chunk=2048, cells=8),
        level_choice("solo", "blocks", chunk=8192, block=1000),
    ]
    counts = (0, SMALL, MEDIUM // ranks, LARGE // ranks)
    for part, collective, count in product(parts, BY_BLOCKS, counts):
        for root in (0, ranks - 1) if collective in ROOTED else (0,):
            yield Case(call(collective, count, root), choice(part, None))
    for collective, count in product(BY_BLOCKS, counts[1:]):
        yield Case(replace(call(collective, count), mapped=True), choice(parts[-1], None))
    for collective, schedule in product(BY_BLOCKS, ("dataflow", "lockstep")):
        yield Case(call(collective, LARGE // ranks), choice(parts[1], 10_000, schedule))


def message_cases(ranks: int) -> Iterator[Case]:
    """Yield calls through cells inside nodes and messages between them."""
    inner = level_choice("sm", "knomial", radix=2, chunk=2048, cells=3)
    outer = [
        level_choice("adapt", "chain", segment=2048, window=2),
        level_choice("adapt", "chain", radix=2, segment=10_000),
        level_choice("adapt", "binomial", segment=4096, window=3),
        level_choice("adapt", "binary", segment=1 << 20),
        level_choice("adapt", "linear", segment=8192, window=1),
    ]
    for part, signature in product(outer, everything(ranks, (0, SMALL, LARGE))):
        yield Case(signature, Choice((inner, part), 20_000))
    for signature in everything(ranks, (MEDIUM, LARGE)):
        yield Case(signature, Choice((inner, outer[2]), 50_000, "lockstep"))
    doubling = level_choice("exchange", "recursive_doubling")
    yield Case(call("barrier"), Choice((inner, doubling), None))
    for name, count in product(("recursive", "cyclic", "ring"), (0, SMALL, LARGE)):
        exchange = level_choice("exchange", name, segment=4096)
        yield Case(call("allreduce", count), Choice((inner, exchange), 30_000))
    for signature in everything(ranks, (0, SMALL, LARGE)):
        scatter = level_choice("exchange", "scatter", segment=4096)
        yield Case(signature, Choice((inner, scatter), 30_000))
    for count, op, segment in product((0, SMALL, MEDIUM, LARGE), ("sum", "max"), (None, 30_000)):
        yield Case(call("allreduce", count, op=op), Choice((inner, doubling), segment))


def every_size(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """Return the calls as parts of their classes; some of them are near the lower bound."""
    smaller = {MEDIUM: 390, LARGE: 16_411}
    counts = {case: smaller.get(case.signature.count, case.signature.count) for case in cases}
    return tuple(
        replace(case, signature=replace(case.signature, count=count), sized=True)
        for case, count in counts.items()
    )


def with_uneven_blocks(cases: tuple[Case, ...]) -> Iterator[Case]:
    """Yield the calls whose blocks may differ in size, for blocks of all sizes."""
    for case in cases:
        if ROWS[case.signature.collective].uneven and case.planned.grains:
            yield replace(case, varied=True)


# ---- machines ---------------------------------------------------------------------------------


def nodes(*domains: int) -> Topology:
    """Return a topology of nodes, by the node of each rank; only ranks of a node share memory."""
    return Topology(("node", "network"), ("s", "i"), (domains, (0,) * len(domains)), domains)


def worlds() -> Iterator[World]:
    """Yield all machines with their calls."""
    for n in (2, 3, 5):
        cases = tuple(shared_cases(n))
        yield World(f"{n} ranks on one node", virtual(n), cases)
        sized = every_size(cases)
        yield World(f"{n} ranks, classes of sizes", virtual(n), sized)
        uneven = tuple(with_uneven_blocks(sized))
        yield World(f"{n} ranks, blocks that differ", virtual(n), uneven)
    cases = tuple(shared_cases(4, levels=2))
    yield World("2 sockets of 2 ranks", virtual(4, 2), cases)
    for domains in ((0, 0, 1, 1), (0, 1, 0, 2, 1), (0, 1, 2)):
        name = f"{len(domains)} ranks on nodes {domains}"
        yield World(name, nodes(*domains), tuple(message_cases(len(domains))))


# ---- the file ---------------------------------------------------------------------------------


def put(file: BinaryIO, *numbers: int) -> None:
    """Write 64-bit numbers."""
    file.write(struct.pack(f"<{len(numbers)}Q", *numbers))


def put_name(file: BinaryIO, name: str) -> None:
    """Write a name in 64 bytes, cut or padded with zeros."""
    file.write(name.encode("ascii")[:63].ljust(64, b"\0"))


def put_program(file: BinaryIO, program: Program) -> None:
    """Write one rank's program."""
    put(file, program.requests, program.scratch, int(program.sync))
    for numbers in (program.footprint, program.writes):
        put(file, *[*numbers, *[0] * MAX_CHANNELS][:MAX_CHANNELS])
    put(file, len(program.streams))
    for stream in program.streams:
        put(file, stream.start, stream.stop)
    put(file, len(program.code))
    file.write(program.code.tobytes())
    put(file, program.grains, program.grain, program.blocks)
    if program.terms is not None:
        file.write(program.terms.tobytes())
    strides = b"" if program.strides is None else program.strides.tobytes()
    put(file, len(strides) // STRIDES.itemsize)
    file.write(strides)


def put_case(file: BinaryIO, topology: Topology, case: Case) -> None:
    """Write a call and the programs of all ranks."""
    signature = case.signature
    put_name(file, case.name)
    put(file, COLLECTIVES[signature.collective], OPS[signature.op], DTYPES[signature.dtype])
    put(file, signature.nbytes, signature.root)
    plan = plan_of_choice(topology, case.planned, case.choice, MEMORY)
    for rank in range(topology.size):
        program = lower(plan, rank)
        put_program(file, roll(program) if rank % 2 else program)


def put_channels(file: BinaryIO, topology: Topology) -> None:
    """Write each rank's channels: the first rank, the size, the rank's slot and the offsets."""
    present = [
        (level, geometry)
        for level, geometry in enumerate(geometries(topology, MEMORY))
        if geometry is not None
    ]
    put(file, len(present))
    for (level, largest), rank in product(present, range(topology.size)):
        ranks = topology.home(level, rank)
        g = Geometry(len(ranks), largest.ring * len(ranks))
        put(file, ranks[0], len(ranks), ranks.index(rank), g.size)
        put(file, g.flags, g.small, g.cells, g.small_bank, g.ring)


def main(path: str) -> None:
    """Write the file: every machine with its channels, calls and programs."""
    with Path(path).open("wb") as file:
        machines = list(worlds())
        put(file, MAGIC, len(machines))
        for world in machines:
            put_name(file, world.name)
            put(file, world.topology.size)
            put_channels(file, world.topology)
            put(file, len(world.cases))
            for case in world.cases:
                put_case(file, world.topology, case)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: dump_programs.py FILE")
    main(sys.argv[1])
