"""The plans that a communicator keeps, by the signatures of their calls."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import replace

from mpi4py import MPI

from han.memory.shared import SharedMemory
from han.message.message import Message
from han.runtime.alike import Call
from han.runtime.binder import Binder
from han.runtime.cache_info import NOTHING_KEPT, CacheInfo
from han.runtime.engines import Engines
from han.runtime.on_device import agreement
from han.runtime.prepared import Prepared
from han.runtime.programs import Programs
from han.submodules.registry import submodule
from han.tasks.plan import Plan
from han.tasks.signature import Signature

MOST_MET = 4096  # signatures remembered; for others the rival is made in the first call


class Plans:
    """Finds the plan of a call, or makes it."""

    def __init__(
        self, programs: Programs, binder: Binder, shared: SharedMemory, engines: Engines
    ) -> None:
        self.programs, self.planner = programs, programs.planner
        self.binder, self._shared, self._engines = binder, shared, engines
        self.config = self.planner.config
        self._kept: OrderedDict[object, Prepared] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self._before = NOTHING_KEPT  # the statistics when the communicator was made
        self._met: set[Signature] = set()  # signatures of calls with a rival that were made once
        self.apart = any(submodule(name).may_block for name in self.planner.named_submodules())

    def find(self, message: Message, blocking: bool) -> Prepared | None:
        """Return the plan of a call; None if the call is left to the MPI library."""
        called = message
        message = replace(called, signature=self.planner.sized(called.signature))
        handles = None if message.numbers else _handles(message)
        key = message.signature, handles, blocking or not self.apart
        prepared = self._found(key, message, called.signature, blocking)
        if prepared is not None and prepared.undecided and not self._is_first(message.signature):
            prepared = self._kept[key] = self._decided(prepared, message, blocking)
        if prepared is not None and prepared.planned is not None:
            self._add_alternative(prepared, message)
        return prepared

    def _found(
        self, key: object, message: Message, called: Signature, blocking: bool
    ) -> Prepared | None:
        prepared = self._kept.get(key)
        if prepared is not None:
            self._kept.move_to_end(key)
            self._counts["hits"] += 1
            return prepared
        prepared = self._make(message, called, blocking)
        if prepared is None:
            return None
        self._counts["misses"] += 1
        self._kept[key] = prepared
        if len(self._kept) > self.config.plans:
            self._kept.popitem(last=False)
            self._counts["evictions"] += 1
            self._engines.calls.clear()
        return prepared

    def _make(self, message: Message, called: Signature, blocking: bool) -> Prepared | None:
        if message.signature.device:
            return self._agreement(message, blocking)
        planned = self.planner.planned(called, blocking)
        if planned.left:
            return None
        if planned.talks:
            self._engines.let_talk()
        call = Call(message.signature, self.config.memory, blocking)
        program = self.programs.get(call, lambda: planned.plan)
        alternative = planned.alternative
        if alternative is not None:
            program = program.reaching(alternative.footprint())
        kept = planned if alternative is not None or planned.find_rival is not None else None
        return self.binder.bind(program, message, self._engines.own, kept)

    def _agreement(self, message: Message, blocking: bool) -> Prepared | None:
        """Make the plan of the agreement before a call on memory of a device.

        Where han serves no such call in memory of the host either, there is none.
        """
        signature = message.signature
        if self.planner.planned(replace(signature, device=False), blocking).left:
            return None
        first = agreement(signature, self._engines.health)
        planned = self.planner.planned(first.signature)
        if planned.talks:
            self._engines.let_talk()
        plan = planned.plan
        program = self.programs.get(Call(plan.signature, self.config.memory, True), lambda: plan)
        return self.binder.bind(program, first, self._engines.own, known_as=signature)

    def _add_alternative(self, prepared: Prepared, message: Message) -> None:
        """Make the alternative when this rank first has buffers for it; peers may have none."""
        planned, native = prepared.planned, prepared.native
        if planned is None or planned.alternative is None or native.alternative is not None:
            return
        if self._shared.holds(message.send, message.recv):
            call = Call(planned.alternative.signature, self.config.memory, True)
            native.alternative = self._other(prepared, planned.alternative, call, message).native

    def _is_first(self, signature: Signature) -> bool:
        """Whether this is the first call of a signature that may have a rival.

        All ranks count these calls alike. They do not evict the same plans, so another one may be
        the first call of a newly made plan.
        """
        if signature in self._met or len(self._met) >= MOST_MET:
            return False
        self._met.add(signature)
        return True

    def _decided(self, prepared: Prepared, message: Message, blocking: bool) -> Prepared:
        """Decide on the rival of a call in its second call, on all ranks in the same one.

        With a rival, this and later calls run a new plan, which takes as much of the rings as the
        rival: runs that this rank has started may not have begun.
        """
        planned = prepared.planned
        assert planned is not None
        if planned.rival is None:
            return self.binder.without_rival(prepared)
        if planned.counted:
            self._engines.let_talk()
        program = prepared.program.reaching(planned.rival.footprint())
        own = self._engines.own
        decided = self.binder.bind(program, message, own, planned, tries=True)
        call = Call(
            planned.rival.signature, self.config.memory, blocking or not self.apart, rival=True
        )
        decided.native.rival = self._other(decided, planned.rival, call, message).native
        return decided

    def _other(self, prepared: Prepared, plan: Plan, call: Call, message: Message) -> Prepared:
        """Make an alternative or rival; it takes the same part of the rings as the call's plan."""
        program = self.programs.get(call, lambda: plan)
        program = replace(program, footprint=prepared.program.footprint)
        message = replace(message, signature=plan.signature)
        return self.binder.bind(program, message, self._engines.own, is_rival=call.rival)

    def info(self) -> CacheInfo:
        """Return the statistics since the communicator was made."""
        return self._sums().since(self._before)

    def restart(self) -> None:
        """Count for another communicator, which takes the plans over."""
        self._before = self._sums()

    def _sums(self) -> CacheInfo:
        counts, programs = self._counts, self.programs
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
    return MPI._handleof(message.op), MPI._handleof(message.datatype), message.unpacks
