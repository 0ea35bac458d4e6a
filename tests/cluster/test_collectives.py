"""han over the emulated network: results, overlap of both levels, and clocks of the nodes."""

import json
import sys
from pathlib import Path

import pytest
from launch import Cluster
from network import check

from han.submodules.exchange.exchange import Exchange

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def cluster():
    if not Path(sys.executable).with_name("mpiexec").exists():
        pytest.skip(f"no mpiexec beside {sys.executable}")
    if reason := check():
        pytest.skip(reason)
    with Cluster(nodes=3) as cluster:
        yield cluster


def run(cluster: Cluster, program: str, ppn: list[int]) -> dict:
    command = ["python", str(HERE / program)]
    done = cluster.run(command, ppn=ppn, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_collectives_and_exchanges_in_messages_on_uneven_nodes(cluster):
    report = run(cluster, "check_collectives.py", [3, 1, 2])
    assert report["nodes"] == 3
    among_leaders = [about for about in Exchange.algorithms.values() if "leaders" in about.families]
    assert len(report["checked"]) == 1 + len(among_leaders) + 3
    assert {*report["checked"].values()} == {3 * (3 + 2 * 6)}


def test_overlap_is_traced_and_clocks_of_nodes_are_found_within_what_is_said(cluster):
    report = run(cluster, "overlap.py", [2, 1, 2])
    assert len(report["rounds"]) == 9  # their values depend on the machine
    assert report["nodes"] == [0, 0, 1, 2, 2]
    errors = [abs(offset) for offset, _ in report["clocks"]]
    bounds = [uncertainty for _, uncertainty in report["clocks"]]
    assert bounds[:2] == [0, 0]
    assert all(bound > 0 for bound in bounds[2:])
    assert all(error <= bound for error, bound in zip(errors, bounds, strict=True))
    assert 0 < report["uncertainty"] < 1
    assert report["kinds"] == {
        "0": ["ib", "sb"], "1": ["sb"], "2": ["ib"], "3": ["ib", "sb"], "4": ["sb"],
    }  # fmt: skip
    assert report["first_arrival"] >= -report["uncertainty"]
