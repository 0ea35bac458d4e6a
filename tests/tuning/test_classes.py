"""Classes of operations: for which calls a measurement stands, and what explanations say of it."""

from dataclasses import replace

import pytest
from test_tuned import HERE, NODE, KiB, Times, point, use

from han.config import load_config
from han.model.element_types import DTYPES, OPS, heavy, kernel
from han.tasks.call import call_signature
from han.tuning.built_in.choosing import BUILT_IN, NodeTraits
from han.tuning.classes import CLASSES, STAND_FOR, operation_of
from han.tuning.explanation import Explanation
from han.tuning.planner import Planner
from han.tuning.rules import TUNED
from han.tuning.tuned.files import TunedError, as_text
from han.tuning.tuned.find import find_table
from han.tuning.tuned.merge import merge
from han.tuning.tuned.points import Conditions, key_of
from han.tuning.tuned.table import of_points, with_points

SUM = Conditions("float64", "sum")
CALL = call_signature("allreduce", 4 * KiB, dtype="float64", op="sum")
TREE = use("knomial", radix=2, chunk=64 * KiB)
MEASURED = replace(
    point(4 * KiB, Times((TREE, 10.0), (None, 50.0)), collective="allreduce"),
    key=key_of(CALL, NODE), conditions=SUM,
)  # fmt: skip


def explained(signature, tuned):
    planner = Planner(NODE, load_config({}), NodeTraits(), 0, False, tuned)
    planned = planner.planned(signature, 1 << 20)
    return planned.decision, str(Explanation(planned.plan.of_size(4 * KiB), planned.decision))


TABLE = of_points((MEASURED,), HERE)


def call(dtype, op, **more):
    return replace(call_signature("allreduce", 4 * KiB, dtype=dtype, op=op), **more)


def test_kernels_that_convert_or_multiply_complex_numbers_are_heavy():
    pairs = [(op, dtype) for op in OPS for dtype in DTYPES if kernel(op, dtype)]
    found = {dtype for op, dtype in pairs if heavy(op, dtype)}
    assert found == {"float16", "bfloat16", "complex64", "complex128"}
    assert not heavy("sum", "complex128")
    assert not heavy("prod", "float64")


def test_each_class_has_a_call_that_stands_for_it():
    assert STAND_FOR.keys() == CLASSES.keys()
    for name, values in STAND_FOR.items():
        assert operation_of(CALL.changed(**values)) == name
    assert operation_of(call_signature("bcast", 8)) == ""


def test_a_point_stands_for_its_class_and_explanations_say_so():
    tuned = TABLE
    decision, text = explained(CALL, tuned)
    assert decision.choice.rule == TUNED
    assert "stands for" not in text
    decision, text = explained(call("float32", "max"), tuned)
    assert decision.choice.rule == TUNED
    assert f"measured  with float64, sum, which stands for {CLASSES['native']}" in text


@pytest.mark.parametrize("other", [
    call("float16", "sum"), call("complex128", "prod"), call("float64", "sum", native=False),
    call("float64", "sum", commutative=False),
], ids=operation_of)  # fmt: skip
def test_a_point_does_not_decide_for_another_class_and_explanations_say_so(other):
    decision, text = explained(other, TABLE)
    assert decision.choice.rule == BUILT_IN
    said = f"measured for {CLASSES['native']}; this call is of {CLASSES[operation_of(other)]}"
    assert f"  passed    {TUNED}: {said}" in text


def test_types_do_not_matter_for_calls_that_do_not_reduce(tmp_path):
    one = replace(
        point(4 * KiB, Times((TREE, 10.0), (None, 50.0))), conditions=Conditions("float64")
    )
    decision, text = explained(call_signature("bcast", 4 * KiB), of_points((one,), HERE))
    assert decision.choice.rule == TUNED
    assert "stands for" not in text


# ---- other conditions -----------------------------------------------------------------------


WAITS = replace(HERE, wait="auto, 1000 polls")


def test_a_table_of_other_waits_decides_and_explanations_say_so(tmp_path):
    path, points = tmp_path / "tuned.json", of_points((MEASURED,), WAITS)
    path.write_text(as_text(points))
    other = replace(WAITS, wait="spin, 1000 polls")
    same, far = (find_table(str(path), lambda m=m: m) for m in (WAITS, other))
    assert same.about == "this machine"
    assert "elsewhere" not in explained(CALL, same.table)[1]
    told = "wait: spin, 1000 polls here, auto, 1000 polls there"
    assert far.about == told
    assert f"measured  elsewhere: {told}" in explained(CALL, far.table)[1]
    assert same.digest == far.digest, "ranks that wait in other ways use one table"


def test_points_of_other_waits_are_not_combined():
    one = of_points((MEASURED,), WAITS)
    with pytest.raises(TunedError, match=r"other conditions: wait spin.* here, auto"):
        merge([one, replace(one, machine=replace(WAITS, wait="spin, 1000 polls"))])
    assert len(merge([one, replace(one, machine=HERE)]).table.points) == 1


def test_points_inside_nodes_are_combined_whatever_the_links():
    near = of_points((MEASURED,), replace(HERE, link=1000.0))
    other = replace(near, machine=replace(HERE, link=100.0))
    assert len(merge([near, other]).table.points) == 1
    between = with_points(near, [replace(MEASURED, key=replace(MEASURED.key, nodes=2))])
    with pytest.raises(TunedError, match=r"other conditions: link 100\.0 here, 1000\.0 there"):
        merge([between, other])
