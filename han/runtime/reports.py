"""Error reports of collectives: which rank waits for which peer, and in which task."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

from mpi4py import MPI

from han._native import Engine
from han.common.errors import (
    CollectiveTimeoutError,
    HanError,
    MismatchError,
    PeerError,
    RevokedError,
)
from han.memory.channel import Channel
from han.model.program import Code
from han.ranks.health import Health
from han.ranks.notices import DEVICES, LATEST, mismatch
from han.runtime.eager import Eager
from han.runtime.measured import ANSWER, MOST_KNOWN
from han.runtime.native_plans import Prepared, identity
from han.tasks.signature import ON_DEVICE, Signature
from han.tasks.size_classes import exact


class Status(IntEnum):
    """The errors of ``enum han_status`` in native/engine.h."""

    MPI = 3
    TIMEOUT = 4
    DEAD = 5
    NOTICE = 6
    INTERRUPT = 7
    FAILED = 8
    ATTACH = 9
    MISMATCH = 10
    GONE = 11
    SHORT = 12
    LONG = 13


OFFER, VERDICT = range(len(Code), len(Code) + 2)  # of han_where.code: native/engine/stepping.h
DIFFERENT = {  # how a rank sees that a peer makes another call
    Status.MISMATCH: "",
    Status.SHORT: "its message has fewer bytes than expected",
    Status.LONG: "its message has more bytes than expected",
}
WAITS = {  # what a task waits for
    Code.WAIT: "for",
    Code.ISEND: "to send to",
    Code.IRECV: "for a message from",
    Code.TEST: "for the message to or from",
    Code.COLL: "for MPI's collective with root",
}


class Named(NamedTuple):
    """What an error says of a plan: the call, whether it is a trial's rival, and its tasks."""

    signature: Signature
    is_rival: bool
    tasks: Sequence[str]


class Reporter:
    """The ``on_error`` of an engine: raises the error and tells the other ranks.

    `number` is the number of the engine, the same on all ranks: 0 is the communicator's own.
    `timeout` is in seconds.
    """

    def __init__(
        self,
        health: weakref.ref[Health],
        channels: Sequence[Channel],
        number: int,
        timeout: float,
    ) -> None:
        self.health, self.number, self.timeout = health, number, timeout
        self.channels = tuple(channels)
        self.engine: weakref.ref[Engine] | None = None
        self.eager: Eager | None = None  # names calls of objects, which collectives serve
        self._known: dict[int, Named] = {}

    @property
    def _engine(self) -> Engine | None:
        return None if self.engine is None else self.engine()

    def know(self, prepared: Prepared) -> None:
        """Remember the call that a signature's number stands for."""
        signature, is_rival = prepared.signature, prepared.is_rival
        number = identity(signature, is_rival)
        self._known.pop(number, None)
        self._known[number] = Named(signature, is_rival, prepared.program.tasks)
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def doing(self) -> str:
        """Return the call at the head of the engine's queue, and what it waits for."""
        health = self.health()
        return "a collective" if health is None else self._story(health)

    def close(self) -> None:
        """Unmap the engine's channels."""
        for channel in self.channels:
            channel.close()

    def __call__(self, status: int, detail: int, later: bool = False) -> bool:
        """Raise the error of a status; return True if a notice does not concern this call.

        `later`: the error is lost here, in a callback of MPI; the next call raises it.
        """
        health = self.health()
        if health is None:
            raise RevokedError("the communicator has been freed")
        try:
            return self._report(status, detail, health)
        except BaseException as error:
            if later:
                health.put_off(error)
            raise

    def _report(self, status: int, detail: int, health: Health) -> bool:
        if status != Status.INTERRUPT:
            health.check_failed()
        try:
            if status in DIFFERENT:
                raise differs(health, detail, self._story(health), DIFFERENT[Status(status)])
            if status == Status.GONE:
                health.lose(detail, self._story(health))
                return True
            if status != Status.NOTICE:
                raise self._error(Status(status), detail, health)
            health.listen(health.engines.own.issued, self._story(health))
            health.expect_run(self.number, self._finished(), self._story(health))
        except BaseException as error:  # also KeyboardInterrupt: the engine has stopped
            health.give_up(error)
            raise
        return True

    def _error(self, status: Status, detail: int, health: Health) -> Exception:
        if status == Status.MPI:
            story, error = self._story(health), MPI.Exception(detail)
            if ON_DEVICE not in story:
                return error
            return MismatchError(f"rank {health.rank} was in {story}: {error}; {DEVICES}")
        if status == Status.DEAD:
            return PeerError(
                f"rank {detail} died (its process is gone) while rank {health.rank} waited in "
                f"{self._story(health)}"
            )
        if status == Status.TIMEOUT:
            return CollectiveTimeoutError(
                f"rank {health.rank} waited for {self.timeout:g} s in "
                f"{self._story(health)}{self._others(health)} (the limit is HAN_TIMEOUT; 0: none)"
            )
        if status == Status.ATTACH:
            return PeerError(
                f"rank {health.rank} could not read the memory of rank {detail} in "
                f"{self._story(health)}, although this worked when the communicator was made; "
                f"{self._without(health)} avoids it"
            )
        if status == Status.INTERRUPT:
            return HanError(f"rank {health.rank} was interrupted in {self._story(health)}")
        return RevokedError("an earlier collective on this communicator failed")

    def _finished(self) -> int:
        """Return the number of runs that this rank has finished."""
        engine = self._engine
        return 0 if engine is None else engine.epoch

    def _story(self, health: Health) -> str:
        """Return a text such as ``allreduce of 8 B, waiting for rank 3 (task sr(0))``."""
        engine = self._engine
        if engine is None or health.step:
            return health.step or "a collective"
        number, nbytes, rows = engine.blocked()
        named = self._known.get(number)
        if named is None:
            return "a collective"
        late = ", ".join(str(peer) for code, peer, _ in rows if code == OFFER)
        waits = [f"for rank(s) {late} to tell whether buffers are shared"] if late else []
        waits += [f"for rank {r} to agree on a trial" for code, r, _ in rows if code == VERDICT]
        waits += [
            f"{WAITS[Code(code)]} rank {peer} (task {_task(named, task)})"
            for code, peer, task in rows
            if code in WAITS
        ]
        where = ", ".join(waits) or "for ranks that are still in an earlier collective"
        within = self.eager.within if self.eager is not None else ""
        whole = f"{within}: " if within else ""
        return f"{whole}{self._describe((number, nbytes))}, waiting {where}"

    def _without(self, health: Health) -> str:
        """Return the setting that avoids attach: a trial's rival can be switched off by itself."""
        engine = self._engine
        named = self._known.get(engine.blocked()[0]) if engine is not None else None
        tried = named is not None and named.is_rival
        return "HAN_TRIALS=0" if tried else "a rule for the submodule sm"

    def _others(self, health: Health) -> str:
        """Return what the ranks that share memory with this one are doing."""
        engine = self._engine
        if engine is None:
            return ""
        epoch, (number, nbytes, _) = engine.epoch, engine.blocked()
        mine = {(number, nbytes), (self._call(number), nbytes)}
        seen = {p.rank: p for c in self.channels for p in c.peers() if p.rank != health.rank}
        late = [str(r) for r, p in sorted(seen.items()) if p.entered <= epoch]
        other = [
            f"rank {r} is in {self._describe(p.call)}"
            for r, p in sorted(seen.items())
            if p.entered == epoch + 1 and p.call not in mine
        ]
        parts = [f"rank(s) {', '.join(late)} have not entered this call"] if late else []
        return "".join(f"; {part}" for part in parts + other)

    def _call(self, number: int) -> int:
        """Return the number that peers show for a run: that of the call's own plan."""
        named = self._known.get(number)
        return number if named is None else identity(replace(named.signature, mapped=False))

    def _describe(self, call: tuple[int, int]) -> str:
        """Describe a call by the number of its plan and the size of its message."""
        number, nbytes = call
        named = self._known.get(number)
        return "another call" if named is None else exact(named.signature, nbytes).describe()


def differs(health: Health, peer: int, story: str, shown: str = "") -> HanError:
    """Return an error that names this rank's call and, if the peer answers, the peer's call.

    `story` is what this rank was in, `shown` how it saw the difference. Notices are checked first:
    a peer that raised has run an empty plan in place of its call.
    """
    between = (peer, health.rank)
    health.listen(health.engines.own.issued, story)
    stories = {health.rank: story}
    health.give_up(mismatch(between, health.rank, stories, shown))
    until = time.monotonic() + ANSWER
    while peer not in stories and time.monotonic() < until:
        time.sleep(1e-3)
        heard = health.notices.receive(LATEST)
        answers = {n.sender: n.story or f"a call that raised {n.text}" for n in heard}
        stories = {**answers, **stories}
    return mismatch(between, health.rank, stories, shown)


def reporter(engine: Engine) -> Reporter:
    """Return the Reporter of an engine."""
    report = engine.on_error
    assert isinstance(report, Reporter)
    return report


def _task(named: Named, index: int) -> str:
    return named.tasks[index] if index < len(named.tasks) else "?"
