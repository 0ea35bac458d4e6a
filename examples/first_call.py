"""Time what a program pays once: importing han, its first communicator, its first call.

mpiexec -n 2 python examples/first_call.py
"""

import time

import numpy as np
from mpi4py import MPI

begun = time.perf_counter()
import han  # noqa: E402  the import is measured

imported = time.perf_counter()
comm = han.Comm(MPI.COMM_WORLD)
made = time.perf_counter()
comm.Bcast(np.zeros(1))
called = time.perf_counter()
if comm.rank == 0:
    steps = {"import": imported - begun, "han.Comm": made - imported, "first call": called - made}
    print(", ".join(f"{name} {1000 * seconds:.1f} ms" for name, seconds in steps.items()))
