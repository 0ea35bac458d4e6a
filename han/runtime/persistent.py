"""Persistent requests. Each has a slot of its own (:mod:`han.runtime.slots`).

Making one is collective, but no message is sent where one channel holds all ranks and no window is
attached. A request runs a plan of its class of sizes. Its slot keeps the plan for later requests.
Like a blocking call it may have an alternative and a rival.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from zlib import crc32

import numpy as np

from han.common.errors import MismatchError, PeerError
from han.memory.mapping import Mapping
from han.memory.shared import SharedMemory
from han.memory.windows import ARENA, ELSEWHERE, Spot, Spots, agreed_spots
from han.message.message import Message, Reducer
from han.message.packing import Hook
from han.message.parsers import Parser
from han.model.channel_layout import PAGE
from han.ranks.health import Health
from han.ranks.meeting import Words
from han.runtime.engines import Engines
from han.runtime.maker import Maker
from han.runtime.measured import MOST_IDLE, MOST_KINDS
from han.runtime.native_plans import Prepared, identity
from han.runtime.plans import expect_short
from han.runtime.request import Prequest, Request
from han.runtime.slots import Lease, Need, Slot, Slots
from han.tasks.signature import Signature
from han.tasks.size_classes import exact

STEP = "the making of a persistent request"
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

    called: Signature
    message: Message
    number: int
    need: Need
    keeps: bool

    def call(self, nbytes: int, sizes: bytes) -> int:
        """Return a number that identifies a call; the same on all ranks."""
        sizes = b"" if self.called.own else sizes
        return (self.number + (nbytes + (crc32(sizes) << 32)) * SPREAD) % (1 << 64)

    def story(self, nbytes: int) -> str:
        """Return what a rank is in, for errors."""
        signature = exact(self.message.signature, nbytes)
        return f"{signature.describe()}: {STEP}"


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
        self._planner, config = maker.planner, maker.planner.config
        self._checks = config.check
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
            message, spots = self.compare(parser, arguments)
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

    def known(
        self,
        kind: Kind,
        send: int,
        recv: int,
        nbytes: int,
        keep: tuple[object, ...],
        sizes: bytes | None,
    ) -> Request | bool:
        """Make a request on known buffers; return False if the ranks must compare more.

        `sizes` are the bytes of each block, if these differ.
        """
        health, sizes = self._health, sizes or b""
        if not self.slots.together or self._compares():
            return False
        health.live()
        self._asked += 1
        with health.initiating(STEP) as number, health.together(STEP):
            slot = self._published(kind, nbytes, sizes, number)
            assert slot is not None
            prepared = self._prepared(kind, slot, send, recv)
            keep = keep, prepared, Lease(self.slots, slot)
            return Prequest(
                slot.engine, prepared.native, send, recv, keep, None, None, True, nbytes, sizes
            )

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

    def compare(
        self, parser: Parser, arguments: tuple[object, ...]
    ) -> tuple[Message, tuple[Spots, ...]]:
        """Compare a call; return its message and the locations of all ranks' buffers; collective.

        Raises on all ranks if they do not agree.
        """
        message, problem, health = None, None, self._health
        with health.together(f"the comparison of {parser.name}"):
            try:
                message = parser.parse(health.meeting.comm, *arguments)
            except Exception as error:
                problem = error
            call = message.signature if message else f"{type(problem).__name__}: {problem}"
            spots = None
            if message is not None:
                windows = self._shared.windows
                spots = windows.spots(message.send, message.recv, message.signature)
            everyone = health.meeting.allgather((call, spots), health.step)
        _expect_alike([call for call, _ in everyone], problem)
        assert message is not None
        return message, agreed_spots([spots for _, spots in everyone])

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
            return *self.compare(parser, arguments), found[3:]
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
        sized, keeps = self._planner.sized(message.signature), message.keeps_plan
        known = sized, message.reducer
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
        return Kind(called, bare, identity(sized), need, keeps)

    def _remember(self, kind: Kind, message: Message) -> None:
        """Let the look-up in C find the kind of a call."""
        if kind.keeps and not self._checks and self.slots.together:
            self._engines.remember(partial(self.known, kind), message, kind.message.signature)

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
        expect_short(prepared.program, message)
        return self._on(slot, prepared, message, None)

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
        expect_short(prepared.program, message)
        return self._on(slot, prepared, message, mapping)

    def _on(
        self, slot: Slot, prepared: Prepared, message: Message, mapping: Mapping | None
    ) -> Request:
        begin = self._begin(message.begin, mapping.check if mapping and mapping.windows else None)
        keep = (*message.keep, mapping, prepared, Lease(self.slots, slot))
        return Prequest(
            slot.engine, prepared.native, message.send, message.recv, keep, begin, message.end,
            True, message.signature.nbytes, message.sizes,
        )  # fmt: skip

    def _begin(self, pack: Hook | None, check: Hook | None) -> Hook | None:
        """Return what a start does first; an error in packing revokes the communicator."""
        if pack is None:
            return check

        def begin() -> None:
            if check is not None:
                check()
            try:
                pack()
            except BaseException:
                with self._health.together("the start of a persistent request"):
                    raise

        return begin


def _expect_alike(answers: Sequence[Signature | str], problem: Exception | None) -> None:
    """Raise on all ranks unless all of them make the same call.

    `answers` holds for each rank the Signature of its call, or the text of the error that it is
    about to raise. `problem` is this rank's own error.

    Raises `problem`, or PeerError that names the ranks with an error, or MismatchError that names
    the ranks whose call differs from the most frequent one.
    """
    if problem is not None:
        raise problem
    errors = [f"rank {r} raised {s}" for r, s in enumerate(answers) if isinstance(s, str)]
    if errors:
        raise PeerError("; ".join(errors))
    calls = [s for s in answers if isinstance(s, Signature)]
    usual, _ = Counter(calls).most_common(1)[0]
    odd = [f"rank {r} calls {c.describe()}" for r, c in enumerate(calls) if c != usual]
    if odd:
        raise MismatchError(
            f"the ranks do not agree: {'; '.join(odd)}; the others call {usual.describe()}"
        )


def _small(prepared: Prepared) -> bool:
    """Return whether an idle plan takes little memory."""
    program = prepared.program
    return program.nbytes + program.scratch <= MOST_IDLE
