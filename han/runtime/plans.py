"""The plans that a communicator keeps, by the signatures of their calls."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import replace

from han.message.message import Message
from han.runtime.cache_info import NOTHING_KEPT, CacheInfo
from han.runtime.engines import Engines
from han.runtime.maker import Maker
from han.runtime.on_device import agreement
from han.runtime.prepared import Prepared
from han.submodules.registry import submodule
from han.tasks.signature import Signature
from han.tuning.planner import Planned


class Plans:
    """Finds the plan of a blocking or nonblocking call, or has it made."""

    def __init__(self, maker: Maker, engines: Engines) -> None:
        self._maker, self._engines = maker, engines
        self.planner, self.binder = maker.programs.planner, maker.binder
        self.config = self.planner.config
        self._kept: OrderedDict[object, Prepared] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self._before = NOTHING_KEPT  # the statistics when the communicator was made
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
        return self._sums().since(self._before)

    def restart(self) -> None:
        """Count for another communicator, which takes the plans over."""
        self._before = self._sums()

    def _sums(self) -> CacheInfo:
        counts, programs = self._counts, self._maker.programs
        return CacheInfo(
            counts["hits"] + self._engines.calls.hits, counts["misses"], self.config.plans,
            len(self._kept), counts["evictions"], programs.made, programs.seconds, programs.shared,
        )  # fmt: skip

    def counts(self, signature: Signature) -> list[tuple[int, ...]]:
        """List the executor's counts of all plans in use that serve a signature."""
        living = [p for p in self.binder.living.values() if not p.is_rival]
        natives = [p.native for p in living if p.signature == signature]
        for p in living:
            other = p.planned.alternative if p.planned is not None else None
            if other is not None and other.signature == signature and p.native.alternative:
                natives.append(p.native.alternative)
        natives += [native.rival for native in natives if native.rival]
        return [native.counts for native in dict.fromkeys(natives)]  # an alternative may live too

    def tried(self, signature: Signature) -> tuple[int, int]:
        """Return the number of runs of the plans in use for a signature, and of their rivals."""
        living = [p for p in self.binder.living.values() if p.signature == signature]
        natives = [p.native for p in living if p.native.rival]
        rivals = [native.rival for native in natives if native.rival]
        return sum(n.counts[0] for n in natives), sum(n.counts[0] for n in rivals)

    def clear(self, free: bool) -> None:
        """Forget all plans; free their communicators if `free`."""
        self._kept.clear()
        self.binder.clear(free)


def _handles(message: Message) -> tuple[int, int, bool]:
    if message.op is None or message.datatype is None:
        return 0, 0, False
    return message.op.handle, message.datatype.handle, message.unpacks
