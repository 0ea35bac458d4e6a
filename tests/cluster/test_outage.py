"""A switch that stops for a while: jobs go on when it does.

Nothing is measured, so jobs of several MPI libraries wait beside each other: HAN_TEST_PYTHONS names
an interpreter of each, for `pytest -n 3`.
"""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from launch import Cluster
from network import check
from wiring import Links

pytestmark = pytest.mark.cluster

PYTHONS = os.environ.get("HAN_TEST_PYTHONS", sys.executable).split()
STOPPED_S = 30  # the default of UCX_TCP_KEEPIDLE ends connections before
PROGRAM = """
import os, sys
from mpi4py import MPI
comm, data = MPI.COMM_WORLD, bytearray(1 << 14)
while not comm.allreduce(os.path.exists(sys.argv[2]), MPI.LOR):
    comm.Allreduce(MPI.IN_PLACE, data, MPI.MAX)
    open(sys.argv[1], "a").close()
"""


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: Path(path).parts[-3])
def test_a_job_outlives_a_switch_that_stops_for_a_while(tmp_path, python):
    if not Path(python).with_name("mpiexec").exists():
        pytest.skip(f"no mpiexec beside {python}")
    links = Links("1gbit", 20e-6)
    if reason := check(links):
        pytest.skip(reason)
    begun, end = tmp_path / "begun", tmp_path / "end"
    command = ["python", "-c", PROGRAM, str(begun), str(end)]
    with Cluster(4, links) as cluster, ThreadPoolExecutor() as pool:
        job = pool.submit(cluster.run, command, ppn=2, timeout=180, python=python)
        while not begun.exists():
            assert not job.done(), job.result().stderr
            time.sleep(0.1)
        cluster.switch.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_S)
        cluster.switch.send_signal(signal.SIGCONT)
        end.touch()
        assert job.result().returncode == 0, job.result().stderr
