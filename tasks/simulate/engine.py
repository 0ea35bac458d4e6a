"""Programs and a machine as arrays for the simulator in C (native/simulate), and its results."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from han._native import simulate
from han.model.channel_layout import SMALL_BANKS
from han.model.program import Coll
from han.tasks.plan import Plan
from han.tasks.simulate.loading import Loader, Meeting
from han.tasks.simulate.placement import Placement
from han.tasks.verify.address_spaces import parts_taken

# The layout of `sim_collective` (native/simulate/world.h).
COLLECTIVE = np.dtype([("seconds", "f8"), ("up", "i8"), ("down", "i8")])
Times = npt.NDArray[np.float64]
Array = npt.NDArray[Any]


def run(
    plan: Plan, places: Placement, loader: Loader, runs: int, spans: bool,
    tell: Callable[[], None] | None,
) -> tuple[dict[str, Array], bytes]:  # fmt: skip
    """Simulate `runs` runs of the programs that have been loaded.

    Return the results, by their names in :class:`han.tasks.simulate.simulator.Simulation`, and the
    records of tasks. A run that has not finished ends at infinity.
    """
    (names, flags, messages), levels = loader.named(), len(places.place)
    operations, streams = np.concatenate(loader.pieces), np.array(loader.streams, np.int64)
    found: dict[str, Array] = {
        "finish": np.full((runs, loader.size), np.inf),
        **{name: np.zeros(loader.size) for name in ("copying", "reducing", "messaging")},
        **{name: np.zeros(levels, np.int64) for name in ("messages", "nbytes")},
        "operations": np.zeros(1, np.int64),
    }
    host_of, cores, crowded = _hosts(places)
    inputs: tuple[Array, ...] = (
        *(operations, streams, np.array(loader.numbers, np.int32), np.array(loader.first_stream)),
        *(np.array(loader.requests, np.int64), names, np.array(loader.first_name, np.int64)),
        *(places.place, places.node_of, places.memory_of, host_of, places.rails()),
        *_machine(places),
        *(cores, crowded, _gates(plan, runs), loader.writes()),
        *places.channels_of_ranks(),
        *_meetings(places, loader.met),
    )
    sizes = (
        *(loader.size, runs, levels, len(places.channels), places.machine.node.rails),
        *(flags, messages, len(loader.met), SMALL_BANKS, spans),
    )
    lengths = (
        *(len(operations), len(streams), len(loader.requests), len(names)),
        *(len(places.first_home) - 1, len(places.members)),
        *(sum(len(meeting.ranks) for meeting in loader.met), len(cores)),
    )
    arrays = (*map(np.ascontiguousarray, inputs), *found.values())
    return found, simulate(arrays, sizes, lengths, tell)


def _hosts(places: Placement) -> tuple[Array, Times, Array]:
    """Return each rank's set of cores, the cores of each set, and whether ranks outnumber them."""
    node = places.machine.node
    host_of = np.zeros_like(places.node_of) if node.together else places.node_of
    ranks = np.bincount(host_of)
    cores = np.full(len(ranks), node.cores) if node.cores else ranks
    return host_of, cores.astype(np.float64), (ranks > cores).astype(np.uint8)


def _machine(places: Placement) -> tuple[Times, Times, Times, Times]:
    """Return the levels, the rates of copies and of reductions, and the node (`sim_link` ...)."""
    machine, caches = places.machine, places.caches
    slow = caches.exist and not caches.hold_buffers
    links = [
        (
            k.latency,
            k.bandwidth,
            k.overhead,
            k.copying or 0.0,
            k.eager,
            k.flag,
            float(slow and k.copying is not None),
        )
        for k in machine.levels
    ]
    node = machine.node
    copies = caches.rates(node.copy_rate, [k.copy_rate for k in machine.levels])
    reductions = caches.rates(node.reduce_rate, [k.reduce_rate for k in machine.levels])
    stripe = np.inf if node.stripe is None else node.stripe
    times = node.operation, node.call, node.switch
    limits = (node.memory, node.injection, node.burst, *times, stripe)
    links_, copies_, reductions_, limits_ = (
        np.array(one, np.float64) for one in (links, copies, reductions, limits)
    )
    return links_, copies_, reductions_, limits_


def _gates(plan: Plan, runs: int) -> npt.NDArray[np.int32]:
    """Return, by run and channel, how many runs must end before its cells are free."""
    needed = [parts.needed for parts in parts_taken([plan] * runs)]
    return np.array(needed, np.int32).reshape(runs, -1)


def _meetings(places: Placement, meetings: list[Meeting]) -> tuple[Array, Array, Array]:
    """Return the collectives of the MPI library (`sim_collective`), and their members."""
    lengths = [len(meeting.ranks) for meeting in meetings]
    members = [rank for meeting in meetings for rank in meeting.ranks]
    rows = [
        (
            _postal(places, one),
            -1 if one.kind == Coll.BCAST else one.nbytes,
            -1 if one.kind == Coll.REDUCE else one.nbytes,
        )
        for one in meetings
    ]
    first = np.cumsum([0, *lengths], dtype=np.int32)
    return np.array(rows, COLLECTIVE), first, np.array(members, np.int32)


def _postal(places: Placement, meeting: Meeting) -> float:
    """Estimate an MPI collective by the postal model: a binomial tree, two for an allreduce."""
    ranks, nbytes, machine = meeting.ranks, meeting.nbytes, places.machine
    level = int(places.levels(ranks[0], np.array(ranks)).max())
    link = machine.levels[level]
    steps = ceil(log2(len(ranks))) if len(ranks) > 1 else 0
    each = link.latency + 2 * link.overhead + nbytes / link.bandwidth
    if meeting.kind != Coll.BCAST and nbytes:
        each += nbytes / machine.node.reduce_rate
    return steps * each * (2 if meeting.kind == Coll.ALLREDUCE else 1)
