"""Print what a program exchanges, and the memory and time it takes, until its first call is done.

mpiexec -n 4 python tests/mpi/bench_set_up.py
"""

import re
import time
from collections import Counter
from functools import wraps
from pathlib import Path

import numpy as np
from mpi4py import MPI

STEPS = ("allgather", "numbers", "common", "barrier", "collect", "gather")  # of a Meeting


def private() -> int:
    """Return the KiB of this process that it shares with no other one."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(n) for n in re.findall(r"^Private\w+: +(\d+) kB", text, re.M))


def count(kind: type, name: str, counted: Counter[str]) -> None:
    """Count the calls of a method."""
    plain = getattr(kind, name)

    @wraps(plain)
    def method(*arguments, **more):
        counted[name] += 1
        return plain(*arguments, **more)

    setattr(kind, name, method)


def main() -> None:
    """Take each step that a program takes once, and print what it took."""
    lines, begun, kept = [], time.perf_counter(), private()

    def tell(step: str) -> None:
        nonlocal begun, kept
        now, size = time.perf_counter(), private()
        lines.append(f"{step:24}{now - begun:8.3f} s {(size - kept) / 1024:8.1f} MiB")
        MPI.COMM_WORLD.Barrier()
        begun, kept = time.perf_counter(), size

    tell(f"before: {kept / 1024:.1f} MiB")
    import han
    from han.ranks.meeting import SLOT, Meeting

    counted: Counter[str] = Counter()
    for name in STEPS:
        count(Meeting, name, counted)
    tell("import han")
    comm = han.Comm(MPI.COMM_WORLD)
    made = dict(counted)
    tell("han.Comm")
    comm.Allreduce(np.zeros(1), np.empty(1))
    tell("first allreduce, 8 B")
    comm.Allreduce(np.zeros(1 << 17), np.empty(1 << 17))
    tell("first allreduce, 1 MiB")
    if comm.rank == 0:
        print(*lines, sep="\n")
        print(f"exchanges of han.Comm: {made}; an allgather has {SLOT.itemsize} bytes of each rank")
        print(f"exchanges of the calls: {dict(counted - Counter(made))}")


main()
