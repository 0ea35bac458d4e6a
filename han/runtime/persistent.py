"""Persistent requests. Each has a slot of its own (:mod:`han.runtime.slots`).

Making one is collective, but no message is sent where one channel holds all ranks and no window is
attached. A request runs a plan of its class of sizes. Its slot keeps the plan for later requests.
Like a blocking call it may have an alternative and a rival.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from zlib import crc32

import numpy as np

from han.memory.mapping import Mapping
from han.memory.shared import SharedMemory
from han.memory.windows import ARENA, ELSEWHERE, Spot, Spots
from han.message.message import Message
from han.message.packing import Hook, nothing
from han.message.parsers import Parser
from han.model.channel_layout import PAGE
from han.ranks.health import Health
from han.ranks.meeting import Words
from han.runtime.comparing import Comparing
from han.runtime.engines import Engines
from han.runtime.known import Data, Reducer, keeps_plans, reduces_with, remember
from han.runtime.maker import Maker
from han.runtime.native_plans import identity
from han.runtime.prepared import Prepared
from han.runtime.request import Prequest, Request
from han.runtime.slots import Lease, Need, Slot, Slots
from han.tasks.signature import Signature
from han.tasks.size_classes import exact

STEP = "the making of a persistent request"
MOST_KINDS = 256  # kinds of requests that are remembered
PLAN_BYTES = 64 << 10  # at most, of a plan that a slot keeps: operations and scratch memory
SPREAD = 0x9E3779B97F4A7C15  # an odd number: it spreads sizes over the numbers of calls
COUNTED = 0xC2B2AE3D27D4EB4F  # the same for their positions, so that a rank that raised is noticed
PARSED, MAPPED, NO_ARENA, NO_WINDOW = 1, 2, 4, 8  # what is true on a rank, in an exchange
IN_ARENA = Spot(ARENA), Spot(ARENA)


@dataclass(frozen=True, eq=False)
class Kind:
    """What requests of one class of sizes have in common.

    `called` is the signature of the first one. `message` is that of the class, without buffers.
    `number` identifies it. `need` is what it takes. `keeps`: plans serve later requests too.
    """

    persistent: Persistent
    called: Signature
    message: Message
    number: int
    need: Need
    keeps: bool

    def call(self, nbytes: int, sizes: bytes) -> int:
        """Return a number that identifies a call; the same on all ranks."""
        return (self.number + (nbytes + (crc32(sizes) << 32)) * SPREAD) % (1 << 64)

    def story(self, nbytes: int) -> str:
        """Return what a rank is in, for errors."""
        signature = exact(self.message.signature, nbytes)
        return f"{signature.describe()}: {STEP}"

    def __call__(
        self,
        send: int,
        recv: int,
        nbytes: int,
        keep: tuple[object, ...],
        sizes: bytes | None,
    ) -> Request | bool:
        """Make a request on these buffers; return False if the call must be parsed.

        `sizes` are the bytes of each block, if these differ.
        """
        data = Data(send, recv, nbytes, keep, sizes or b"")
        return self.persistent.known(self, data)


class Persistent:
    """Makes the persistent requests of a communicator."""

    def __init__(
        self,
        health: Health,
        engines: Engines,
        shared: SharedMemory,
        maker: Maker,
    ) -> None:
        self._health, self._engines = health, engines
        self._shared, self._maker = shared, maker
        self._planner, config = maker.programs.planner, maker.programs.planner.config
        self._checks = config.check
        self.comparing = Comparing(health, shared.windows)
        self.slots = Slots(health, engines, shared, config.memory)
        self._kinds: OrderedDict[tuple[Signature, Reducer], Kind] = OrderedDict()
        self._asked = 0  # calls that make requests, also those that raised; the same on all ranks

    # ---- calls ------------------------------------------------------------------------------

    def init(
        self, parser: Parser, arguments: tuple[object, ...]
    ) -> tuple[Signature, Request | None]:
        """Make a request; collective. There is none if the call is left to the MPI library."""
        self._asked += 1
        message: Message | None = None
        spots: Sequence[Spots] = ()
        free: Words | None = None
        if not self.slots.together:
            message, spots, free = self._exchanged(parser, arguments)
        elif self._compares():
            message, spots = self.comparing.compare(parser, arguments)
        with self._health.initiating(STEP) as number:
            message = message or parser.parse(self._health.meeting.comm, *arguments)
            kind, called = self._kind(message), message.signature
            with self._health.together(STEP):
                if free is None:
                    slot = self._published(kind, called.nbytes, called.sizes, number)
                else:
                    slot = self.slots.take(free, kind.need, partial(kind.story, called.nbytes))
                if slot is None:
                    return called, None
                request = self._mapped_request(kind, slot, message, spots)
                request = request or self._request(kind, slot, message)
        self._remember(kind, message)
        return called, request

    def known(self, kind: Kind, data: Data) -> Request | bool:
        """Make a request on known buffers; return False if the ranks must compare more."""
        health = self._health
        if not self.slots.together or self._compares():
            return False
        health.live()
        self._asked += 1
        with health.initiating(STEP) as number, health.together(STEP):
            slot = self._published(kind, data.nbytes, data.sizes, number)
            assert slot is not None
            prepared = self._prepared(kind, slot, data.send, data.recv)
            lease = Lease(self.slots, slot, kind not in slot.plans)
            return Prequest(
                slot.engine, prepared.native, data.send, data.recv, (data.keep, lease),
                None, None, True, data.nbytes, data.sizes,
            )  # fmt: skip

    def _published(self, kind: Kind, nbytes: int, sizes: bytes, number: int) -> Slot | None:
        story = partial(kind.story, nbytes)
        call = (kind.call(nbytes, sizes) + self._asked * COUNTED) % (1 << 64)
        return self.slots.publish(call, number, story, kind.need)

    def _compares(self) -> bool:
        """Whether ranks compare calls and buffers beforehand; the same on all ranks.

        They do in checked mode, if a window is attached, and where they have not tried to map
        arenas.
        """
        shared = self._shared
        unknown = shared.mapping is None and self._health.size > 1
        return self._checks or unknown or bool(shared.windows)

    def _exchanged(
        self, parser: Parser, arguments: tuple[object, ...]
    ) -> tuple[Message, Sequence[Spots], Words]:
        """Compare a call across ranks with one exchange of some words.

        If they do not agree, or a window is attached, compare once more, in more words. Return the
        message, the locations of all ranks' buffers, and the slots that all ranks have left.
        """
        health = self._health
        with health.together(f"the comparison of {parser.name}"):
            message = self._parsed(parser, arguments)
            words = np.concatenate([self._told(message), self.slots.free_words()])
            call, others, true, *_ = found = health.meeting.common(words, health.step)
        if message is None or call != ~others or not true & PARSED or not true & NO_WINDOW:
            return *self.comparing.compare(parser, arguments), found[3:]
        mapped = true & MAPPED and not true & NO_ARENA
        return message, [IN_ARENA] * health.size if mapped else (), found[3:]

    def _parsed(self, parser: Parser, arguments: tuple[object, ...]) -> Message | None:
        """Return the message of a call; None if the arguments are wrong."""
        try:
            return parser.parse(self._health.meeting.comm, *arguments)
        except Exception:  # raised again where the ranks compare their errors
            return None

    def _told(self, message: Message | None) -> Words:
        """Return what identifies a call, its complement, and what is true on this rank."""
        if message is None:
            return np.zeros(3, np.uint64)
        signature = message.signature
        spots, windows = self._shared.windows.spots(message.send, message.recv, signature)
        used = {spot.window for spot in spots}
        true = PARSED | MAPPED * (ELSEWHERE not in used) | NO_ARENA * (ARENA not in used)
        true |= NO_WINDOW * (not windows and not self._checks)
        call = np.uint64(identity(signature))
        return np.array([call, ~call, true], np.uint64)

    # ---- kinds ------------------------------------------------------------------------------

    def _kind(self, message: Message) -> Kind:
        """Return the kind of a call. Raises NoRuleError on all ranks alike."""
        sized, keeps = self._planner.sized(message.signature), keeps_plans(message)
        known = sized, reduces_with(message)
        kind = self._kinds.get(known) if keeps else None
        if kind is None:
            kind = self._new_kind(message, sized, keeps)
        if keeps:
            self._kinds[known] = kind
            self._kinds.move_to_end(known)
            if len(self._kinds) > MOST_KINDS:
                self._kinds.popitem(last=False)
        return kind

    def _new_kind(self, message: Message, sized: Signature, keeps: bool) -> Kind:
        called, need = message.signature, Need.SMALL
        if self._planner.leaves(called):
            need = Need.ON_DEVICE if called.device else Need.LEFT
        elif sized.shown(self._health.size) > PAGE:
            need = Need.LARGE
        bare = message.without_buffers(sized)
        return Kind(self, called, bare, identity(sized), need, keeps)

    def _remember(self, kind: Kind, message: Message) -> None:
        """Let the look-up in C find the kind of a call."""
        if kind.keeps and not self._checks and self.slots.together:
            remember(self._engines.calls, kind, message, kind.message.signature)

    # ---- plans ------------------------------------------------------------------------------

    def _prepared(self, kind: Kind, slot: Slot, send: int, recv: int) -> Prepared:
        """Return the plan of a kind in a slot, with an alternative if these buffers allow it."""
        prepared = slot.plans.get(kind)
        if prepared is None:
            planned = self._planner.planned(kind.called, False, slot.memory, least=1)
            prepared = self._maker.make(planned, kind.message, slot.engine)
        self._maker.offer(prepared, kind.message, slot.engine, send, recv)
        if kind.keeps and slot.latest is not kind and _small(prepared):
            slot.keep(kind, prepared)
        return prepared

    # ---- requests ---------------------------------------------------------------------------

    def _request(self, kind: Kind, slot: Slot, message: Message) -> Request:
        """Make a request for a parsed call."""
        prepared = self._prepared(kind, slot, message.send, message.recv)
        begin = self._begin(message, None) if message.begin else None
        return self._on(slot, prepared, message, kind not in slot.plans, None, begin)

    def _mapped_request(
        self, kind: Kind, slot: Slot, message: Message, spots: Sequence[Spots]
    ) -> Request | None:
        """Make a request if peers can map the buffers of all ranks, or one is in a window.

        A buffer in an attached window is always accessed through han's own mapping of the window,
        even if buffers of other ranks cannot be mapped.
        """
        windows = self._shared.windows
        used = {spot.window for pair in spots for spot in pair}
        all_there = bool(used) and ELSEWHERE not in used
        arenas = self._shared.arenas() if all_there and ARENA in used else None
        readable = all_there and not (arenas and arenas.refused)
        if not readable and max(used, default=ARENA) <= ARENA:
            return None
        send, recv = spots[self._health.rank]
        called = replace(message.signature, mapped=readable)
        message = replace(
            message,
            signature=called,
            send=windows.moved(message.send, send),
            recv=windows.moved(message.recv, recv),
        )
        mapping = windows.mapping(spots, arenas) if readable else windows.held(spots)
        planned = self._planner.planned(called, False, slot.memory).alone
        prepared = self._maker.make(planned, message, slot.engine, mapping=mapping)
        checks = message.begin or mapping.windows
        begin = self._begin(message, mapping) if checks else None
        return self._on(slot, prepared, message, True, mapping, begin)

    def _on(
        self,
        slot: Slot,
        prepared: Prepared,
        message: Message,
        passing: bool,
        mapping: Mapping | None,
        begin: Hook | None,
    ) -> Request:
        keep = (*message.keep, mapping, Lease(self.slots, slot, passing))
        return Prequest(
            slot.engine, prepared.native, message.send, message.recv, keep, begin, message.end,
            True, message.signature.nbytes, message.signature.sizes,
        )  # fmt: skip

    def _begin(self, message: Message, mapping: Mapping | None) -> Hook:
        """Return what a start does first."""
        pack = self._packing(message.begin or nothing)
        if mapping is None:
            return pack

        def begin() -> None:
            mapping.check()
            pack()

        return begin

    def _packing(self, pack: Hook) -> Hook:
        """Return a function that packs; an error in it revokes the communicator."""

        def packing() -> None:
            try:
                pack()
            except BaseException:
                with self._health.together("the start of a persistent request"):
                    raise

        return packing


def _small(prepared: Prepared) -> bool:
    """Return whether an idle plan takes little memory."""
    program = prepared.program
    return program.nbytes + program.scratch <= PLAN_BYTES
