"""The variants of an ablation leave out one optimisation each, and only where it applies."""

from dataclasses import replace

import pytest
from machines import topology_of

from han.measure.ablation import VARIANTS, without
from han.submodules.registry import plan_of_choice
from han.tasks.signature import Signature
from han.tasks.verify import verify
from han.tuning.built_in.choosing import NodeTraits, choose

NODE = replace(topology_of([[0] * 6, [0] * 6], 1), sockets=(0, 0, 0, 1, 1, 1))
TREES = {"other tree", "trailing sync"}


def signature_of(collective: str, nbytes: int) -> Signature:
    if collective == "bcast":
        return Signature(collective, nbytes)
    return Signature(collective, nbytes // 8, 8, "sum", "float64", True, True)


@pytest.mark.parametrize(
    ("collective", "nbytes", "wanted"),
    [
        ("bcast", 8, {"no inlining", "children's flags", *TREES}),
        ("bcast", 1 << 16, {"one cell", "small chunks", "children's flags", *TREES}),
        ("reduce", 8, {"no inlining", "copied result", *TREES}),
        (
            "reduce",
            1 << 16,
            {"one cell", "small chunks", "copied result", "no socket trees", *TREES},
        ),
        ("allreduce", 8, {"gather+release"}),
        ("allreduce", 1 << 16, {"small chunks", "gather+release"}),
    ],
)
def test_what_is_left_out_is_there_and_the_rest_is_proved(collective, nbytes, wanted):
    signature = signature_of(collective, nbytes)
    built_in = choose(signature, NODE, NodeTraits())
    found = {v.name: without(v, built_in, signature, NODE) for v in VARIANTS if v.policy is None}
    assert {name for name, choice in found.items() if choice is not None} == wanted
    for choice in filter(None, found.values()):
        assert choice.levels[1:] == built_in.levels[1:], "nothing runs on the other level"
        assert verify([plan_of_choice(NODE, signature, choice, 1 << 20)] * 3).events


def test_other_ways_to_wait_do_not_change_the_plan():
    signature = signature_of("bcast", 8)
    built_in = choose(signature, NODE, NodeTraits())
    (waiting,) = (v for v in VARIANTS if v.policy is not None)
    assert without(waiting, built_in, signature, NODE) == built_in
