"""Built-in choices within a node, and proofs of the plans that follow from them."""

from dataclasses import replace

import pytest
from machines import topology_of

from han.model.collectives import REDUCING
from han.tasks.signature import Signature
from han.tasks.verify import verify
from han.tuning.built_in.traits import NodeTraits
from han.tuning.heuristics import choose
from han.tuning.parts import plan_of_choice

KiB, MiB = 1 << 10, 1 << 20
MEMORY = 1 << 24


def call(collective, nbytes):
    """Return a call; `nbytes` is the size of the message, or of one block in a call by blocks."""
    op = "sum" if collective in REDUCING else None
    return Signature(collective, nbytes // 8, 8, op, "float64", True)


def chosen(collective, nbytes, ranks, attach=True, oversubscribed=False, mesh=False):
    """Return the plan of the built-in choice on one node."""
    node = replace(topology_of([[0] * ranks], 0), attach=attach)
    signature = call(collective, nbytes)
    choice = choose(signature, node, NodeTraits(oversubscribed, mesh))
    return plan_of_choice(node, signature, choice, MEMORY)


@pytest.mark.parametrize(
    ("collective", "ranks", "near", "mesh"),
    [
        ("bcast", 2, 8 * MiB, 32 * KiB), ("bcast", 4, 32 * MiB, 2 * MiB),
        ("allreduce", 2, 64 * MiB, 2 * MiB), ("allgather", 2, 16 * MiB, 32 * KiB),
        ("scatter", 2, 4 * MiB, 32 * KiB), ("scatter", 4, MiB, 64 * KiB),
    ],
)  # fmt: skip
@pytest.mark.parametrize("on_mesh", [False, True])
def test_ranks_attach_to_each_other_from_some_size_on(collective, ranks, near, mesh, on_mesh):
    least = mesh if on_mesh else near

    def submodule(nbytes, attach=True):
        plan = chosen(collective, nbytes, ranks, attach, mesh=on_mesh)
        return plan.choice.levels[0].submodule

    assert submodule(least) == "solo"
    assert submodule(least - 8) == submodule(least, attach=False) == "sm"


@pytest.mark.parametrize(
    ("nbytes", "algorithm"), [(128 * KiB + 8, "each"), (2 * MiB, "each"), (2 * MiB + 8, "split")]
)
def test_two_ranks_on_a_mesh_combine_more_by_themselves(nbytes, algorithm):
    plan = chosen("allreduce", nbytes, 2, attach=False, mesh=True)
    assert (plan.choice.levels[0].submodule, plan.choice.levels[0].algorithm) == ("sm", algorithm)
    assert verify([plan] * 3).events


@pytest.mark.parametrize(
    ("collective", "ranks", "nbytes", "submodule"),
    [
        ("bcast", 4, 8 * MiB, "solo"), ("bcast", 4, 16 * MiB, "sm"), ("bcast", 8, 2 * MiB, "sm"),
        ("allgather", 4, 2 * MiB, "solo"), ("allgather", 4, 4 * MiB, "sm"),
        ("allgather", 8, 256 * KiB, "sm"), ("alltoall", 8, 4 * MiB, "solo"),
        ("gather", 8, 4 * MiB, "solo"), ("gather", 2, 4 * MiB, "sm"),
    ],
)  # fmt: skip
def test_what_many_read_goes_through_cells_on_a_mesh(collective, ranks, nbytes, submodule):
    plan = chosen(collective, nbytes, ranks, mesh=True)
    assert plan.choice.levels[0].submodule == submodule


@pytest.mark.parametrize("collective", ["gather", "reduce", "alltoall", "reduce_scatter"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_and_from_none_on_where_it_never_pays(collective, ranks):
    assert chosen(collective, 64 * MiB, ranks).choice.levels[0].submodule == "sm"


@pytest.mark.parametrize(
    ("ranks", "nbytes", "oversubscribed", "algorithm"),
    [
        (4, 4 * KiB, True, "direct"), (4, 4 * KiB + 8, True, "flat"), (4, 32 * KiB, True, "flat"),
        (4, 32 * KiB + 8, True, "split"), (4, 8 * KiB, False, "split"), (2, 8 * KiB, True, "each"),
        (2, 4 * KiB + 8, False, "each"), (2, 32 * MiB, False, "each"),
        (2, 32 * MiB + 8, False, "split"),
        (8, 8 * KiB, True, "flat"), (9, 8 * KiB, True, "split"), (9, 8, True, "knomial"),
    ],
)  # fmt: skip
def test_ranks_that_take_turns_reduce_to_one_of_them(ranks, nbytes, oversubscribed, algorithm):
    plan = chosen("allreduce", nbytes, ranks, oversubscribed=oversubscribed)
    assert plan.choice.levels[0].algorithm == algorithm
    assert verify([plan] * 3).events


@pytest.mark.parametrize(
    ("collective", "nbytes", "algorithm"),
    [
        ("allreduce", 512, "direct"), ("allreduce", 1 * KiB, "each"),
        ("allreduce", 16 * KiB, "each"), ("allreduce", 256 * KiB, "split"),
        ("bcast", 4 * KiB, "pull"), ("reduce", 256 * KiB, "pull"), ("allgather", 2 * KiB, "blocks"),
    ],
)  # fmt: skip
def test_two_ranks_on_a_mesh_read_small_arrays_that_both_map(collective, nbytes, algorithm):
    node = replace(topology_of([[0] * 2], 0), attach=True)
    signature = replace(call(collective, nbytes), mapped=True)
    choice = choose(signature, node, NodeTraits(mesh=True))
    level = choice.levels[0]
    assert level.algorithm == algorithm
    assert (level.submodule == "solo") == (algorithm != "direct")
    assert verify([plan_of_choice(node, signature, choice, MEMORY)] * 3).events


def test_reductions_of_some_size_between_them_go_through_cells():
    node = topology_of([[0] * 2], 0)
    for collective in ("reduce", "allreduce"):
        signature = replace(call(collective, 128 * KiB), mapped=True)
        for mesh in (False, True):
            level = choose(signature, node, NodeTraits(mesh=mesh)).levels[0]
            assert level.submodule == ("sm" if mesh else "solo")
