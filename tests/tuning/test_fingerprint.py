"""Fingerprints: what they say of a machine, and how far machines are from each other."""

import struct
from dataclasses import asdict, replace

import pytest
from test_tuned import HERE, NODE, SMALL, TWO, KiB, Times, point, search, use

from han.ranks import adapters
from han.ranks.adapters import link_rate
from han.ranks.machine import layout, listed
from han.tasks.call import call_signature
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.tuned import find
from han.tuning.tuned.files import as_text, write
from han.tuning.tuned.find import AUTO
from han.tuning.tuned.table import of_points

FULL = replace(HERE, layout="1 socket", binding="all", link=1000.0)
BETWEEN = point(64 * KiB, Times((use("chain", "adapt", topology=TWO), 1.0), (None, 9.0)),
                topology=TWO)  # fmt: skip


def put(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


# ---- what the system tells ------------------------------------------------------------------


def test_lists_of_the_kernel():
    assert listed("0-3,8\n") == [0, 1, 2, 3, 8]
    assert listed("") == []


def test_the_layout_counts_sockets_domains_and_caches(tmp_path):
    cpus = {f"cpu/cpu{n}/topology/physical_package_id": f"{n // 4}\n" for n in range(8)}
    caches = {
        f"cpu/cpu{n}/cache/index3/shared_cpu_list": f"{n // 2 * 2}-{n // 2 * 2 + 1}\n"
        for n in range(8)
    }
    put(tmp_path, {"cpu/online": "0-7\n", "node/has_cpu": "0-1\n", **cpus, **caches})
    assert layout(tmp_path) == "2 sockets, 2 NUMA domains, 4 L3 caches"
    assert layout(tmp_path / "nothing") == ""


def test_the_rate_is_that_of_the_fastest_adapter_or_of_the_one_that_is_named(tmp_path):
    put(tmp_path, {
        "net/lo/ifindex": "1", "net/eth0/speed": "1000\n", "net/eth1/speed": "25000\n",
        "net/down/speed": "-1\n", "net/tun0/speed": "10000\n", "net/tun0/tun_flags": "0x1",
        "infiniband/mlx5_0/ports/1/rate": "100 Gb/sec (4X EDR)\n",
    })  # fmt: skip
    assert link_rate({}, tmp_path) == 100_000
    assert link_rate({"UCX_NET_DEVICES": "eth1"}, tmp_path) == 25_000
    assert link_rate({"UCX_NET_DEVICES": "mlx5_0:1"}, tmp_path) == 100_000
    assert link_rate({"FI_TCP_IFACE": "tun0"}, tmp_path) == 0
    assert link_rate({}, tmp_path / "nothing") == 0


def attribute(kind, data):
    size = 4 + len(data)
    return struct.pack("=HH", size, kind) + data + bytes(-size % 4)


def queue(index, kind, options):
    told = attribute(adapters.KIND, kind + b"\0") + attribute(adapters.OPTIONS, options)
    return adapters.QUEUE.pack(0, 0, 0, index, 0, 0, 0) + told


def test_a_token_bucket_limits_the_rate_of_its_adapter(tmp_path, monkeypatch):
    bucket = attribute(adapters.PARAMETERS, bytes(8) + struct.pack("=I", 12_500_000) + bytes(24))
    fast = attribute(adapters.RATE64, struct.pack("=Q", 5_000_000_000))
    assert adapters._bucket(queue(7, b"tbf", bucket)) == (7, 100.0)
    assert adapters._bucket(queue(8, b"tbf", bucket + fast)) == (8, 40_000.0)
    assert adapters._bucket(queue(7, b"noqueue", b"")) is None
    for untold in (b"", attribute(adapters.PARAMETERS, bytes(8))):  # of a kernel that tells less
        assert adapters._bucket(queue(7, b"tbf", untold)) is None
    put(tmp_path, {"net/eth0/speed": "10000\n", "net/eth0/ifindex": "7\n"})
    monkeypatch.setattr(adapters, "shaped", lambda: {7: 100.0})
    assert link_rate({}, tmp_path) == 100
    put(tmp_path, {"net/eth0/speed": "-1\n"})
    assert link_rate({}, tmp_path) == 100


# ---- how far machines are from each other ---------------------------------------------------


def test_what_is_unknown_is_no_difference():
    assert HERE.differences(FULL) == {} == FULL.differences(HERE)
    assert FULL.distance(HERE) == "this machine"


@pytest.mark.parametrize(("name", "value"), [
    ("layout", "2 sockets"), ("link", 100.0), ("transport", "UCX_TLS=tcp"), ("quota", 1.0),
    ("mesh", True),
])  # fmt: skip
def test_where_data_goes_counts_more_than_all_versions(name, value):
    other = replace(FULL, **{name: value})
    versions = replace(FULL, library_version="1", han="0")
    assert FULL.farness(other) > FULL.farness(versions) > 0
    assert not FULL.is_other(other)
    assert name in FULL.distance(other)


@pytest.mark.parametrize(("name", "value"), [("binding", "one"), ("wait", "spin, 1 poll")])
def test_what_may_differ_from_rank_to_rank_is_told_and_orders_no_tables(home, name, value):
    here = replace(FULL, wait="auto, 1000 polls")
    other = replace(here, **{name: value})
    assert value in here.distance(other)
    for k, machine in enumerate((here, other)):
        write(find.SHIPPED / f"{k}.json", of_points((SMALL,), machine))
    assert search(AUTO, home, here).digest == search(AUTO, home, other).digest


def test_rates_that_hardly_differ_are_one():
    assert FULL.farness(replace(FULL, link=1050.0)) == 0
    assert "1000 Mbit/s here, 100 Mbit/s there" in FULL.distance(replace(FULL, link=100.0))


def test_every_field_has_a_weight_and_is_read_from_files():
    from han.tuning.tuned.fingerprint import SAME, WEIGHTS

    assert set(asdict(FULL)) == {*SAME, *WEIGHTS}


def test_the_table_with_the_same_link_is_taken(home):
    folder = find.SHIPPED
    for rate in (100.0, 1000.0):
        write(folder / f"{rate:g}.json", of_points((SMALL, BETWEEN), replace(FULL, link=rate)))
    assert search(AUTO, home, FULL).table.source.endswith("/1000.json")
    assert search(AUTO, home, replace(FULL, link=100.0)).table.source.endswith("/100.json")


@pytest.mark.parametrize("rate", [0.0, 100.0])
def test_of_a_table_of_another_link_only_what_holds_inside_nodes_is_used(home, rate):
    tuned = of_points((SMALL, BETWEEN), FULL)
    here = replace(FULL, link=rate)
    write(find.SHIPPED / "ours.json", tuned)
    same, other = search(AUTO, home, FULL), search(AUTO, home, here)
    traits = NodeTraits()
    inside = call_signature("bcast", SMALL.nbytes), NODE, traits
    between = call_signature("bcast", BETWEEN.nbytes), TWO, traits
    assert same.table.find(*inside)
    assert same.table.find(*between)
    assert other.table.find(*inside)
    assert other.table.find(*between) is None
    assert other.about.endswith("used inside nodes only")
    assert other.digest != same.digest


# ---- the user's table, then the one that comes with han -------------------------------------


def test_where_the_users_table_says_nothing_the_shipped_one_decides(home):
    mine = find.user_folder() / "mine.json"
    write(mine, of_points((SMALL,), HERE))
    put(find.SHIPPED, {"ours.json": as_text(of_points((SMALL, BETWEEN), HERE))})
    found = search(AUTO, home)
    traits = NodeTraits()
    small, large = call_signature("bcast", SMALL.nbytes), call_signature("bcast", BETWEEN.nbytes)
    assert found.table.find(small, NODE, traits).source == str(mine)
    assert found.table.find(large, TWO, traits).source == str(find.SHIPPED / "ours.json")
    assert found.table.find(call_signature("bcast", 1), NODE, traits) is None
    assert found.about == f"this machine; then {find.SHIPPED / 'ours.json'} (this machine)"
    assert found.table.source == str(mine)
    assert found.table.calls_of(NODE) == found.table.calls_of(TWO) == ["bcast"]
    assert len(found.table.uses(NODE) + found.table.uses(TWO)) == 3
    mine.unlink()
    shipped = search(AUTO, home)
    assert shipped.digest != found.digest
    assert shipped.table.thresholds(TWO) == found.table.thresholds(TWO)


def test_a_point_that_keeps_the_built_in_choice_hides_the_shipped_one(home):
    write(find.user_folder() / "mine.json", of_points((replace(SMALL, keeps=True),), HERE))
    write(find.SHIPPED / "ours.json", of_points((SMALL,), HERE))
    call = call_signature("bcast", SMALL.nbytes), NODE, NodeTraits()
    assert search(AUTO, home).table.find(*call).use is None


def test_files_of_other_machines_are_not_read_any_further(home, monkeypatch):
    for k in range(3):
        write(find.SHIPPED / f"{k}.json", of_points((SMALL,), replace(HERE, cpu=f"other {k}")))
    put(find.SHIPPED, {"rows.json": as_text(of_points((SMALL,), replace(HERE, cores=99)))})
    write(find.SHIPPED / "ours.json", of_points((SMALL,), HERE))
    made = []
    whole = find.table_of
    monkeypatch.setattr(find, "table_of", lambda c, p: made.append(p) or whole(c, p))
    for _ in range(2):
        assert search(AUTO, home).table.source.endswith("ours.json")
    assert [path.rpartition("/")[2] for path in made] == ["ours.json"]
    named = search(str(find.SHIPPED / "rows.json"), home)
    assert "measured on another machine: cores: 8 here, 99 there" in named.problem
