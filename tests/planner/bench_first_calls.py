"""Measure what the first call of a class of sizes costs, on one rank.

The steps are to decide and plan, to lower, to find loops, and to bind.

    python tests/planner/bench_first_calls.py [--only PART]
    python tests/planner/bench_first_calls.py --tuned configs/tuned/amd-epyc-2-mpich.json

No other rank is needed: the topology is imagined, and the native plan is bound to an engine of
this process and not run. Times are minima in microseconds; of decisions, which are part of the
plan, medians over sizes that no call had before.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from mpi4py import MPI

import han
from han.config.config import default_config
from han.message.message import Message
from han.model.element_types import kernel
from han.model.loops import roll
from han.model.topology import Topology, virtual
from han.runtime.alike import ALIKE
from han.runtime.maker import Maker
from han.runtime.plans import Plans
from han.runtime.state import State
from han.tasks.call import call_signature
from han.tasks.lower import lower
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.planner import Planner
from han.tuning.tuned.files import read

SECONDS = 0.25  # for each case
NEW_SIZES = 500  # of a decision
SIZES = ("8", "64KiB", "1MiB", "64MiB")
BLOCKS = ("gather", "scatter", "allgather", "alltoall", "reduce_scatter")


@dataclass(frozen=True)
class Case:
    """A call, and the planner of rank `rank`."""

    name: str
    planner: Planner
    message: Message


def nodes(ranks: int, ppn: int, rank: int) -> Planner:
    """Return the planner of a rank on nodes of `ppn` ranks, which share no memory."""
    plain = virtual(ranks, ppn)
    memory = tuple(r // ppn for r in range(ranks))
    topology = Topology(("node", "network"), ("s", "i"), plain.domains, memory, attach=True)
    return Planner(topology, default_config(), NodeTraits(), rank, maps_arrays=False)


def one_node(ranks: int, rank: int) -> Planner:
    """Return the planner of a rank on one node, as on most machines."""
    names, domains = ("node", "network"), ((0,) * ranks,) * 2
    topology = Topology(names, ("s", "i"), domains, (0,) * ranks, attach=True)
    return Planner(topology, default_config(), NodeTraits(), rank, maps_arrays=True)


def message_of(collective: str, size: str) -> Message:
    """Return a message without buffers."""
    signature = call_signature(collective, size)
    return Message(signature, numbers=kernel("sum", "float64") if signature.reduces else (0, 0))


def cases() -> Iterator[Case]:
    """Yield the calls that are measured."""
    for where, planner in (
        ("2 ranks", one_node(2, 1)),
        ("8 ranks on 2 nodes, a leader", nodes(8, 4, 4)),
        ("8 ranks on 2 nodes", nodes(8, 4, 5)),
    ):
        for collective in ("bcast", "reduce", "allreduce"):
            for size in SIZES:
                yield Case(f"{collective} {size}, {where}", planner, message_of(collective, size))
    for collective in BLOCKS:
        for size in SIZES:
            message = message_of(collective, size)
            yield Case(f"{collective} {size}, 8 ranks", one_node(8, 3), message)
    for collective in ("bcast", "allreduce"):
        for where, planner in (
            ("128 ranks", one_node(128, 3)),
            ("128 ranks on 2 nodes, a leader", nodes(128, 64, 64)),
            ("4096 ranks on 256 nodes, a leader", nodes(4096, 16, 64)),
        ):
            for size in ("8", "1MiB"):
                yield Case(f"{collective} {size}, {where}", planner, message_of(collective, size))


def tables(path: str) -> None:
    """Print the microseconds of a decision without a tuned table, and with one."""
    tuned = read(Path(path))
    print(f"{'decision for a new size, of all classes of sizes':48} {'built-in':>8} {'tuned':>8}")
    for ranks in (2, 4, 8):
        for collective in ("bcast", "reduce", "allreduce", "allgather"):
            found = []
            for table in (None, tuned):
                planner = one_node(ranks, 1)
                planner = Planner(planner.topology, planner.config, planner.traits, 1, False, table)
                found.append(decision(planner, collective))
            print(f"{collective}, {ranks} ranks".ljust(48), *(f"{us:8.1f}" for us in found))


def decision(planner: Planner, collective: str) -> float:
    """Return the median microseconds of a decision for sizes that are new."""
    plain, taken = call_signature(collective, 8), []
    for k in range(NEW_SIZES):
        signature = plain.changed(count=max(1, round(1.03**k)))
        begun = time.perf_counter()
        planner.decide(signature, True)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken) * 1e6


def least(act: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> float:
    """Return the least time of an action in microseconds, without that of its preparation."""
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        prepare()
        begun = time.perf_counter()
        act()
        best = min(best, time.perf_counter() - begun)
    return best * 1e6


class Bench:
    """Makes the plans of calls as a communicator does."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.kept: object = None

    def forget(self, case: Case) -> None:
        """Forget all plans and programs."""
        ALIKE.clear()
        case.planner._remembered.cache_clear()
        state = self.state
        parts = state.parts
        recorder = parts.tracing.recorder
        maker = Maker(case.planner, parts.health, parts.shared, parts.engines, recorder)
        self.plans = Plans(maker, parts.engines)
        self.kept = None

    def first(self, case: Case) -> None:
        """Make the first call of a class, from the miss of the look-up to the run."""
        self.kept = self.plans.find(case.message, blocking=True)

    def row(self, case: Case) -> tuple[list[float], int, int]:
        """Return microseconds in all and of each step, and numbers of operations and records."""
        planner, state = case.planner, self.state
        signature = planner.sized(case.message.signature)
        message = replace(case.message, signature=signature)

        def planned() -> object:
            planner._remembered.cache_clear()
            return planner.planned(signature).plan

        plan = planner.planned(signature).plan
        program = lower(plan, planner.rank)
        lowering = least(lambda: lower(planner.planned(signature).plan, planner.rank))
        rolled = roll(program)
        rolling = least(lambda: roll(program))
        binding = least(lambda: state.parts.maker.bind(rolled, message, state.parts.engines.own))
        first = least(lambda: self.first(case), lambda: self.forget(case))
        times = [first, least(planned), lowering, rolling, binding]
        return times, len(program.code), len(rolled.code)


def main() -> None:
    """Measure the cases that are asked for, or decisions."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tuned", help="a tuned table: measure decisions with and without it")
    parser.add_argument("--only", default="", help="a part of the names of cases")
    options = parser.parse_args()
    comm = han.Comm(MPI.COMM_SELF.Dup())
    comm.Barrier()
    bench = Bench(comm._han)
    if options.tuned:
        tables(options.tuned)
        return
    steps = "".join(f"{step:>9}" for step in ("first", "plan", "lower", "roll", "bind"))
    print(f"{'call':48}{steps} operations  records")
    for case in cases():
        if options.only in case.name:
            times, operations, records = bench.row(case)
            shown = "".join(f"{t:9.0f}" for t in times)
            print(f"{case.name:48}{shown} {operations:10d} {records:8d}", flush=True)
    comm.Free()


if __name__ == "__main__":
    main()
