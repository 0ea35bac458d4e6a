"""The verifier proves right programs, and refutes every deliberate mistake."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from machines import topology_of

from han.cli.plan import runs_of
from han.model.channel_layout import SMALL_BANKS
from han.model.program import Area, Base, Code, PeerBase
from han.model.topology import virtual
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, level_choice
from han.tasks.signature import Signature
from han.tasks.spec import SPECS
from han.tasks.verify import Refuted, lower_all, verify
from han.tasks.verify.expressions import Expressions
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.rules import RuleTable

MEMORY = 1 << 18


# ---- specifications -----------------------------------------------------------------------------


def result(spec, contributions):
    """Return the result that a specification asks for; concatenation is the operation."""
    return [
        [[contributions[r][p.offset : p.offset + p.stop - p.start] for r in p.ranks] for p in after]
        for after in spec.after
    ]


def test_specifications_say_what_the_standard_says():
    assert set(SPECS) >= {"bcast", "reduce", "allreduce", "barrier", "gather", "scatter"}
    data = [b"abcdef", b"ghijkl", b"mnopqr"]
    assert result(SPECS["bcast"](3, 6, 1), data) == [[[b"ghijkl"]]] * 3
    assert result(SPECS["reduce"](3, 6, 2), data) == [[], [], [data]]
    assert result(SPECS["allreduce"](3, 6, 0), data) == [[data]] * 3
    assert result(SPECS["gather"](3, 6, 0), data) == [[[d] for d in data], [], []]
    assert result(SPECS["allgather"](3, 6, 0), data) == [[[d] for d in data]] * 3
    assert result(SPECS["scatter"](3, 2, 1), data) == [[[b"gh"]], [[b"ij"]], [[b"kl"]]]
    parts = [[[b"ab", b"gh", b"mn"]], [[b"cd", b"ij", b"op"]], [[b"ef", b"kl", b"qr"]]]
    assert result(SPECS["reduce_scatter"](3, 2, 0), data) == parts
    assert result(SPECS["alltoall"](3, 2, 0), data) == [[[x] for x in p[0]] for p in parts]
    assert result(SPECS["scan"](3, 6, 0), data) == [[data[:1]], [data[:2]], [data]]
    assert result(SPECS["exscan"](3, 6, 0), data) == [[], [data[:1]], [data[:2]]]
    assert SPECS["barrier"](3, 0, 0).synchronises
    starts = [[(p.start, p.stop) for p in a] for a in SPECS["allgather"](3, 6, 0).after]
    assert starts == [[(0, 6), (6, 12), (12, 18)]] * 3


# ---- what is right ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [17, 32, 64])
def test_built_in_choices_on_larger_machines(size):
    node = [r % 5 if r < 20 else r // 8 for r in range(size)]
    for domains, shared in (([[0] * size], 0), ([node, [0] * size], 0)):
        topology = topology_of(domains, shared)
        table = RuleTable(None, topology, NodeTraits(True))
        plans = []
        for nbytes in (8, 5000, 40_000):
            for signature in calls_of(nbytes, size):
                choice = table.decide(signature).choice
                plans.append(plan_of_choice(topology, signature, choice, MEMORY))
        assert verify(plans).events


def calls_of(nbytes, size):
    count = nbytes // 8
    yield Signature("allreduce", count, 8, "sum", "f8")
    yield Signature("bcast", nbytes, root=size - 1)
    yield Signature("reduce", count, 8, "mine", "f8", False, False, root=size // 2)
    yield Signature("barrier")


def test_a_thousand_ranks():
    """All ranks on one node, where the root has 1023 children."""
    node = topology_of([[0] * 1024], 0)
    flat = [plan_of("reduce", node, 64, SM, root=1000, commutes=False), plan_of("bcast", node, 8)]
    assert verify(flat).ranks == 1024
    programs = programs_of(flat)
    (rank, k), *_ = rows_with(programs, [Code.WAIT])
    nothing(programs[1][rank].code[k])
    with pytest.raises(Refuted, match=f"rank {rank}"):
        verify(flat, programs=programs)


def test_memory_is_reused_only_when_its_readers_are_done():
    """There are enough runs to use banks and rings again, which they must wait for."""
    topology = topology_of([[0, 0, 0]], 0)
    plan = plan_of("bcast", topology, 20_000)
    assert verify([plan] * (SMALL_BANKS + 3)).events
    small = plan_of("allreduce", topology, 8)
    assert verify([small, plan] * (SMALL_BANKS + 1)).events


# ---- what is wrong ------------------------------------------------------------------------------

NODE = topology_of([[0, 0, 0, 0]], 0)
NODES = topology_of([[0, 0, 1, 1], [0, 0, 0, 0]], 0)
NETWORK = topology_of([[0, 0, 0, 0]], -1)


def plan_of(collective, topology, nbytes, *levels, segment=None, root=0, commutes=True):
    """Plan one call; `levels` are (submodule, algorithm) pairs, by default the built-in ones."""
    signature = Signature(collective, nbytes, root=root)
    if collective in ("reduce", "allreduce"):
        signature = Signature(collective, nbytes // 8, 8, "op", "u8", commutes, commutes, root)
    choice = RuleTable(None, topology, NodeTraits(False)).decide(signature).choice
    if levels:
        choice = Choice(tuple(level_choice(*one) for one in levels), segment)
    return plan_of_choice(topology, signature, choice, MEMORY)


SM = ("sm", "flat")
CHAIN = ("adapt", "chain")
EACH = Choice((level_choice("sm", "each", chunk=1024, cells=2),))
PLANS = {
    "sm bcast": [plan_of("bcast", NODE, 3000, SM)] * 3,
    "sm large bcast": [plan_of("bcast", NODE, 100_000, SM)] * 3,
    "sm reduce": [plan_of("reduce", NODE, 3000, SM, commutes=False)] * 3,
    "sm direct": [plan_of("allreduce", NODE, 800, ("sm", "direct"))] * 3,
    "sm split": [plan_of("allreduce", NODE, 100_000, ("sm", "split"))] * 3,
    "sm each": [
        plan_of_choice(NODE, Signature("allreduce", 700, 8, "op", "u8", True, True), EACH, MEMORY)
    ] * 3,
    "chain": [plan_of("bcast", NETWORK, 4000, CHAIN)] * 3,
    "exchange": [
        plan_of("allreduce", NETWORK, 800, ("exchange", "recursive_doubling"), commutes=False)
    ] * 3,
    "libnbc": [plan_of("allreduce", NETWORK, 800, ("libnbc", "default"))] * 3,
    "mpi": [plan_of("allreduce", NETWORK, 800, ("mpi", "default"))] * 3,
    "two levels": [plan_of("allreduce", NODES, 8000, SM, CHAIN, segment=2000)] * 3,
    "two levels bcast": [plan_of("bcast", NODES, 8000, SM, CHAIN, segment=2000)] * 3,
    "barrier": [plan_of("barrier", NODE, 0)] * 3,
}  # fmt: skip


def programs_of(plans):
    """Lower plans, so that the programs of each run may be changed."""
    return [list(run) for run in lower_all(plans)]


def code_of(programs, rank, run=1):
    """Return the operations of a rank in a run, as they may be changed."""
    code = programs[run][rank].code.copy()
    programs[run][rank] = replace(programs[run][rank], code=code)
    return code


def rows_with(programs, codes, counts=lambda rank, row: True):
    """Find all operations of some kinds in the second run."""
    return [
        (rank, k)
        for rank, program in enumerate(programs[1])
        for k, row in enumerate(program.code)
        if row["code"] in codes and counts(rank, row)
    ]


def later_piece(rank, row):
    """Leave out waits for the first piece: the first post also ends a wait for one value less."""
    return row["n"] > 1


def not_the_root(rank, row):
    """Leave out the root, which has the data from the beginning."""
    return rank != 0


def nothing(row):
    """Make an operation do nothing."""
    row["code"], row["n"] = Code.COPY, 0


def change(field, new):
    """Return what replaces the value of a field of an operation by a function of it."""

    def spoil(row):
        row[field] = new(row[field])

    return spoil


wait_for_less = change("n", lambda n: n - 1)
wait_for_ever = change("n", lambda n: n + 1000)
beyond_the_end = change("n", lambda n: n + (1 << 22))
another_peer = change("peer", lambda peer: (peer + 1) % 4)
another_root = change("peer", lambda root: (root + 1) % 2)
another_request = change("slot", lambda slot: slot + 100)
nobody = change("peer", lambda _: -1)
no_operation = change("code", lambda _: 10)


def post_something_else(row):
    row["off"][0] += 64 * 5


def swap_operands(row):
    for field in ("base", "off"):
        row[field][[1, 2]] = row[field][[2, 1]]


def combine_twice(row):
    row["base"][1], row["off"][1] = row["base"][2], row["off"][2]


def one_element_less(row):
    row["n"] -= 1 if row["code"] in (Code.REDUCE, Code.REDUCE2) else 8


def another_source(row):
    row["off"][1] += 64


def among_the_flags(row):
    row["base"][0], row["off"][0] = Base.CHANNEL + Area.FLAGS, 64 * 7


def into_the_send_buffer(row):
    row["base"][0], row["off"][0] = Base.SEND, 0


MISTAKES = {
    # mistake: (plans, change, codes of the operations that are changed, and a selection of them).
    # One operation is changed at a time; the verifier must refute each of these programs.
    "a bcast without its wait": ("sm bcast", nothing, [Code.WAIT]),
    "a reduce without its wait": ("sm reduce", nothing, [Code.WAIT]),
    "direct without its wait": ("sm direct", nothing, [Code.WAIT]),
    "each without its wait": ("sm each", nothing, [Code.WAIT]),
    "each with a wait for the piece before": ("sm each", wait_for_less, [Code.WAIT], later_piece),
    "a barrier without its wait": ("barrier", nothing, [Code.WAIT]),
    "a wait for the piece before": ("sm large bcast", wait_for_less, [Code.WAIT], later_piece),
    "a wait for a piece that never comes": ("sm split", wait_for_ever, [Code.WAIT]),
    "no post": ("sm bcast", nothing, [Code.POST]),
    "no post in a barrier": ("barrier", nothing, [Code.POST]),
    "a post to another flag": ("barrier", post_something_else, [Code.POST]),
    "swapped operands": ("sm reduce", swap_operands, [Code.REDUCE]),
    "swapped operands between nodes": ("exchange", swap_operands, [Code.REDUCE]),
    "an operand twice": ("sm reduce", combine_twice, [Code.REDUCE]),
    "an element too few": ("sm reduce", one_element_less, [Code.REDUCE]),
    "a copy that is too short": ("sm large bcast", one_element_less, [Code.COPY]),
    "a copy beyond its cells": ("sm large bcast", beyond_the_end, [Code.COPY]),
    "a wrong cell": ("sm large bcast", another_source, [Code.COPY]),
    "another segment": ("two levels bcast", another_source, [Code.COPY, Code.ISEND]),
    "no test of a receive": ("chain", nothing, [Code.TEST]),
    "a message to somebody else": ("chain", another_peer, [Code.ISEND]),
    "a receive from somebody else": ("chain", another_peer, [Code.IRECV]),
    "a message of another size": ("chain", one_element_less, [Code.ISEND, Code.IRECV]),
    "no message": ("chain", nothing, [Code.ISEND]),
    "a task that does not wait for another": (
        "two levels bcast",
        nothing,
        [Code.AWAIT],
        not_the_root,
    ),
    "a collective of MPI left out": ("libnbc", nothing, [Code.COLL]),
    "a collective of MPI with another root": ("libnbc", another_root, [Code.COLL]),
    "a blocking collective left out": ("mpi", nothing, [Code.COLL]),
    "a blocking collective with another root": ("mpi", another_root, [Code.COLL]),
    "a request that does not exist": (
        "chain",
        another_request,
        [Code.ISEND, Code.IRECV, Code.TEST],
    ),
    "a peer that does not exist": ("chain", nobody, [Code.ISEND, Code.IRECV]),
    "an operation that does not exist": ("sm bcast", no_operation, list(Code)),
    "data among the flags": ("sm large bcast", among_the_flags, [Code.COPY]),
    "a write into the send buffer": ("two levels", into_the_send_buffer, [Code.IRECV]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake):
    name, spoil, codes, *which = MISTAKES[mistake]
    plans = PLANS[name]
    assert verify(plans).events, "what it is planted in is right"
    right = programs_of(plans)
    places = rows_with(right, codes, *which)
    assert places, "it is planted somewhere"
    missed = []
    for rank, k in places:
        programs = [list(run) for run in right]
        spoil(code_of(programs, rank)[k])
        with contextlib.suppress(Refuted):
            verify(plans, programs=programs)
            missed.append((rank, k))
    assert not missed, f"planted at {len(places)} places"


@pytest.fixture
def unannounced(monkeypatch):
    """Switch off the check of announcements, so that only the order of accesses is wrong."""
    monkeypatch.setattr("han.tasks.verify.bounds._check_announced", lambda *_: None)


def expect_refuted(name, rank, change, said=None):
    """Change a rank's operations in the second run."""
    programs = programs_of(PLANS[name])
    change(code_of(programs, rank))
    with pytest.raises(Refuted, match=said):
        verify(PLANS[name], programs=programs)


def spoilt(plans, **changes):
    """Change a field of rank 0's program in every run."""
    programs = programs_of(plans)
    for run in programs:
        run[0] = replace(run[0], **changes)
    return programs


@pytest.mark.parametrize(("nbytes", "runs"), [(40_000, 12), (8, SMALL_BANKS + 2)])
def test_rings_and_banks_that_are_not_waited_for_are_caught(unannounced, nbytes, runs):
    plans = [plan_of("bcast", NODE, nbytes, SM)] * runs
    assert verify(plans).events
    with pytest.raises(Refuted, match="overwritten before a reader is done"):
        verify(plans, programs=spoilt(plans, writes=(0,)))


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("sm reduce", {"operand": 8}, "room for one"),
        ("sm bcast", {"sync": True}, "need not have entered"),
        ("sm large bcast", {"footprint": (4096,)}, "the same part"),
        ("sm large bcast", {"writes": (0,)}, "does not announce"),  # no memory is used again
    ],
)
def test_wrong_facts_of_a_program_are_caught(name, changes, said):
    with pytest.raises(Refuted, match=said):
        verify(PLANS[name], programs=spoilt(PLANS[name], **changes))


def test_one_flag_in_two_streams_of_a_rank():
    """A reduce and a bcast post to the flag of one small slot; the reduce must post first."""
    plans = [plan_of("barrier", topology_of([[0] * 9], 0), 0, ("sm", "kary"))]
    assert verify(plans).events
    programs = programs_of(plans)
    code = code_of(programs, 1, run=0)  # rank 1 has a parent and children
    (await_,) = np.flatnonzero(code["code"] == Code.AWAIT)
    assert code["code"][await_ + 1] == Code.WAIT, "for the root's release, which is later still"
    nothing(code[await_])
    nothing(code[await_ + 1])
    with pytest.raises(Refuted, match="may fall"):
        verify(plans, programs=programs)


def test_runs_that_wait_for_memory_wait_for_all_ranks_of_a_node(unannounced):
    """The wait is one joint for all ranks; a rank that passes it knows the reads of all."""
    plans = [plan_of("bcast", NODES, 40_000, SM, CHAIN)] * 6
    assert verify(plans).events
    programs = programs_of(plans)
    for rank in (0, 2):
        for run in programs:
            run[rank] = replace(run[rank], writes=(0,))
        with pytest.raises(Refuted, match="overwritten before a reader is done"):
            verify(plans, programs=programs)
        programs = programs_of(plans)


def test_deep_expressions_keep_their_order():
    expressions = Expressions(5000)
    number = 0
    for rank in range(1, 5000):
        number = expressions.combine(number, rank)
    assert expressions.ranks(number, True) == tuple(range(5000))
    assert expressions.ranks(expressions.combine(7, expressions.combine(3, 5)), True) == (7, 3, 5)


def test_plans_of_different_communicators_are_refused():
    node, network = plan_of("bcast", NODE, 8), plan_of("bcast", NETWORK, 8)
    larger = plan_of_choice(node.topology, node.signature, node.choice, MEMORY * 64)
    for plans in ([], [node, network], [node, larger]):
        with pytest.raises(ValueError, match="different communicators"):
            verify(plans)


def test_a_flag_that_falls():
    """Two posts are exchanged: the wait for the lower value would end with the higher one."""

    def exchange(code):
        first, second, *_ = np.flatnonzero(code["code"] == Code.POST)
        code["n"][[first, second]] = code["n"][[second, first]]

    expect_refuted("sm large bcast", 0, exchange)


def test_a_flag_outside_of_the_flags():
    plans = PLANS["sm large bcast"]
    programs = programs_of(plans)
    for rank in range(4):
        code = code_of(programs, rank)
        code["off"][np.isin(code["code"], [Code.POST, Code.WAIT]), 0] += 1 << 20
    with pytest.raises(Refuted, match="a line among the flags"):
        verify(plans, programs=programs)


def test_a_request_of_two_streams():
    codes = enumerate(program.code for program in programs_of(PLANS["two levels"])[1])
    rank = next(rank for rank, code in codes if len(set(code["stream"][_asks(code)])) > 1)

    def share(code):
        slots, streams = code["slot"][_asks(code)], code["stream"][_asks(code)]
        code["slot"][_asks(code)] = np.where(streams > 0, slots.min(), slots)

    expect_refuted("two levels", rank, share, "request")


def _asks(code):
    return np.isin(code["code"], [Code.ISEND, Code.IRECV, Code.TEST])


def test_who_gets_no_result_has_nowhere_to_put_it():
    def receive(code):
        first = np.flatnonzero(code["code"] == Code.COPY)[0]
        code["base"][first, 0], code["off"][first, 0] = Base.RECV, 0

    expect_refuted("sm reduce", 2, receive, "beyond the end of a buffer")


@pytest.mark.parametrize(
    ("field", "value", "said"), [("n", 1 << 31, "an int"), ("stream", 40, "a tag")]
)
def test_what_c_cannot_count(field, value, said):
    def change(code):
        code[field][np.isin(code["code"], [Code.ISEND, Code.IRECV])] = value

    expect_refuted("chain", 1, change, said)


def test_operands_that_are_no_whole_elements():
    def shift(code):
        combines = code["code"] == Code.REDUCE
        for ref in range(3):
            code["off"][combines, ref] += 4
        code["n"][combines] -= 1

    expect_refuted("exchange", 0, shift, "whole elements")


def test_commands_prove_as_many_runs_as_use_memory_again():
    assert runs_of(PLANS["sm bcast"][0]) == SMALL_BANKS + 1
    large = plan_of("bcast", NODE, 300_000, SM)
    ring = large.geometries[0].ring
    assert runs_of(large) * large.footprint()[0] > ring


def pulled(collective, nbytes=100_000, mapped=False, algorithm=None, **parameters):
    """Plan calls that read peers' memory, by cross-memory attach or in mapped buffers."""
    algorithm = algorithm or ("split" if collective == "allreduce" else "pull")
    plan = plan_of(collective, NODE, nbytes)
    choice = Choice((level_choice("solo", algorithm, **parameters),))
    plan = plan_of_choice(NODE, plan.signature, choice, MEMORY)
    return [replace(plan, signature=replace(plan.signature, mapped=mapped))] * 3


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize(
    ("collective", "how"),
    [
        ("bcast", {}),
        ("bcast", {"tree": "chain"}),
        ("bcast", {"tree": "knomial", "chunk": 30_000}),
        ("bcast", {"algorithm": "spread", "chunk": 30_000}),
        ("bcast", {"algorithm": "meet", "chunk": 30_000}),
        ("reduce", {}),
        ("allreduce", {}),
        ("allreduce", {"algorithm": "each", "chunk": 30_000}),
    ],
)
def test_who_does_not_wait_for_a_flag_when_touching_peers_memory(collective, how, mapped):
    plans = pulled(collective, mapped=mapped, **how)
    assert verify(plans).events
    right = programs_of(plans)
    for rank, program in enumerate(right[1]):
        waits = program.code["code"] == Code.WAIT
        for flag in np.unique(program.code["off"][waits, 0]):
            programs = [list(run) for run in right]
            code = code_of(programs, rank)
            where = waits & (code["off"][:, 0] == flag)
            code["code"][where], code["n"][where] = Code.COPY, 0
            with pytest.raises(Refuted):
                verify(plans, programs=programs)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"peer": 3}, "not the peer's"),
        ({"base": Base.CHANNEL}, "not the peer's own"),
        ({"off": 1 << 20}, "beyond the end"),
    ],
)
def test_reading_from_somewhere_else(change, said):
    plans = pulled("bcast")
    programs = programs_of(plans)
    code = code_of(programs, 1)
    pulls = np.flatnonzero(code["code"] == Code.PULL)
    for field, value in change.items():
        if field == "peer":
            code["peer"][pulls] = value
        else:
            code[field][pulls, 1] = value
    with pytest.raises(Refuted, match=said):
        verify(plans, programs=programs)


@pytest.mark.parametrize("mapped", [False, True])
def test_a_rank_that_does_not_show_where_its_buffers_are(mapped):
    plans = pulled("bcast", mapped=mapped)
    with pytest.raises(Refuted, match="shows no addresses"):
        verify(plans, programs=spoilt(plans, writes=(0,)))


@pytest.mark.parametrize(
    ("ref", "base", "said"),
    [
        (1, PeerBase(Base.RECV, 0, 3), "beyond the end"),
        (1, PeerBase(Base.RECV, 0, 4), "no rank has"),
        (1, PeerBase(Base.RECV, 5, 0), "no rank has"),
        (1, PeerBase(Base.SCRATCH, 0, 0), "not mapped"),
        (0, PeerBase(Base.RECV, 0, 0), "only sources"),
    ],
)
def test_mapped_memory_somewhere_else(ref, base, said):
    plans = pulled("bcast", mapped=True)
    programs = programs_of(plans)
    code = code_of(programs, 1)
    copies = code["code"] == Code.COPY
    code["base"][copies, ref] = base.number
    code["off"][copies, ref] += 1 << 20
    with pytest.raises(Refuted, match=said):
        verify(plans, programs=programs)


def test_buffers_that_are_not_mapped():
    programs = programs_of(pulled("allreduce", mapped=True))
    with pytest.raises(Refuted, match="call on mapped buffers"):
        verify(pulled("allreduce"), programs=programs)


def test_two_ranks_that_wait_for_each_other_first():
    """Messages form a cycle, which eager sends would hide."""
    plans = PLANS["exchange"][:1]
    programs = programs_of(plans)
    for rank in range(4):
        code = code_of(programs, rank, run=0)
        sends = np.flatnonzero(code["code"] == Code.ISEND)
        receives = np.flatnonzero(code["code"] == Code.IRECV)
        test = next(
            k for k in range(sends[0], len(code))
            if code["code"][k] == Code.TEST and code["slot"][k] == code["slot"][sends[0]]
        )  # fmt: skip
        first = min(sends[0], receives[0])
        order = [sends[0], test]
        rest = [k for k in range(first, len(code)) if k not in order]
        code[first:] = code[[*order, *rest]]
    with pytest.raises(Refuted, match="no deadlock"):
        verify(plans, programs=programs)


def test_a_story_names_rank_task_and_operation():
    plans = PLANS["sm bcast"]
    programs = programs_of(plans)
    (rank, k), *_ = rows_with(programs, [Code.WAIT])
    nothing(code_of(programs, rank)[k])
    with pytest.raises(Refuted) as caught:
        verify(plans, programs=programs)
    text = str(caught.value)
    for part in (f"run 1, rank {rank}", "ib(0)", "COPY", "not ordered after its write", "rank 0"):
        assert part in text, text


IN_PLACE = [  # signatures, and the submodules that can serve them
    (Signature("alltoall", 5000, in_place=True), ["sm"]),
    (Signature("reduce_scatter", 500, 8, "op", "u8", in_place=True), ["sm"]),
    (Signature("reduce_scatter", 500, 8, "op", "u8", counts=(37, 0, 500), in_place=True), []),
    (Signature("reduce_scatter", 500, 8, "op", "u8", counts=(37, 0, 500)), ["sm", "solo"]),
]


@pytest.mark.parametrize(("signature", "fit"), IN_PLACE)
def test_results_that_lie_over_what_is_still_wanted_are_refuted(signature, fit):
    topology = replace(virtual(3), attach=True)
    for name in ("sm", "solo"):
        choice = Choice((level_choice(name, "blocks"),) * topology.depth)
        plans = [plan_of_choice(topology, signature, choice, 1 << 20)] * 2
        if name in fit:
            assert verify(plans).ranks == 3
        else:
            with pytest.raises(Refuted):
                verify(plans)
