"""Listings of Programs: every operation, with the names of ranks, flags and streams."""

import json
import re
from dataclasses import replace

import pytest
from plans import rules_of

from han.cli.imagined import imagine
from han.model.program import Code
from han.submodules.registry import plan_of_choice, submodule
from han.tasks.files.store import from_json, to_json
from han.tasks.inspect.listing import disassemble, listing_record, operations
from han.tasks.lower import lower
from han.tasks.verify import verify


def listed(collective, nbytes, ranks, ppn, rank, config=None, root=0):
    plan = imagine(ranks, ppn, config, (collective, nbytes, "sum", "f8", root)).plan
    return plan, lower(plan, rank)


CASES = [
    ("bcast", 1 << 16, 4, 2, None), ("bcast", 8, 5, 5, "libnbc"), ("allreduce", 8, 4, 2, None),
    ("allreduce", 1 << 18, 8, 2, None), ("allreduce", 1 << 16, 4, 4, None),
    ("reduce", 1 << 16, 8, 2, "libnbc"), ("barrier", 0, 4, 2, None), ("allreduce", 8, 1, 1, None),
    ("bcast", 1 << 16, 8, 8, "four-levels-virtual"), ("bcast", 64, 4, 4, "mpi-baseline"),
    ("allreduce", 1 << 16, 6, 2, "lockstep"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_operation_is_listed_once_in_aligned_columns(case):
    collective, nbytes, ranks, ppn, config = case
    for rank in range(ranks):
        plan, program = listed(collective, nbytes, ranks, ppn, rank, config)
        text = disassemble(plan, program)
        rows = re.findall(r"^ +(\d+)  (.*?)([A-Z0-9]{4,7}) .*$", text, re.MULTILINE)
        assert [int(number) for number, _, _ in rows] == list(range(len(program.code)))
        assert [code for _, _, code in rows] == [Code(c).name for c in program.code["code"]]
        assert len({len(task) for _, task, _ in rows}) <= 1
        assert {task.strip() for _, task, _ in rows} - {""} == set(program.tasks)
        json.dumps(listing_record(plan, program))


def test_flags_are_named_by_their_ranks_and_purposes():
    plan, program = listed("allreduce", 1 << 16, 4, 4, 1)
    posts = [op.details["flag"] for op in operations(plan, program) if op.code == "POST"]
    waits = [op.details["flag"] for op in operations(plan, program) if op.code == "WAIT"]
    assert posts == ["copied[1]", "combined[1]"]
    assert {f"{name}[{r}]" for name in ("copied", "combined") for r in (0, 2, 3)} == set(waits)


def test_buffers_of_peers_are_named_by_their_ranks():
    plan, _ = listed("allreduce", 1 << 17, 4, 4, 1)
    signature = replace(plan.signature, mapped=True)
    choice = rules_of(plan.topology).decide(signature).choice
    plan = plan_of_choice(plan.topology, signature, choice, 1 << 24)
    text = disassemble(plan, lower(plan, 1))
    assert "scratch <- send+32KiB of rank 0 op send+32KiB" in text
    assert "recv+96KiB <- recv+96KiB of rank 3" in text
    found, programs = from_json(to_json(plan, 1 << 24), submodule)
    assert verify([found, found], programs=[programs, programs]).ranks == 4


def test_waits_of_a_flag_name_the_rank_that_is_waited_for():
    for rank in range(8):
        plan, program = listed("allreduce", 1 << 18, 8, 4, rank)
        for op in operations(plan, program):
            if op.code == "WAIT":
                assert f"[{program.code['peer'][op.index]}]" in op.details["flag"]


def test_a_test_names_the_operation_that_it_waits_for():
    plan, program = listed("allreduce", 1 << 16, 8, 2, 0)
    found = operations(plan, program)
    tests = [op for op in found if op.code == "TEST"]
    assert len(tests) == 8
    for op in tests:
        started = found[op.details["operation"]]
        assert started.code in ("ISEND", "IRECV")
        assert started.details["request"] == op.details["request"]


def test_a_wait_for_another_stream_names_task_and_stream():
    plan, program = listed("bcast", 1 << 16, 4, 2, 0)
    op = next(op for op in operations(plan, program) if op.code == "AWAIT")
    assert (op.details["task"], op.details["stream"]) == ("ib(0)", "bcast@network")


def test_cells_name_their_level_where_there_are_several():
    config = {
        "levels": [{"name": "pair", "scope": {"size": 2}},
                   {"name": "node", "scope": "shared_memory"}, {"name": "net", "scope": "all"}],
        "rules": [{"use": {"levels": {"node": {"submodule": "sm"}}}}],
    }  # fmt: skip
    plan, program = listed("bcast", 1 << 16, 8, 4, 0, config)
    text = disassemble(plan, program)
    assert "cells[0]@pair" in text
    assert "cells[0]@node" in text


def test_a_key_explains_the_words_that_occur():
    text = disassemble(*listed("barrier", 0, 4, 4, 0))
    assert "slot[r] " in text
    assert "scratch  " not in text


def test_collectives_of_the_library_name_their_ranks():
    plan, program = listed("bcast", 64, 4, 4, 1, "mpi-baseline", root=2)
    (op,) = operations(plan, program)
    assert (op.details["kind"], op.details["ranks"], op.details["root"]) == (
        "blocking bcast", "0-3", 2,
    )  # fmt: skip
