"""Plans as files: what is written is read back the same, and what is wrong is named."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import choices, signatures, topologies

from han.tasks.lower import lower
from han.tasks.plan import make_plan
from han.tasks.signature import Signature
from han.tasks.store import PlanFileError, from_json, load, to_json
from han.tasks.verify import Refuted, verify
from han.topology import virtual
from han.tuning.heuristics import Machine
from han.tuning.rules import RuleTable

MEMORY = 1 << 18


def a_plan():
    topology = virtual(4, 2)
    signature = Signature("allreduce", 5000, 8, "sum", "float64")
    choice = RuleTable(None, topology, Machine()).decide(signature).choice
    return make_plan(topology, signature, choice, MEMORY)


@settings(
    max_examples=40, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(st.data())
def test_plans_are_read_back_as_they_were(data):
    topology = data.draw(topologies(st.integers(1, 8)))
    signature = data.draw(signatures(topology.size))
    plan = make_plan(topology, signature, data.draw(choices(topology, signature)), MEMORY)
    found, programs = from_json(to_json(plan, MEMORY))
    assert (found.topology, found.signature, found.choice) == (
        plan.topology, plan.signature, plan.choice,
    )  # fmt: skip
    assert set(found.graph.edges) == set(plan.graph.edges)
    for rank, program in enumerate(programs):
        made = lower(plan, rank)
        assert np.array_equal(program.code, made.code)
        assert {k: v for k, v in vars(program).items() if k != "code"} == {
            k: v for k, v in vars(made).items() if k != "code"
        }


def test_a_stored_plan_is_verified_and_an_edited_program_refuted():
    plan, programs = from_json(to_json(a_plan(), MEMORY))
    assert verify([plan], programs=[programs]).events
    record = json.loads(to_json(a_plan(), MEMORY))
    waits = [row for row in record["programs"][1]["code"] if row[0] == "WAIT"]
    waits[0][:] = ["COPY", *waits[0][1:5], 0, *waits[0][6:]]
    plan, programs = from_json(json.dumps(record))
    with pytest.raises(Refuted):
        verify([plan], programs=[programs])


def edit(record, path, value):
    *keys, last = path
    for key in keys:
        record = record[key]
    record[last] = value


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["version"], 7, r"version 7, this han reads version 1"),
        (["format"], "plan", "not a plan"),
        (["signature", "root"], "x", r"signature\.root"),
        (["signature", "colour"], 1, r"signature\.colour"),
        (["topology", "domains", 0], [0, 1, 0], "make no plan"),
        (["choice", "levels", 0, "submodule"], "smm", "make no plan.*smm"),
        (["programs", 2, "rank"], 1, "one for each of 4 ranks"),
        (["programs", 2, "code", 0, 0], "JUMP", "make no plan.*JUMP"),
        (["programs", 2, "code", 0, 3], [0, 0], r"programs\.2\.code\.0\.3"),
        (["programs", 1, "streams", 0, "stop"], 1, r"programs\.1\.streams"),
        (["tasks"], ["sb(0)"], "edited"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(path, value, said):
    record = json.loads(to_json(a_plan(), MEMORY))
    edit(record, path, value)
    with pytest.raises(PlanFileError, match=said):
        from_json(json.dumps(record))


def test_files_that_are_no_plans(tmp_path):
    with pytest.raises(PlanFileError, match=r"none\.json: cannot be read"):
        load(tmp_path / "none.json")
    for text in ("", "{", "[]", "3", '{"version": 1}'):
        (tmp_path / "odd.json").write_text(text)
        with pytest.raises(PlanFileError, match=r"odd\.json: (no JSON|not a plan)"):
            load(tmp_path / "odd.json")
