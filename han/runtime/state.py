"""What hangs on a communicator: its own duplicate, topology, channels, engine and plans."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from mpi4py import MPI

from han import _native
from han.common.errors import ArgumentError, HanError
from han.memory.attach import refusal
from han.memory.channel import Channel, open_channels
from han.memory.mapping import Mapping, map_arenas, map_unasked
from han.memory.windows import Windows, agreed_spots
from han.message.message import Message
from han.model.program import Coll
from han.ranks.discover import Conditions, check_agreement, discover, try_to_load
from han.ranks.meeting import Meeting, Patience, abandon, duplicate
from han.ranks.notices import Notices, tag_limit
from han.runtime import persistent
from han.runtime.native_plans import empty_plan
from han.runtime.plans import Plans, Prepared
from han.runtime.reports import Reporter
from han.runtime.request import Request
from han.runtime.revocable import AGREED, Revocable
from han.runtime.stored_plans import wisdom_folder
from han.trace.trace_files import trace_folder
from han.trace.tracing import Tracing

ENGINE_TAGS = _native.MAX_STREAMS * _native.EPOCH_TAGS
NOTHING_KNOWN = Conditions()
SETUP_LIMIT = 600.0  # seconds, until the configuration is known
SETUP_LEAST = 30.0  # and at least: ranks that start import modules and read files
Parse = Callable[..., Message]


class _Waiting(NamedTuple):
    """How an engine waits: han_wait_policy in native/engine.h."""

    spins: int
    least_spins: int
    sleep_ns: int
    timeout: float
    futex: bool


class State(Revocable):
    """Everything that the collectives of one communicator share. Making one is collective."""

    def __init__(
        self, comm: MPI.Intracomm, config: Any, parent: Conditions = NOTHING_KNOWN
    ) -> None:
        self.mapping: Mapping | None = None  # of the ranks' arenas, once it has been tried
        self.engines: weakref.WeakSet[Any] = weakref.WeakSet()
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.tracing = Tracing(self)
        loaded, problem = try_to_load(config)
        folder, trouble = trace_folder()
        self._wisdom, damage = wisdom_folder()
        limit = SETUP_LIMIT if loaded is None else loaded.wait.timeout
        patient = limit and max(limit, SETUP_LEAST)
        self.comm = duplicate(comm, patient)
        self.meeting = Meeting(self.comm, patient)
        try:
            fingerprint = loaded.fingerprint() if loaded else ""
            check_agreement(self.meeting, fingerprint, problem or trouble or damage, folder)
            self.config = loaded
            self._explore(parent)
            self.meeting.share(self._make, "the making of a han.Comm")
            if folder:
                self.tracing.record_into(folder)
        except AGREED:
            self.comm.Free()
            raise
        self.meeting.look, self.meeting.limit = self._look, limit

    # ---- making -----------------------------------------------------------------------------

    def _explore(self, parent: Conditions) -> None:
        """Find out where the ranks stand, and make the shared memory."""
        self.topology, here = discover(self.meeting, self.config)
        # The parent's ranks that are not in here are there all the same.
        crowded = here.crowded or parent.crowded
        self.conditions = Conditions(crowded, here.rationed or parent.rationed, here.mesh)
        self.notices = Notices(self.meeting)
        self.engines_made = self.notices.token  # so tags are not those of a freed state
        self.channels = open_channels(self.meeting, self.topology, self.config.memory, self.naps)
        self.windows = Windows(self.meeting, self._nodes())
        self.attach_refused = refusal(self.meeting, self.channels)
        self.topology = replace(self.topology, attach=not self.attach_refused)
        if self.topology.whole is not None and self.size > 1:
            self.mapping = map_unasked(self.meeting, self.channels)
        self._alternatives = self.mapping is not None  # plans' room in rings follows from it

    def _nodes(self) -> list[int]:
        """Return for each rank the lowest one that it shares a channel with."""
        topology = self.topology
        levels = [k for k in range(topology.depth) if topology.shared[k]]
        return [
            min([r, *(other for k in levels for other in topology.home(k, r))])
            for r in range(self.size)
        ]

    def _make(self) -> None:
        """Make what needs no other rank."""
        self.engine = self.engine_on(self.channels)
        self.calls = _native.Calls(self.engine, MPI.IN_PLACE, Request, self.rank, self.size)
        self.plans = Plans(self, self._wisdom)

    def engine_on(self, channels: list[Channel]) -> Any:
        """Make an engine over some channels."""
        tags = tag_limit(self.comm) // ENGINE_TAGS - 1
        base = (self.engines_made % tags + 1) * ENGINE_TAGS
        number = self.engines_made - self.notices.token
        self.engines_made += 1
        library = (
            MPI.__file__, int(MPI._sizeof(MPI.COMM_WORLD) > 4), MPI.ANY_SOURCE, self.notices.tag,
            int(MPI.IN_PLACE), MPI._handleof(MPI.BYTE),
        )  # fmt: skip
        reporter = Reporter(weakref.ref(self), channels, number)
        engine = _native.Engine(
            mpi=library,
            comm=MPI._handleof(self.comm),
            channels=tuple(c.spec() for c in channels),
            tag_base=base,
            wait=self._wait(),
            on_error=reporter,
        )
        reporter.engine = weakref.ref(engine)
        self.engines.add(engine)
        self.tracing.recorder.attach(engine, number)
        return engine

    def _wait(self) -> _Waiting:
        """Turn the wait policy into the engine's terms.

        With more ranks than processors all but ``spin`` poll once: another rank has work to do.
        ``auto`` spins less while yielding shows that others want the processor.
        """
        wait = self.config.wait
        patient = 1 if self.oversubscribed else wait.spin
        spins = {"spin": (1 << 32) - 1, "yield": 0}.get(wait.policy, patient)
        least = min(1, spins) if wait.policy == "auto" else spins
        nap = 50_000 if wait.policy == "sleep" else 0
        return _Waiting(spins, least, nap, float(wait.timeout), self.naps)

    @property
    def naps(self) -> bool:
        """Whether ranks may sleep in the kernel until a flag is posted.

        Whoever waits otherwise uses up time of the container that others could work in.
        """
        policy = self.config.wait.policy
        return bool(policy == "futex" or (policy == "auto" and self.conditions.rationed))

    @property
    def oversubscribed(self) -> bool:
        """Whether a node has more ranks than processors that they may use."""
        return self.conditions.crowded

    def rules(self) -> Any:
        """Return the table that chooses."""
        from han.tuning.heuristics import Machine
        from han.tuning.rules import RuleTable

        return RuleTable(
            self.config, self.topology, Machine(self.oversubscribed, self.conditions.mesh)
        )

    # ---- running ----------------------------------------------------------------------------

    def moves_blocks(self) -> bool:
        """Whether calls whose buffers hold a block a rank are han's: where all share memory."""
        self.live()
        return self.topology.whole is not None

    def run(self, parse: Parse, *arguments: object) -> bool:
        """Run a blocking call whose shape is new, or whose arguments are not plain arrays.

        Returns False, on all ranks alike, where the call is not one of han's.
        """
        agreed = self._checked(parse, arguments)
        with self._turn():
            message = agreed or parse(self.comm, *arguments)
            prepared = self.plans.find(message, blocking=True)
            if prepared is None:
                return False
            if message.begin is not None:
                message.begin()
            self.engine.run(prepared.native, message.send, message.recv, message.keep)
        if message.end is not None:
            message.end()
        self._remember(message, prepared)
        return True

    def start(self, parse: Parse, *arguments: object) -> Request:
        """Start a nonblocking call."""
        request = self.try_to_start(parse, *arguments)
        assert request is not None, "only calls that move blocks may be MPI's"
        return request

    def try_to_start(self, parse: Parse, *arguments: object) -> Request | None:
        """Start a nonblocking call; None where it is not one of han's."""
        agreed = self._checked(parse, arguments)
        with self._turn():
            message = agreed or parse(self.comm, *arguments)
            prepared = self.plans.find(message, blocking=False)
            if prepared is None:
                return None
            request = self._request(self.engine, prepared.native, message)
            request.Start()
        self._remember(message, prepared)
        return request

    def init(self, parse: Parse, *arguments: object) -> Request:
        """Make a persistent request, with channels of its own: it may be live beside others."""
        request = self.try_to_init(parse, *arguments)
        assert request is not None, "only calls that move blocks may be MPI's"
        return request

    def try_to_init(self, parse: Parse, *arguments: object) -> Request | None:
        """Make a persistent request; None where the call is not one of han's."""
        self.live()
        message = self._compared(parse, arguments)
        if not self.plans.serve(message.signature):
            return None
        with self.together("the making of a persistent request"):
            return persistent.make(self, message)

    def arena(self) -> tuple[int, int] | None:
        """Return where this rank's arena is, and its bytes.

        None if no channel holds all ranks, or a rank cannot map the others' arenas.
        """
        whole, mapping = self.topology.whole, self.mapping
        if not self._alternatives or whole is None or mapping is None or mapping.own is None:
            return None
        return mapping.own.base, mapping.own.size

    @property
    def whole_channel(self) -> int:
        """Which channel holds all ranks, if one does."""
        return sum(self.topology.shared[: self.topology.whole or 0])

    def place_in_whole(self, rank: int) -> int:
        """Return which of the ranks of that channel a rank is."""
        whole = self.topology.whole
        assert whole is not None
        return self.topology.home(whole, rank).index(rank)

    def arenas(self) -> Mapping:
        """Return the arenas of the ranks that share memory; collective when first asked for."""
        if self.mapping is None:
            self.mapping = map_arenas(self.meeting, self.channels)
        return self.mapping

    def attach_window(self, win: Any) -> None:
        """Let collectives read what is in a shared window where it is; collective."""
        self._of_window("attach_window", self.windows.attach, win)

    def detach_window(self, win: Any) -> None:
        """Let those that are made from now on not; collective."""
        self._of_window("detach_window", self.windows.detach, win)

    def _of_window(self, name: str, act: Callable[[Any], str], win: Any) -> None:
        """Do something with a window, with all ranks; raise ArgumentError on all of them alike."""
        self.live()
        with self.together(name):
            wrong = act(win)
        if wrong:
            raise ArgumentError(f"{name}: {wrong}")

    def _request(self, engine: Any, plan: Any, message: Message) -> Request:
        return Request(
            engine, plan, message.send, message.recv, message.keep, message.begin, message.end
        )

    def _remember(self, message: Message, prepared: Prepared) -> None:
        """Let the next call with plain arrays of this shape go through the look-up in C."""
        signature = message.signature
        if message.plain is None or self.config.check or self.plans.apart:
            return
        kind = Coll[signature.collective.upper()]
        op = message.op if signature.reduces else None
        nbytes, number = message.plain
        way = signature.root or int(signature.in_place)  # one or the other
        self.calls.add(prepared.native, kind, nbytes, number, op, way)

    def wait_for(self, request: MPI.Request, step: str) -> None:
        """Wait for a call that is MPI's, unless another rank gives the communicator up."""
        patience = Patience()
        try:
            while not request.Test():
                _native.progress()
                if patience.pause():
                    self.listen(0, step)
        except BaseException:
            abandon(request)  # and the buffers that it holds
            raise

    # ---- checked mode -----------------------------------------------------------------------

    def _checked(self, parse: Parse, arguments: tuple[object, ...]) -> Message | None:
        """In checked mode, return the message once all ranks are found to agree on it."""
        self.live()
        return self._compared(parse, arguments) if self.config.check else None

    def check(self, parse: Parse, *arguments: object) -> None:
        """In checked mode, compare a call that is MPI's; raise on all ranks if they differ."""
        self._checked(parse, arguments)

    def _compared(self, parse: Parse, arguments: tuple[object, ...]) -> Message:
        """Compare the call across ranks; raise on all of them when they do not agree."""
        from han.ranks.checks import compare

        name = getattr(parse, "__name__", "call")
        message, problem = None, None
        with self.together(f"the comparison of {name}"):
            try:
                message = parse(self.comm, *arguments)
            except Exception as error:
                problem = error
            said = message.signature if message else f"{type(problem).__name__}: {problem}"
            spots = None if message is None else self.windows.spots(message)
            everyone = self.meeting.allgather((said, spots), self.step)
        compare([said for said, _ in everyone], problem)
        assert message is not None
        return replace(message, spots=agreed_spots([spots for _, spots in everyone]))

    # ---- the end ----------------------------------------------------------------------------

    def drain(self) -> None:
        """Wait for everything that was started."""
        for engine in self.all_engines():
            if self.failed is None and engine.issued > engine.epoch:
                engine.run(empty_plan(engine, self.rank), 0, 0, None)

    def all_engines(self) -> list[Any]:
        """List the engines, also those that only a dropped request still holds.

        The garbage collector clears weak references before it finds out that a request lives on.
        """
        dropped = (r._engine for r in _native.orphans())
        return list({*self.engines, *(e for e in dropped if e.on_error.state() is self)})

    def close(self, free: bool = True) -> None:
        """Release everything; `free` the communicators too (collective)."""
        with contextlib.suppress(HanError, MPI.Exception):
            self.drain()
        self.tracing.close()
        self.failed = self.failed or "it has been freed"
        self.calls.clear()
        for engine in self.all_engines():
            engine.stop()
            engine.on_error.close()
        _native.orphans()  # forgets those that are finished
        self.notices.close()
        self.plans.clear(free)
        self.windows.clear()
        if free:
            self.comm.Free()
