"""Plans as files: a plan is read as it was written, and errors name what is wrong."""

import contextlib
import json
import random
from dataclasses import replace

import numpy as np
import pytest
from plans import rules_of
from random_plans import one_plan

from han.common.errors import HanError
from han.config.machine import load_machine
from han.model.topology import virtual
from han.submodules.registry import plan_of_choice, submodule
from han.tasks.choice import Choice, level_choice
from han.tasks.files.store import VERSION, PlanFileError, from_json, load, to_json
from han.tasks.inspect.compare import figures
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.simulate import simulate
from han.tasks.verify import Refuted, verify

MEMORY = 1 << 18


def a_plan():
    topology = virtual(4, 2)
    signature = Signature("allreduce", 5000, 8, "sum", "float64")
    choice = rules_of(topology).decide(signature).choice
    return plan_of_choice(topology, signature, choice, MEMORY)


@pytest.mark.parametrize("number", range(40))
def test_plans_are_read_back_as_they_were(number):
    plan = one_plan(number, 8, MEMORY)
    if plan.signature.op:
        signature = replace(plan.signature, op="user-defined", native=False)
        plan = plan_of_choice(plan.topology, signature, plan.choice, MEMORY)
    found, programs = from_json(to_json(plan, MEMORY), submodule)
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
    plan, programs = from_json(to_json(a_plan(), MEMORY), submodule)
    assert verify([plan], programs=[programs]).events
    record = json.loads(to_json(a_plan(), MEMORY))
    waits = [row for row in record["programs"][1]["code"] if row[0] == "WAIT"]
    waits[0][:] = ["COPY", *waits[0][1:5], 0, *waits[0][6:]]
    plan, programs = from_json(json.dumps(record), submodule)
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
        (["version"], 7, rf"version 7, this han reads version {VERSION}"),
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
        (["signature", "element"], 0, r"signature\.element"),
        (["signature", "op"], "nonsense", r"signature\.op: unknown 'nonsense'; known: sum"),
        (["signature", "dtype"], "nonsense", r"signature\.dtype: unknown 'nonsense'"),
        (["signature", "op"], "user-defined", r"signature\.native: han has no kernel"),
        (["signature", "root"], 4, r"signature\.root: 4 is not in 0\.\.3"),
        (["signature", "collective"], "alltoallw", "make no plan"),
        (["topology", "homes", 0], [0, 1], r"topology\.homes"),
        (["choice", "levels"], [], r"choice\.levels: 0 for 2 levels"),
        (["signature", "count"], 1 << 40, r"signature\.count: \d+ bytes, more than"),
        (["choice", "composition"], "ladder", "ladder"),
        (["choice", "segment"], 1, r"choice\.segment: 1 makes \d+ segments"),
        (["topology", "homes", 0], [5, 5, 5, 5], r"topology\.homes: domains are 0, 1"),
        (["choice", "segment"], 0, r"choice\.segment"),
        (["programs", 1, "streams", 0, "level"], 17, r"programs\.1\.streams\.0\.level: 17 is not"),
        (["programs", 1, "streams", 0, "kind"], "x", r"programs\.1\.streams\.0\.kind: unknown 'x'"),
        (["programs", 1, "writes"], [], r"programs\.1\.writes: 0 numbers for"),
        (
            ["programs", 0, "tasks"],
            [],
            r"programs\.0\.code\.\d+: [A-Z0-9]+: task 1: expected 0\.\.0",
        ),
        (["programs", 0, "code", 0, 1], 999, r"programs\.0\.code\.0: [A-Z0-9]+: stream 999"),
        (["programs", 0, "code", 0, 3], [99, 0, 0, 0], r"programs\.0\.code\.0: [A-Z0-9]+: base 99"),
        (["programs", 0, "code", 0, 3], [1 << 40, 0, 0, 0], r"programs\.0\.code\.0\.3"),
        (["programs", 0, "code", 0, 7], 99, r"programs\.0\.code\.0: [A-Z0-9]+: task 99"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(path, value, said):
    record = json.loads(to_json(a_plan(), MEMORY))
    edit(record, path, value)
    with pytest.raises(PlanFileError, match=said):
        from_json(json.dumps(record), submodule)


NUMBERS = {  # by code: a field, a number that refers to nothing, the error
    "AWAIT": (2, 9, "stream to wait for 9"),
    "WAIT": (2, -1, "rank -1"),
    "ISEND": (2, 4, "rank 4"),
    "IRECV": (6, 99, "request 99"),
    "TEST": (6, 99, "request 99"),
    "POST": (3, [1, 0, 0, 0], "base of a flag 1"),
}


@pytest.mark.parametrize("code", NUMBERS)
def test_numbers_of_operations_are_held_against_what_is_there(code):
    field, value, said = NUMBERS[code]
    levels = level_choice("sm", "flat"), level_choice("adapt", "chain")
    plan = plan_of_choice(virtual(4, 2), a_plan().signature, Choice(levels, 1 << 14), MEMORY)
    record = json.loads(to_json(plan, MEMORY))
    row = next(r for p in record["programs"] for r in p["code"] if r[0] == code)
    row[field] = value
    with pytest.raises(PlanFileError, match=rf"{code}: {said}"):
        from_json(json.dumps(record), submodule)


@pytest.mark.parametrize(
    ("offset", "value", "said"), [(3, 5, "communicator 5"), (2, 9, "kind 9"), (2, 64, "kind 64")]
)
def test_collectives_of_the_library_are_held_against_what_is_there(offset, value, said):
    topology = virtual(4, 2)
    levels = (level_choice("mpi", "default"), level_choice("mpi", "default"))
    plan = plan_of_choice(topology, Signature("bcast", 64), Choice(levels), MEMORY)
    record = json.loads(to_json(plan, MEMORY))
    from_json(json.dumps(record), submodule)
    row = next(r for r in record["programs"][0]["code"] if r[0] == "COLL")
    row[4][offset] = value
    with pytest.raises(PlanFileError, match=rf"COLL: {said}"):
        from_json(json.dumps(record), submodule)


def test_whatever_number_is_edited_nothing_but_a_refusal_comes_of_it():
    """With any number changed, loading, figures and simulation raise only their own errors."""
    text = to_json(a_plan(), MEMORY)
    machine, draw = load_machine("emulated-1gbit"), random.Random(5)
    for _ in range(150):
        record = json.loads(text)
        edit(record, draw.choice(list(numbers(record))), draw.choice([0, 1, 3, 17, 999, 1 << 40]))
        with contextlib.suppress(HanError, RuntimeError):
            plan, programs = from_json(json.dumps(record), submodule)
            figures(plan, programs)
            simulate(plan, machine, machine.place(2, 2), programs=programs)


def numbers(record, path=()):
    """Yield the paths of all numbers in a record."""
    pairs = record.items() if isinstance(record, dict) else enumerate(record)
    for key, value in pairs:
        if isinstance(value, dict | list):
            yield from numbers(value, (*path, key))
        elif isinstance(value, int):
            yield *path, key


def test_files_that_are_no_plans(tmp_path):
    with pytest.raises(PlanFileError, match=r"none\.json: cannot be read"):
        load(tmp_path / "none.json", submodule)
    for text in ("", "{", "[]", "3", '{"version": 1}'):
        (tmp_path / "odd.json").write_text(text)
        with pytest.raises(PlanFileError, match=r"odd\.json: (damaged, not JSON|not a plan)"):
            load(tmp_path / "odd.json", submodule)
