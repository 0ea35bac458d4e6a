"""Measure how long a proof of a large allreduce takes, for each composition.

    python tests/planner/bench_verify.py [--nodes 64] [--ppn 16] [--size 4MiB] [COMPOSITION ...]

Times are those of one proof, in seconds by the clock, with the planning of all ranks' programs.
"""

import argparse
import resource
import time

from han.common.units import parse_size
from han.model.topology import Topology
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tasks.compositions import COMPOSITIONS
from han.tasks.verify import verify
from han.tuning.built_in.choosing import NodeTraits, choose

MEMORY = 1 << 24


def main() -> None:
    """Prove an allreduce by each composition, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--ppn", type=int, default=16)
    parser.add_argument("--size", type=parse_size, default="4MiB")
    parser.add_argument("compositions", nargs="*", default=list(COMPOSITIONS))
    asked = parser.parse_args()
    nodes = tuple(r // asked.ppn for r in range(asked.nodes * asked.ppn))
    domains = (nodes, (0,) * len(nodes))
    topology = Topology(("node", "network"), ("s", "i"), domains, nodes, attach=True)
    signature = call_signature("allreduce", asked.size)
    for name in asked.compositions:
        choice = choose(signature, topology, NodeTraits(), name)
        plan = plan_of_choice(topology, signature, choice, MEMORY)
        start = time.monotonic()
        events = verify([plan]).events
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"{name:6}{time.monotonic() - start:7.1f} s, {events} events, {peak} MiB", flush=True)


if __name__ == "__main__":
    main()
