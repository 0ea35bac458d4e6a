"""Work out what a large job takes on each rank: memory, plans, messages. Needs no MPI job.

    python tests/planner/bench_large_job.py [--nodes 80] [--ppn 128]

One rank's share of the work is done here, as if the other ranks had told where they are.
"""

import argparse
import pickle
import time
import tracemalloc

from han.config.arrange import Facts, arrange
from han.config.config import default_config
from han.model.channel_layout import Geometry
from han.model.program import Code
from han.model.topology import Topology
from han.ranks.meeting import SLOT
from han.tasks.call import call_signature
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.planner import Planner

CALLS = (
    ("barrier", "0"), ("bcast", "8"), ("bcast", "1MiB"), ("allreduce", "8"),
    ("allreduce", "1MiB"), ("allgather", "8"), ("alltoall", "8"),
)  # fmt: skip


def told(nodes: int, ppn: int) -> list[bytes]:
    """Return what the ranks tell each other of the nodes they run on."""
    facts = (
        Facts(r - r % ppn, f"node{r // ppn:05}", frozenset([r % ppn]), {"socket": frozenset("0")})
        for r in range(nodes * ppn)
    )
    return [pickle.dumps(one) for one in facts]


def learned(words: list[bytes]) -> tuple[tuple[Facts, ...], Topology]:
    """Return what a rank keeps of all that."""
    facts = tuple(pickle.loads(word) for word in words)
    return facts, arrange(default_config().levels, facts)


def print_known(nodes: int, ppn: int) -> Topology:
    """Print what a rank knows of all others, and what it takes to find out."""
    size, words = nodes * ppn, told(nodes, ppn)
    start = time.perf_counter()
    learned(words)
    seconds = time.perf_counter() - start
    tracemalloc.start()
    kept = learned(words)
    known = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    channel = Geometry(ppn, default_config().memory).size
    print(f"{size} ranks, {nodes} nodes of {ppn}")
    print(f"what a rank knows of all ranks: {known / 2**20:.1f} MiB, {seconds:.2f} s")
    print(f"an exchange of the set-up: a rank receives {size * SLOT.itemsize / 2**20:.1f} MiB")
    print(f"shared: {channel / 2**20:.1f} MiB a node, {channel / ppn / 2**10:.0f} KiB a rank")
    return kept[1]


def print_call(topology: Topology, rank: int, collective: str, size: str) -> None:
    """Print what the plan of a call takes on a rank, and the messages that the rank sends."""
    signature = call_signature(collective, size)
    seconds = []
    for traced in (False, True):  # tracing takes time, so times are those without it
        if traced:
            tracemalloc.start()
        planner = Planner(topology, default_config(), NodeTraits(), rank, maps_arrays=True)
        start = time.perf_counter()
        program = planner.program(planner.planned(signature).plan)
        seconds.append(time.perf_counter() - start)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    sends = (program.code["code"] == Code.ISEND).sum()
    print(
        f"{collective:10}{size:>5}  rank {rank}: {1e3 * seconds[0]:8.1f} ms, {kept >> 10:6} KiB, "
        f"{len(program.code):5} operations, {sends:3} messages"
    )


def main() -> None:
    """Print all of it for a job of the given size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=80)
    parser.add_argument("--ppn", type=int, default=128)
    asked = parser.parse_args()
    topology = print_known(asked.nodes, asked.ppn)
    for rank in (0, 1):  # a leader, and a rank that only works inside its node
        for collective, size in CALLS:
            print_call(topology, rank, collective, size)


if __name__ == "__main__":
    main()
