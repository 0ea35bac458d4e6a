"""Exchanges that read users' arrays, or in which members write into the cells of others."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from machines import topology_of
from plans import planned, prove, rules_of
from test_exchange import plan_of
from test_exchange_halves import signature_of

from han.model.program import PEER, Area, Base, Code
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.size_classes import class_of
from han.tasks.verify import Unproved, verify_class
from han.tuning.planner import _reads_mapped
from han.tuning.search.space import space_of

KiB = 1024


def plan_for(members, collective, algorithm, nbytes, root=0, mapped=True, segment=None, **more):
    ordered = algorithm not in ("cyclic", "copyin")
    signature = replace(signature_of(collective, nbytes, root, ordered), mapped=mapped)
    choice = Choice((level_choice("exchange", algorithm, **more),), segment)
    return planned(topology_of([[0] * members], 0), signature, choice)


def in_arrays(plan, rank=0):
    """Return whether a rank reads buffers of its peers."""
    return bool((lower(plan, rank).code["base"] >= PEER).any())


@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [
        ("allreduce", "recursive"),
        ("allreduce", "tree"),
        ("allreduce", "cyclic"),
        ("reduce", "tree"),
    ],
)
def test_operands_are_not_copied_into_cells(collective, algorithm):
    nbytes = 64 * KiB
    plans = [plan_for(4, collective, algorithm, nbytes, mapped=m) for m in (False, True)]
    assert [in_arrays(plan) for plan in plans] == [False, True]
    assert plans[0].footprint() > plans[1].footprint()
    shown = []
    for plan in plans:
        code = np.concatenate([lower(plan, rank).code for rank in range(4)])
        code = code[code["code"] == Code.COPY]
        into = code["base"][:, 0] == Base.CHANNEL + Area.CELLS
        shown.append(int(code["n"][into & (code["base"][:, 1] == Base.SEND)].sum()))
    assert shown[1] == 0 < shown[0]


def test_one_step_uses_no_cells_at_all():
    plan = plan_for(4, "allreduce", "recursive", 64 * KiB, factors=(-4, 4))
    assert plan.footprint() == (0,)
    assert _reads_mapped(plan)


def test_small_messages_and_steps_that_do_not_split_go_through_cells():
    for nbytes, more in (
        (4096, {}),
        (64 * KiB, {"factors": (2, 2)}),
        (64 * KiB, {"factors": (-2, 2, 2)}),
    ):
        plan = plan_for(4, "allreduce", "recursive", nbytes, **more)
        assert not in_arrays(plan)
        assert not _reads_mapped(plan)
    assert not in_arrays(plan_for(4, "allreduce", "copyin", 64 * KiB))
    assert not in_arrays(plan_for(4, "allreduce", "recursive", 64 * KiB, arrays=False))


def test_leaders_with_partial_results_go_through_cells():
    """Between the sockets of ranks 0 and 1, 2, and 3, the first member has a partial result."""
    signature = replace(signature_of("allreduce", 64 * KiB), mapped=True)
    tree = level_choice("exchange", "tree")
    topology = topology_of([[0, 0, 1, 2], [0] * 4], 1)
    plan = planned(topology, signature, Choice((tree, tree)))
    assert [in_arrays(plan, rank) for rank in range(4)] == [True, True, False, False]
    prove(plan)


def test_operands_of_results_that_come_in_messages_go_through_cells():
    """In place, a receive would be under way while others read the operand."""
    signature = replace(signature_of("allreduce", 64 * KiB, ordered=False), mapped=True)
    level = level_choice("exchange", "scatter").where("reduce", level_choice("exchange", "tree"))
    plan = planned(topology_of([[0] * 4], 0), signature, Choice((level,), 4 * KiB))
    assert not any(in_arrays(plan, rank) for rank in range(4))
    assert not _reads_mapped(plan)
    prove(plan)


def test_all_sizes_of_a_class_are_proved():
    for collective, algorithm in (("allreduce", "recursive"), ("reduce", "tree")):
        for members in (2, 4, 6):
            call = replace(signature_of(collective, 16 * KiB), mapped=True)
            one = class_of(call, 16 * KiB)
            choice = Choice((level_choice("exchange", algorithm),))
            plan = planned(topology_of([[0] * members], 0), one, choice)
            assert in_arrays(plan)
            for in_place in (False, True):
                verify_class(plan, in_place=in_place)


# ---- writes --------------------------------------------------------------------------------------


WRITING = ("recursive", "cyclic", "copyin")


def is_proved(plan):
    """Return whether a plan is proved for all sizes of its class; it is never wrong for one."""
    try:
        for in_place in (False, True):
            verify_class(plan, in_place=in_place)
    except Unproved:
        return False
    return True


def test_all_sizes_of_a_class_are_proved_where_they_are_if_members_read():
    proved = 0
    for algorithm, members, bound in product(WRITING, (2, 3, 5, 8), (8192, 16_384)):
        one = class_of(Signature("allreduce", bound // 8, 8, "sum", "f8"), bound)
        ways = [level_choice("exchange", algorithm, writes=w) for w in (False, True)]
        plans = [planned(topology_of([[0] * members], 0), one, Choice((way,))) for way in ways]
        read, written = map(is_proved, plans)
        assert written or not read
        proved += written
    assert proved > 12


def copies(plan, rank, code, ref):
    """Return by slot the bytes that copies of a rank read from cells or write to them."""
    program, geometry = lower(plan, rank), plan.geometries[0]
    rows = program.code[program.code["code"] == code]
    base = Base.CHANNEL + Area.CELLS
    rows = rows[rows["base"][:, ref] == base]
    starts = np.array([geometry.area_at(slot) for slot in range(plan.topology.size)])
    slots = np.searchsorted(starts, rows["off"][:, ref], "right") - 1
    return {int(s): int(rows["n"][slots == s].sum()) for s in sorted(set(slots.tolist()))}


def test_finished_blocks_are_written_by_their_member_and_read_in_its_own_cells():
    nbytes, member = 64 << 10, 3
    share = nbytes // 8
    for writes in (False, True):
        plan = plan_of(8, "recursive", nbytes, factors=(-8, 8), writes=writes, chunk=nbytes)
        read, written = (copies(plan, member, Code.COPY, ref) for ref in (1, 0))
        others = {slot: share for slot in range(8) if slot != member}
        shown = {member: nbytes - share}
        assert written == ({**others, **shown} if writes else shown)
        assert read == ({member: nbytes - share} if writes else others)


def test_a_part_of_a_block_is_written_to_all_others_before_the_next_part():
    nbytes = 1 << 20
    plan = plan_of(8, "recursive", nbytes, factors=(-8, 8), writes=True, chunk=nbytes)
    code = lower(plan, 0).code
    given = code[(code["code"] == Code.COPY) & (code["base"][:, 1] == Base.RECV)]
    parts = given["off"][:, 1].tolist()
    assert len(parts) == 7 * len(set(parts))
    assert parts == sorted(parts)
    assert len(set(parts)) > 1


def test_small_messages_are_read():
    for algorithm, nbytes in (("recursive", 8), ("cyclic", 1000), ("copyin", 48)):
        plan, other = (plan_of(6, algorithm, nbytes, writes=w) for w in (True, False))
        assert (lower(plan, 1).code == lower(other, 1).code).all()


def test_a_tuner_tries_to_write_and_explanations_say_so():
    rules = rules_of(topology_of([[0] * 4], 0))
    space = space_of(rules, Signature("allreduce", 1 << 17, 8, "sum", "f8"))
    ours = [choice.levels[0] for choice in space.candidates]
    ours = [one for one in ours if ("writes", True) in one.parameters]
    assert {one.algorithm for one in ours} == set(WRITING)
    assert "exchange cyclic (writes True)" in {one.describe() for one in ours}
