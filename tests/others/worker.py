"""One rank of a run of others' tests: ``worker.py SPEC.json``.

Each rank writes a line of JSON when a test starts, and one with the outcome when it ends, so that a
crash loses one test only. SPEC has: ``how`` (``han`` or ``native``), ``kind`` (``unittest`` or
``pytest``), ``tests`` (the folder), ``out`` (a prefix of file names), ``modules``, and ``only`` and
``skip`` (names of tests).
"""

import faulthandler
import json
import os
import signal
import sys
from pathlib import Path

from records import Records


def main(path: str) -> None:
    """Run a rank's tests."""
    spec = json.loads(Path(path).read_text())
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    prefix = f"{spec['out']}.{rank}"
    with open(f"{prefix}.stacks", "w") as stacks, open(f"{prefix}.jsonl", "w") as lines:
        faulthandler.enable(stacks)
        faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
        records = Records(lines)
        records.put(pid=os.getpid())
        if spec["how"] == "han":
            install()
        if spec["kind"] == "pytest":
            from with_pytest import run
        else:
            from with_unittest import run
        run(spec, records)
        records.end()
        faulthandler.disable()
        faulthandler.unregister(signal.SIGUSR1)


def install() -> None:
    """Put han's communicators in the place of mpi4py's."""
    from mpi4py import MPI

    import han

    MPI.COMM_WORLD, MPI.COMM_SELF = han.Comm(MPI.COMM_WORLD), han.Comm(MPI.COMM_SELF)


if __name__ == "__main__":
    main(sys.argv[1])
