"""Exchanges that read users' shared arrays where they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from machines import topology_of
from test_exchange_halves import planned, signature_of

from han.model.program import PEER, Area, Base, Code
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.size_classes import class_of
from han.tasks.verify import verify, verify_class
from han.tuning.planner import _reads_mapped

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
    for in_place in (False, True):
        verify([plan] * 2, in_place=in_place)


def test_operands_of_results_that_come_in_messages_go_through_cells():
    """In place, a receive would be under way while others read the operand."""
    signature = replace(signature_of("allreduce", 64 * KiB, ordered=False), mapped=True)
    level = level_choice("exchange", "scatter").where("reduce", level_choice("exchange", "tree"))
    plan = planned(topology_of([[0] * 4], 0), signature, Choice((level,), 4 * KiB))
    assert not any(in_arrays(plan, rank) for rank in range(4))
    assert not _reads_mapped(plan)
    for in_place in (False, True):
        verify([plan] * 2, in_place=in_place)


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
