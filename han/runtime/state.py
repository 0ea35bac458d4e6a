"""The state of a communicator: the parts that serve its calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from mpi4py import MPI

from han import _native
from han.common.errors import ArgumentError, HanError
from han.config.arrange import Facts
from han.config.config import Config
from han.config.statistics import statistics_output
from han.memory.shared import SharedMemory
from han.memory.windows import Spots, agreed_spots
from han.message.message import Message
from han.message.parsers import Parser
from han.model.collectives import ROWS
from han.model.topology import Topology
from han.ranks.checks import compare
from han.ranks.discover import (
    Conditions,
    check_agreement,
    discover,
    facts_of,
    gather_facts,
    try_to_load,
)
from han.ranks.health import AGREED, Health
from han.ranks.meeting import Meeting, Patience, duplicate
from han.ranks.notices import Notices
from han.runtime.binder import Binder
from han.runtime.engines import Engines
from han.runtime.inherited import Inherited, world_ranks
from han.runtime.leaving import at_end
from han.runtime.left import watch
from han.runtime.numbers import check_compiled
from han.runtime.on_device import agreement
from han.runtime.persistent import Persistent
from han.runtime.plans import Plans
from han.runtime.prepared import Prepared
from han.runtime.programs import Programs
from han.runtime.progress import set_helper, tell_limit
from han.runtime.request import Request
from han.runtime.stored_plans import wisdom_folder
from han.runtime.tuned import agreed_table, tuned_table
from han.runtime.waiting import Waiting, naps
from han.tasks.size_classes import bound_of
from han.trace.trace_files import trace_folder
from han.trace.tracing import Tracing
from han.tuning.heuristics import NodeTraits
from han.tuning.planner import Planner
from han.tuning.tuned.places import Search

check_compiled()

NOTHING_KNOWN = Conditions()
SETUP_LIMIT = 600.0  # seconds; the limit until the configuration is known
SETUP_LEAST = 30.0  # the least limit of set-up: ranks still import modules


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

    comm: MPI.Intracomm
    config: Config
    conditions: Conditions
    topology: Topology
    health: Health
    shared: SharedMemory
    tracing: Tracing
    engines: Engines
    planner: Planner
    binder: Binder
    plans: Plans
    persistent: Persistent
    tuned: Search  # the tuned table in use, and what is to be told about it
    statistics: str  # where statistics of collectives go, or ""
    closed = False
    facts: list[Facts]  # by rank
    _heritage: Inherited | None = None  # made for the first child

    def __init__(
        self, comm: MPI.Intracomm, config: Any, inherited: Inherited | None = None
    ) -> None:
        loaded, problem = try_to_load(config)
        ranks = inherited.places(comm) if inherited is not None else None
        token = inherited.parent.notices.token if inherited is not None and ranks else 0
        traces, trouble = trace_folder()
        stored, damage = wisdom_folder()
        self.statistics, mistake = statistics_output()
        limit = SETUP_LIMIT if loaded is None else loaded.wait.timeout
        patient = limit and max(limit, SETUP_LEAST)
        look = inherited.watch(comm) if inherited is not None else None
        self.comm = duplicate(comm, patient, look)
        meeting = Meeting(self.comm, patient)
        meeting.look = look
        try:
            fingerprint = loaded.fingerprint() if loaded else ""
            told = trouble or damage or mistake if problem is None else str(problem)
            counts = bool(self.statistics)
            self.tuned = tuned_table(loaded)
            agreed = check_agreement(
                meeting, fingerprint, told, traces, problem, counts, token, self.tuned.digest
            )
            self.config, self.tuned = loaded, agreed_table(self.tuned, agreed.other_tables)
            self._meet(meeting, inherited, ranks if agreed.known else None)
            meeting.share(lambda: self._make(stored), "the making of a han.Comm")
            if traces:
                self.tracing.record_into(traces)
        except AGREED:
            self.comm.Free()
            raise
        meeting.look, meeting.limit = self.health.look, limit
        meeting.expect = self.health.expect_step
        at_end(self)

    def _meet(
        self, meeting: Meeting, inherited: Inherited | None, ranks: Sequence[int] | None
    ) -> None:
        """Discover the topology and make the shared memory; collective.

        `ranks` are the numbers of the ranks in the parent, or None if it does not have all.
        """
        reach = None
        if inherited is not None and ranks is not None:
            self.facts, reach = facts_of(inherited.facts, ranks), inherited.reach
        else:
            self.facts = gather_facts(meeting, self.config)
        topology, here = discover(self.facts, self.config)
        parent = inherited.conditions if inherited is not None else NOTHING_KNOWN
        # Ranks of the parent that are not in this communicator still use the processors.
        oversubscribed = here.oversubscribed or parent.oversubscribed
        self.conditions = Conditions(oversubscribed, here.rationed or parent.rationed, here.mesh)
        self.health = Health(meeting, Notices(meeting))
        sleeps = naps(self.config.wait, self.conditions)
        memory = self.config.memory
        self.shared = SharedMemory(meeting, topology, memory, sleeps, reach, ranks or ())
        self.topology = self.shared.topology

    def _make(self, stored: str) -> None:
        """Make the parts that need no other rank."""
        health, shared = self.health, self.shared
        self.rank, self.size = health.rank, health.size
        self.tracing = Tracing(health, self.topology.memory)
        recorder = self.tracing.recorder
        waiting = Waiting.of(self.config.wait, self.conditions)
        set_helper(self.config.wait, self.conditions)
        self.engines = Engines(self.comm, health, waiting, recorder)
        traits = NodeTraits(self.conditions.oversubscribed, self.conditions.mesh)
        maps = shared.arena is not None
        table = self.tuned.table
        self.planner = Planner(self.topology, self.config, traits, self.rank, maps, table)
        self.engines.open(shared.channels, self.planner.bounds)
        health.engines = self.engines
        self.calls = self.engines.calls
        self.binder = Binder(self.comm, health, shared, recorder)
        programs = Programs(self.planner, stored)
        self.plans = Plans(programs, self.binder, shared, self.engines)
        self.persistent = Persistent(health, self.engines, shared, self.binder, programs, recorder)
        recorder.follow(self.engines, self.binder)

    def heritage(self) -> Inherited:
        """Return what a child takes over."""
        if self._heritage is None:
            reach, world = self.shared.reach, world_ranks(self.comm)
            self._heritage = Inherited(
                self.config, self.conditions, self.health, world, tuple(self.facts), reach
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
                prepared.native, message.send, message.recv, message.keep, message.signature.nbytes
            )
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
        message, spots, slots = self._compared(parser, arguments)
        request = self.persistent.request(message, spots, slots)
        if request is not None:
            return Served.BY_HAN, request
        return Served.ON_DEVICE if message.signature.device else Served.BY_MPI, None

    def _remember(self, message: Message, prepared: Prepared) -> None:
        """Enter the plan into the look-up in C, for calls of this signature."""
        signature = message.signature
        if message.key is None or self.config.check or self.plans.apart:
            return
        kind = ROWS[signature.collective].code
        op = message.op if signature.reduces else None
        way = signature.root or int(signature.in_place)  # no call has both
        bound = bound_of(signature, self.planner.bounds) or message.key.nbytes
        self.calls.add(prepared.native, kind, way, op, message.key._replace(nbytes=bound))

    def wait_for(self, request: MPI.Request, step: str) -> None:
        """Wait for a call of the MPI library; raises if another rank raised or gave up."""
        patience, call = Patience(), self.health.notices.left - 1
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
        return self._compared(parser, arguments)[0] if self.config.check else None

    def _compared(
        self, parser: Parser, arguments: tuple[object, ...]
    ) -> tuple[Message, tuple[Spots, ...], set[int]]:
        """Compare a call across ranks.

        Returns its message, the locations of all ranks' buffers, and which slots of persistent
        requests all ranks have left. Raises on all ranks if they do not agree.
        """
        message, problem, health = None, None, self.health
        with health.together(f"the comparison of {parser.name}"):
            try:
                message = parser.parse(self.comm, *arguments)
            except Exception as error:
                problem = error
            call = message.signature if message else f"{type(problem).__name__}: {problem}"
            spots = None
            if message is not None:
                signature = message.signature
                spots = self.shared.windows.spots(message.send, message.recv, signature)
            told = call, spots, tuple(self.persistent.left)
            everyone = health.meeting.allgather(told, health.step)
        compare([call for call, _, _ in everyone], problem)
        assert message is not None
        slots = set.intersection(*(set(left) for _, _, left in everyone))
        return message, agreed_spots([spots for _, spots, _ in everyone]), slots

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
        finally:  # also after an interrupt
            self._release(free and self._quiet())

    def _quiet(self) -> bool:
        """Return whether no message is under way, as MPI demands before it frees a communicator."""
        with contextlib.suppress(MPI.Exception):
            return self.health.failed is None and self.health.notices.flush()
        return False

    def _release(self, free: bool) -> None:
        self.tracing.close()
        self.health.failed = self.health.failed or "it has been freed"
        self.engines.stop()
        self.health.notices.close()
        self.plans.clear(free)
        self.shared.windows.clear()
        if free:
            self.comm.Free()
