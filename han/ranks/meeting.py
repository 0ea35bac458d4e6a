"""Set-up steps that the ranks of a communicator take together, while collectives progress.

A rank inside a blocking call of MPI would neither progress its outstanding collectives nor receive
notices of errors. Here a waiting rank polls. It steps all engines in each round, and checks the
time limit and the notices at intervals.
"""

from __future__ import annotations

import os
import pickle
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from mpi4py import MPI

from han import _native
from han._native import by_mpi
from han.common.errors import CollectiveTimeoutError, MismatchError, PeerError, SetupError
from han.message.unlocked import group_of, return_errors
from han.ranks.measured import LOOK, NAP, SETUP_LEAST, YIELDS

T = TypeVar("T")
Words = np.ndarray[Any, np.dtype[np.uint64]]
# Tags on han's own communicators; engines' tags are larger.
TAG_DATA, TAG_COME, TAG_GO, TAG_CLOCK, TAG_LAST = range(5)
ROOM = 504  # bytes of a pickled value in a slot
SLOT = np.dtype([("size", "i8"), ("data", "u1", ROOM)])
_abandoned: list[object] = []  # MPI may still write to memory that these own


def setup_limit(limit: float) -> float:
    """Return the time limit of steps that may be the first ones of the ranks; 0: none."""
    return limit and max(limit, SETUP_LEAST)


def abandon(owner: object) -> None:
    """Keep `owner` alive for ever: MPI may still read or write its memory."""
    _abandoned.append(owner)


class Patience:
    """The pauses of a polling loop, of which `rounds` are over.

    With `busy` it only yields, as MPI libraries do in their own waits: some make progress only
    while a thread calls them.
    """

    def __init__(self, rounds: int = 0, busy: bool = False) -> None:
        self.rounds, self.busy = rounds, busy
        self.begun = self.looked = time.monotonic()

    @property
    def waited(self) -> float:
        """Seconds since the loop began."""
        return time.monotonic() - self.begun

    def pause(self) -> bool:
        """Yield or sleep; return whether it is time to check the time limit and notices."""
        self.rounds += 1
        if self.busy or self.rounds < YIELDS:
            os.sched_yield()  # beside many other processes it may take long
        else:
            time.sleep(NAP)
        now = time.monotonic()
        if now - self.looked < LOOK:
            return False
        self.looked = now
        return True


class Line(NamedTuple):
    """How ranks reach each other by messages: their places on `comm`, by rank, and a first tag."""

    comm: MPI.Intracomm
    places: Sequence[int]
    tag: int = 0


class Meeting:
    """Set-up steps on `comm`, either a duplicate that han owns or the program's communicator.

    The steps are collectives in calls that are collective, so all ranks start them in the same
    order as the program's own collectives. `own` is the duplicate, if there is one; `line` is for
    messages of steps that only some ranks take. A rank that waits longer than `limit` seconds (0:
    no limit) raises CollectiveTimeoutError. A waiting rank calls `look` with the name of the step,
    which may raise for other reasons.
    """

    def __init__(self, comm: MPI.Intracomm, limit: float, own: MPI.Intracomm | None = None) -> None:
        self.comm, self.limit, self.own = comm, limit, own
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.line = Line(comm, range(self.size))
        self.gave_up = False  # a step did not complete: `comm` cannot be freed
        self.look: Callable[[str], None] | None = None
        self.expect: Callable[[str], None] | None = None  # raises if a rank has left
        self.steps = 0  # steps of all ranks that are finished
        self.among: Sequence[int] | None = None  # the ranks of the present step; None: all

    def wait(self, request: MPI.Request, step: str, keep: object = None) -> None:
        """Wait for an MPI request of the step `step`; `keep` owns its buffers."""
        patience = Patience()
        try:
            while not request.Test():
                _native.progress()
                if patience.pause() and not request.Test():
                    self._look(step)
                    self.check_limit(step, patience.waited)
        except BaseException:
            self.gave_up = True
            abandon((request, keep))
            raise

    def messages(self) -> MPI.Intracomm:
        """Return han's own communicator, for messages; the first call makes it (collective).

        It is no duplicate, which would copy the program's attributes.
        """
        if self.own is None:
            self.barrier("the making of a han.Comm")  # which hears of errors, as Create does not
            with group_of(self.comm, range(self.size)) as everyone:
                own: MPI.Intracomm = MPI.Intracomm.Create(self.comm, everyone)  # type: ignore[assignment]
            return_errors(own)
            self.own = own
        return self.own

    def _look(self, step: str) -> None:
        if self.look is not None:
            self.look(step)
        if self.expect is not None:
            self.expect(step)

    def check_limit(self, step: str, waited: float) -> None:
        """Raise CollectiveTimeoutError if `waited` seconds exceed the limit."""
        if self.limit and waited > self.limit:
            raise CollectiveTimeoutError(
                f"rank {self.rank} waited for {self.limit:g} s in {step} for the other ranks "
                "(the limit is HAN_TIMEOUT; 0: none)"
            )

    def barrier(self, step: str) -> None:
        """Wait until every rank has called this."""
        self.wait(by_mpi(self.comm.Ibarrier), step)
        self.steps += 1

    def gather(self, ranks: Sequence[int], step: str) -> None:
        """Wait until each rank of `ranks` has called this; the caller is one of them."""
        self.among = ranks
        try:
            self._gather(ranks, step)
        finally:
            self.among = None

    def _gather(self, ranks: Sequence[int], step: str) -> None:
        comm, places, base = self.line
        first, *others = (places[r] for r in ranks)
        nothing = bytearray(1)

        def receive(place: int, tag: int) -> None:
            request = comm.Irecv([nothing, 0, MPI.BYTE], place, base + tag)
            try:
                self.wait(request, step, nothing)
            except BaseException:
                request.Cancel()  # it must not take the message of a later communicator
                raise

        def send(place: int, tag: int) -> None:
            self.wait(comm.Isend([nothing, 0, MPI.BYTE], place, base + tag), step, nothing)

        come, go = (receive, send) if self.rank == ranks[0] else (send, receive)
        peers = others if self.rank == ranks[0] else [first]
        for move, tag in ((come, TAG_COME), (go, TAG_GO)):
            for place in peers:
                move(place, tag)

    def _exchanged(self, request: MPI.Request, step: str, keep: object) -> None:
        """Wait for an exchange of all ranks, and hear whether one gave up after its part of it."""
        self.wait(request, step, keep)
        if self.look is not None:
            self.look(step)

    def allgather(self, value: T, step: str) -> list[T]:
        """Return the values that all ranks pass, by rank; values are pickled.

        One exchange is enough if all values fit into slots.
        """
        data = np.frombuffer(pickle.dumps(value), np.uint8)
        mine, slots = np.zeros(1, SLOT), np.empty(self.size, SLOT)
        mine["size"], mine["data"][0, : data.size] = data.size, data[:ROOM]
        moved = [mine.view(np.uint8), slots.view(np.uint8)]
        self._exchanged(by_mpi(self.comm.Iallgather, *moved), step, moved)
        counts = slots["size"]
        if counts.max() <= ROOM:
            self.steps += 1
            return [pickle.loads(slot["data"][: slot["size"]].tobytes()) for slot in slots]
        everything = np.empty(int(counts.sum()), np.uint8)
        target = [everything, counts.tolist(), MPI.BYTE]
        request = by_mpi(self.comm.Iallgatherv, [data, MPI.BYTE], target)
        self.wait(request, step, (data, everything))
        self.steps += 1
        return _unpickle(everything, counts)

    def numbers(self, mine: Sequence[int], step: str) -> list[list[int]]:
        """Return the numbers that all ranks pass, by rank; all pass as many."""
        sent, table = np.array(mine, np.int64), np.empty((self.size, len(mine)), np.int64)
        self._exchanged(by_mpi(self.comm.Iallgather, sent, table), step, (sent, table))
        self.steps += 1
        return table.tolist()

    def common(self, words: Words, step: str) -> Words:
        """Return the bits that are set in the words of all ranks; all pass as many words."""
        found = np.empty_like(words)
        request = by_mpi(self.comm.Iallreduce, words, found, MPI.BAND)
        self._exchanged(request, step, (words, found))
        self.steps += 1
        return found

    def collect(self, value: T, step: str) -> list[T]:
        """Return on rank 0 the values that all ranks pass; an empty list elsewhere."""
        data = np.frombuffer(pickle.dumps(value), np.uint8)
        counts = self.allgather(data.size, step)
        everything = np.empty(0 if self.rank else sum(counts), np.uint8)
        target = None if self.rank else [everything, counts, MPI.BYTE]
        request = by_mpi(self.comm.Igatherv, [data, MPI.BYTE], target)
        self.wait(request, step, (data, everything))
        self.steps += 1
        return [] if self.rank else _unpickle(everything, counts)

    def share(self, make: Callable[[], T], step: str) -> list[T]:
        """Return what `make` returns on each rank, by rank.

        If `make` raises on any rank, all ranks raise SetupError. So the ranks stay in step.
        """
        value, problem = None, None
        try:
            value = make()
        except Exception as error:
            number = error.errno if isinstance(error, OSError) else None
            problem = number, f"{type(error).__name__}: {error}"
        results = self.allgather((value, problem), step)
        problems = [(r, *p) for r, (_, p) in enumerate(results) if p is not None]
        if problems:
            raise SetupError(step, problems)
        return [v for v, _ in results]  # type: ignore[misc]


def _unpickle(
    data: np.ndarray[Any, Any], counts: Sequence[int] | np.ndarray[Any, Any]
) -> list[Any]:
    ends = np.cumsum(counts)
    return [
        pickle.loads(data[end - n : end].tobytes()) for n, end in zip(counts, ends, strict=True)
    ]


Exchange: TypeAlias = Callable[[int], list[int]]

RAISED = -1  # the word of a rank whose arguments are wrong


def agree(
    meeting: Meeting,
    together: AbstractContextManager[None],
    step: str,
    read: Callable[[], object],
    exchange: Exchange | None = None,
) -> None:
    """Read the arguments of `step` on all ranks; return when all have done so (collective).

    `exchange` returns the numbers that all ranks pass, by rank; None: MPI's Iallgather does.

    `read` returns what all ranks must pass alike, or raises. If it raises on a rank, that rank
    raises the error, and the others PeerError. If the values differ, all raise MismatchError. The
    communicator stays usable. Only errors of the exchange itself leave the block `together`.
    """
    word, value, problem = RAISED, None, None
    with together:
        try:
            value = read()
            word = zlib.crc32(repr(value).encode())
        except Exception as error:
            problem = error
        words = exchange(word) if exchange is not None else _exchange(meeting, word, step)
        alike = words.count(words[0]) == len(words)
        text = repr(value) if problem is None else f"{type(problem).__name__}: {problem}"
        texts = [] if alike else meeting.allgather(text, step)
    if problem is not None:
        raise problem
    if not alike:
        raise _difference(step, words, texts)


def _exchange(meeting: Meeting, word: int, step: str) -> list[int]:
    return [number for (number,) in meeting.numbers([word], step)]


def _difference(step: str, words: list[int], texts: list[str]) -> PeerError | MismatchError:
    """Return the error of a rank whose own arguments are right."""
    wrong = [f"rank {r} raised {texts[r]}" for r, word in enumerate(words) if word == RAISED]
    if wrong:
        return PeerError(f"{step}: {'; '.join(wrong)}")
    seen: dict[str, int] = {}
    for rank, text in enumerate(texts):
        seen.setdefault(text, rank)
    calls = "; ".join(f"rank {rank} passes {text}" for text, rank in seen.items())
    return MismatchError(f"{step}: the ranks do not agree: {calls}; pass the same on all ranks")
