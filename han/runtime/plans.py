"""The plans that a communicator keeps, by the signatures of calls, and how often they served."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from han.common.errors import ArgumentError
from han.message.message import Message
from han.model.opcodes import MESSAGES
from han.model.program import Program
from han.runtime.engines import Engines
from han.runtime.left import agreement
from han.runtime.maker import Maker
from han.runtime.native_plans import Prepared
from han.submodules.registry import submodule
from han.tasks.signature import Signature
from han.tuning.planner import Planned


class CacheInfo(NamedTuple):
    """Statistics of a communicator's calls on this rank.

    A call whose plan is kept is a hit, any other one a miss. At most `maxsize` plans are kept
    (HAN_PLANS). The least recently used one is evicted. The look-up in C does not count as a use
    until the next eviction, which empties it. `made` plans took `seconds` in all, including those
    of persistent requests. `shared` of them had been planned before, by this communicator or by
    one with the same topology and configuration.
    """

    hits: int
    misses: int
    maxsize: int
    currsize: int
    evictions: int
    made: int
    seconds: float
    shared: int

    def __str__(self) -> str:
        calls, each = self.hits + self.misses, self.seconds / max(1, self.made)
        return (
            f"{self.currsize} of at most {self.maxsize} plans; {self.hits} of {calls} calls found "
            f"theirs, {self.evictions} dropped; {self.made} made in {self.seconds * 1e3:.2f} ms "
            f"({each * 1e6:.0f} us each), {self.shared} of them shared with earlier ones"
        )


MOST_OF_MESSAGE = (1 << 31) - 1  # bytes, as MPI counts them
NOTHING_KEPT = CacheInfo(0, 0, 0, 0, 0, 0, 0.0, 0)  # of a communicator that is not used yet


class Plans:
    """Finds the plan of a blocking or nonblocking call, or has it made."""

    def __init__(self, maker: Maker, engines: Engines) -> None:
        self._maker, self._engines = maker, engines
        self.planner = maker.planner
        self.config = self.planner.config
        self._kept: OrderedDict[object, Prepared] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self._hits = 0  # of the look-up in C when the communicator was made
        self.apart = any(submodule(name).may_block for name in self.planner.named_submodules())

    def find(self, message: Message, blocking: bool) -> Prepared | None:
        """Return the plan of a call; None if the call is left to the MPI library."""
        planned = self.planner.planned(message.signature, blocking)
        if planned.left and not message.signature.device:
            return None
        handles = None if message.numbers else _handles(message)
        key = planned.signature, handles, blocking or not self.apart
        prepared = self._found(key) or self._made(key, planned, message, blocking)
        if prepared is not None:
            expect_short(prepared.program, message)
            self._maker.offer(prepared, message, self._engines.own, message.send, message.recv)
        return prepared

    def _found(self, key: object) -> Prepared | None:
        prepared = self._kept.get(key)
        if prepared is not None:
            self._kept.move_to_end(key)
            self._counts["hits"] += 1
        return prepared

    def _made(
        self, key: object, planned: Planned, message: Message, blocking: bool
    ) -> Prepared | None:
        if message.signature.device:
            prepared = self._agreement(planned.signature, blocking)
        else:
            prepared = self._maker.make(planned, message, self._engines.own)
        if prepared is None:
            return None
        self._counts["misses"] += 1
        self._kept[key] = prepared
        if len(self._kept) > self.config.plans:
            self._kept.popitem(last=False)
            self._counts["evictions"] += 1
            self._engines.calls.clear()
        return prepared

    def _agreement(self, signature: Signature, blocking: bool) -> Prepared | None:
        """Make the plan of the agreement before a call on memory of a device.

        Where han serves no such call in memory of the host either, there is none.
        """
        if self.planner.planned(replace(signature, device=False), blocking).left:
            return None
        first = agreement(signature, self._engines.health)
        planned = self.planner.planned(first.signature).alone
        return self._maker.make(planned, first, self._engines.own, known_as=signature)

    def info(self) -> CacheInfo:
        """Return the statistics since the communicator was made."""
        counts, maker, quick = self._counts, self._maker, self._engines.calls.hits - self._hits
        return CacheInfo(
            counts["hits"] + quick, counts["misses"], self.config.plans,
            len(self._kept), counts["evictions"], maker.made, maker.seconds, maker.reused,
        )  # fmt: skip

    def restart(self) -> None:
        """Count for another communicator, which takes the plans over."""
        self._counts.clear()
        self._hits = self._engines.calls.hits
        self._maker.count_anew()

    def counts(self, signature: Signature) -> list[tuple[int, ...]]:
        """List the executor's counts of all plans in use that serve a signature."""
        return [p.native.counts for p in self._maker.living.values() if p.signature == signature]

    def tried(self, signature: Signature) -> tuple[int, int]:
        """Return the number of runs of the plans in use for a signature, and of their rivals."""
        living = [p for p in self._maker.living.values() if p.signature == signature]
        natives = [p.native for p in living if p.native.rival]
        rivals = [native.rival for native in natives if native.rival]
        return sum(n.counts[0] for n in natives), sum(n.counts[0] for n in rivals)

    def clear(self, free: bool) -> None:
        """Forget all plans; free their communicators if `free`."""
        self._kept.clear()
        self._maker.clear(free)


def expect_short(program: Program, message: Message) -> None:
    """Raise ArgumentError if a block of own sizes is too large for a message."""
    if program.terms is None or max(message.own_sizes, default=0) <= MOST_OF_MESSAGE:
        return
    sent = np.isin(program.code["code"], MESSAGES)
    largest = max((message.own_sizes[b - 1] for b in program.terms["block"][sent]), default=0)
    if largest > MOST_OF_MESSAGE:
        raise ArgumentError(
            f"a block of {largest} bytes between nodes: at most {MOST_OF_MESSAGE} bytes"
        )


def _handles(message: Message) -> tuple[int, int, bool]:
    if message.op is None or message.datatype is None:
        return 0, 0, False
    return message.op.handle, message.datatype.handle, message.unpacks
