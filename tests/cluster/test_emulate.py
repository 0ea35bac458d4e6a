"""The emulated cluster: nodes share no memory, links are limited, and nothing is left behind."""

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from host import EmulationError, ip
from launch import Cluster
from network import HUB, check, remove, stale
from wiring import Links

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent
EMULATE = str(HERE / "emulate.py")
# One rank prints, as launchers may mix the lines of several.
SLEEP = [
    "python",
    "-c",
    "from mpi4py import MPI; import time; MPI.COMM_WORLD.rank or print('up', flush=True);"
    "time.sleep(60)",
]


def leftovers(pid: int | str = "") -> list[str]:
    """Return the namespaces and directories that clusters of owner `pid` have left."""
    mark = f"han-emulate-{pid}"
    spaces = ip("netns list").split()
    files = [path.name for path in Path(tempfile.gettempdir()).iterdir()]
    return [name for name in spaces + files if name.startswith(mark)]


def links() -> set[str]:
    return {line.split(":")[1] for line in ip("-o link").splitlines()}


@pytest.fixture(scope="module", autouse=True)
def _machine():
    if not Path(sys.executable).with_name("mpiexec").exists():
        pytest.skip(f"no mpiexec beside {sys.executable}")
    if reason := check():
        pytest.skip(reason)


@pytest.fixture
def cluster():
    before = links()
    with Cluster(nodes=2) as cluster:
        yield cluster
    assert not [name for name in leftovers() if name.startswith(cluster.tag)]
    assert links() <= before


@pytest.mark.parametrize(("rate", "told"), [("1gbit", "1000"), ("100mbit", "100")])
def test_ranks_know_the_rate_of_their_link(rate, told):
    show = "from han.ranks.machine import fingerprint; print(f'{fingerprint().link:g} Mbit/s')"
    with Cluster(nodes=2, links=Links(rate)) as cluster:
        done = cluster.run(["python", "-c", show], timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{told} Mbit/s") == 2, done.stdout


def test_nodes_are_apart_and_links_are_limited(cluster):
    done = cluster.run(["python", str(HERE / "pingpong.py")], ppn=[2, 1], timeout=60)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["hosts"] == ["node0", "node0", "node1"]
    assert report["shared"] == [2, 2, 1]
    first, second, other = report["shm"]
    assert first == second != other
    assert report["between"]["message"] >= 8  # ms; 1 MiB at 1 Gbit/s takes 8.4
    assert report["within"]["message"] < report["between"]["message"]


def test_memory_does_not_go_through_the_network_within_a_node(cluster):
    program = """
from mpi4py import MPI
def received():
    lines = open("/proc/net/dev").read().split("\\n")[2:-1]
    return sum(int(line.split(":")[1].split()[0]) for line in lines)
comm, data = MPI.COMM_WORLD, bytearray(1 << 20)
node = comm.Split_type(MPI.COMM_TYPE_SHARED)
comm.Barrier()
before = received()
for _ in range(8):
    node.Bcast(data)
node.Barrier()
most = comm.reduce(received() - before, MPI.MAX)
if comm.rank == 0:
    print(most, flush=True)
"""
    done = cluster.run(["python", "-c", program], ppn=2, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1 << 20  # bytes, of 8 MiB


def test_environment_status_and_output_come_through(cluster):
    # One rank fails, as Intel MPI's mpiexec may return 255 if ranks of several nodes do.
    program = """
import os, sys
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1:
    print(os.environ["WORD"], flush=True)
    sys.exit(7)
"""
    done = cluster.run(["python", "-c", program], env={"WORD": "two words"}, timeout=60)
    assert done.returncode == 7
    assert "two words" in done.stdout


def test_a_program_that_outlives_its_limit_is_ended(cluster):
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        cluster.run(SLEEP, timeout=4)
    assert "up" in caught.value.stdout
    assert caught.value.timeout == 4
    for node in (*cluster.nodes, HUB):
        assert ip(f"netns pids {cluster.namespace(node)}") == ""


def test_a_terminated_run_leaves_nothing():
    options = ["--nodes", "2", "--timeout", "60", "--rails", "2"]
    if check(Links(latency=1e-3)) is None:
        options += ["--latency", "1ms"]
    command = [sys.executable, EMULATE, "run", *options, "--"]
    with subprocess.Popen([*command, *SLEEP], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().strip() == "up"  # returns when the run ends, at the latest
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 128 + signal.SIGTERM
    assert leftovers(process.pid) == []


@pytest.mark.any_library
def test_a_cluster_without_owner_is_stale_until_removed():
    command = [sys.executable, EMULATE, "up", "--nodes", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    (node,) = done.stdout.split()
    tag = node.removesuffix("-node0")
    assert tag in stale()
    remove(tag)
    assert tag not in stale()
    assert [name for name in leftovers() if name.startswith(tag)] == []


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"ppn": [1]}, "for each of 2 nodes"),
        ({"ppn": 0}, "from 1"),
        ({"mpi": "lam"}, "known: mpich, openmpi, impi"),
        ({"python": "/nowhere/python"}, "no mpiexec beside /nowhere/python"),
    ],
)
def test_wrong_requests_say_what_is_known(request_, message):
    with pytest.raises(EmulationError, match=message):
        Cluster(nodes=2).run(["python"], **request_)
