"""The table of collectives. All other tables of collectives derive from its rows.

A new collective needs a row here, a parser (han/message), a specification (tasks/spec.py), an
algorithm (submodules) and three methods of ``han.Comm``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from typing import NamedTuple, overload

from han.common.errors import ArgumentError
from han.common.suggest import unknown
from han.model.program import MAX_STREAMS, Coll
from han.model.topology import MAX_LEVELS

UP, DOWN = ("reduce",), ("bcast",)  # task kinds on the way up and down the levels
BOTH = (*UP, *DOWN)


class Collective(NamedTuple):
    """One collective, named as Signatures and rules name it.

    `method` is mpi4py's name of the call, `code` its number in the C core's look-up of calls.
    Calls of the methods in `carries` (in lower case) have the same Signature.

    `send` and `recv` say what a buffer holds: the message ``once``, a block for ``each`` rank, or
    nothing ("": the call has no such buffer). `at_root` names the buffer that only the root has.

    `kinds` are the kinds of its tasks on a tree of levels; without kinds, one task on one level
    carries out the call. `letter` names tasks of the collective's own kind; "" if there are none.
    The streams of a program leave no room for another kind on every level.

    `uneven`: blocks may differ in size, and all ranks know all sizes. `own`: they differ, and each
    rank knows only the sizes of those that it sends or receives. `replaces`: in place, a
    rank's result overwrites data that its peers still read. `synchronises`: a rank that has
    finished knows that every rank has entered. `bundled`: between nodes, blocks travel together;
    other calls by blocks are MPI's there. `prefix`: a rank gets what ranks before it contribute.
    """

    name: str
    method: str
    code: Coll
    send: str = ""
    recv: str = ""
    at_root: str = ""
    kinds: tuple[str, ...] = ()
    letter: str = ""
    rooted: bool = False
    reduces: bool = False
    uneven: bool = False
    own: bool = False
    replaces: bool = False
    synchronises: bool = False
    bundled: bool = False
    prefix: bool = False
    carries: tuple[str, ...] = ()

    @property
    def by_blocks(self) -> bool:
        """Whether a buffer holds a block for each rank."""
        return "each" in (self.send, self.recv)

    @property
    def task_kinds(self) -> tuple[str, ...]:
        """The kinds of the tasks that carry it out if no task fuses others."""
        return self.kinds or (("alltoall",) if self.own else (self.name,))


_ROWS = (
    Collective(
        "bcast", "Bcast", Coll.BCAST, recv="once", kinds=DOWN, letter="b", rooted=True,
    ),
    Collective(
        "reduce", "Reduce", Coll.REDUCE, "once", "once", at_root="recv", kinds=UP, letter="r",
        rooted=True, reduces=True,
    ),
    Collective(
        "allreduce", "Allreduce", Coll.ALLREDUCE, "once", "once", kinds=BOTH, letter="a",
        reduces=True, synchronises=True,
    ),
    Collective("barrier", "Barrier", Coll.BARRIER, kinds=BOTH, synchronises=True),
    Collective(
        "gather", "Gather", Coll.GATHER, "once", "each", at_root="recv", letter="g", rooted=True,
        bundled=True,
    ),
    Collective(
        "scatter", "Scatter", Coll.SCATTER, "each", "once", at_root="send", letter="s",
        rooted=True, bundled=True,
    ),
    Collective(
        "allgather", "Allgather", Coll.ALLGATHER, "once", "each", letter="ag", uneven=True,
        synchronises=True, bundled=True, carries=("allgatherv",),
    ),
    Collective(
        "alltoall", "Alltoall", Coll.ALLTOALL, "each", "each", letter="x", replaces=True,
        synchronises=True, bundled=True,
    ),
    Collective(
        "reduce_scatter", "Reduce_scatter_block", Coll.REDUCE_SCATTER, "each", "once",
        letter="rs", reduces=True, uneven=True, replaces=True, synchronises=True, bundled=True,
        carries=("reduce_scatter_block",),
    ),
    Collective(
        "gatherv", "Gatherv", Coll.GATHERV, "once", "each", at_root="recv", rooted=True,
        own=True, bundled=True,
    ),
    Collective(
        "scatterv", "Scatterv", Coll.SCATTERV, "each", "once", at_root="send", rooted=True,
        own=True, bundled=True,
    ),
    Collective(
        "alltoallv", "Alltoallv", Coll.ALLTOALLV, "each", "each", own=True, bundled=True,
        carries=(
            "alltoallw", "neighbor_allgather", "neighbor_allgatherv", "neighbor_alltoall",
            "neighbor_alltoallv", "neighbor_alltoallw",
        ),
    ),
    Collective(
        "scan", "Scan", Coll.SCAN, "once", "once", letter="p", reduces=True, prefix=True,
    ),
    Collective(
        "exscan", "Exscan", Coll.EXSCAN, "once", "once", letter="xp", reduces=True, prefix=True,
    ),
)  # fmt: skip

ROWS = {row.name: row for row in _ROWS}


class Names(Sequence[str]):
    """Names of the rows that satisfy a condition, including rows that are added later."""

    def __init__(self, chosen: Callable[[Collective], object]) -> None:
        self._chosen = chosen

    def _names(self) -> list[str]:
        return [name for name, row in ROWS.items() if self._chosen(row)]

    def __contains__(self, name: object) -> bool:
        row = ROWS.get(name) if isinstance(name, str) else None
        return row is not None and bool(self._chosen(row))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._names()[index]


COLLECTIVES = Names(lambda row: not row.own)  # of a size that all ranks know
BY_BLOCKS = Names(lambda row: row.by_blocks and not row.own)
BUNDLED = Names(lambda row: row.bundled and not row.own)
SPREADING = Names(lambda row: row.send == "each")  # a rank sends a block to each rank
ROOTED = Names(lambda row: row.rooted)
REDUCING = Names(lambda row: row.reduces)
SCANS = Names(lambda row: row.prefix)
UNEVEN = Names(lambda row: row.uneven)
REPLACING = Names(lambda row: row.replaces)
FUSED = Names(lambda row: row.kinds == BOTH)  # one task may do both on the outermost level
DATALESS = Names(lambda row: not row.recv)
KINDS = Names(lambda row: row.letter)  # kinds of tasks
TREE = Names(lambda row: row.letter and row.kinds)  # kinds of tasks of any level
FLAT = Names(lambda row: row.letter and not row.kinds)  # kinds of tasks of one level


def add(row: Collective) -> None:
    """Add a collective in this process.

    All ranks of a program must add the same, in the same order, before they make a ``han.Comm``.
    Raises ValueError if the row contradicts itself or another one.
    """
    problem = problem_of(row) or _taken(row)
    if problem is not None:
        raise ValueError(f"collective {row.name!r}: {problem}")
    ROWS[row.name] = row
    streams = MAX_LEVELS * len(TREE) + len(FLAT)
    if streams > MAX_STREAMS:
        del ROWS[row.name]
        raise ValueError(f"collective {row.name!r}: {streams} streams, at most {MAX_STREAMS}")


def problem_of(row: Collective) -> str | None:
    """Return why a row contradicts itself, or None."""
    if not re.fullmatch("[a-z_]+", row.name):
        return "the name has other characters than a-z and _"
    if row.kinds not in ((), UP, DOWN, BOTH):
        return f"kinds are {row.kinds}: expected none, {UP}, {DOWN} or {BOTH}"
    if row.by_blocks and row.kinds:
        return "it moves blocks, so it has no kinds"
    if not row.kinds and not row.letter and not row.own:
        return "without kinds it needs a letter"
    if row.at_root not in ("", "send", "recv")[: 3 if row.rooted else 1]:
        return f"at_root is {row.at_root!r}"
    return "replaces needs send='each'" if row.replaces and row.send != "each" else None


def _taken(row: Collective) -> str | None:
    """Return which name or letter of a row another one has, or None."""
    taken = {row.name, *row.carries} & {*calls()}
    if taken:
        return f"{min(taken)!r} is already in the table"
    same = [other.name for other in ROWS.values() if row.letter and other.letter == row.letter]
    return f"{same[0]!r} has the letter {row.letter!r}" if same else None


def expect_size(call: str, size: object) -> None:
    """Raise ArgumentError if a call that moves data has no size."""
    if size in (None, "") and carried(call) not in DATALESS:
        raise ArgumentError(f"{call}: a size is missing; give its bytes, such as 64KiB or 4MiB")


def added() -> tuple[Collective, ...]:
    """Return the collectives that the program has added."""
    return tuple(ROWS.values())[len(_ROWS) :]


def carried_as() -> dict[str, str]:
    """Return the collectives that carry calls of other names, by the name of the call."""
    return {call: name for name, row in ROWS.items() for call in row.carries}


def calls() -> tuple[str, ...]:
    """Return the names of all calls that han carries."""
    return (*ROWS, *carried_as())


def carried(call: str) -> str:
    """Return the collective in the Signature of a call; raise ArgumentError if there is none.

    Calls of Allgatherv have the Signature of an allgather, with the sizes of all blocks if they
    differ.
    """
    if call not in calls():
        raise ArgumentError(unknown(f"collective {call!r}", call, calls(), _advice(call, calls())))
    return carried_as().get(call, call)


def expect_collective(name: str) -> str:
    """Return the name of a collective; raise ValueError if no Signature has it."""
    if name not in ROWS:
        raise ValueError(unknown("collective", name, ROWS, _advice(name, ROWS)))
    return name


def _advice(method: str, known: Container[str]) -> str:
    """Return which of some names is for calls of ``Allgatherv``, ``Ibcast`` ...; "" if unknown."""
    plain = method.lower().removesuffix("_init")
    plain = plain if plain in calls() else plain.removeprefix("i")
    if plain not in calls():
        return ""
    name = plain if plain in known else carried_as().get(plain, plain)
    return f"write {name!r} for calls of {method.capitalize()}"
