"""Ranks that may not read each other's memory, with little shared memory.

All ranks refuse an algorithm that would read, and the others give right results.
"""

import contextlib
import ctypes
import itertools
from dataclasses import replace
from functools import partial
from random import Random

import numpy as np
import pytest
from _support import (
    COLLECTIVES,
    WORLD,
    Call,
    Checker,
    Reference,
    comm_on,
    data_of,
    mpi_op,
    new_comm,
    opened,
    run,
    tiny_memory,
)
from machines import topology_of
from mpi4py import MPI
from test_conformance import (
    LARGE,
    PARTS,
    TURNS,
    force,
    in_turns,
    meant_for,
    segment_of,
    types_and_operations,
)
from test_own_sizes import MOST, check

from han.model.collectives import BY_BLOCKS, ROOTED
from han.model.program import Code
from han.submodules.registry import plan_of_choice, registered
from han.tasks.lower import lower
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.rules import RuleTable

CAPABILITIES, CAP_SYS_PTRACE, PR_SET_DUMPABLE = 0x20080522, 19, 4
ENVIRONMENT = {  # MPI libraries use cross-memory attach too, and fail or hang if it is refused
    "MPIR_CVAR_CH4_CMA_ENABLE": "0",
    "OMPI_MCA_smsc": "^cma",
    "I_MPI_SHM_CMA": "0",
}
MEMORY = "512KiB"  # of a communicator and of each persistent request; there are 4 MiB in all
REASON = "the ranks may not read each other's memory"
FORCED = "rules[0]"
NEED_OTHERS = {part for part in PARTS if registered()[part[0]].reads_peers}
PERSISTENT = (  # calls on shared arrays, used in turn: count, type, operation
    (1, "float64", "sum"),
    (1000, "int32", "max"),
    (40_001, "uint8", "bxor"),
)


class CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def drop_ptrace():
    """Give up CAP_SYS_PTRACE, and forbid others to attach to this process; nonzero if refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = CapabilityHeader(CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
    told = libc.capget(ctypes.byref(header), data)
    data[0] &= ~(1 << CAP_SYS_PTRACE)  # words: effective, permitted, inheritable
    told = told or libc.capset(ctypes.byref(header), data)
    return told or libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


@contextlib.contextmanager
def restricted(monkeypatch):
    """Forbid ranks to attach to each other, and limit shared memory to 4 MiB.

    Asserts at the end that all shared memory has been freed.
    """
    if WORLD.allreduce(drop_ptrace(), MPI.MIN):
        pytest.skip("this process cannot give up capabilities")
    with tiny_memory(4096) as place:
        monkeypatch.setenv("HAN_SHM_DIR", str(place))
        yield
        WORLD.Barrier()
        assert not list(place.iterdir())


def all_calls(size, turn):
    """Yield all collectives in all sizes, roots and in place, and a turn's share of types."""
    for collective, count in itertools.product(COLLECTIVES, (0, 1, 513, LARGE)):
        roots = range(size) if collective in ROOTED and count in (1, LARGE) else (count % size,)
        for root in roots:
            in_place = collective in ("reduce", "allreduce") and (root + count) % 2 == 0
            yield Call(collective, count, root=root, in_place=in_place)
    for collective, count in itertools.product(BY_BLOCKS, (0, 7, 1000, LARGE // size)):
        for in_place in (False, True):
            root = (count + in_place) % size if collective in ROOTED else 0
            yield Call(collective, count, root=root, in_place=in_place)
    yield from in_turns(list(types_and_operations(size)), TURNS)[turn % TURNS]


def reads_others(comm, signature):
    """Return whether this rank would read its peers' memory in the forced algorithm if allowed."""
    state = comm._han
    topology = replace(state.parts.topology, attach=True)
    table = RuleTable(
        state.parts.config, topology, NodeTraits(state.parts.conditions.oversubscribed)
    )
    choice = table.decide(signature).choice
    if not choice.rule.startswith(FORCED):
        return False
    plan = plan_of_choice(topology, signature, choice, state.parts.config.memory)
    return bool(np.isin(lower(plan, comm.rank).code["code"], (Code.PULL, Code.PUSH)).any())


def refused(comm, calls):
    """Return the collectives that the forced algorithm refuses because it would attach to peers.

    Asserts that all ranks refuse them for that reason, and no other calls but empty ones.
    """
    found = set()
    for call in {(c.collective, c.nbytes): c for c in calls}.values():
        said = comm.explain(call.collective, call.nbytes, mpi_op(call.op), call.dtype, call.root)
        signature, passed = said.plan.signature, said.decision.passed
        reason = next((why for rule, why in passed if rule.startswith(FORCED)), "")
        rows = WORLD.allgather((reason, reads_others(comm, signature)))
        assert {why for why, _ in rows} == {reason}, (call, rows)
        would = any(reads for _, reads in rows)
        assert would == (REASON in reason) or not signature.nbytes, (call, rows)
        if REASON in reason:
            found.add(call.collective)
    return found


def report(part, calls, refused):
    """Print the collectives that an algorithm serves, and those that it refuses."""
    served = sorted({call.collective for call in calls} - refused)
    reason = f"; refused, since {REASON}: {', '.join(sorted(refused))}" if refused else ""
    print(f"{' '.join(part)}: served: {', '.join(served) or 'nothing'}{reason}")


def twice(request, begin, look):
    """Run a persistent request twice, and free it."""
    for _ in range(2):
        begin()
        run(request)
        look()
    request.Free()
    WORLD.Barrier()  # the memory is free when all ranks have freed the request


def persistent(comm, reference, count, dtype, op):
    """Run persistent calls on shared arrays, which peers cannot map."""
    last, at_last = comm.size - 1, comm.rank == comm.size - 1
    data, wanted = data_of(comm.rank, dtype, count, op), reference(dtype, op, count)
    send, recv = comm.asarray(data), comm.empty(count, dtype)

    def fill(value):
        recv[:] = value

    def compare():
        np.testing.assert_allclose(recv, wanted, rtol=1e-14 if op == "sum" else 0)

    everywhere = comm.Allreduce_init(MPI.IN_PLACE, recv, mpi_op(op))
    twice(everywhere, partial(fill, data), compare)
    to_last = comm.Reduce_init(send, recv if at_last else None, mpi_op(op), last)
    twice(to_last, partial(fill, 0), compare if at_last else bool)
    from_last = comm.Bcast_init(recv, last)
    twice(from_last, partial(fill, wanted if at_last else 0), compare)
    assert "cannot map the shared arrays" in comm._han.parts.shared.mapping.refused


def conform(part, turn, topology, reference):
    """Check the results of an algorithm's calls; return the collectives that it refuses."""
    calls = meant_for(part, all_calls(WORLD.size, turn))
    segment = segment_of(*part)
    use = force("network", *part, segment=segment)
    with opened(comm_on(WORLD, topology, use, memory=MEMORY)) as comm:
        assert "Operation not permitted" in comm._han.parts.shared.attach_refused
        Checker(comm, reference).every(calls, part)
        persistent(comm, reference, *PERSISTENT[turn % TURNS])
        found = refused(comm, calls)
        if comm.rank == 0:
            report(part, calls, found)
    return found


@pytest.mark.mpi(ranks=[2, 3], timeout=240, unit="s")
def test_only_what_reads_others_is_refused(mpi_ranks, monkeypatch):
    """Algorithms that would read peers' memory are refused by all ranks; all results are right."""
    reference, topology = Reference(WORLD.Dup()), topology_of([[0] * WORLD.size], 0)
    with restricted(monkeypatch):
        found = [conform(part, k, topology, reference) for k, part in enumerate(PARTS)]
    assert {part for part, some in zip(PARTS, found, strict=True) if some} == NEED_OTHERS


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_blocks_of_own_sizes_are_messages(mpi_ranks, monkeypatch):
    random = Random(8)
    with restricted(monkeypatch), opened(new_comm(memory=MEMORY)) as comm:
        for most in MOST:
            check(comm, "{}", random, most)
