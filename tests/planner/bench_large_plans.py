"""Measure how long one rank of a large cluster plans: decide, build the tasks and lower.

    python tests/planner/bench_large_plans.py [--ppn 64] [--only lanes] [--profile]

No other rank is needed, since the topology is imagined. Times are minima of processor time in
milliseconds: of the root, a leader and another rank of a node. Some programs are kept, as a
communicator keeps them, so that each one is written to new memory.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

from han.config.config import default_config
from han.model.program import Program
from han.model.topology import Topology, virtual
from han.tasks.call import call_signature
from han.tasks.choice import Choice
from han.tasks.compositions import COMPOSITIONS, composition
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.size_classes import bound_of, bounds_of, class_of, largest_of
from han.tuning.built_in.traits import NodeTraits
from han.tuning.heuristics import choose
from han.tuning.parts import plan_of_choice

SECONDS = 0.3  # for each case and rank
KEPT = 8  # programs
RANKS = 4096
COLLECTIVES = ("allreduce", "bcast", "reduce")
SIZES = ("1MiB", "4MiB")


def on_nodes(ppn: int) -> Topology:
    """Return a cluster of nodes of `ppn` ranks, which share no memory."""
    plain = virtual(RANKS, ppn)
    memory = tuple(rank // ppn for rank in range(RANKS))
    return Topology(("node", "network"), ("s", "i"), plain.domains, memory, attach=True)


def chosen(topology: Topology, signature: Signature, name: str) -> Choice | None:
    """Return the built-in choice of a composition; None if it does not serve the call."""
    choice = choose(largest_of(signature), topology, NodeTraits(), name)
    if choice is None:
        return None
    row = composition(name)
    return None if row.unfit(row.view(topology), largest_of(signature), choice) else choice


def act(topology: Topology, signature: Signature, choice: Choice, rank: int) -> Program:
    """Plan a call, and lower the plan for a rank."""
    return lower(plan_of_choice(topology, signature, choice, default_config().memory), rank)


def least(act: Callable[[], Program]) -> float:
    """Return the least processor time of an action in milliseconds."""
    best, end = float("inf"), time.perf_counter() + SECONDS
    kept = deque[Program](maxlen=KEPT)
    while time.perf_counter() < end:
        begun = time.process_time()
        kept.append(act())
        best = min(best, time.process_time() - begun)
    return best * 1e3


def cases(options: argparse.Namespace) -> Iterator[tuple[str, Topology, Signature, Choice]]:
    """Yield the calls that are measured."""
    bounds = bounds_of(())
    for ppn in options.ppn:
        topology = on_nodes(ppn)
        for collective, size, name in product(options.collectives, options.sizes, COMPOSITIONS):
            signature = call_signature(collective, size)
            signature = class_of(signature, bound_of(signature, bounds))
            choice = chosen(topology, signature, name)
            text = f"{collective} {size} by {name}, {ppn} ranks a node"
            if choice is not None and options.only in text:
                yield text, topology, signature, choice


def main() -> None:
    """Measure all cases, or profile them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ppn", type=int, nargs="+", default=[16, 64, 4])
    parser.add_argument("--collectives", nargs="+", default=COLLECTIVES)
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    parser.add_argument("--only", default="", help="a part of the names of cases")
    parser.add_argument("--profile", action="store_true", help="profile each case instead")
    options = parser.parse_args()
    for text, topology, signature, choice in cases(options):
        ranks = (0, topology.ppn * 2, topology.ppn * 2 + 3)  # the root, a leader, another rank
        times = [least(partial(act, topology, signature, choice, rank)) for rank in ranks]
        slowest = ranks[times.index(max(times))]
        operations = len(act(topology, signature, choice, slowest).code)
        print(f"{text:48}", *(f"{t:7.2f}" for t in times), f"{operations:8}", flush=True)
        if options.profile:
            profile = cProfile.Profile()
            for _ in range(20):
                profile.runcall(act, topology, signature, choice, slowest)
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
