"""The simulator: times that can be computed by hand, limits, programs that end."""

from dataclasses import replace

import numpy as np
import pytest
from equations.max_rate import exchange
from machines import SIMPLE, on_nodes, simple_machine, topology_of
from plans import MEMORY, programs_of
from random_plans import one_plan

from han.common.errors import ArgumentError, ConfigError
from han.config.config import load_config
from han.config.machine import load_machine, parse_rate, parse_time, ready_machines
from han.model.channel_layout import SMALL_BANKS
from han.model.program import INSTRUCTION, Code, StreamInfo
from han.submodules.parts.factors import both_ways, phases_of, twos
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.simulate import simulate
from han.tasks.simulate.placement import Placement
from han.tuning.formulas import MaxRate, recursive_doubling, smp
from han.tuning.prediction import Where, predict, with_choice
from han.tuning.prediction import plan_of as decided

US = 1e-6


def plan_of(collective, topology, nbytes, *levels, segment=None):
    signature = Signature(collective, nbytes)
    if collective in ("reduce", "allreduce"):
        signature = Signature(collective, nbytes // 8, 8, "sum", "f8")
    made = tuple(level_choice(name, one, **dict(more)) for name, one, *more in levels)
    choice = Choice(made, segment)
    return plan_of_choice(topology, signature, choice, MEMORY)


def program_of(plan, rank, rows):
    """Return a program with other operations; `rows` are (code, peer, bytes, request)."""
    code = np.array(
        [(c, 0, peer, (1,) * 4, (0,) * 4, n, slot, 0) for c, peer, n, slot in rows], INSTRUCTION
    )
    stream = StreamInfo("messages", "bcast", 1, 0, len(rows))
    return replace(lower(plan, rank), code=code, streams=(stream,), tasks=("t",), requests=64)


SM = ("sm", "flat")
LINEAR = ("adapt", "linear", ("segment", 1 << 20))


def test_one_message_takes_latency_and_bytes_over_bandwidth():
    plan = plan_of("bcast", on_nodes(1, 1), 1000, SM, LINEAR)
    assert simulate(plan, simple_machine()).seconds == pytest.approx(10 * US + 1000 / 100e6)


def test_a_long_message_is_asked_for_first():
    nbytes = 128 * 1024
    plan = plan_of("bcast", on_nodes(1, 1), nbytes, SM, LINEAR)
    found = simulate(plan, simple_machine())
    assert found.seconds == pytest.approx(30 * US + nbytes / 100e6)
    assert simulate(plan, simple_machine({"eager": "1MiB"})).seconds < found.seconds


def test_the_processor_handles_messages_on_both_sides():
    plan = plan_of("bcast", on_nodes(1, 1), 1000, SM, LINEAR)
    link = {"overhead": "2us", "copying": "1GB/s"}
    found = simulate(plan, simple_machine(link))
    assert found.seconds == pytest.approx(2 * US + 10 * US + 10 * US + 3 * US)
    assert found.messaging == pytest.approx((3 * US, 3 * US))


@pytest.mark.parametrize("bandwidth", ["100MB/s", "1GB/s"])
def test_an_adapter_takes_messages_in_the_order_in_which_they_come(bandwidth):
    """All members send to all others at once, each to another one first: nobody waits."""
    n, nodes, more = 10_000, 5, (("factors", (5,)), ("whole", 0))
    topology = topology_of([[0] * nodes], -1)
    model = simple_machine({"bandwidth": bandwidth}, reduce="1000GB/s")
    plan = plan_of("allreduce", topology, n, ("exchange", "recursive", *more))
    found = simulate(plan, model, model.place(nodes, 1))
    assert found.seconds == pytest.approx(10 * US + 4 * n / 100e6, rel=1e-3)


def test_long_messages_that_are_due_at_the_same_time_pass_one_after_the_other():
    n, model = 1 << 20, simple_machine({"bandwidth": "1GB/s"})
    plan = plan_of("bcast", on_nodes(1, 1, 1), 8, SM, LINEAR)
    rows = [[(Code.ISEND, 2, n, 0), (Code.TEST, 0, 0, 0)] for _ in range(2)]
    rows.append(
        [(Code.IRECV, r, n, r) for r in range(2)] + [(Code.TEST, 0, 0, r) for r in range(2)]
    )
    programs = [program_of(plan, rank, rows[rank]) for rank in range(3)]
    found = simulate(plan, model, programs=programs)
    assert found.seconds == pytest.approx(30 * US + 2 * n / 100e6)
    assert found.messages == (0, 2)
    assert found.nbytes == (0, 2 * n)


RAILS = [(1, 1), (1, 2), (2, 2), (4, 1), (4, 2), (4, 3), (4, 8), (5, 2)]


@pytest.mark.parametrize("bandwidth", ["60MB/s", "1GB/s"])
@pytest.mark.parametrize(("ppn", "rails"), RAILS)
def test_formulas_and_simulator_mean_the_same_by_a_rail(ppn, rails, bandwidth):
    """All ranks of a node send at once to the ranks of another node.

    Max-rate (Bienz et al., equation 3): ppn s / min(R_N, ppn R_b).
    """
    model, n = simple_machine({"bandwidth": bandwidth}, rails=rails), 60_000
    plan = plan_of("bcast", on_nodes(ppn, ppn), 8, SM, LINEAR)
    test = (Code.TEST, 0, 0, 0)
    rows = [[(Code.ISEND, ppn + r, n, 0), test] for r in range(ppn)]
    rows += [[(Code.IRECV, r, n, 0), test] for r in range(ppn)]
    programs = [program_of(plan, rank, row) for rank, row in enumerate(rows)]
    last = simulate(plan, model, programs=programs).seconds
    assert last == pytest.approx(MaxRate.of(model, ppn).max_rate(n, ppn))
    assert ppn * n / (last - 10 * US) <= 1.0001 * rails * model.node.injection


@pytest.mark.parametrize("bandwidth", ["60MB/s", "1GB/s"])
@pytest.mark.parametrize(
    ("nodes", "factors"),
    [
        (4, (-2, 2, 2)), (4, (4,)), (8, (2, 2, 2)), (8, (-2, -2, -2, 2, 2, 2)), (8, (-4, 2, 4)),
        (12, (-3, 4, 3)), (12, (-3, -4, 6, 2)), (7, (-7, 7)),
    ],
)  # fmt: skip
def test_exchanges_take_what_their_formula_says(nodes, factors, bandwidth):
    """A link may be slower than the adapter; the messages of a step share both."""
    n = nodes * 64 * 60
    parameters = ("factors", factors), ("whole", 0), ("segment", 1 << 20)
    topology = topology_of([[0] * nodes], -1)
    plan = plan_of("allreduce", topology, n, ("exchange", "recursive", *parameters))
    model = simple_machine({"bandwidth": bandwidth}, copy="100GB/s", memory="1000GB/s")
    found = simulate(plan, model, model.place(nodes, 1)).seconds
    expected = exchange(MaxRate.of(model, 1), n, 1, phases_of("recursive", factors))
    assert found == pytest.approx(expected, rel=1e-2)


def test_the_formula_of_exchanges_contains_that_of_recursive_doubling():
    costs = MaxRate.of(simple_machine(), 1)
    for nodes, n in ((2, 8), (8, 1000), (64, 60_000)):
        doubling = phases_of("recursive", twos(nodes))
        assert exchange(costs, n, 1, doubling) == pytest.approx(
            recursive_doubling(costs, n, nodes, 1)
        )
        halving = phases_of("recursive", both_ways(twos(nodes)))
        moved = 2 * n * (nodes - 1) / nodes
        expected = 2 * (nodes.bit_length() - 1) * costs.alpha + moved / 100e6
        assert exchange(costs, n, 1, halving) == pytest.approx(expected + moved / 2 / 500e6)


def test_one_rank_uses_one_rail():
    """A message takes as long where the node has rails that its rank does not use."""
    n, fast = 60_000, {"bandwidth": "1GB/s"}
    plan = plan_of("allreduce", on_nodes(1, 1), n, SM, ("exchange", "recursive_doubling"))
    one, four = (simple_machine(fast, rails=rails) for rails in (1, 4))
    assert simulate(plan, one).seconds == simulate(plan, four).seconds
    assert smp(MaxRate.of(one, 1), n, 2, 1) == smp(MaxRate.of(four, 1), n, 2, 1)
    assert smp(MaxRate.of(one, 1), n, 2, 1) == recursive_doubling(MaxRate.of(one, 1), n, 2, 1)


@pytest.mark.parametrize(("rails", "share"), [(1, 1), (2, 1 / 2), (3, 1 / 3)])
def test_long_messages_are_split_over_all_rails(rails, share):
    """300,000 bytes at 100 MB/s take 3 ms on a rail; one byte less than `stripe` stays whole."""
    n, model = 300_000, simple_machine({"eager": "1MiB"}, rails=rails, stripe=300_000)
    plan = plan_of("bcast", on_nodes(1, 1), n, SM, LINEAR)
    assert simulate(plan, model).seconds == pytest.approx(10 * US + 3e-3 * share)
    plan = plan_of("bcast", on_nodes(1, 1), n - 1, SM, LINEAR)
    assert simulate(plan, model).seconds == pytest.approx(10 * US + 3e-3, rel=1e-4)


def test_striped_messages_of_two_ranks_share_all_rails():
    """Two ranks of a node send 200,000 bytes each; two rails carry 100 MB/s each.

    Pairs of 50 MB/s take 4 ms on rails of their own. Split, a pair has 50 MB/s on each rail: 2 ms.
    Pairs of 100 MB/s do not pass sooner, as both rails are busy for 2 ms.
    """
    n, rows = 200_000, [[(Code.ISEND, 2 + r, 200_000, 0), (Code.TEST, 0, 0, 0)] for r in range(2)]
    rows += [[(Code.IRECV, r, n, 0), (Code.TEST, 0, 0, 0)] for r in range(2)]
    plan = plan_of("bcast", on_nodes(2, 2), 8, SM, LINEAR)
    programs = [program_of(plan, rank, row) for rank, row in enumerate(rows)]
    times = [
        simulate(plan, simple_machine({"eager": "1MiB", "bandwidth": b}, rails=2, **more),
                 programs=programs).seconds
        for b, more in (("50MB/s", {}), ("50MB/s", {"stripe": n}), ("100MB/s", {"stripe": n}))
    ]  # fmt: skip
    assert times == pytest.approx([10 * US + ms * 1e-3 for ms in (4, 2, 2)])


def test_links_are_full_duplex():
    n = 50_000
    plan = plan_of("allreduce", on_nodes(1, 1), n, SM, ("exchange", "recursive_doubling"))
    assert simulate(plan, simple_machine(reduce="1000GB/s")).seconds == pytest.approx(
        10 * US + n / 100e6, rel=1e-3
    )


def test_a_burst_passes_an_adapter_at_once():
    """Messages of 50 and 100 bytes at 0, 1.5, 1.5 and 2.75 s; half a second fills the bucket."""
    link = {"bandwidth": "1000GB/s", "latency": "0us"}
    model = simple_machine(link, injection="100B/s", burst=50, memory="100GB/s")
    plan = plan_of("bcast", on_nodes(1, 1, 1, 1, 1), 8, SM, LINEAR)
    send, copy = Code.ISEND, Code.COPY
    rows = [
        (send, 1, 50, 0), (copy, 0, 1_500_000_000, 0), (send, 2, 50, 1), (send, 3, 100, 2),
        (copy, 0, 1_250_000_000, 0), (send, 4, 50, 3),
    ]  # fmt: skip
    programs = [program_of(plan, 0, rows)]
    for rank, n in enumerate((50, 50, 100, 50), 1):
        programs.append(program_of(plan, rank, [(Code.IRECV, 0, n, 0), (Code.TEST, 0, 0, 0)]))
    found = simulate(plan, model, programs=programs)
    assert found.finish[0][1:] == pytest.approx((0.5, 1.5, 2.5, 3.0))


def test_copies_share_the_memory_of_a_node():
    n = 16 * 1024
    plan = plan_of("bcast", on_nodes(5), n, ("sm", "flat", ("chunk", n)), LINEAR)
    quick = simulate(plan, simple_machine()).seconds
    assert quick == pytest.approx(2 * n / 1e9 + 1 * US)
    slow = simulate(plan, simple_machine(memory="1GB/s")).seconds
    assert slow == pytest.approx(n / 1e9 + 1 * US + 4 * n / 1e9)


def test_reductions_take_their_own_rate():
    n = 64 * 1024
    plan = plan_of("reduce", on_nodes(2), n, ("sm", "flat", ("chunk", n)), LINEAR)
    found = simulate(plan, simple_machine())
    assert found.reducing == pytest.approx((n / 500e6, 0))
    assert found.copying == pytest.approx((0, n / 1e9))
    assert found.seconds == pytest.approx(n / 1e9 + 1 * US + n / 500e6)


@pytest.mark.parametrize(
    "row",
    [(len(Code), 0, 0, 0), (Code.ISEND, 2, 0, 0), (Code.IRECV, -1, 0, 0), (Code.AWAIT, 1, 0, 0)],
)
def test_programs_that_name_what_does_not_exist_are_refused(row):
    plan = plan_of("bcast", on_nodes(1, 1), 8, SM, LINEAR)
    programs = [program_of(plan, 0, [row]), lower(plan, 1)]
    with pytest.raises(ValueError, match="rank 0: its program names things that do not exist"):
        simulate(plan, simple_machine(), programs=programs)


def test_a_rank_pushes_into_the_memory_of_a_peer():
    """In solo.meet the root pushes half of the array while the reader pulls the other half."""
    n = 1 << 20
    plan = plan_of("bcast", on_nodes(2), n, ("solo", "meet"), LINEAR)
    codes = {code for rank in range(2) for code in lower(plan, rank).code["code"].tolist()}
    assert {Code.PULL, Code.PUSH} <= codes
    found = simulate(plan, simple_machine())
    assert sum(found.copying) == pytest.approx(n / 1e9)
    assert min(found.copying) > 0
    assert found.seconds < 0.75 * n / 1e9


def caches(**cache):
    """Return a machine whose nodes have caches of two ranks."""
    cache = {
        "name": "cache",
        "latency": "1us",
        "bandwidth": "1GB/s",
        "flag": "1us",
        "ranks": 2,
        **cache,
    }
    return load_machine({**SIMPLE, "levels": [cache, *SIMPLE["levels"]]})


def test_copies_and_reductions_have_rates_of_each_level():
    """A rank's own data has the rate of the node; other ranks' data that of the level between."""
    n = 64 * 1024
    topology = topology_of([[0, 0, 0], [0, 0, 0]], 0)
    plan = plan_of("bcast", topology, n, ("sm", "flat", ("chunk", n)), LINEAR)
    model = caches(copy="4GB/s")
    place = ((0, 0, 1), (0, 0, 0), (0, 0, 0))
    found = simulate(plan, model, place)
    assert found.copying == pytest.approx((n / 1e9, n / 4e9, n / 1e9))
    plan = plan_of("reduce", topology, n, ("sm", "flat", ("chunk", n)), LINEAR)
    found = simulate(plan, caches(reduce="2GB/s"), place)
    assert found.reducing[0] == pytest.approx(n / 2e9 + n / 500e6)
    pulled = plan_of("bcast", topology, 1 << 20, ("solo", "pull"), LINEAR)
    found = simulate(pulled, model, place)
    assert found.copying[1] == pytest.approx((1 << 20) / 4e9)


def test_ranks_beyond_the_cores_take_turns():
    plan = plan_of("bcast", on_nodes(4), 1 << 16, ("sm", "flat", ("chunk", 1 << 16)), LINEAR)
    free = simulate(plan, simple_machine(cores=4)).seconds
    assert simulate(plan, simple_machine(cores=1)).seconds > 1.9 * free
    late = simulate(plan, simple_machine(cores=3, switch="50us")).seconds
    assert late == pytest.approx(free + 50 * US)
    apart = plan_of("bcast", on_nodes(1, 1), 1000, SM, LINEAR)
    emulated = simple_machine(cores=1, switch="50us", together=True)
    assert simulate(apart, emulated).seconds == pytest.approx(70 * US)


def test_a_pipeline_overlaps_the_levels():
    """With segments, the time is little more than that of the slower level."""
    n, topology = 1 << 20, on_nodes(4, 4, 4)
    args = (("sm", "flat", ("chunk", 1 << 16)), ("adapt", "chain", ("segment", 1 << 16)))
    model = simple_machine(copy="200MB/s")
    whole = simulate(plan_of("bcast", topology, n, *args), model).seconds
    flowing = simulate(plan_of("bcast", topology, n, *args, segment=1 << 16), model).seconds
    assert n / 100e6 < flowing < 1.4 * n / 100e6
    assert whole > n / 100e6 + n / 200e6


def test_children_take_turns_at_eager_messages():
    """A root that sends one child everything before the other has a tree as slow as a chain."""
    tree = "adapt", "binary", ("segment", 4096)
    plan, eager = plan_of("bcast", on_nodes(*[1] * 7), 1 << 18, SM, tree), simple_machine()
    asking = simple_machine({"eager": 0})
    assert simulate(plan, eager).seconds <= simulate(plan, asking).seconds


def test_calls_back_to_back_follow_each_other_closely():
    """A root does not wait for the others: it starts the next call before they end the last."""
    plan = plan_of("bcast", on_nodes(1, 1), 1000, SM, LINEAR)
    found = simulate(plan, simple_machine(), runs=10)
    assert found.each == pytest.approx((10 * US + 10 * 10 * US) / 10)
    assert [len(run) for run in found.finish] == [2] * 10


def test_a_run_waits_for_the_memory_that_it_writes():
    """Rings and banks are used again, which limits how many runs a root can be ahead."""
    node = on_nodes(2)
    for nbytes in (8, 1 << 15):
        plan = plan_of("bcast", node, nbytes, SM, LINEAR)
        slow = simulate(plan, simple_machine(copy="1GB/s"), runs=30)
        leaves = list(zip(*slow.finish, strict=True))  # of each rank
        ahead = max(sum(t <= done for t in leaves[0]) - k - 1 for k, done in enumerate(leaves[1]))
        assert 1 <= ahead <= SMALL_BANKS + 1


def test_a_rank_is_not_done_before_its_processor_is():
    """The arrival of a message does not let a rank continue before its processor is free."""
    plan = plan_of("allreduce", on_nodes(1, 1), 8, SM, ("exchange", "recursive_doubling"))
    found = simulate(
        plan, simple_machine({"overhead": "100us", "latency": "1us", "copying": "1GB/s"})
    )
    assert all(done >= busy for done, busy in zip(found.finish[0], found.messaging, strict=True))
    assert found.seconds == pytest.approx(201 * US, rel=1e-2)


@pytest.mark.parametrize(("busy", "idle"), [(0, 1), (1, 0)])
def test_adapters_serve_in_the_order_of_time(busy, idle):
    """A rank that is simulated ahead of others does not enter a queue before its time."""
    plan, n = plan_of("bcast", on_nodes(1, 1, 1, 1), 8, SM, LINEAR), 60_000
    target, other = 2, 3
    send, receive, test = Code.ISEND, Code.IRECV, Code.TEST
    many = range(20)
    rows = {
        busy: [*((send, other, 0, k) for k in many), (send, target, n, 20), (test, 0, 0, 20)],
        idle: [(send, target, n, 0), (test, 0, 0, 0)],
        other: [*((receive, busy, 0, k) for k in many), *((test, 0, 0, k) for k in many)],
        target: [(receive, idle, n, 0), (receive, busy, n, 1), (test, 0, 0, 0), (test, 0, 0, 1)],
    }
    programs = [program_of(plan, rank, rows[rank]) for rank in range(4)]
    found = simulate(plan, simple_machine({"overhead": "20us"}), programs=programs)
    first, second = 20 * US + 10 * US + n / 100e6, n / 100e6
    assert found.finish[0][target] == pytest.approx(first + second + 20 * US, rel=1e-3)


def test_tasks_have_what_their_streams_did():
    plan = plan_of("allreduce", on_nodes(3, 3), 60_000, SM, ("adapt", "binary"), segment=9_000)
    found = simulate(plan, simple_machine(), spans=True)
    for rank in range(6):
        mine = [s for s in found.spans if s.rank == rank]
        assert sum(s.copying for s in mine) == pytest.approx(found.copying[rank])
        assert sum(s.reducing for s in mine) == pytest.approx(found.reducing[rank])
        assert all(s.copying + s.reducing <= s.end - s.begin + 1e-12 for s in mine)


def test_spans_are_those_of_the_tasks():
    topology = on_nodes(2, 2)
    plan = plan_of("bcast", topology, 40_000, SM, ("adapt", "chain"), segment=10_000)
    found = simulate(plan, simple_machine(), spans=True, runs=2)
    names = {(s.rank, s.call, s.task) for s in found.spans}
    assert {(r, k, f"{t}b({i})") for r in (0, 2) for k in (0, 1) for t in "si" for i in range(4)} \
        <= names  # fmt: skip
    for span in found.spans:
        assert span.begin <= span.start <= span.end <= max(found.finish[span.call])
        assert span.copying + span.reducing <= span.end - span.begin + 1e-12
    copied = sum(s.copying for s in found.spans if s.rank == 3)
    assert copied == pytest.approx(found.copying[3])
    ends = {s.task: s.end for s in found.spans if s.rank == 3 and s.call == 0}
    arrived = {s.task: s.end for s in found.spans if s.rank == 2 and s.call == 0}
    assert all(ends[f"sb({i})"] > arrived[f"ib({i})"] for i in range(4))


def test_messages_and_bytes_are_counted_by_level():
    plan = plan_of("bcast", on_nodes(2, 2, 2), 3000, SM, LINEAR)
    found = simulate(plan, simple_machine())
    assert found.messages == (0, 2)
    assert found.nbytes == (0, 6000)
    apart = plan_of("bcast", topology_of([[0] * 6], -1), 3000, LINEAR)
    everywhere = simulate(apart, simple_machine(), plan.topology.homes)
    assert everywhere.messages == (1, 4)


def test_short_collectives_of_the_library_take_the_postal_model():
    plan = plan_of("bcast", on_nodes(1, 1, 1, 1), 1000, SM, ("libnbc", "default"))
    assert simulate(plan, simple_machine()).seconds == pytest.approx(2 * (10 * US + 1000 / 100e6))


def library(collective, nbytes, nodes, **more):
    return plan_of(collective, on_nodes(*nodes), nbytes, SM, ("libnbc", "default", *more.items()))


FAST = {"bandwidth": "1GB/s", "eager": "1MiB"}  # ten times as fast as adapters
PASSES = 1e6 / 100e6  # 1 MB through an adapter


@pytest.mark.parametrize(
    ("collective", "messages"),
    [("bcast", 2), ("reduce", 2), ("allreduce", 4)],  # of the root of four, in a direction
)
def test_collectives_of_the_library_occupy_adapters(collective, messages):
    """Messages of a binomial tree; those of an allreduce's two trees pass the root both ways."""
    plan = library(collective, 1_000_000, (1, 1, 1, 1))
    found = simulate(plan, simple_machine(FAST, reduce="1000GB/s"))
    assert found.seconds == pytest.approx(messages * PASSES + messages // 2 * 10 * US, rel=1e-3)


def test_collectives_of_the_library_share_adapters_with_each_other():
    """Two halves at the same time, and one after the other, which a latency separates."""
    one = library("bcast", 1_000_000, (1, 1, 1, 1), window=2)
    both, turns = (
        simulate(
            plan_of("bcast", one.topology, 1_000_000, SM, ("libnbc", "default", ("window", n)),
                    segment=500_000),
            simple_machine(FAST),
        ).seconds
        for n in (2, 1)
    )  # fmt: skip
    assert both == pytest.approx(2 * PASSES + 10 * US)
    assert turns == pytest.approx(2 * PASSES + 20 * US)


def test_collectives_of_the_library_share_adapters_with_messages():
    """The root of two sends 1 MB by the library, and a message as long beside it."""
    plan = library("bcast", 1_000_000, (1, 1))
    programs = []
    for rank, code in enumerate((Code.ISEND, Code.IRECV)):
        own = lower(plan, rank)
        more = program_of(plan, rank, [(code, 1 - rank, 1_000_000, 1), (Code.TEST, 0, 0, 1)])
        start, stop = len(own.code), len(own.code) + 2
        stream = replace(more.streams[0], start=start, stop=stop)
        both = np.concatenate([own.code, more.code])
        programs.append(replace(own, code=both, streams=(*own.streams, stream), requests=2))
    alone = simulate(plan, simple_machine(FAST)).seconds
    assert alone == pytest.approx(PASSES + 10 * US)
    together = simulate(plan, simple_machine(FAST), programs=programs).seconds
    assert together == pytest.approx(2 * PASSES + 10 * US)


def test_programs_that_never_end_are_told():
    plan = plan_of("bcast", on_nodes(2), 3000, SM, LINEAR)
    programs = programs_of(plan)
    code = programs[0].code.copy()
    code["code"][code["code"] == Code.POST] = Code.COPY
    with pytest.raises(RuntimeError, match=r"ranks \[1\] wait for ever"):
        simulate(plan, simple_machine(), programs=[replace(programs[0], code=code), programs[1]])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(150))
def test_every_plan_ends_and_does_all_of_its_operations(number):
    plan = one_plan(number, 12, MEMORY)
    topology, signature = plan.topology, plan.signature
    model = simple_machine()
    place = (tuple(range(topology.size)), (0,) * topology.size)
    found = simulate(plan, model, place, runs=3)
    operations = sum(len(lower(plan, r).code) for r in range(topology.size))
    assert found.operations == 3 * operations
    assert simulate(plan, model, place, runs=3) == found, "the same every time"
    if signature.collective == "bcast" and topology.size > 1:
        copied = any(found.copying)
        assert copied or sum(found.messages) or not signature.nbytes or found.seconds


# ---- machines -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ready_machines())
def test_ready_machines_say_where_their_values_are_from(name):
    model = load_machine(name)
    assert set(model.sources) == set(model.values())
    where = Where(model, min(2, len(model.levels)), 4)
    assert predict(where, decided(where, load_config(), Signature("bcast", 4096))).seconds > 0


def test_times_and_rates_as_people_write_them():
    assert parse_time("1.5us") == pytest.approx(1.5e-6)
    assert parse_time("40 ns") == pytest.approx(4e-8)
    assert parse_rate("1Gbit/s") == 125e6
    assert parse_rate("6.9GB/s") == 6.9e9
    for wrong in ("1.5", 3, "5 hours", "us"):
        with pytest.raises(ValueError, match=r"write 1\.5us"):
            parse_time(wrong)
    for wrong in ("0GB/s", "6.9GB", 7, "fast"):
        with pytest.raises(ValueError, match=r"write 6\.9GB/s"):
            parse_rate(wrong)


WRONG = {
    "levels.latency": ({"levels": [{**SIMPLE["levels"][0], "latency": 3}]}, "is not a time"),
    "another level": ({"node": {**SIMPLE["node"], "level": "nod"}}, "is not a level"),
    "a key": ({"node": {**SIMPLE["node"], "injektion": "1GB/s"}}, "did you mean 'injection'"),
    "a missing one": ({"node": {"level": "node"}}, "copy: is missing"),
    "a source of nothing": ({"sources": {"node.cop": "x"}}, "is not a value of this machine"),
    "no levels": ({"levels": []}, "one or more levels"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_machine_is_told_with_its_key(wrong):
    change, said = WRONG[wrong]
    with pytest.raises(ConfigError, match=said):
        load_machine({**SIMPLE, **change})


def test_an_unknown_machine_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError, match="did you mean 'thor'"):
        load_machine("thro")


def test_inner_levels_have_a_size():
    socket = {"name": "socket", "latency": "1us", "bandwidth": "1GB/s"}
    with pytest.raises(ConfigError, match=r"levels\[0\].ranks: is missing"):
        load_machine({**SIMPLE, "levels": [socket, *SIMPLE["levels"]]})
    model = load_machine({**SIMPLE, "levels": [{**socket, "ranks": 2}, *SIMPLE["levels"]]})
    assert model.place(2, 3) == ((0, 0, 1, 2, 2, 3), (0, 0, 0, 1, 1, 1), (0,) * 6)
    places = Placement(plan_of("bcast", on_nodes(3, 3), 8, SM, LINEAR), model, model.place(2, 3))
    assert places.levels(0, np.array([1, 2, 3])).tolist() == [0, 1, 2]
    assert places.rails().tolist() == [0] * 6


def test_a_machine_of_one_node_has_one_node():
    model = load_machine({**SIMPLE, "levels": SIMPLE["levels"][:1]})
    assert Where(model, 1, 4).size == 4
    with pytest.raises(ArgumentError, match="it is one node"):
        Where(model, 2, 4)


def test_the_choice_can_be_given():
    config = with_choice(load_config(), ["network=adapt.binary:segment=4KiB"], "64KiB")
    where = Where(simple_machine(), 4, 2)
    found = predict(where, decided(where, config, Signature("bcast", 1 << 20)))
    assert found.plan.choice.segment == 1 << 16
    assert found.plan.choice.levels[1] == level_choice("adapt", "binary", segment=4096)
    kinds = ["network=adapt.chain", "network.reduce=binary:segment=8KiB"]
    level = with_choice(load_config(), kinds, None).rules[0].use.levels["network"]
    assert (level.algorithm, level.kinds["reduce"].algorithm) == ("chain", "binary")
    assert level.kinds["reduce"].parameters == {"segment": 8192}
    with pytest.raises(ArgumentError, match="behind that of its level, network="):
        with_choice(load_config(), kinds[::-1], None)
    for wrong in ("adapt", "netwrk=adapt", "=x", "network.gather=binary"):
        with pytest.raises(ArgumentError, match="LEVEL=SUBMODULE"):
            with_choice(load_config(), [wrong], None)
    with pytest.raises(ConfigError, match="did you mean 'adapt'"):
        with_choice(load_config(), ["network=adap"], None)
    direct = with_choice(load_config(), ["network=exchange.halving"], None)
    with pytest.raises(ArgumentError, match="cannot serve it"):
        decided(where, direct, Signature("bcast", 1 << 20))
