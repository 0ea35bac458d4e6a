"""Caches and memories of sockets in the simulator: times that can be computed by hand."""

import pytest
from machines import topology_of

from han.common.errors import ConfigError
from han.config.machine import load_machine
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, level_choice
from han.tasks.signature import Signature
from han.tasks.simulate import simulate
from han.tasks.simulate.caches import bytes_of_buffers

N = 64 * 1024
PLACE = ((0, 1, 2, 3), (0, 0, 1, 1), (0,) * 4)  # cores, sockets of two ranks, the node


def machine(**node):
    """Return a node of two sockets with two cores each; `node` has more of its values."""
    core = {"name": "core", "latency": "1us", "bandwidth": "1GB/s", "ranks": 1}
    socket = {"name": "socket", "latency": "1us", "bandwidth": "1GB/s", "ranks": 2}
    core |= node.pop("core", {})
    socket |= node.pop("socket", {})
    across = {"name": "node", "latency": "1us", "bandwidth": "1GB/s", "copy": "1GB/s"}
    levels = [core, socket, across | node.pop("across", {})]
    rates = {"copy": "1GB/s", "reduce": "500MB/s", "memory": "1000GB/s", "injection": "1GB/s"}
    return load_machine({"about": "", "levels": levels, "node": {"level": "node", **rates, **node}})


def plan_of(collective, n=N, chunk=N):
    """Plan a call of four ranks of a node through cells as large as the message."""
    signature = Signature(collective, n)
    if collective != "bcast":
        signature = Signature(collective, n // 8, 8, "sum", "f8")
    choice = Choice((level_choice("sm", "flat", chunk=chunk),))
    return plan_of_choice(topology_of([[0] * 4], 0), signature, choice, 1 << 20)


def copying(plan, model):
    return simulate(plan, model, PLACE).copying


def test_data_in_a_cache_moves_at_the_rate_of_its_level():
    """A root copies into its cells; a member of its socket, and those of the other, copy out."""
    plan = plan_of("bcast")
    quick = {"socket": {"copy": "4GB/s", "cache": "1MiB"}, "across": {"copy": "2GB/s"}}
    found = copying(plan, machine(**quick))
    assert found == pytest.approx((N / 4e9, N / 4e9, N / 2e9, N / 2e9))
    small = {"socket": {"copy": "4GB/s", "cache": "1KiB"}, "across": {"copy": "2GB/s"}}
    assert copying(plan, machine(**small)) == pytest.approx((N / 1e9,) * 4)


def test_a_rank_has_its_own_cache():
    """Its own copy takes the rate of the innermost cache that holds cells and buffers."""
    plan, own = plan_of("bcast"), {"copy": "8GB/s", "cache": "1MiB"}
    shared = {"copy": "4GB/s", "cache": "1MiB"}
    found = copying(plan, machine(core=own, socket=shared))
    assert found[:2] == pytest.approx((N / 8e9, N / 4e9))


def test_a_cache_may_hold_cells_and_not_buffers():
    """All copies of a broadcast have one side in a buffer, so they go to memory."""
    plan = plan_of("bcast", 16 * N)
    held = {"copy": "4GB/s", "cache": "1MiB"}
    assert sum(plan.footprint()) * 2 <= 1 << 20 < (sum(plan.footprint()) + 16 * N) * 2
    assert copying(plan, machine(socket=held)) == pytest.approx((16 * N / 1e9,) * 4)


def test_data_in_caches_takes_nothing_of_the_memory():
    plan = plan_of("bcast")
    slow = copying(plan, machine(memory="1GB/s"))
    assert slow[1] > 1.9 * N / 1e9
    held = copying(plan, machine(memory="1GB/s", socket={"copy": "1GB/s", "cache": "1MiB"}))
    assert held == pytest.approx((N / 1e9,) * 4)


def test_sockets_have_memories_of_their_own():
    """Three members copy at once: all share one memory, or one has that of its socket's two."""
    plan = plan_of("bcast")
    one = copying(plan, machine(memory="1GB/s"))
    each = copying(plan, machine(memory="1GB/s", memory_of="socket"))
    assert all(a > 1.3 * b for a, b in zip(one[1:], each[1:], strict=True))
    with pytest.raises(ConfigError, match=r"memory_of.*no level inside a node"):
        machine(memory_of="network")


def test_messages_of_data_that_is_in_no_cache_take_of_the_memory():
    choice = Choice((level_choice("exchange", "recursive_doubling"),))
    plan = plan_of_choice(
        topology_of([[0] * 4], -1), Signature("allreduce", N // 8, 8, "sum", "f8"), choice, 1 << 20
    )
    across = {"copying": "1GB/s"}
    times = {
        cache: simulate(
            plan, machine(memory="1GB/s", across=across, socket={"cache": cache, **across}), PLACE
        ).messaging[0]
        for cache in ("1KiB", "1MiB")
    }
    assert times["1KiB"] > 1.5 * times["1MiB"]


def test_buffers_of_a_call():
    blocks = {"allgather": 5, "alltoall": 8, "reduce_scatter": 5, "gather": 5}
    for collective, count in {"bcast": 1, "allreduce": 2, "barrier": 0, **blocks}.items():
        assert bytes_of_buffers(Signature(collective, 10), 4) == 10 * count
    assert bytes_of_buffers(Signature("alltoall", 10, in_place=True), 4) == 40
