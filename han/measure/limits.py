"""Measure collectives against the machine: plain copies and additions of the same bytes.

A collective inside a node is bounded by how fast its ranks can copy and combine the bytes that its
Programs move. In the same run and in turns with han's calls, every rank does just that, all at the
same time and without waiting for each other: each kind of work as one large copy or addition, by
whatever of NumPy and han's kernels is the quickest. What is read from a peer's shared array is read
from one here too; all else moves between arrays of the rank's own.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from han import _native
from han.comm import Comm
from han.common.errors import ArgumentError
from han.measure.bench import Bench
from han.measure.bench_calls import Array, Buffers, Call, Case, Mode, measurable, prepare
from han.memory.arena import sharing
from han.model.channel_layout import LINE
from han.model.collectives import DATALESS
from han.model.element_types import kernel
from han.model.measurements import Times
from han.model.opcodes import COMBINATIONS, COPIES
from han.model.program import PEER, Code, PeerBase, Program
from han.tasks.lower import lower

COLLECTIVES = tuple(name for name in measurable() if name not in DATALESS)
USUAL = ("allreduce", "bcast", "reduce", "allgather")
MODES = {True: Mode.PERSISTENT, False: Mode.BLOCKING}  # of calls on shared and ordinary arrays
DTYPE, OP = "float64", "sum"
ADD = kernel(OP, DTYPE)
OWN = -1  # where a piece is read that no peer's array has


@dataclass(frozen=True)
class Piece:
    """Bytes that a rank copies, or combines, from its own memory or from the array of `peer`."""

    combines: bool
    peer: int
    nbytes: int


@dataclass(frozen=True)
class Limit:
    """A collective beside plain copies; `moved` are bytes that all ranks copy and combine."""

    collective: str
    nbytes: int
    shared: bool
    moved: int
    han: Times
    ways: Mapping[str, Times]  # of plain copies, by name

    @property
    def by(self) -> str:
        """The quickest way."""
        return min(self.ways, key=lambda name: self.ways[name].median)

    @property
    def plain(self) -> Times:
        """What the quickest way takes."""
        return self.ways[self.by]

    @property
    def share(self) -> float:
        """How much of the plain copies' speed han reaches."""
        return self.plain.median / self.han.median

    def rate(self, times: Times) -> float:
        """GB/s of what is moved."""
        return self.moved / times.median / 1e3

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        rates = {"han_gbs": self.rate(self.han), "plain_gbs": self.rate(self.plain)}
        return {**asdict(self), **rates, "by": self.by, "share": self.share}


def pieces_of(program: Program, element: int, ranks: Sequence[Sequence[int]]) -> list[Piece]:
    """Add up what a rank copies and combines; `ranks` are those of each channel."""
    found: Counter[tuple[bool, int]] = Counter()
    for row in program.code:
        code, n = int(row["code"]), int(row["n"])
        if code in COPIES:
            found[False, _source(row["base"][1:2], ranks)] += n
        elif code in COMBINATIONS:
            found[True, _source(row["base"][1:3], ranks)] += n * element
        if code == Code.REDUCE2:
            found[False, OWN] += n * element
    return [Piece(*key, nbytes) for key, nbytes in sorted(found.items()) if nbytes]


def _source(bases: Any, ranks: Sequence[Sequence[int]]) -> int:
    """Say which peer's array an operand is in, or OWN."""
    peers = [PeerBase.of(int(base)) for base in bases if base >= PEER]
    return ranks[peers[0].channel][peers[0].slot] if peers else OWN


class Plain:
    """A rank's arrays for plain copies of what it moves in a call. Making one is collective."""

    def __init__(self, comm: Comm, pieces: Sequence[Piece], shared: bool) -> None:
        self.pieces = pieces
        mine = sum(-(-piece.nbytes // LINE) * LINE for piece in pieces)
        room = comm.allreduce(mine, MPI.MAX)
        with sharing() if shared else nullcontext():
            self.out, self.a, self.b = (np.ones(room, np.uint8) for _ in range(3))
        self.peers = self._peers(comm, {p.peer for p in pieces} - {OWN}) if shared else {}

    def _peers(self, comm: Comm, wanted: set[int]) -> dict[int, Array]:
        """Find the arrays of peers in this process's memory."""
        mapping, places = comm._han.shared.arenas(), comm.allgather(self.a.ctypes.data)
        found = {}
        for rank in wanted:
            assert mapping.shifts is not None
            here = (places[rank] + int(mapping.shifts[rank, 0])) % (1 << 64)
            memory = (ctypes.c_uint8 * self.a.size).from_address(here)
            found[rank] = np.ctypeslib.as_array(memory)
        return found

    def calls(self) -> dict[str, Call]:
        """Return the ways to move it all, by name."""
        moves = list(self._moves())
        return {name: partial(_all, way, moves) for name, way in WAYS.items()}

    def _moves(self) -> Any:
        """Yield destinations with one operand, which is copied, or two."""
        at = 0
        for piece in self.pieces:
            part = slice(at, at + piece.nbytes)
            theirs = self.peers.get(piece.peer)
            if piece.combines:
                other = self.b if theirs is None else theirs
                yield self.out[part], self.a[part], other[part]
            else:
                yield self.out[part], (self.a if theirs is None else theirs)[part]
            at += -(-piece.nbytes // LINE) * LINE


def _all(way: Any, moves: Sequence[tuple[Array, ...]]) -> None:
    for move in moves:
        way(*move)


def _by_numpy(out: Array, a: Array, b: Array | None = None) -> None:
    if b is None:
        np.copyto(out, a)
    else:
        np.add(a.view(DTYPE), b.view(DTYPE), out.view(DTYPE))


def _by_kernels(out: Array, a: Array, b: Array | None = None, streaming: bool = False) -> None:
    if b is None:
        _native.plain_copy(out, a, streaming)
    else:
        assert ADD is not None
        _native.plain_combine(out, a, b, ADD)


WAYS = {
    "NumPy": _by_numpy,
    "kernels": _by_kernels,
    "streaming": partial(_by_kernels, streaming=True),  # past the caches
}


def measure(bench: Bench, case: Case) -> Limit:
    """Measure one call of `bench.settings`' mode; collective.

    Raises ArgumentError, on all ranks, for calls that the MPI library has a part in.
    """
    comm, shared = bench.han, bench.settings.shared
    assert comm is not None
    pieces = _work(comm, case, shared)
    moved = comm.allreduce(sum(piece.nbytes for piece in pieces))
    if not moved:
        raise ArgumentError(f"{case.describe()} moves nothing on {comm.size} rank(s)")
    prepared = prepare(comm, Buffers(case, comm.rank, comm.size, shared), bench.settings.mode)
    plain = Plain(comm, pieces, shared)
    calls = {"han": prepared.call, **plain.calls()}
    times = bench.times(calls, bench.settings.batch_seconds)
    prepared.free()
    bench.control.Barrier()  # peers read these arrays
    ours = times.pop("han")
    return Limit(case.collective, case.nbytes, shared, moved, ours, times)


def _work(comm: Comm, case: Case, shared: bool) -> list[Piece]:
    """Find what this rank moves in a call."""
    state = comm._han
    if shared:
        state.shared.arenas()
    said = comm.explain(case.collective, case.nbytes, root=case.root, shared=shared)
    program = lower(said.plan, state.rank)
    if comm.allreduce(said.counted is None or program.talks_mpi, MPI.LOR):
        raise ArgumentError(
            f"{case.describe()}: the MPI library moves a part of it here, which cannot be held "
            "against copies; use ranks of one node, and submodules in its memory"
        )
    ranks = [channel.ranks for channel in state.shared.channels]
    return pieces_of(program, said.plan.signature.element, ranks)
