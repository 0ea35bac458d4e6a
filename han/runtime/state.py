"""The state of a communicator: it runs the calls, by its parts, or with a choice of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

from mpi4py import MPI

from han.common.errors import ArgumentError, HanError
from han.memory.windows import Windows
from han.message.message import Message
from han.message.parsers import Parser
from han.ranks.health import FREED, Health, revoked
from han.runtime.inherited import Inherited
from han.runtime.left import NOTHING, agreement
from han.runtime.making import parts_of
from han.runtime.native_plans import Prepared
from han.runtime.numbers import check_compiled
from han.runtime.parts import Parts
from han.runtime.request import Request
from han.runtime.resting import do_all
from han.runtime.waiting import tell_limit
from han.tasks.choice import Choice
from han.tasks.plan import Plan

check_compiled()


class Served(Enum):
    """Who carries out a call; the same on all ranks."""

    BY_HAN = "han"
    BY_MPI = "the MPI library"
    ON_DEVICE = "the MPI library, as a buffer is in memory of a device"


class State:
    """Runs the calls of a communicator; making one is collective.

    `parts` serve the calls. When the communicator is freed they may go on to the next one, and
    calls of this one raise RevokedError.
    """

    def __init__(
        self, comm: MPI.Intracomm, config: Any, inherited: Inherited | None = None
    ) -> None:
        self.comm, self.closed, self.busy = comm, False, False
        self.parts: Parts = parts_of(comm, config, inherited)
        health, engines = self.parts.health, self.parts.engines
        self.rank, self.size = health.rank, health.size
        self.calls: Any = engines.calls  # the look-up in C
        self.eager = engines.eager
        self.neighbour_calls: dict[str, Any] | None = None  # once they are known

    @property
    def health(self) -> Health:
        """What this rank knows about the others; raises RevokedError after the communicator."""
        if self.closed:
            raise revoked(FREED)
        return self.parts.health

    # ---- running ----------------------------------------------------------------------------

    def _planned(self, message: Message, blocking: bool) -> tuple[Message, Prepared | None]:
        """Return what han runs for a call, and its plan; None if the call is left to MPI."""
        prepared = self.parts.plans.find(message, blocking)
        if prepared is not None and message.signature.device:
            message = agreement(message.signature, self.health)
        return message, prepared

    def run(self, parser: Parser, *arguments: object) -> Served:
        """Run a blocking call that the look-up in C did not serve.

        For a call on memory of a device this waits until all ranks have made such a call.
        """
        agreed = self._checked(parser, arguments)
        with self.health.preparing():
            parsed = agreed or parser.parse(self.comm, *arguments)
            message, prepared = self._planned(parsed, blocking=True)
            if prepared is None:
                return Served.BY_MPI
            if message.begin is not None:
                message.begin()
            self.parts.engines.own.run(
                prepared.native, message.send, message.recv, message.keep,
                message.signature.nbytes, message.sizes,
            )  # fmt: skip
        if message.end is not None:
            message.end()
        return self._served(message, prepared)

    def start(self, parser: Parser, *arguments: object) -> tuple[Served, Request | None]:
        """Start a nonblocking call.

        The request of a call on memory of a device is complete when all ranks have made such a
        call. There is no request if the call is left to the MPI library.
        """
        agreed = self._checked(parser, arguments)
        with self.health.preparing():
            parsed = agreed or parser.parse(self.comm, *arguments)
            message, prepared = self._planned(parsed, blocking=False)
            if prepared is None:
                return Served.BY_MPI, None
            request = Request(
                self.parts.engines.own, prepared.native, message.send, message.recv,
                (message.keep, prepared), message.begin, message.end,
                nbytes=message.signature.nbytes, sizes=message.sizes,
            )  # fmt: skip
            request.Start()
        tell_limit(prepared.native, self.parts.config.wait)
        return self._served(message, prepared), request

    def init(self, parser: Parser, *arguments: object) -> tuple[Served, Request | None]:
        """Make a persistent request; there is none if the call is left to the MPI library."""
        self.health.live()
        signature, request = self.parts.persistent.init(parser, arguments)
        if request is not None:
            return Served.BY_HAN, request
        return Served.ON_DEVICE if signature.device else Served.BY_MPI, None

    def _served(self, message: Message, prepared: Prepared) -> Served:
        """Return who carries out a call that has run; let the look-up in C find its plan."""
        if prepared.signature.device:
            return Served.ON_DEVICE
        if not self.parts.config.check and not self.parts.plans.apart:
            self.parts.engines.remember(prepared.native, message, prepared.signature)
        return Served.BY_HAN

    # ---- checked mode -----------------------------------------------------------------------

    def _checked(self, parser: Parser, arguments: tuple[object, ...]) -> Message | None:
        """In checked mode, compare the call across ranks and return its message; else None."""
        self.health.live()
        if not self.parts.config.check:
            return None
        return self.parts.persistent.compare(parser, arguments)[0]

    # ---- windows ----------------------------------------------------------------------------

    def of_window(self, name: str, act: Callable[[Windows, Any], str], win: Any) -> None:
        """Attach or detach a window; collective. Raises ArgumentError on all ranks."""
        self.health.live()
        with self.health.together(name):
            wrong = act(self.parts.shared.windows, win)
        if wrong:
            raise ArgumentError(f"{name}: {wrong}")

    # ---- the end ----------------------------------------------------------------------------

    def close(self, free: bool = True) -> None:
        """Release everything; free han's communicator too if `free` (collective).

        Afterwards `busy` tells whether a call on the program's communicator was given up. The
        second call does nothing.
        """
        if self.closed:
            return
        self.closed, self.calls = True, NOTHING
        left: Sequence[Parts] = (self.parts,)
        try:
            with contextlib.suppress(HanError, MPI.Exception):
                self.parts.engines.drain()
            if free:
                left = self.parts.rest()
        finally:  # also after an interrupt
            try:
                do_all(partial(self._end, one, free) for one in left)
            finally:
                self.busy = self.parts in left and self.parts.health.busy

    def _end(self, parts: Parts, free: bool) -> None:
        if parts is self.parts:
            self.parts.end(free)
        else:
            parts.drop()


@dataclass(frozen=True)
class Forced:
    """A blocking call with a choice of its own: run it with ``call()``, in step with all ranks.

    `plan` is that of the call's size.
    """

    call: Callable[[], None]
    plan: Plan
    prepared: Prepared


def forced(
    state: State, parser: Parser, arguments: tuple[object, ...], choice: Choice,
    shared: bool = False,
) -> Forced:  # fmt: skip
    """Prepare a call that runs `choice`; collective.

    The arguments are contiguous arrays in memory of the host, with `shared` those of all ranks
    shared arrays. All ranks pass the same choice, which can serve the call
    (``RuleTable.objection``).
    """
    state.health.live()
    with state.health.preparing():
        message = parser.parse(state.comm, *arguments)
        called = replace(message.signature, mapped=shared)
        planned = state.parts.planner.running(called, choice)
        prepared = state.parts.maker.make(planned, message, state.parts.engines.own)
    run = partial(
        state.parts.engines.own.run, prepared.native, message.send, message.recv, message.keep,
        called.nbytes, message.sizes,
    )  # fmt: skip
    return Forced(run, planned.plan.of_size(called.nbytes, called.counts), prepared)
