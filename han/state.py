"""What hangs on a communicator: its own duplicate, topology, channels, engine and plans."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from han import _native
from han.channel import Channel, open_channels
from han.discover import check_agreement, discover
from han.errors import ConfigError, HanError, RevokedError
from han.geometry import PAGE
from han.message import Message
from han.notices import Notices, tag_limit
from han.plans import Prepared, native_plan
from han.program import INSTRUCTION, Coll, Program
from han.reports import Reporter
from han.request import Request
from han.tasks.signature import Signature

PLANS = 512  # kept at most, the least recently used goes first
ENGINE_TAGS = _native.MAX_STREAMS * _native.EPOCH_TAGS
Parse = Callable[..., Message]


class State:
    """Everything that the collectives of one communicator share. Making one is collective."""

    def __init__(self, comm: MPI.Intracomm, config: Any, crowded: bool = False) -> None:
        self.comm = comm.Dup()
        self.comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        try:
            self._explore(config, crowded)
        except HanError:  # on all ranks alike
            self.comm.Free()
            raise
        self.engines = self.notices.token  # tags of their own: not those of a freed state
        self.engine = self._engine(self.channels)
        self.calls = _native.Calls(self.engine, MPI.IN_PLACE, Request)
        self.plans: OrderedDict[object, Prepared] = OrderedDict()
        self.scratch: np.ndarray[Any, Any] | None = None
        self.subcomms: dict[Any, dict[tuple[int, tuple[int, ...]], MPI.Intracomm]] = {}
        self.persistent: weakref.WeakSet[Request] = weakref.WeakSet()
        self.failed: str | None = None

    # ---- making -----------------------------------------------------------------------------

    def _explore(self, config: Any, crowded: bool) -> None:
        """Find out where the ranks stand, and make the shared memory."""
        self.config = self._configure(config)
        self.topology, oversubscribed = discover(self.comm, self.config)
        self.oversubscribed = oversubscribed or crowded
        self.notices = Notices(self.comm)
        self.channels = open_channels(self.comm, self.topology, self.config.memory)

    def _configure(self, config: Any) -> Any:
        """Load the configuration; all ranks raise when one cannot, or when they differ."""
        from han.config import load_config, validate_names
        from han.submodules.catalogue import catalogue

        loaded, problem = None, None
        try:
            loaded = validate_names(load_config(config), catalogue())
        except (ConfigError, OSError) as error:
            problem = str(error)
        check_agreement(self.comm, loaded.fingerprint() if loaded else "", problem)
        return loaded

    def _engine(self, channels: list[Channel]) -> Any:
        tags = tag_limit(self.comm) // ENGINE_TAGS - 1
        base = (self.engines % tags + 1) * ENGINE_TAGS
        self.engines += 1
        library = (
            MPI.__file__, int(MPI._sizeof(MPI.COMM_WORLD) > 4), MPI.ANY_SOURCE, self.notices.tag,
            int(MPI.IN_PLACE), MPI._handleof(MPI.BYTE),
        )  # fmt: skip
        reporter = Reporter(weakref.ref(self), channels)
        engine = _native.Engine(
            mpi=library,
            comm=MPI._handleof(self.comm),
            channels=tuple(c.spec() for c in channels),
            tag_base=base,
            wait=self._wait(),
            on_error=reporter,
        )
        reporter.engine = weakref.ref(engine)
        return engine

    def _wait(self) -> tuple[int, int, int, float]:
        """Turn the wait policy into (most and least rounds to spin, nanoseconds to sleep, timeout).

        ``auto`` spins less while yielding shows that others want the processor.
        """
        wait = self.config.wait
        crowded = self.oversubscribed and wait.policy == "auto"
        spins = {"spin": (1 << 32) - 1, "yield": 0}.get(wait.policy, 1 if crowded else wait.spin)
        least = min(1, spins) if wait.policy == "auto" else spins
        return spins, least, 50_000 if wait.policy == "sleep" else 0, float(wait.timeout)

    # ---- running ----------------------------------------------------------------------------

    def run(self, parse: Parse, *arguments: object) -> None:
        """Run a blocking call whose shape is new, or whose arguments are not plain arrays."""
        message = self.message(parse, arguments)
        prepared = self.prepare(message)
        if message.begin is not None:
            message.begin()
        self.engine.run(prepared.native, message.send, message.recv)
        if message.end is not None:
            message.end()
        self._remember(message, prepared)

    def start(self, parse: Parse, *arguments: object) -> Request:
        """Start a nonblocking call."""
        message = self.message(parse, arguments)
        prepared = self.prepare(message)
        request = self._request(self.engine, prepared.native, message)
        request.Start()
        self._remember(message, prepared)
        return request

    def init(self, parse: Parse, *arguments: object) -> Request:
        """Make a persistent request, with channels of its own: it may be live beside others."""
        self._live()
        message, problem = self._parse(parse, arguments)
        self._agree(message, problem)
        assert message is not None
        memory = self._persistent_memory(message.signature.nbytes)
        channels = open_channels(self.comm, self.topology, memory)
        engine = self._engine(channels)
        prepared = self._build(message, engine, memory, own_scratch=True)
        request = self._request(engine, prepared.native, message)
        request.persistent = True

        def close() -> None:
            engine.stop()
            self._free_subcomms(engine)
            for channel in channels:
                channel.close()

        request.closing = close
        self.persistent.add(request)
        return request

    def _persistent_memory(self, nbytes: int) -> int:
        """What channels of one plan need: rings longer than a core's caches, if any cells."""
        each = 0 if nbytes <= PAGE else max(2 << 20, 4 * nbytes)
        most: int = self.config.memory
        return min(most, self.size * each)

    def _request(self, engine: Any, plan: Any, message: Message) -> Request:
        return Request(
            engine, plan, message.send, message.recv, message.keep, message.begin, message.end
        )

    # ---- arguments --------------------------------------------------------------------------

    def message(self, parse: Parse, arguments: tuple[object, ...]) -> Message:
        """Normalise a call's arguments; a mistake is told to the other ranks, then raised."""
        self._live()
        message, problem = self._parse(parse, arguments)
        if self.config.check:
            self._agree(message, problem)
        if problem is not None:
            for channel in self.channels:
                channel.mark_error(self.engine.issued)
            self.notices.tell(self.engine.issued, problem)
            self._request(self.engine, self._skip(), Message(Signature("barrier"))).Start()
            raise problem
        assert message is not None
        return message

    def _parse(
        self, parse: Parse, arguments: tuple[object, ...]
    ) -> tuple[Message | None, Exception | None]:
        try:
            return parse(self.comm, *arguments), None
        except Exception as error:
            return None, error

    def _agree(self, message: Message | None, problem: Exception | None) -> None:
        """Compare the call across ranks; raise on all of them when they do not agree."""
        from han.checks import compare

        said = message.signature if message is not None else f"{type(problem).__name__}: {problem}"
        compare(self.comm.allgather(said), problem)

    def _skip(self) -> Any:
        """Make a plan that does nothing: a call that failed takes its turn all the same."""
        empty = Program(
            self.rank, np.zeros(0, INSTRUCTION), (), (), 0, 0, 0,
            (0,) * len(self.channels), (0,) * len(self.channels), False, (),
        )  # fmt: skip
        return native_plan(self.engine, empty, Message(Signature("barrier")), (), None)

    def _live(self) -> None:
        if self.failed is not None:
            raise RevokedError(
                f"this communicator cannot be used any more: {self.failed}; "
                "make a new han.Comm from a communicator of the ranks that are left"
            )

    # ---- plans ------------------------------------------------------------------------------

    def prepare(self, message: Message) -> Prepared:
        """Find the plan of a call's shape, or make it."""
        key = (message.signature, None if message.numbers else _handles(message))
        prepared = self.plans.get(key)
        if prepared is not None:
            self.plans.move_to_end(key)
            return prepared
        prepared = self._build(message, self.engine, self.config.memory, own_scratch=False)
        self.plans[key] = prepared
        if len(self.plans) > PLANS:
            self.plans.popitem(last=False)
            self.calls.clear()
        return prepared

    def _build(self, message: Message, engine: Any, memory: int, own_scratch: bool) -> Prepared:
        from han.tasks.lower import lower
        from han.tasks.plan import make_plan

        decision = self.rules().decide(message.signature)
        plan = make_plan(self.topology, message.signature, decision.choice, memory)
        program = lower(plan, self.rank)
        comms = tuple(self._subcomm(engine, *key) for key in program.comms)
        scratch = self._scratch(program.scratch, own_scratch)
        native = native_plan(engine, program, message, comms, scratch)
        prepared = Prepared(native, program, plan, decision)
        engine.on_error.know(prepared)
        return prepared

    def rules(self) -> Any:
        """Return the table that chooses."""
        from han.tuning.heuristics import Machine
        from han.tuning.rules import RuleTable

        return RuleTable(self.config, self.topology, Machine(self.oversubscribed))

    def _scratch(self, nbytes: int, own: bool) -> np.ndarray[Any, Any] | None:
        """Private memory: calls that run one after the other share it."""
        if not nbytes:
            return None
        if own:
            return np.empty(nbytes, np.uint8)
        if self.scratch is None or self.scratch.nbytes < nbytes:
            self.scratch = np.empty(nbytes, np.uint8)
        return self.scratch

    def _subcomm(self, engine: Any, tag: int, ranks: tuple[int, ...]) -> MPI.Intracomm:
        """Return a communicator of some ranks, for submodules that use MPI's collectives.

        Each engine has its own, since what two of them start comes in no certain order.
        """
        mine: dict[tuple[int, tuple[int, ...]], MPI.Intracomm]
        mine = self.subcomms.setdefault(engine, {})
        if (tag, ranks) not in mine:
            group = self.comm.Get_group()
            members = group.Incl(ranks)
            comm = self.comm.Create_group(members, tag)
            comm.Set_errhandler(MPI.ERRORS_RETURN)
            mine[tag, ranks] = comm
            members.Free()
            group.Free()
        return mine[tag, ranks]

    def _free_subcomms(self, engine: Any) -> None:
        for comm in self.subcomms.pop(engine, {}).values():
            comm.Free()

    def _remember(self, message: Message, prepared: Prepared) -> None:
        """Let the next call with plain arrays of this shape go the quick way."""
        signature = message.signature
        if message.quick is None or self.config.check:
            return
        kind = Coll[signature.collective.upper()]
        op = message.op if signature.reduces else None
        nbytes, number = message.quick
        self.calls.add(prepared.native, kind, nbytes, number, op, signature.root)

    # ---- the end ----------------------------------------------------------------------------

    def close(self, free: bool = True) -> None:
        """Release everything; `free` the duplicate too (collective)."""
        if not free:
            self.subcomms.clear()
        for request in list(self.persistent):
            if request.closing is not None:
                request.closing()
                request.closing = None
        self.calls.clear()
        self.plans.clear()
        self.engine.stop()
        for channel in self.channels:
            channel.close()
        for engine in list(self.subcomms):
            self._free_subcomms(engine)
        if free:
            self.comm.Free()
        self.failed = "it has been freed"


def _handles(message: Message) -> tuple[int, int]:
    assert message.op is not None or not message.signature.reduces
    if message.op is None or message.datatype is None:
        return 0, 0
    return MPI._handleof(message.op), MPI._handleof(message.datatype)
