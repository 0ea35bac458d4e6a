"""Measure collectives against plain copies and additions of the same bytes.

The ranks of a node cannot finish a collective before they have copied and combined the bytes that
its programs move. In turns with han's calls, all ranks do this work at once and without waiting for
each other, each kind of work as one large copy or addition. NumPy and han's kernels take turns, and
the fastest is the limit. Data that a program reads from a peer's shared array is here also read
from a shared array of that peer. All other data is in arrays of the rank itself.
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
from han.measure.bench_calls import Array, Buffers, Call, Case, prepare
from han.measure.modes import Mode
from han.memory.arena import sharing
from han.model.channel_layout import LINE
from han.model.collectives import ROWS
from han.model.element_types import kernel
from han.model.measurements import Times
from han.model.opcodes import COMBINATIONS, COPIES
from han.model.program import PEER, Code, PeerBase, Program
from han.tasks.lower import lower

MOVING = tuple(name for name, row in ROWS.items() if row.recv)  # collectives that move data
USUAL = ("allreduce", "bcast", "reduce", "allgather")
MODES = {True: Mode.PERSISTENT, False: Mode.BLOCKING}  # of calls on shared and ordinary arrays
DTYPE, OP = "float64", "sum"
ADD = kernel(OP, DTYPE)
OWN = -1  # the peer of data that is in no peer's array


@dataclass(frozen=True)
class MovedBytes:
    """Bytes that a rank copies or combines out of its own memory or of the array of `peer`."""

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
        """The name of the fastest way."""
        return min(self.ways, key=lambda name: self.ways[name].median)

    @property
    def plain(self) -> Times:
        """The times of the fastest way."""
        return self.ways[self.by]

    @property
    def share(self) -> float:
        """The share of the plain copies' speed that han reaches."""
        return self.plain.median / self.han.median

    def rate(self, times: Times) -> float:
        """Return the GB/s at which all ranks move the bytes."""
        return self.moved / times.median / 1e3

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        rates = {"han_gbs": self.rate(self.han), "plain_gbs": self.rate(self.plain)}
        return {**asdict(self), **rates, "by": self.by, "share": self.share}


def pieces_of(program: Program, element: int, ranks: Sequence[Sequence[int]]) -> list[MovedBytes]:
    """Return the bytes that a rank copies and combines; ``ranks[c]`` are those of channel c."""
    found: Counter[tuple[bool, int]] = Counter()
    for row in program.code:
        code, n = int(row["code"]), int(row["n"])
        if code in COPIES:
            found[False, _source(row["base"][1:2], ranks)] += n
        elif code in COMBINATIONS:
            found[True, _source(row["base"][1:3], ranks)] += n * element
        if code == Code.REDUCE2:
            found[False, OWN] += n * element
    return [MovedBytes(*key, nbytes) for key, nbytes in sorted(found.items()) if nbytes]


def _source(bases: Any, ranks: Sequence[Sequence[int]]) -> int:
    """Return the peer whose array holds an operand, or OWN."""
    peers = [PeerBase.of(int(base)) for base in bases if base >= PEER]
    return ranks[peers[0].channel][peers[0].slot] if peers else OWN


class Plain:
    """A rank's arrays for plain copies of the bytes of a call. Making one is collective."""

    def __init__(self, comm: Comm, pieces: Sequence[MovedBytes], shared: bool) -> None:
        self.pieces = pieces
        mine = sum(-(-piece.nbytes // LINE) * LINE for piece in pieces)
        room = comm.allreduce(mine, MPI.MAX)
        with sharing() if shared else nullcontext():
            self.out, self.a, self.b = (np.ones(room, np.uint8) for _ in range(3))
        self.peers = self._peers(comm, {p.peer for p in pieces} - {OWN}) if shared else {}

    def _peers(self, comm: Comm, wanted: set[int]) -> dict[int, Array]:
        """Return the arrays of peers as this process has mapped them."""
        mapping, places = comm._han.parts.shared.arenas(), comm.allgather(self.a.ctypes.data)
        found = {}
        for rank in wanted:
            assert mapping.shifts is not None
            here = (places[rank] + int(mapping.shifts[rank, 0])) % (1 << 64)
            memory = (ctypes.c_uint8 * self.a.size).from_address(here)
            found[rank] = np.ctypeslib.as_array(memory)
        return found

    def calls(self) -> dict[str, Call]:
        """Return for each way, by name, a call that moves all pieces."""
        moves = list(self._moves())
        return {name: partial(_all, way, moves) for name, way in WAYS.items()}

    def _moves(self) -> Any:
        """Yield a destination with one operand to copy, or with two to combine."""
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
    "streaming": partial(_by_kernels, streaming=True),  # stores past the caches
}


def measure(bench: Bench, case: Case) -> Limit:
    """Measure one call in the mode of `bench.settings`; collective.

    Raises ArgumentError, on all ranks, for calls in which the MPI library moves data.
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


def _work(comm: Comm, case: Case, shared: bool) -> list[MovedBytes]:
    """Return what this rank moves in a call."""
    state = comm._han
    if shared:
        state.parts.shared.arenas()
    said = comm.explain(case.collective, case.nbytes, root=case.root, shared=shared)
    program = lower(said.plan, state.rank)
    if comm.allreduce(said.counted is None or program.talks_mpi, MPI.LOR):
        raise ArgumentError(
            f"{case.describe()}: the MPI library moves a part of the data, so there is no limit; "
            "use ranks of one node, and submodules that use shared memory"
        )
    ranks = [channel.ranks for channel in state.parts.shared.channels]
    return pieces_of(program, said.plan.signature.element, ranks)
