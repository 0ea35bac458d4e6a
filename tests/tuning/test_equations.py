"""Equations of papers against the simulator, where both must agree, and within what."""

from dataclasses import replace
from math import log2

import pytest
from equations import lanes, pipeline
from equations.hockney import HOCKNEY
from equations.max_rate import max_rate
from plans import built_in
from schedules import Row, run_steps, seconds_of, stage_times

from han.config.machine import load_machine
from han.model.program import Code
from han.model.topology import virtual
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tasks.choice import Choice, level_choice
from han.tasks.simulate import simulate
from han.tuning import multi_rail
from han.tuning.formulas import MaxRate, nap, recursive_doubling, smp
from han.tuning.multi_rail import Hockney

EXACT = 1e-9
SHAPES = [(2, 1), (8, 1), (1, 8), (2, 2), (4, 2), (2, 8), (4, 4)]
SIZES = [8, 30_000]


def machine(injection="1000GB/s", rails=1, inner="1GB/s", **node):
    """Return a machine of nodes; by default only the bandwidth of pairs limits messages."""
    levels = [
        {"name": "node", "latency": "1us", "bandwidth": inner, "eager": "1GiB", "flag": "0us"},
        {"name": "network", "latency": "10us", "bandwidth": "100MB/s", "eager": "1GiB"},
    ]
    found = {
        "level": "node", "copy": "1GB/s", "reduce": "500MB/s", "memory": "1000GB/s",
        "injection": injection, "rails": rails, **node,
    }  # fmt: skip
    return load_machine({"about": "round numbers", "levels": levels, "node": found})


# ---- steps of algorithms ------------------------------------------------------------------------


def doubling(size, nbytes, grow=1):
    """All ranks exchange with the rank at distance 1, 2, 4 ...; messages grow by `grow`."""
    return [
        [(r, r ^ 1 << k, nbytes * grow**k) for r in range(size)] for k in range(round(log2(size)))
    ]


def halving(size, nbytes, shrink=1):
    """Ranks that have the data send it to those at half the distance of the step before."""
    steps, has = [], [0]
    for k in range(1, round(log2(size)) + 1):
        distance = size >> k
        steps.append([(r, r + distance, nbytes // shrink**k) for r in has])
        has += [r + distance for r in has]
    return steps


def around(size, nbytes, count):
    return [[(r, (r + 1) % size, nbytes) for r in range(size)]] * count


def bruck(size, nbytes):
    return [
        [(r, (r + (1 << k)) % size, nbytes * size // 2) for r in range(size)]
        for k in range(round(log2(size)))
    ]


# ---- Hockney's model: Tran et al., section 2 ----------------------------------------------------


def hockney(collective, algorithm, nbytes, nodes, ppn, model, contention=1.0):
    return HOCKNEY[collective, algorithm](Hockney.of(model, contention), nbytes, nodes, ppn)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("nodes", "ppn"), SHAPES)
def test_hockneys_model_of_algorithms_whose_ranks_are_in_step(nodes, ppn, n):
    """No adapter is shared, and all ranks cross the same level in a step: they agree exactly."""
    model, size = machine(), nodes * ppn
    steps = round(log2(size))
    pairwise = [[(r, r ^ k, n) for r in range(size)] for k in range(1, size)]
    found = {
        ("allgather", "recursive doubling"): run_steps(model, nodes, ppn, doubling(size, n, 2)),
        ("allreduce", "recursive doubling"): run_steps(
            model, nodes, ppn, doubling(size, n), reduces=steps
        ),
        ("bcast", "binomial"): run_steps(model, nodes, ppn, halving(size, n)),
        ("reduce", "binomial"): run_steps(
            model,
            nodes,
            ppn,
            [[(b, a, n) for a, b, n in step] for step in reversed(halving(size, n))],
            reduces=steps,
        ),
        ("scatter", "binomial"): run_steps(model, nodes, ppn, halving(size, n * size, 2)),
        ("alltoall", "pairwise"): run_steps(model, nodes, ppn, pairwise),
    }
    for key, seconds in found.items():
        assert seconds == pytest.approx(hockney(*key, n, nodes, ppn, model), rel=EXACT), key


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_hockneys_model_of_rings_and_of_bruck(nodes, n):
    """With one rank a node all links are the same, and they agree exactly."""
    model, part = machine(), n // nodes
    ring = run_steps(model, nodes, 1, around(nodes, n, nodes - 1))
    assert ring == pytest.approx(hockney("allgather", "ring", n, nodes, 1, model), rel=EXACT)
    twice = run_steps(model, nodes, 1, around(nodes, part, 2 * nodes - 2), reduces=nodes - 1)
    wanted = hockney("allreduce", "ring", part * nodes, nodes, 1, model)
    assert twice == pytest.approx(wanted, rel=EXACT)
    moved = n * nodes
    found = run_steps(model, nodes, 1, bruck(nodes, n), before=moved, after=moved)
    assert found == pytest.approx(hockney("alltoall", "Bruck", n, nodes, 1, model), rel=EXACT)
    steps = halving(nodes, part * nodes, 2) + around(nodes, part, nodes - 1)
    wanted = hockney("bcast", "scatter and ring", part * nodes, nodes, 1, model)
    assert run_steps(model, nodes, 1, steps) == pytest.approx(wanted, rel=EXACT)


def test_a_ring_with_quick_links_takes_less_than_its_slowest_link_says():
    """The model counts the slowest link in every step; blocks wait for it only once a node."""
    for nodes, ppn in ((2, 4), (4, 4)):
        found = run_steps(machine(), nodes, ppn, around(nodes * ppn, 8, nodes * ppn - 1))
        assert found < hockney("allgather", "ring", 8, nodes, ppn, machine())


@pytest.mark.parametrize(("nodes", "ppn"), [(2, 1), (4, 2), (2, 4)])
def test_a_root_that_sends_to_all_ranks_is_limited_by_its_adapter(nodes, ppn):
    """For long messages: the model counts all latencies, of which the simulator overlaps most."""
    model, n, size = machine(inner="1000GB/s"), 1 << 20, nodes * ppn
    found = run_steps(model, nodes, ppn, [[(0, r, n) for r in range(1, size)]])
    wanted = hockney("scatter", "direct", n, nodes, ppn, model)
    assert found == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize(("ppn", "rails"), [(1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (8, 4)])
def test_contention_is_the_ranks_that_share_a_rail(ppn, rails):
    """Rail binding, between two nodes: all ranks of a node send at once."""
    model, n = machine("100MB/s", rails), 50_000
    found = run_steps(model, 2, ppn, [[(r, (r + ppn) % (2 * ppn), n) for r in range(2 * ppn)]])
    assert found == pytest.approx(Hockney.of(model, ppn / rails).inter(n), rel=EXACT)


# ---- the max-rate model: Bienz et al., equations 1 to 6 -----------------------------------------


@pytest.mark.parametrize("injection", ["1000GB/s", "100MB/s", "250MB/s"])
@pytest.mark.parametrize("ppn", [1, 2, 4])
def test_equations_3_and_4_between_two_nodes(ppn, injection):
    """Each rank exchanges inside its node, then with the other one, and reduces: exactly."""
    model, n, local = machine(injection), 40_000, round(log2(ppn))
    costs = MaxRate.of(model, ppn)
    found = run_steps(model, 2, ppn, doubling(2 * ppn, n), reduces=local + 1)
    assert found == pytest.approx(recursive_doubling(costs, n, 2, ppn), rel=EXACT)
    general = max_rate(costs, (local, local * n), (1, n), (local + 1) * n, ppn)
    assert found == pytest.approx(general, rel=EXACT)


def test_equation_3_counts_each_message():
    costs = MaxRate.of(machine(), 2)
    once = max_rate(costs, (0, 0), (1, 1000), 0, 2)
    assert max_rate(costs, (0, 0), (3, 3000), 0, 2) == pytest.approx(3 * once)
    assert max_rate(costs, (2, 1000), (0, 0), 500, 2) == pytest.approx(2e-6 + 1e-6 + 1e-6)


@pytest.mark.parametrize("injection", ["1000GB/s", "60MB/s"])
@pytest.mark.parametrize(("nodes", "ppn"), SHAPES)
def test_equation_5_of_smp(nodes, ppn, injection):
    """Its steps inside a node are those of the reduction; the broadcast takes as many more."""
    model, n, leaders = machine(injection), 30_000, range(0, nodes * ppn, ppn)
    up = [
        [(r + (1 << k), r, n) for r in range(nodes * ppn) if r % ppn % (2 << k) == 0]
        for k in range(round(log2(ppn)))
    ]
    between = [
        [(r, (r // ppn ^ 1 << k) * ppn, n) for r in leaders] for k in range(round(log2(nodes)))
    ]
    down = [[(target, source, n) for source, target, _ in step] for step in reversed(up)]
    steps = [*up, *between, *down]
    found = run_steps(model, nodes, ppn, steps, reduces=len(up) + len(between))
    costs = MaxRate.of(model, ppn)
    expected = smp(costs, n, nodes, ppn) + len(down) * costs.local(n)
    assert found == pytest.approx(expected, rel=EXACT)


def nap_steps(nodes, ppn, nbytes):
    """Algorithm 1 for a power of `ppn` nodes: rank r of a node talks to the node of digit r."""
    inside = [
        [(r, r ^ 1 << k, nbytes) for r in range(nodes * ppn)] for k in range(round(log2(ppn)))
    ]
    steps, stride = list(inside), 1
    while stride < nodes:
        step = []
        for node in range(nodes):
            digit = node // stride % ppn
            for local in range(ppn):
                other = node + (local - digit) * stride
                if other != node:
                    step.append((node * ppn + local, other * ppn + digit, nbytes))
        steps += [step, *inside]
        stride *= ppn
    return steps


@pytest.mark.parametrize(("nodes", "ppn"), [(2, 2), (4, 2), (8, 2), (4, 4), (16, 4), (8, 8)])
def test_equation_6_of_nap(nodes, ppn):
    """Exactly, without limits of adapters: the rank that stays idle has nothing to wait for."""
    model, n = machine(), 3000
    steps = nap_steps(nodes, ppn, n)
    found = run_steps(model, nodes, ppn, steps, reduces=len(steps))
    assert found == pytest.approx(nap(MaxRate.of(model, ppn), n, nodes, ppn), rel=EXACT)


# ---- pipelines: HAN, equations 1 to 4 -----------------------------------------------------------


def stages(collective, count):
    """Return the time of a call of `count` segments, and the seconds of each stage by rank."""
    topology, model = virtual(8, 2), machine()
    levels = level_choice("sm", "flat"), level_choice("adapt", "chain")
    choice = Choice(levels, 32 * 1024, "lockstep")
    plan = plan_of_choice(topology, call_signature(collective, count * 32 * 1024), choice, 1 << 24)
    found = simulate(plan, model, model.place(4, 2), spans=True)
    return found, stage_times(plan, found.spans)


def of(costs, ranks):
    return [[cost[r] for r in ranks] for cost in costs]


LEADERS, OTHERS = (0, 2, 4, 6), (1, 3, 5, 7)


def test_equations_1_to_3_of_bcast():
    """In lockstep stages add up: equation 1 is exact, and equation 3 within 5 % for 32 segments."""
    found, costs = stages("bcast", 32)
    ib, *sbib, sb = of(costs, LEADERS)
    leaders = max(found.finish[0][rank] for rank in LEADERS)
    assert pipeline.bcast_leaders(ib, sbib, sb) == pytest.approx(leaders, rel=EXACT)
    first, *broadcasts = of(costs, OTHERS)
    others = max(found.finish[0][rank] for rank in OTHERS)
    assert pipeline.bcast_others(first, broadcasts) == pytest.approx(others, rel=EXACT)
    each = [sum(row[16:24]) / 8 for row in zip(*sbib, strict=True)]
    assert pipeline.bcast(ib, each, sb, 32) == pytest.approx(leaders, rel=0.05)


def test_equation_4_of_allreduce():
    """Within 5 % for 32 segments, with the mean of some stages of the full pipeline."""
    found, costs = stages("allreduce", 32)
    leaders = of(costs, LEADERS)
    filling, steady, draining = leaders[:3], leaders[3:-3], leaders[-3:]
    each = [sum(row[8:16]) / 8 for row in zip(*steady, strict=True)]
    last = max(found.finish[0][rank] for rank in LEADERS)
    assert pipeline.allreduce(filling, each, draining, 32) == pytest.approx(last, rel=0.05)


# ---- lanes: Jocksch et al., section 2, and Träff ------------------------------------------------


def in_lanes(nodes, ppn, nbytes):
    """Steps of halving in each node, of recursive exchange in each lane, and of doubling."""
    size, up, down = nodes * ppn, [], []
    for k in range(round(log2(ppn))):
        part = nbytes // (2 << k)
        step = [(r, r ^ (ppn >> k + 1), part) for r in range(size)]
        up.append(step)
        down.insert(0, step)
    across, part = [], nbytes // ppn
    for factor, stride in ((4, 1), (2, 4)) if nodes == 8 else ((nodes, 1),):
        part //= factor
        step = []
        for r in range(size):
            node, local = divmod(r, ppn)
            group = node - node // stride % factor * stride
            me = (node - group) // stride
            turn = [(me + k) % factor for k in range(1, factor)]  # each node hears from one at once
            step += [(r, (group + k * stride) * ppn + local, part) for k in turn]
        across.append(step)
    return up, across, down


@pytest.mark.parametrize(("nodes", "ppn", "rails"), [(2, 2, 1), (4, 2, 2), (8, 4, 2), (4, 8, 4)])
def test_an_allreduce_in_lanes(nodes, ppn, rails):
    """Within 8 % where lanes share a rail: while one of them combines, another one sends."""
    model, n = machine("100MB/s", rails), 64 * 1024 * nodes * ppn
    up, across, down = in_lanes(nodes, ppn, n)
    steps = [*up, *across, *reversed(across), *down]
    found = run_steps(model, nodes, ppn, steps, reduces=len(up) + len(across))
    expected = lanes.allreduce(MaxRate.of(model, ppn), n, nodes, ppn)
    assert found == pytest.approx(expected, rel=0.08 if ppn > rails else 0.02)


@pytest.mark.parametrize("rails", [1, 2])
def test_a_broadcast_in_lanes(rails):
    nodes, ppn, n = 4, 4, 1 << 20
    model, size = machine("100MB/s", rails), nodes * ppn
    scatter = [[(0, 2, n // 2)], [(0, 1, n // 4), (2, 3, n // 4)]]
    tree = [
        [(r, r + ppn * 2, n // ppn) for r in range(ppn)],
        [(r, r + ppn, n // ppn) for r in range(size) if r // ppn % 2 == 0],
    ]
    gather = [[(r, r ^ 1 << k, n // ppn << k) for r in range(size)] for k in range(2)]
    found = run_steps(model, nodes, ppn, [*scatter, *tree, *gather])
    assert found == pytest.approx(lanes.bcast(MaxRate.of(model, ppn), n, nodes, ppn), rel=0.02)


@pytest.mark.parametrize("rails", [1, 2])
def test_large_allreduces_in_lanes_come_near_the_bound_of_the_rails(rails):
    """The program that runs, in segments, where nodes are much faster than their adapters."""
    model, n = machine("50MB/s", rails, "10GB/s", copy="10GB/s", reduce="10GB/s"), 4 << 20
    topology, signature = virtual(8, 2), call_signature("allreduce", n)
    topology = replace(topology, memory=topology.domains[0])
    plan = built_in(topology, signature, "lanes", 1 << 24)
    least = lanes.bound(MaxRate.of(model, 2), n, 4, 2)
    assert least < simulate(plan, model, model.place(4, 2)).seconds < 1.1 * least


# ---- a multi-rail allgather: Tran et al., equations 1 to 7 --------------------------------------


@pytest.mark.parametrize("ppn", [2, 4, 16])
def test_equation_1_balances_processors_and_adapters(ppn):
    h, n = Hockney.of(machine()), 1 << 20
    d = multi_rail.offloaded(h, n, ppn)
    assert h.intra(n) * (ppn - 1 - d) == pytest.approx(h.inter(n) * ppn * d)
    assert 0 < d < ppn - 1


@pytest.mark.parametrize("offload", [0, 1, 2])
def test_equation_2_of_an_allgather_in_a_node(offload):
    """Copies of a processor, and messages through one adapter one after the other: within 3 %."""
    model, n, ppn = machine(), 1 << 20, 4
    h = Hockney(0.0, 1e9, 10e-6, 100e6, 0.0, 1e9, 0.0)
    copies = [Row(Code.COPY, n=n)] * (ppn - offload)  # the first is that of its own block
    sends = [Row(Code.ISEND, 1, n, k) for k in range(ppn * offload)]
    receives = [Row(Code.IRECV, 0, n, k) for k in range(ppn * offload)]
    tests = [Row(Code.TEST, slot=k) for k in range(ppn * offload)]
    found = seconds_of(model, 2, 1, [[sends + tests, copies], [receives + tests]])
    wanted = multi_rail.allgather_in_node(h, n, ppn, offload)
    assert found == pytest.approx(wanted, rel=0.03)


@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_equations_3_and_4_of_the_leaders(nodes):
    """Exactly: leaders are alone on their adapters."""
    model, n, ppn = machine("100MB/s"), 5000, 4
    h, block = Hockney.of(model), n * ppn
    found = run_steps(model, nodes, 1, doubling(nodes, block, 2))
    assert found == pytest.approx(multi_rail.leaders_doubling(h, n, nodes, ppn), rel=EXACT)
    closed = h.alpha_h * log2(nodes) + (nodes - 1) * block / h.bw_h
    assert found == pytest.approx(closed, rel=EXACT)
    found = run_steps(model, nodes, 1, around(nodes, block, nodes - 1))
    assert found == pytest.approx(multi_rail.leaders_ring(h, n, nodes, ppn), rel=EXACT)


@pytest.mark.parametrize("memory", ["1000GB/s", "1GB/s"])
def test_equation_5_of_a_broadcast_in_a_node(memory):
    """Exactly, where three members share memory that one of them could use alone."""
    model, n = machine(memory=memory), 100_000
    rows = [[Row(Code.COPY, n=n), Row(Code.POST, n=1)]]
    rows += [[Row(Code.WAIT, n=1), Row(Code.COPY, n=n)] for _ in range(3)]
    found = seconds_of(model, 1, 4, rows)
    wanted = multi_rail.broadcast(Hockney.of(model), n, 3)
    assert found == pytest.approx(wanted, rel=EXACT)


def overlapped(nodes, ppn, block, peers):
    """Leaders exchange blocks by steps of (peer, blocks), and copy what arrived for the members."""
    rows = []
    for node in range(nodes):
        mail, copies, out = [], [], []
        for step, (peer, count) in enumerate(peers(node)):
            to, source = (rank * ppn for rank in peer)
            n = block * count
            mail += [Row(Code.ISEND, to, n, 0), Row(Code.IRECV, source, n, 1)]
            mail += [Row(Code.TEST, slot=0), Row(Code.TEST, slot=1)]
            copies += [
                Row(Code.AWAIT, 0, len(mail)),
                Row(Code.COPY, n=n),
                Row(Code.POST, n=step + 1),
            ]
            out += [Row(Code.WAIT, n=step + 1), Row(Code.COPY, n=n)]
        rows += [[mail, copies], *[[out]] * (ppn - 1)]
    return rows


@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_equations_6_and_7_where_the_network_is_slower_than_copies(nodes):
    """Within 15 %: a leader takes turns between messages and copies."""
    model, n, ppn = machine("100MB/s"), 50_000, 4
    h = Hockney.of(model)
    first = multi_rail.allgather_in_node(h, n, ppn, 0)
    ring = overlapped(
        nodes, ppn, n * ppn,
        lambda node: [(((node + 1) % nodes, (node - 1) % nodes), 1)] * (nodes - 1),
    )  # fmt: skip
    found = first + seconds_of(model, nodes, ppn, ring)
    assert found == pytest.approx(multi_rail.allgather_ring(h, n, nodes, ppn), rel=0.15)
    doubled = overlapped(
        nodes, ppn, n * ppn,
        lambda node: [((node ^ 1 << k,) * 2, 1 << k) for k in range(round(log2(nodes)))],
    )  # fmt: skip
    found = first + seconds_of(model, nodes, ppn, doubled)
    assert found == pytest.approx(multi_rail.allgather_doubling(h, n, nodes, ppn), rel=0.15)
