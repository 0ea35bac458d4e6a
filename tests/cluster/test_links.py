"""Links with a latency, a rate or both, and nodes with several rails."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from binding import rails_of
from emulate import _parse_links
from host import EmulationError, ip
from launch import Cluster
from network import check, remove
from wiring import Links, burst, train

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent
LATENCY_MS = 20
LINKS = {
    "latency": Links(latency=LATENCY_MS / 1e3, rails=2),
    "rate": Links(rate="500mbit", rails=2),
    "both": Links(rate="100mbit", latency=LATENCY_MS / 1e3, rails=2),
}


@pytest.fixture(params=LINKS)
def links(request):
    if not Path(sys.executable).with_name("mpiexec").exists():
        pytest.skip(f"no mpiexec beside {sys.executable}")
    if reason := check(LINKS[request.param]):
        pytest.skip(reason)
    return LINKS[request.param]


def test_latency_is_seen_and_each_rank_sends_over_its_rail(links):
    with Cluster(2, links) as cluster:
        done = cluster.run(["python", str(HERE / "check_links.py")], ppn=2, timeout=60)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert len({*map(str, report["adapter"])}) == 2  # one variable, two values
    for rail, sent in enumerate(report["sent"]):
        assert sent[rail] >= report["bytes"] > 4 * sent[1 - rail]
    if links.latency:
        assert 2 * LATENCY_MS <= report["ping"] < 3 * LATENCY_MS
        # A late rank's first call may take no time, as the others' messages have arrived before.
        assert min(report["barrier"], report["allreduce"]) >= LATENCY_MS
        # A busy machine may add any time. That links add none is proved in virtual time: see
        # test_a_message_arrives_when_its_bytes_have_passed_one_link in test_switch.py.
        assert report["single"] >= LATENCY_MS + 1e3 * report["bytes"] * links.byte


def test_all_ranks_know_at_once_that_links_are_long(links, tmp_path):
    show = (
        "import han; from mpi4py import MPI; comm = han.Comm(MPI.COMM_WORLD.Dup());"
        "print(comm.Get_size(), comm.explain('allreduce', 8), flush=True)"
    )
    home = {"XDG_DATA_HOME": str(tmp_path)}  # without calibrations
    with Cluster(3, links) as cluster:
        done = cluster.run(["python", "-c", show], ppn=2, env=home, timeout=60)
    assert done.returncode == 0, done.stderr
    long = links.latency > 0
    assert done.stdout.count("rule      class long-links") == 6 * long, done.stdout
    told = re.findall(r"class: by messages between nodes, ([\d.]+) ms each", done.stdout)
    assert len(told) == 6 * long, done.stdout
    assert len(set(told)) == long, done.stdout
    assert all(float(each) > 1000 * links.latency / 2 for each in told), done.stdout


def test_bursts_of_slow_links_are_packets_and_those_of_fast_ones_take_the_same_time():
    found = {rate: burst(rate) for rate in ("1gbit", "500mbit", "2GiBit", "12.5mbps", "1kbit")}
    assert found == {
        "1gbit": 131250, "500mbit": 65625, "2GiBit": 281857, "12.5mbps": 3028, "1kbit": 3028,
    }  # fmt: skip
    # A train as long as the bucket would wait until it is full, and lose what comes meanwhile.
    trains = {rate: train(rate) for rate in found}
    assert trains["500mbit"] == 16406
    assert trains["1kbit"] == 1514
    assert all(2 * trains[rate] <= found[rate] for rate in found)
    for wrong in ("fast", "1 gbit", "-1mbit", "1gbyte"):
        with pytest.raises(EmulationError, match="no rate of tc"):
            Links(rate=wrong)


def test_links_have_the_rate_that_is_given_and_a_usual_one_without_a_latency():
    assert [Links().limit, Links("5mbit").limit] == ["1gbit", "5mbit"]
    assert [Links(latency=1e-3).limit, Links(latency=1e-3).byte] == [None, 0.0]
    both = Links("1gbit", 1e-3, 2)
    assert both.byte == pytest.approx(8e-9)
    assert str(both) == "1gbit, 1 ms each way, 2 rails a node"


@pytest.mark.any_library
def test_a_switch_that_has_ended_is_told_and_leaves_nothing():
    links = LINKS["latency"]
    if reason := check(links):
        pytest.skip(reason)
    with Cluster(1, links) as cluster:
        cluster.switch.kill()
        cluster.switch.wait()
        with pytest.raises(EmulationError, match="the switch has ended with status -9"):
            cluster.run(["python", "-c", ""], timeout=5)
    assert cluster.tag not in ip("netns list")


@pytest.mark.any_library
def test_up_leaves_a_switch_until_down():
    if reason := check(LINKS["latency"]):
        pytest.skip(reason)
    command = [sys.executable, str(HERE / "emulate.py"), "up", "--nodes", "1", "--latency", "1ms"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    tag = done.stdout.strip().removesuffix("-node0")
    assert ip(f"netns pids {tag}-switch").split()
    remove(tag)
    assert tag not in ip("netns list")


def test_rails_of_ranks():
    assert rails_of("local_rank", 5, 2) == (0, 1, 0, 1, 0)
    assert rails_of("0,0,1", 3, 2) == (0, 0, 1)
    assert rails_of("none", 3, 2) is None


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        ("0,2", "there is no rail 2; with --rails 2 a node has rails 0 to 1"),
        ("1", "local rank 1 is bound to no rail; name one for each of 2 ranks"),
        ("socket", "local_rank, none or rails by local rank"),
        ("-1", "local_rank, none or rails by local rank"),
    ],
)
def test_wrong_bindings_say_what_is_wrong(bind, message):
    with pytest.raises(EmulationError, match=message):
        rails_of(bind, 2, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((None, "50", 1), "--latency '50' is not a time; write 1.5us"),
        ((None, "0ms", 1), "must be above 0; leave it out"),
        ((None, "11s", 1), "at most 10s"),
        (("0mbit", None, 1), "--rate 0mbit: no rate of tc"),
        (("fast", "50ms", 1), "--rate fast: no rate of tc"),
        ((None, None, 9), "a node has 1 to 8 rails"),
    ],
)
def test_wrong_links_say_what_is_wrong(options, message):
    with pytest.raises(EmulationError, match=message):
        _parse_links(*options)
