"""Error reports of collectives: which rank waits for which peer, and in which task."""

from __future__ import annotations

import time
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum

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
from han.ranks.notices import LATEST
from han.runtime.native_plans import identity
from han.runtime.prepared import Prepared


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


ANSWER = 1.0  # seconds that a rank waits for a peer's notice
OFFER, LEAD = len(Code), len(Code) + 1  # values of han_where.code: native/engine/choice.h
KNOWN = 512  # plans remembered; the oldest is dropped first
DIFFERENT = "rank {} does not make the same calls as this rank"
REMEDY = "HAN_CHECK=1 compares calls before they are made"
FORMS = "this call or an earlier one; blocking and nonblocking calls do not match"
VERBS = {
    Code.WAIT: "the shared flag of",
    Code.ISEND: "to send to",
    Code.IRECV: "a message from",
    Code.TEST: "the message to or from",
    Code.COLL: "MPI's collective with root",
}


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
        self._known: OrderedDict[int, Prepared] = OrderedDict()

    def know(self, prepared: Prepared) -> None:
        """Remember the plan that a signature's number stands for."""
        self._known[identity(prepared.signature, prepared.is_rival)] = prepared
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)

    def close(self) -> None:
        """Unmap the engine's channels."""
        for channel in self.channels:
            channel.close()

    def __call__(self, status: int, detail: int) -> bool:
        """Raise the error of a status; return True if a notice does not concern this call."""
        health = self.health()
        if health is None:
            raise RevokedError("the communicator has been freed")
        if health.failed is not None and status != Status.INTERRUPT:
            raise RevokedError(f"this communicator cannot be used any more: {health.failed}")
        try:
            if status == Status.MISMATCH:
                raise self._mismatch(detail, health)
            if status != Status.NOTICE:
                raise self._error(Status(status), detail, health)
            health.listen(health.engines.own.issued, self._story(health))
        except BaseException as error:  # also KeyboardInterrupt: the engine has stopped
            health.give_up(error)
            raise
        return True

    def _error(self, status: Status, detail: int, health: Health) -> Exception:
        if status == Status.MPI:
            return MPI.Exception(detail)
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

    def _mismatch(self, peer: int, health: Health) -> HanError:
        """Return an error that names this rank's call and, if the peer answers, the peer's call.

        Notices are checked first: a peer that raised has run an empty plan in place of its call.
        """
        story = self._story(health)
        health.listen(health.engines.own.issued, story)
        mine = f"rank {health.rank} was in {story}"
        health.give_up(MismatchError(f"{DIFFERENT.format(peer)}: {mine}"))
        until, theirs = time.monotonic() + ANSWER, ""
        while not theirs and time.monotonic() < until:
            time.sleep(1e-3)
            heard = health.notices.receive(LATEST)
            theirs = next((n.text for n in heard if n.sender == peer), "")
        answer = f"; rank {peer} raised {theirs}" if theirs else ""
        remedy = FORMS if story.partition(":")[0] in theirs else REMEDY
        return MismatchError(f"{DIFFERENT.format(peer)}: {mine}{answer} ({remedy})")

    def _story(self, health: Health) -> str:
        """Return a text such as ``allreduce of 8 B: sr(0) for the shared flag of rank 3``."""
        engine = self.engine() if self.engine is not None else None
        if engine is None or health.step:
            return health.step or "a collective"
        number, rows = engine.blocked()
        prepared = self._known.get(number)
        if prepared is None:
            return "a collective"
        late = ", ".join(str(peer) for code, peer, _ in rows if code == OFFER)
        waits = [f"begin, for rank(s) {late} to tell whether buffers are shared"] if late else []
        waits += [f"begin, for rank {r} to choose a plan" for code, r, _ in rows if code == LEAD]
        waits += [
            f"{_task(prepared, task)} for {VERBS[Code(code)]} rank {peer}"
            for code, peer, task in rows
            if code in VERBS
        ]
        where = ", ".join(waits) or "begin, for the readers of an earlier collective"
        return f"{prepared.signature.describe()}: {where}"

    def _without(self, health: Health) -> str:
        """Return the setting that avoids attach: a trial's rival can be switched off by itself."""
        engine = self.engine() if self.engine is not None else None
        prepared = self._known.get(engine.blocked()[0]) if engine is not None else None
        tried = prepared is not None and prepared.is_rival
        return "HAN_TRIALS=0" if tried else "a rule for the submodule sm"

    def _others(self, health: Health) -> str:
        """Return what the ranks that share memory with this one are doing."""
        engine = self.engine() if self.engine is not None else None
        if engine is None:
            return ""
        epoch, (number, _) = engine.epoch, engine.blocked()
        mine = {number, self._call(number)}
        seen = {p.rank: p for c in self.channels for p in c.peers() if p.rank != health.rank}
        late = [str(r) for r, p in sorted(seen.items()) if p.entered <= epoch]
        other = [
            f"rank {r} is in {self._describe(p.signature)}"
            for r, p in sorted(seen.items())
            if p.entered == epoch + 1 and p.signature not in mine
        ]
        parts = [f"rank(s) {', '.join(late)} have not entered this call"] if late else []
        return "".join(f"; {part}" for part in parts + other)

    def _call(self, number: int) -> int:
        """Return the number that peers show for a run: that of the call's own plan."""
        prepared = self._known.get(number)
        return number if prepared is None else identity(replace(prepared.signature, mapped=False))

    def _describe(self, number: int) -> str:
        prepared = self._known.get(number)
        return "another call" if prepared is None else prepared.signature.describe()


def reporter(engine: Engine) -> Reporter:
    """Return the Reporter of an engine."""
    report = engine.on_error
    assert isinstance(report, Reporter)
    return report


def _task(prepared: Prepared, index: int) -> str:
    tasks = prepared.program.tasks
    return tasks[index] if index < len(tasks) else "?"
