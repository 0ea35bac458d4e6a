"""Stored plans: they equal planned ones; damaged, foreign and excess files are not used."""

import json
import os
import time
import warnings
from dataclasses import replace
from functools import cache
from random import Random

import numpy as np
import pytest
from commands import call
from mpi4py import MPI
from random_plans import TARGETS, example

import han
from han.config.rc import rc
from han.model.collectives import COLLECTIVES, REDUCING
from han.model.program import Code
from han.model.topology import virtual
from han.runtime import stored_plans
from han.runtime.alike import ALIKE
from han.submodules import registry
from han.tasks.files import compact, program_check
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.size_classes import bound_of, bounds_of, class_of
from han.tuning.built_in.traits import NodeTraits
from han.tuning.parts import plan_of_choice
from han.tuning.rules import RuleTable

SWEEP = 80
MEETS = [k for k in range(600) if TARGETS[k % len(TARGETS)].algorithm == "meet"]


def same(a, b):
    return compact.dump(a) == compact.dump(b)


@cache
def programs():
    """Return programs of all algorithms that can be stored, each with what it may access."""
    found = []
    for number in (*range(SWEEP), *MEETS):
        for plan in example(number).plans:
            if plan.signature.mapped:
                continue
            memory = next((g.memory for g in plan.geometries if g is not None), 1 << 16)
            size = plan.topology.size
            for rank in {*range(0, size, max(1, size // 2)), plan.signature.root}:
                where = program_check.ground(plan.topology, plan.signature, rank, memory)
                found.append((lower(plan, rank), where))
    return found


def test_programs_are_read_back_as_they_were_and_pass_the_check():
    assert len({str(s) for p, _ in programs() for s in np.unique(p.code["code"])}) == len(Code)
    for program, where in programs():
        read = compact.load(compact.dump(program))
        assert same(read, program)
        program_check.check(read, where)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("count", [3, 5000])
def test_every_collective_passes_the_check(collective, count):
    topology, memory = virtual(5), 1 << 20
    reducing = ("sum", "float64") if collective in REDUCING else ("", "")
    element = 8 if collective in REDUCING else 1
    count *= collective != "barrier"
    for root in (0, 3):
        signature = Signature(collective, count, element, *reducing, root=root)
        choice = RuleTable(None, topology, NodeTraits()).decide(signature).choice
        for rank in range(topology.size):
            program = lower(plan_of_choice(topology, signature, choice, memory), rank)
            program_check.check(program, program_check.ground(topology, signature, rank, memory))


FAR = {
    "code": 99, "stream": 32, "task": 1 << 31, "slot": (1 << 32) - 1, "n": (1 << 64) - 8,
    "peer": -1,
}  # fmt: skip
USERS = {  # for each field that only some codes use: these codes
    "slot": (Code.ISEND, Code.IRECV, Code.TEST, Code.COLL),
    "peer": (Code.WAIT, Code.ISEND, Code.IRECV, Code.AWAIT, Code.COLL, Code.PULL, Code.PUSH),
    "n": tuple(set(Code) - {Code.TEST, Code.AWAIT}),
}


def edited(program, k, field, value, ref=None):
    code = program.code.copy()
    if ref is None:
        code[field][k] = value
    else:
        code[field][k, ref] = value
    return replace(program, code=code)


@pytest.mark.parametrize("field", FAR)
def test_fields_out_of_range_are_refused(field):
    tried = 0
    for program, where in programs():
        codes = np.isin(program.code["code"], USERS.get(field, tuple(Code)))
        if field == "n":  # a barrier of the MPI library has no count
            codes &= ~((program.code["code"] == Code.COLL) & (program.code["n"] == 0))
        for k in np.flatnonzero(codes)[:3]:
            with pytest.raises(ValueError, match=r"^operation \d+: "):
                program_check.check(edited(program, k, field, FAR[field]), where)
            tried += 1
    assert tried > 100


def test_addresses_outside_of_every_memory_are_refused():
    refs = {
        Code.COPY: (0, 1), Code.REDUCE: (0, 1, 2), Code.ACCUMULATE: (0, 1, 2),
        Code.REDUCE2: (0, 1, 2, 3), Code.POST: (0,),
        Code.WAIT: (0,), Code.ISEND: (1,), Code.IRECV: (0,), Code.PULL: (0,),
        Code.PUSH: (1,),
    }  # fmt: skip
    draw, tried = Random(1), 0
    for program, where in programs():
        for k in draw.sample(range(len(program.code)), min(4, len(program.code))):
            row = program.code[k]
            for ref in refs.get(Code(int(row["code"])), ()) if row["n"] else ():
                for offset in (1 << 40, (1 << 64) - 64, (1 << 64) - 1):
                    with pytest.raises(ValueError, match=r"^operation \d+: "):
                        program_check.check(edited(program, k, "off", offset, ref), where)
                with pytest.raises(ValueError, match="no such base"):
                    program_check.check(edited(program, k, "base", 28 + ref, ref), where)
                tried += 1
    assert tried > 300


def test_collectives_of_the_library_do_not_write_to_what_is_sent():
    tried = 0
    for program, where in programs():
        writes = (program.code["code"] == Code.COLL) & (program.code["base"][:, 0] != 0)
        for k in np.flatnonzero(writes & (program.code["n"] > 0))[:2]:
            with pytest.raises(ValueError, match="it leaves its memory"):
                program_check.check(edited(program, k, "base", 1, 0), where)
            tried += 1
    assert tried > 5


def test_requests_are_started_and_tested_alternately():
    tried = 0
    for program, where in programs():
        tests = np.flatnonzero(program.code["code"] == Code.TEST)
        for k in tests[:1]:
            gone = edited(program, k, "code", Code.POST)
            gone.code["base"][k], gone.code["n"][k] = 0, 0
            with pytest.raises(ValueError, match=r"^operation \d+: "):
                program_check.check(gone, where)
            tried += 1
    assert tried > 5


def test_other_parts_are_compared_with_the_call():
    program, where = programs()[0]
    for name, value in (
        ("rank", program.rank + 1), ("footprint", (1 << 40,) * len(program.footprint)),
        ("writes", (*program.writes, 0)), ("requests", 1 << 40), ("scratch", 1 << 47),
        ("streams", program.streams[:-1]), ("comms", ((0, (99,)),)), ("operand", 1 << 40),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"^(it|oper)"):
            program_check.check(replace(program, **{name: value}), where)


# ---- files --------------------------------------------------------------------------------------

SIGNATURE = Signature("allreduce", 1000, 8, "sum", "float64")
CALL = stored_plans.Call(SIGNATURE, 1 << 20, True)


@pytest.fixture
def store(tmp_path):
    return stored_plans.PlanStore(str(tmp_path), {"rank": 0})


@pytest.fixture
def program():
    return programs()[0][0]


def accept(program):
    pass


def refused(store):
    """Read a file that cannot be used; return the warning."""
    store._warned = False
    with pytest.warns(UserWarning, match="planned anew and replaced") as told:
        assert store.read(CALL, accept) is None
    assert len(told) == 1
    return str(told[0].message)


def test_what_is_stored_is_read(store, program):
    assert store.read(CALL, accept) is None
    store.write(CALL, program)
    assert same(store.read(CALL, accept), program)
    assert store.path(CALL).stat().st_mode & 0o777 == 0o600
    for other in (
        replace(CALL, blocking=False), replace(CALL, memory=1 << 21),
        *(replace(CALL, signature=replace(SIGNATURE, **{k: v})) for k, v in (
            ("count", 999), ("op", "max"), ("dtype", "int64"), ("root", 1),
            ("commutative", False), ("native", False), ("collective", "reduce"),
        )),
    ):  # fmt: skip
        assert store.read(other, accept) is None
    assert stored_plans.PlanStore(str(store.folder), {"rank": 1}).read(CALL, accept) is None


def test_every_truncation_and_every_flipped_bit_is_found(store, program):
    store.write(CALL, program)
    path, whole = store.path(CALL), store.path(CALL).read_bytes()
    draw = Random(3)
    for length in (0, 1, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert "damaged" in refused(store)
    for _ in range(200):
        spoilt = bytearray(whole)
        spoilt[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        path.write_bytes(spoilt)
        assert "damaged" in refused(store)
    store.write(CALL, program)
    assert same(store.read(CALL, accept), program)


def forged(store, body):
    store.path(CALL).write_bytes(stored_plans.MAGIC + stored_plans._digest(body) + b"\n" + body)


def test_a_file_with_a_right_hash_is_still_checked(store, program):
    key, body = store.key(CALL), compact.dump(program)
    store.write(CALL, program)
    forged(store, key.replace(b'"rank": 0', b'"rank": 1') + body)
    assert "a plan for something else" in refused(store)
    for wrong in (b"", b"{}\n", b"[]\n", b"\xff\n", body[:-3], body.replace(b'"sync"', b'"sink"')):
        forged(store, key + wrong)
        refused(store)


def test_files_that_are_not_this_users_own_are_refused(store, program, tmp_path, monkeypatch):
    store.write(CALL, program)
    path = store.path(CALL)
    path.chmod(0o622)
    assert "can be written by others" in refused(store)
    path.chmod(0o600)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
        assert "belongs to user" in refused(store)
    aside = tmp_path / "aside"
    path.rename(aside)
    path.symlink_to(aside)
    refused(store)
    path.unlink()
    os.mkfifo(path)
    assert "it is not a regular file" in refused(store)
    path.unlink()
    path.mkdir()
    refused(store)


def test_only_one_warning_is_given(store, program):
    store.write(CALL, program)
    store.path(CALL).write_bytes(b"")
    refused(store)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.read(CALL, accept) is None


def test_least_recently_used_files_and_old_drafts_are_removed(store, program, tmp_path):
    calls = [replace(CALL, memory=1 << k) for k in range(20, 26)]
    now = time.time()
    for age, one in enumerate(calls):
        store.write(one, program)
        os.utime(store.path(one), (now - age, now - age))
    mine = f".bcast-{'0' * 32}.plan.1."
    for name, age in ((mine + "00000001", 2 * stored_plans.STALE), (mine + "00000002", 0)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (now - age, now - age))
    foreign = {"notes.txt", "budget.plan", ".budget.plan.swp"}
    for name in foreign:
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (0, 0))
    each = store.path(calls[0]).stat().st_size
    stored_plans.prune(tmp_path, 3 * each + 10)
    assert [store.path(one).exists() for one in calls] == [True] * 3 + [False] * 3
    assert {p.name for p in tmp_path.iterdir()} >= {mine + "00000002", *foreign}
    assert not (tmp_path / (mine + "00000001")).exists()


def test_use_is_noted(store, program):
    store.write(CALL, program)
    os.utime(store.path(CALL), (0, 0))
    store.read(CALL, accept)
    assert store.path(CALL).stat().st_mtime > 1e9


def test_a_folder_that_cannot_be_written_warns_once(store, program, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(UserWarning, match="cannot be stored in .*No space left"):
        store.write(CALL, program)
    assert list(store.folder.iterdir()) == []


def test_the_folder_is_made_and_checked(tmp_path, monkeypatch):
    folder = tmp_path / "a" / "b"
    assert stored_plans.wisdom_folder({}) == ("", None)
    assert stored_plans.wisdom_folder({"HAN_WISDOM": str(folder)}) == (str(folder), None)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert "can be written by others" in stored_plans.wisdom_folder({"HAN_WISDOM": str(folder)})[1]
    (tmp_path / "file").write_text("")
    said = stored_plans.wisdom_folder({"HAN_WISDOM": str(tmp_path / "file" / "x")})[1]
    assert said.startswith("HAN_WISDOM = ")
    assert "cannot be made" in said
    monkeypatch.setattr(rc, "wisdom", tmp_path / "rc")
    assert stored_plans.wisdom_folder({"HAN_WISDOM": "x"}) == (str(tmp_path / "rc"), None)


def test_a_relative_folder_is_resolved_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert stored_plans.wisdom_folder({"HAN_WISDOM": "plans"}) == (str(tmp_path / "plans"), None)


# ---- in communicators ---------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HAN_WISDOM", str(tmp_path / "wisdom"))
    return tmp_path / "wisdom"


def use(config=None):
    """Make two calls on a new communicator; return its statistics."""
    ALIKE.clear()
    comm = han.Comm(MPI.COMM_SELF.Dup(), config)
    send = np.arange(1000.0)
    for _ in range(2):
        recv = np.zeros(1000)
        comm.Allreduce(send, recv)
        np.testing.assert_array_equal(send, recv)
    info = comm.cache_info()
    comm.Free()
    return info


def test_a_second_communicator_reads_what_the_first_has_planned(folder):
    assert use().stored == 0
    assert len(list(folder.iterdir())) == 1
    info = use()
    assert (info.made, info.stored, info.misses) == (1, 1, 1)
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-8])
    with pytest.warns(UserWarning, match="damaged"):
        assert use().stored == 0
    assert use().stored == 1
    assert use({"memory": "1MiB"}).stored == 0
    assert use({"rules": [{"use": {"schedule": "lockstep"}}]}).stored == 0
    assert use({"wait": {"policy": "yield"}}).stored == 1


def test_the_key_has_all_that_plans_depend_on(folder):
    comm = han.Comm(MPI.COMM_SELF.Dup())
    planner = comm._han.planner
    other_rules = han.config.load_config({"rules": [{"use": {"schedule": "lockstep"}}]}).rules
    key, flat = stored_plans.key_of(planner), planner.traits
    for name, value in (("topology", replace(planner.topology, attach=not planner.topology.attach)),
                        ("traits", flat._replace(oversubscribed=not flat.oversubscribed)),
                        ("traits", flat._replace(mesh=not flat.mesh)),
                        ("config", replace(planner.config, rules=other_rules)),
                        ("rank", 7)):  # fmt: skip
        before = getattr(planner, name)
        setattr(planner, name, value)
        other = stored_plans.key_of(planner)
        setattr(planner, name, before)
        assert other != key, name
    assert stored_plans.key_of(planner) == key
    comm.Free()
    assert len(key["sources"]) == 64


def test_the_hash_of_the_sources_is_of_what_is_in_them(tmp_path, monkeypatch):
    file = tmp_path / "runtime" / "stored_plans.py"
    (tmp_path / "tasks").mkdir()
    monkeypatch.setattr(stored_plans, "__file__", str(file))
    found = set()
    for text in ("a = 1", "a = 2"):
        (tmp_path / "tasks" / "x.py").write_text(text)
        found.add(stored_plans.sources.__wrapped__())
    (tmp_path / "tasks" / "x.py").rename(tmp_path / "tasks" / "y.py")
    found.add(stored_plans.sources.__wrapped__())
    assert len(found) == 3


def test_other_packages_submodules_are_never_stored(monkeypatch):
    config = han.config.load_config({"rules": [{"use": {"levels": {"node": {"submodule": "sm"}}}}]})
    assert stored_plans.complete(config)

    class Other(type(registry.submodule("sm"))):
        pass

    for part, used in (("sm", config), ("solo", han.config.load_config({}))):
        with monkeypatch.context() as patched:
            patched.setitem(registry._imported, part, Other())
            assert not stored_plans.complete(used)
    assert stored_plans.complete(config)


def test_a_replacement_serves_what_built_in_choices_name(monkeypatch):
    class Lame(type(registry.submodule("sm"))):
        algorithms = dict(list(registry.submodule("sm").algorithms.items())[:1])

    monkeypatch.setattr(registry, "_imported", dict(registry._imported))
    with pytest.raises(ValueError, match=r"'sm' lacks the algorithm.*blocks"):
        registry.register(Lame())
    assert type(registry.submodule("sm")) is not Lame


def test_topologies_tell_plans_apart():
    from dataclasses import asdict

    keys = {
        stored_plans.PlanStore("x", {"topology": asdict(t)}).key(CALL)
        for t in (virtual(4, 2), virtual(4, 4), virtual(8, 2), replace(virtual(4, 2), attach=True))
    }
    assert len(keys) == 4


# ---- the command --------------------------------------------------------------------------------


def test_the_command_lists_and_clears(folder):
    use()
    damaged = f"bcast-{'0' * 32}.plan"
    (folder / damaged).write_bytes(b"x")
    (folder / "budget.plan").write_text("not han's")
    text = call("wisdom")
    asked = class_of(SIGNATURE, bound_of(SIGNATURE, bounds_of()))
    assert f"{asked.describe()}, rank 0 of 1, node < network, " in text
    assert f"{damaged}: not usable: it is damaged" in text
    assert "budget" not in text
    record = json.loads(call("wisdom", "--json"))
    assert record["folder"] == str(folder)
    assert len(record["plans"]) == 2
    assert "2 stored plans removed" in call("wisdom", "--clear")
    assert [path.name for path in folder.iterdir()] == ["budget.plan"]
    assert "no stored plans" in call("wisdom")


def test_the_command_says_how_wisdom_is_switched_on(monkeypatch):
    monkeypatch.delenv("HAN_WISDOM", raising=False)
    assert "set HAN_WISDOM to a folder" in call("wisdom")
    assert "set HAN_WISDOM to a folder" in call("wisdom", "--clear")
    assert json.loads(call("wisdom", "--json")) == {"folder": None, "plans": []}


def test_a_program_without_operations_is_read_back():
    topology, bound = virtual(1), 96
    signature = class_of(Signature("bcast", bound), bound)
    choice = RuleTable(None, topology, NodeTraits()).decide(Signature("bcast", bound)).choice
    program = lower(plan_of_choice(topology, signature, choice, 1 << 20), 0)
    assert not len(program.code)
    read = compact.load(compact.dump(program))
    program_check.check(read, program_check.ground(topology, signature, 0, 1 << 20))
