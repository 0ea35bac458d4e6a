"""The state of a communicator: the parts that serve its calls."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from enum import Enum
from typing import Any

from mpi4py import MPI

from han import _native
from han.common.errors import ArgumentError, HanError
from han.config.arrange import Facts
from han.config.config import Config
from han.memory.shared import SharedMemory
from han.message.message import Message
from han.message.parsers import Parser
from han.model.topology import Topology
from han.ranks.discover import (
    STEP,
    Conditions,
    discover,
    gather_facts,
)
from han.ranks.health import AGREED, FREED, Health
from han.ranks.mail import Mail
from han.ranks.meeting import Meeting, Patience, setup_limit
from han.ranks.notices import Notices
from han.runtime.alike import ALIKE
from han.runtime.binder import Binder
from han.runtime.birth import Birth, Known
from han.runtime.engines import Engines
from han.runtime.given import Given
from han.runtime.inherited import Draft, Inherited, world_ranks
from han.runtime.known import remember
from han.runtime.leaving import at_end
from han.runtime.left import leave_blocks, watch
from han.runtime.maker import Maker
from han.runtime.numbers import check_compiled
from han.runtime.on_device import agreement
from han.runtime.persistent import Persistent
from han.runtime.plans import Plans
from han.runtime.prepared import Prepared
from han.runtime.programs import Programs
from han.runtime.progress import set_helper, tell_limit
from han.runtime.request import Request
from han.runtime.resting import Nest
from han.runtime.succession import Left, leave, succeed
from han.runtime.tuned import agreed_table
from han.runtime.waiting import Waiting, naps
from han.trace.tracing import Tracing
from han.tuning.built_in.traits import NodeTraits
from han.tuning.planner import Planner
from han.tuning.tuned.find import Search

check_compiled()

SETUP_LIMIT = 600.0  # seconds; the limit until the configuration is known


class Served(Enum):
    """Who carries out a call; the same on all ranks."""

    BY_HAN = "han"
    BY_MPI = "the MPI library"
    ON_DEVICE = "the MPI library, as a buffer is in memory of a device"


class State:
    """Builds and closes the parts of a communicator, and runs its calls.

    Making one is collective. The parts are `health` (are the ranks in step), `engines`, `shared`
    (memory), `planner` (decides), `plans` (kept ones), `binder` and `tracing`.
    """

    config: Config
    conditions: Conditions
    topology: Topology
    health: Health
    shared: SharedMemory
    tracing: Tracing
    engines: Engines
    planner: Planner
    binder: Binder
    maker: Maker
    plans: Plans
    persistent: Persistent
    tuned: Search  # the tuned table in use, and what is to be told about it
    statistics: str  # where statistics of collectives go, or ""
    closed = False
    rests = False  # its parts are left to the next communicator of the same ranks
    facts: tuple[Facts, ...]  # by rank
    _given: Given
    _heritage: Inherited | None = None  # made for the first child
    origin: tuple[Inherited, tuple[int, ...]] | None = None  # the parent, and the ranks there

    def __init__(
        self, comm: MPI.Intracomm, config: Any, inherited: Inherited | None = None
    ) -> None:
        parts = None if inherited is None else inherited.nest.due(comm.handle)
        if isinstance(parts, Left):
            succeed(self, parts, comm)
            return
        given = Given.read(config) if inherited is None else inherited.given
        limit = SETUP_LIMIT if given.problem else given.config.wait.timeout
        meeting = Meeting(comm, setup_limit(limit))
        meeting.look = inherited.watch(comm) if inherited is not None else None
        self.config, self.statistics = given.config, given.statistics
        known, others = Birth.of(inherited, comm).introduce(meeting, given)
        if isinstance(known, Left):
            succeed(self, known, comm)
            return
        self.tuned = agreed_table(given.tuned, others)
        self._given = given if self.tuned is given.tuned else given.using(self.tuned)
        if isinstance(known, Known):
            self._take_over(meeting, known)
            if inherited is not None and self.topology.whole is not None:
                self.origin = inherited, known.draft.ranks
        else:
            self._discover(meeting, known if isinstance(known, Draft) else None)
        if given.settings.folder:
            self.tracing.record_into(given.settings.folder)
        meeting = self.health.meeting
        meeting.look, meeting.limit = self.health.look, limit
        meeting.expect = self.health.expect_step
        if self.topology.whole is None and not self.config.check:
            leave_blocks(self.calls, comm, self.facts)
        at_end(self)

    def _discover(self, outer: Meeting, draft: Draft | None) -> None:
        """Find out where the ranks are, and make shared memory; collective."""
        own = outer.messages()
        meeting = Meeting(own, outer.limit, own)
        meeting.look = outer.look
        try:
            token = meeting.allgather(int.from_bytes(os.urandom(4), "little") >> 1, STEP)[0]
            facts = draft.facts if draft else tuple(gather_facts(meeting, self.config))
            topology, here = discover(facts, self.config)
            self.conditions = draft.conditions if draft else here
            self.facts = facts
            self.health = Health(meeting, Notices(Mail(own, token), range(meeting.size), token))
            memory, sleeps = self.config.memory, naps(self.config.wait, self.conditions)
            crowded = self.conditions.oversubscribed
            self.shared = SharedMemory.made(meeting, topology, memory, sleeps, crowded)
            meeting.share(self._make, STEP)
        except AGREED:
            own.Free()
            raise

    def _take_over(self, meeting: Meeting, known: Known) -> None:
        """Make all that the parent need not be asked for; not collective, for one node.

        If this raises, it tells the other ranks, which may have gone on.
        """
        draft = known.draft
        self.facts, self.conditions = draft.facts, draft.conditions
        meeting.line = known.line
        self.health = Health(meeting, Notices(known.mail, known.line.places, known.token))
        sleeps = naps(self.config.wait, self.conditions)
        try:
            self.shared = SharedMemory.borrowed(
                meeting, draft.topology, sleeps, known.lending, known.offsets
            )
            self._make()
            meeting.look, meeting.expect = self.health.look, self.health.expect_step
            if self.topology.whole is None:
                self.engines.let_talk()
        except BaseException as error:
            self.health.give_up(error)
            raise

    def _make(self) -> None:
        """Make the parts that need no other rank."""
        health, shared = self.health, self.shared
        self.topology = shared.topology
        self.rank, self.size = health.rank, health.size
        self.tracing = Tracing(health, self.topology.memory)
        recorder = self.tracing.recorder
        waiting = Waiting.of(self.config.wait, self.conditions)
        set_helper(self.config.wait, self.conditions)
        self.engines = Engines(health, waiting, recorder)
        traits = NodeTraits(self.conditions.oversubscribed, self.conditions.mesh)
        maps = shared.arena is not None
        table = self.tuned.table
        self.planner = ALIKE.planner(self.topology, self.config, traits, self.rank, maps, table)
        self.engines.open(shared.channels, self.planner.bounds, self.topology.whole is not None)
        health.engines = self.engines
        self.calls, self.eager = self.engines.calls, self.engines.eager
        self.binder = Binder(health, shared, recorder)
        self.maker = maker = Maker(Programs(self.planner), self.binder, shared, self.engines)
        self.plans = Plans(maker, self.engines)
        self.persistent = Persistent(health, self.engines, shared, maker)
        recorder.follow(self.engines, self.binder)

    @property
    def comm(self) -> MPI.Intracomm:
        """A communicator of the same ranks, in the same order."""
        return self.health.meeting.comm

    def heritage(self) -> Inherited:
        """Return what a child takes over."""
        if self._heritage is None:
            reach, world = self.shared.reach, world_ranks(self.comm)
            self._heritage = Inherited(
                self._given, self.conditions, self.health, world, self.facts, reach
            )
        return self._heritage

    # ---- running ----------------------------------------------------------------------------

    def moves_blocks(self) -> bool:
        """Return whether han serves calls by blocks: where all ranks share memory."""
        self.health.live()
        return self.topology.whole is not None

    def _serves(self, parser: Parser, arguments: tuple[object, ...]) -> bool:
        """Return whether han may serve a call; in checked mode, compare a call left to MPI."""
        serves = not parser.by_blocks or self.moves_blocks()
        if not serves:
            self._checked(parser, arguments)
        return serves

    def run(self, parser: Parser, *arguments: object) -> Served:
        """Run a blocking call that the look-up in C did not serve.

        For a call on memory of a device this waits until all ranks have made such a call.
        """
        if not self._serves(parser, arguments):
            return Served.BY_MPI
        agreed = self._checked(parser, arguments)
        with self.health.preparing():
            message = agreed or parser.parse(self.comm, *arguments)
            prepared = self.plans.find(message, blocking=True)
            if prepared is None:
                return Served.BY_MPI
            on_device = message.signature.device
            if on_device:
                message = agreement(message.signature, self.health)
            if message.begin is not None:
                message.begin()
            self.engines.own.run(
                prepared.native, message.send, message.recv, message.keep,
                message.signature.nbytes, message.signature.sizes,
            )  # fmt: skip
        if message.end is not None:
            message.end()
        if on_device:
            return Served.ON_DEVICE
        self._remember(message, prepared)
        return Served.BY_HAN

    def start(self, parser: Parser, *arguments: object) -> tuple[Served, Request | None]:
        """Start a nonblocking call.

        The request of a call on memory of a device is complete when all ranks have made such a
        call. There is no request if the call is left to the MPI library.
        """
        if not self._serves(parser, arguments):
            return Served.BY_MPI, None
        agreed = self._checked(parser, arguments)
        with self.health.preparing():
            message = agreed or parser.parse(self.comm, *arguments)
            prepared = self.plans.find(message, blocking=False)
            if prepared is None:
                return Served.BY_MPI, None
            on_device = message.signature.device
            if on_device:
                message = agreement(message.signature, self.health)
            request = Request(
                self.engines.own, prepared.native, message.send, message.recv, message.keep,
                message.begin, message.end, nbytes=message.signature.nbytes,
                sizes=message.signature.sizes,
            )  # fmt: skip
            request.Start()
        tell_limit(prepared.native, self.config.wait)
        if on_device:
            return Served.ON_DEVICE, request
        self._remember(message, prepared)
        return Served.BY_HAN, request

    def init(self, parser: Parser, *arguments: object) -> tuple[Served, Request | None]:
        """Make a persistent request; there is none if the call is left to the MPI library."""
        self.health.live()
        if not self._serves(parser, arguments):
            return Served.BY_MPI, None
        signature, request = self.persistent.init(parser, arguments)
        if request is not None:
            return Served.BY_HAN, request
        return Served.ON_DEVICE if signature.device else Served.BY_MPI, None

    def _remember(self, message: Message, prepared: Prepared) -> None:
        """Enter the plan into the look-up in C, for calls of this class."""
        if not self.config.check and not self.plans.apart:
            remember(self.calls, prepared.native, message, prepared.signature)

    def wait_for(self, request: MPI.Request, step: str) -> None:
        """Wait for a call of the MPI library; raises if another rank raised or gave up."""
        patience, call = Patience(busy=True), self.health.notices.left - 1
        try:
            while not request.Test():
                _native.progress()
                if patience.pause():
                    watch(self.health, call, step)
        except BaseException:
            self.health.left_behind(request)
            raise

    # ---- checked mode -----------------------------------------------------------------------

    def _checked(self, parser: Parser, arguments: tuple[object, ...]) -> Message | None:
        """In checked mode, compare the call across ranks and return its message; else None."""
        self.health.live()
        comparing = self.persistent.comparing
        return comparing.compare(parser, arguments)[0] if self.config.check else None

    # ---- windows ----------------------------------------------------------------------------

    def attach_window(self, win: Any) -> None:
        """Let persistent collectives read arrays in a shared window; collective."""
        self._of_window("attach_window", self.shared.windows.attach, win)

    def detach_window(self, win: Any) -> None:
        """Detach a window: requests made later do not read from it; collective."""
        self._of_window("detach_window", self.shared.windows.detach, win)

    def _of_window(self, name: str, act: Callable[[Any], str], win: Any) -> None:
        """Attach or detach a window; collective. Raises ArgumentError on all ranks."""
        self.health.live()
        with self.health.together(name):
            wrong = act(win)
        if wrong:
            raise ArgumentError(f"{name}: {wrong}")

    # ---- the end ----------------------------------------------------------------------------

    def close(self, free: bool = True) -> None:
        """Release everything; free han's communicator too if `free` (collective).

        The second call does nothing.
        """
        if self.closed:
            return
        self.closed = True
        try:
            with contextlib.suppress(HanError, MPI.Exception):
                self.engines.drain()
            if free:
                leave(self)
        finally:  # also after an interrupt
            if not self.rests:
                self._release(free)

    @property
    def nest(self) -> Nest | None:
        """What freed children have left; None if no child was made."""
        return None if self._heritage is None else self._heritage.nest

    def end(self) -> None:
        """Give back all that the parts of a freed communicator hold; not collective."""
        self.closed = True
        self._release(self.health.notices.silent)

    def _release(self, free: bool) -> None:
        """Release everything. The communicators are freed by all ranks, after an error by none."""
        quiet = free and self._quiet()
        self.tracing.close()
        self.health.failed = self.health.failed or FREED
        if self.nest is not None:
            self.nest.close()
        self.engines.stop()
        self.plans.clear(quiet)
        self.persistent.slots.close()
        self.shared.windows.clear()
        self._close_mail(quiet)

    def _quiet(self) -> bool:
        """Return whether no message is under way, as MPI demands before it frees a communicator."""
        with contextlib.suppress(MPI.Exception):
            return self.health.failed is None and self.health.notices.flush(self.health.meeting)
        return False

    def _close_mail(self, quiet: bool) -> None:
        """Leave the mail; free it after its last communicator, and this one's own duplicate."""
        notices, own = self.health.notices, self.health.meeting.own
        if notices.close(quiet):
            notices.mail.close(quiet)
        if own is not None and own != notices.mail.comm and quiet:
            own.Free()
