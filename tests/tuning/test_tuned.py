"""Tuned tables: files, what is wrong with them, where they are found, and what they decide."""

import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest
from processes import printed

import han
from han.config import load_config
from han.config.rules import LevelUse, Use
from han.config.source import READY
from han.measure.tune.session import conditions_of
from han.measure.tune.tuner import Plans
from han.model.topology import virtual
from han.ranks.machine import transport
from han.runtime.alike import Alike
from han.tasks.call import call_signature
from han.tuning.built_in.choosing import BUILT_IN, NodeTraits
from han.tuning.costs.estimates import Estimate
from han.tuning.explanation import Explanation, described
from han.tuning.planner import Planner
from han.tuning.rules import TUNED, RuleTable
from han.tuning.search.limits import Limits
from han.tuning.tuned import find
from han.tuning.tuned.export import as_rules
from han.tuning.tuned.files import TunedError, as_text, merged, parse, read, write
from han.tuning.tuned.find import AUTO, OFF, find_table
from han.tuning.tuned.fingerprint import Fingerprint
from han.tuning.tuned.points import Candidate, Conditions, MeasuredCall, Point, key_of
from han.tuning.tuned.table import crossing, of_points, rows_of

KiB = 1024
HERE = Fingerprint("a processor", 8, "MPICH", "5.0", han=han.__version__)
NODE = virtual(4)
PLAIN = NodeTraits()
TWO = virtual(8, 4)


def timing(us, spread=0.01):
    median, low, high = (float(f"{us * part * 1e-6:.9g}") for part in (1, 1 - spread, 1 + spread))
    return Estimate(median, low, high, 40)


def use(algorithm="knomial", submodule="sm", topology=NODE, **parameters):
    level = LevelUse(submodule, algorithm, parameters)
    return Use("whole", "dataflow", {topology.names[-1]: level})


FLAT, TREE = use("flat", cells=4), use("knomial", radix=2, chunk=64 * KiB)


def point(nbytes, times, keeps=False, collective="bcast", topology=NODE):
    """Make a point; `times` are microseconds of uses, None stands for the built-in choice."""
    default = times.get(None, 100.0)
    found = sorted(((t, u) for u, t in times.items() if u is not None), key=lambda one: one[0])
    candidates = tuple(Candidate(u, timing(t), timing(t).median) for t, u in found)
    key = key_of(call_signature(collective, nbytes), topology)
    return Point(key, nbytes, keeps, candidates, timing(default), timing(150.0), "task")


class Times(dict):
    """Times by use: uses hold mappings, so they have no hash."""

    def __init__(self, *pairs):
        self.pairs = pairs

    def items(self):
        return self.pairs

    def get(self, key, default=None):
        return next((t for u, t in self.pairs if u == key), default)


def table(*points, machine=HERE):
    return parse(as_text(of_points(tuple(points), machine)), "tuned.json")


def told_of(tuned, nbytes, topology=NODE):
    """Return what explanations tell of the measurement behind a bcast of a size."""
    call = call_signature("bcast", nbytes)
    return described(tuned.find(call, topology, PLAIN), call)


SMALL = point(4 * KiB, Times((FLAT, 10.0), (TREE, 40.0), (None, 50.0)))
LARGE = point(16 * KiB, Times((FLAT, 80.0), (TREE, 40.0), (None, 90.0)))


# ---- files ----------------------------------------------------------------------------------


def test_a_table_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "new" / "tuned.json"
    made = of_points((SMALL, LARGE), HERE)
    write(path, made)
    found = read(path)
    assert found.points == made.points
    assert found.machine == HERE
    assert found.source == str(path)
    assert [p.name for p in path.parent.iterdir()] == ["tuned.json"], "no draft is left"


def test_a_file_as_han_wrote_it_is_read_without_pydantic(tmp_path):
    path = tmp_path / "tuned.json"
    write(path, of_points((SMALL,), HERE))
    code = (
        "import sys; from pathlib import Path; from han.tuning.tuned.files import read; "
        f"read(Path({str(path)!r})); print('pydantic' in sys.modules)"
    )
    assert printed(code) == "False"


def test_runs_are_merged_and_the_later_point_counts():
    later = replace(SMALL, keeps=True)
    found = merged(table(SMALL, LARGE), table(later))
    assert [p.nbytes for p in found.points] == [4 * KiB, 16 * KiB]
    assert found.points[0].keeps
    searched, hurried = replace(SMALL, tried=9), replace(SMALL, keeps=True)
    for runs in ((searched, hurried), (hurried, searched)):
        assert merged(*map(table, runs)).points == (searched,), "nothing measured is lost"
    deep = replace(SMALL, strategy="exhaustive", tried=143)
    compared_nothing = replace(SMALL, keeps=True, candidates=(), tried=1)
    cut_short = replace(SMALL, keeps=True, tried=2, complete=False)
    for shallow in (compared_nothing, cut_short):
        assert merged(table(deep), table(shallow)).points == (deep,)
        assert merged(table(shallow), table(deep)).points == (deep,)
    complete = replace(SMALL, tried=4)
    assert merged(table(deep), table(complete)).points == (complete,)
    assert merged(table(cut_short), table(replace(cut_short, tried=3))).points[0].tried == 3
    other = replace(HERE, cores=64)
    with pytest.raises(TunedError, match="another machine: cores: 8 here, 64 there"):
        merged(table(LARGE, machine=other), table(SMALL))


def test_points_keep_the_versions_that_they_were_measured_with(tmp_path):
    old = replace(HERE, library_version="1.0", han="0.0.1")
    path = tmp_path / "tuned.json"
    write(path, of_points((SMALL, replace(SMALL, nbytes=64)), old))
    write(path, of_points((LARGE,), HERE))
    found = read(path)
    assert [(p.nbytes, p.versions) for p in found.points] == [
        (64, "MPICH 1.0, han 0.0.1"), (4 * KiB, "MPICH 1.0, han 0.0.1"), (16 * KiB, "")
    ]  # fmt: skip
    about = find_table(str(path), lambda: HERE).about
    assert about == "this machine; 2 of 3 measured inputs with MPICH 1.0, han 0.0.1"
    assert f"# {about[14:]}" in as_rules(found)
    told = told_of(found, 4 * KiB)
    assert told[-1] == f"in {path}, task, MPICH 1.0, han 0.0.1"
    write(path, of_points((SMALL, replace(SMALL, nbytes=64)), HERE))
    assert find_table(str(path), lambda: HERE).about == "this machine"


def test_points_keep_the_conditions_of_their_search(tmp_path):
    plans = Plans((), dtype="int8", op="max", limits=Limits(submodules=("sm",)))
    one = replace(SMALL, conditions=conditions_of(plans, True, "allreduce"))
    assert replace(one.conditions, space="") == Conditions("int8", "max", fresh=True)
    other = replace(plans, limits=Limits(submodules=("solo",)))
    spaces = {conditions_of(p, False, "bcast") for p in (plans, other, Plans((), "task"))}
    assert len(spaces) == 3
    assert all(not c.op for c in spaces), "a bcast has no operation"
    path = tmp_path / "tuned.json"
    write(path, of_points((one, LARGE), HERE))
    assert read(path).points == (one, LARGE)
    told = told_of(read(path), 4 * KiB)
    assert told[-1] == f"in {path}, task, int8, max, data written before each call"


def test_a_newer_library_is_the_same_machine():
    newer = replace(HERE, library_version="5.1")
    assert not newer.is_other(HERE)
    assert newer.distance(HERE) == "library_version: 5.1 here, 5.0 there"
    assert HERE.distance(HERE) == "this machine"


def _write_one(path, nbytes):
    write(path, of_points((replace(SMALL, nbytes=nbytes),), HERE))


def test_two_jobs_that_write_at_once_lose_nothing(tmp_path):
    path, sizes = tmp_path / "tuned.json", [8 * (k + 1) for k in range(6)]
    context = multiprocessing.get_context("fork")
    jobs = [context.Process(target=_write_one, args=(path, n)) for n in sizes]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert [p.nbytes for p in read(path).points] == sizes


# ---- decisions between points ---------------------------------------------------------------


def test_sizes_far_from_any_measurement_are_in_no_row():
    found = [(row.when.ends("bytes"), row.use) for row in rows_of([SMALL, LARGE])]
    bound = crossing(SMALL, LARGE)
    assert found == [((2 * KiB, bound), FLAT), ((bound + 1, 32 * KiB), TREE)]
    far = rows_of([SMALL, replace(SMALL, nbytes=8 << 20)])
    assert [row.when.ends("bytes") for row in far] == [(2 * KiB, 32 * KiB), (1 << 20, 16 << 20)]


def test_points_with_one_choice_and_those_that_keep_the_built_in_one_are_rows():
    sizes = [replace(SMALL, nbytes=n) for n in (4 * KiB, 16 * KiB)]
    kept = [replace(LARGE, nbytes=n, keeps=True) for n in (64 * KiB, 256 * KiB)]
    first, second = table(*sizes, *kept).rows
    assert (first.use, second.use) == (FLAT, None)
    assert [row.when.ends("bytes") for row in (first, second)] == [
        (2 * KiB, 32 * KiB), (32 * KiB + 1, 512 * KiB)
    ]  # fmt: skip
    assert second.measured == tuple(kept)


def test_times_cross_on_a_log_scale():
    # FLAT / TREE is 1/4 at 4 KiB and 2 at 16 KiB: equal after two thirds of the way
    assert crossing(SMALL, LARGE) == int(4 * KiB * 4 ** (2 / 3))
    unknown = point(16 * KiB, Times((TREE, 40.0), (None, 90.0)))
    assert crossing(SMALL, unknown) == 8 * KiB, "the geometric mean"
    same = point(16 * KiB, Times((FLAT, 20.0), (None, 90.0)))
    assert crossing(SMALL, same) == 8 * KiB


def test_user_rules_come_first_then_the_table_then_the_built_in_choice():
    tuned, signature = table(SMALL, LARGE), call_signature("bcast", 4 * KiB)

    def decide(config, signature=signature, topology=NODE, **how):
        rules = RuleTable(load_config(config), topology, NodeTraits(), tuned)
        return rules.decide(signature, **how)

    found = decide({})
    assert found.choice.rule == TUNED
    assert (found.choice.levels[-1].algorithm, found.choice.levels[-1].get("cells", 0)) == (
        "flat", 4,
    )  # fmt: skip
    assert found.tuned.measured == (SMALL,)
    rule = {"use": {"levels": {"network": {"submodule": "adapt"}}}}
    assert decide({"rules": [rule]}).choice.rule.startswith("rules[0]")
    assert decide({"rules": [rule]}).tuned is None
    for other in (
        call_signature("bcast", 1 << 20), call_signature("reduce", 4 * KiB),
        replace(signature, mapped=True),
    ):  # fmt: skip
        assert decide({}, other).choice.rule == BUILT_IN
    assert decide({}, topology=virtual(5)).choice.rule == BUILT_IN, "five ranks were not measured"


def test_where_the_built_in_choice_is_kept_its_trials_stay():
    kept = table(replace(SMALL, keeps=True))
    found = RuleTable(None, NODE, NodeTraits(), kept).decide(call_signature("bcast", 4 * KiB))
    assert found.choice.rule == BUILT_IN
    assert found.tuned.use is None
    assert "runner-up network: sm flat" in told_of(kept, 4 * KiB)[1]


@pytest.mark.parametrize(
    ("nbytes", "said"),
    [
        (64, "at 64B"),
        (40, "at 64B, for 40B"),
        (100, "at 64B, for 100B"),
        (4000, "at 4000B"),
        (4050, "at 4KiB, for 4050B"),
    ],
)
def test_an_explanation_names_the_size_of_the_call_and_not_that_of_its_class(nbytes, said):
    points = [replace(SMALL, nbytes=n) for n in (64, 4000, 4 * KiB)]
    planner = Planner(NODE, load_config({}), NodeTraits(), 0, False, table(*points))
    planned = planner.planned(call_signature("bcast", nbytes))
    text = str(Explanation(planned.plan.of_size(nbytes), planned.decision))
    assert f"(9.90 to 10.10 us, 40 calls) {said}\n" in text


def test_what_cannot_serve_a_call_is_passed_over_with_the_reason():
    blocking = point(4 * KiB, Times((use("default", "mpi"), 5.0), (None, 50.0)))
    rules = RuleTable(None, NODE, NodeTraits(), table(blocking))
    found = rules.decide(call_signature("bcast", 4 * KiB), blocking=False)
    assert found.choice.rule == BUILT_IN
    assert found.passed[0][0] == TUNED
    assert "blocking collectives cannot serve" in found.passed[0][1]


def test_communicators_with_different_tables_are_not_alike():
    alike = Alike()
    planners = [
        alike.planner(NODE, load_config({}), NodeTraits(), 0, False, tuned)
        for tuned in (None, table(SMALL), table(LARGE), table(LARGE))
    ]
    assert len({*map(id, planners)}) == 3
    assert planners[2] is planners[3]


# ---- where tables are found -----------------------------------------------------------------


def search(wanted, home, machine=HERE):
    return find_table(wanted, lambda: machine)


def test_off_and_no_files(home):
    assert search(OFF, home).about == "off"
    found = search(AUTO, home)
    assert found.table is None
    assert not found.problem
    assert "none in" in found.about


def test_the_table_that_differs_least_is_taken(home):
    folder = find.user_folder()
    older = replace(HERE, library_version="4.0", han="0.0.1")
    machines = {"a": older, "b": HERE, "c": replace(HERE, cpu="another")}
    for name, machine in machines.items():
        write(folder / f"{name}.json", of_points((SMALL,), machine))
    found = search(AUTO, home)
    assert found.table.source == str(folder / "b.json")
    assert found.about == "this machine"
    (folder / "b.json").unlink()
    assert search(AUTO, home).about.startswith("library_version: 5.0 here, 4.0 there")
    (folder / "a.json").unlink()
    left = search(AUTO, home)
    assert left.table is None, "another machine's table is never taken"
    assert not left.problem


def test_damaged_files_are_told_of_and_the_others_are_used(home):
    folder = find.user_folder()
    write(folder / "good.json", of_points((SMALL,), HERE))
    (folder / "bad.json").write_text("{")
    found = search(AUTO, home)
    assert found.table.source == str(folder / "good.json")
    assert "bad.json: damaged, not JSON" in found.problem


def test_a_named_file_that_is_no_use_is_told_of(home, tmp_path):
    path = tmp_path / "mine.json"
    assert "No such file" in search(str(path), home).problem
    write(path, of_points((SMALL,), replace(HERE, library="Open MPI")))
    found = search(str(path), home)
    assert found.table is None
    assert "measured on another machine: library: MPICH here, Open MPI there" in found.problem
    assert "the built-in choices are used" in found.problem


def test_a_table_that_comes_with_han_is_used_where_the_user_has_none_that_is_nearer(home):
    older = replace(HERE, library_version="4.0")
    write(find.SHIPPED / "ours.json", of_points((SMALL,), older))
    assert search(AUTO, home).table.source.endswith("shipped/ours.json")
    write(find.user_folder() / "mine.json", of_points((LARGE,), older))
    assert search(AUTO, home).table.source.endswith("tuned/mine.json")
    write(find.SHIPPED / "nearer.json", of_points((SMALL,), HERE))
    assert search(AUTO, home).table.source.endswith("shipped/nearer.json")


def test_the_folder_is_that_of_the_platform(home, monkeypatch):
    assert find.user_folder() == home / "han" / "tuned"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(home))
    assert find.user_folder() == home / ".local" / "share" / "han" / "tuned"


def test_tables_that_come_with_han_can_be_read_and_are_installed():
    files = [*find._files(READY / "tuned")]
    assert files
    for path, *_ in files:
        found = read(path)
        assert found.size, path
        assert all((found.machine.layout, found.machine.binding, found.machine.wait)), path
    assert '"configs/tuned/*.json"' in (Path(__file__).parents[2] / "pyproject.toml").read_text()


def test_the_transport_is_that_of_the_library_and_of_variables_that_choose_another():
    text = "MPICH Version: 5.0.2\nMPICH Device: ch4:ofi\n"
    assert transport(text, {}) == "ch4:ofi"
    assert transport("Open MPI v5.0.3", {}) == ""
    assert transport(text, {"UCX_TLS": "tcp", "OTHER": "1"}) == "ch4:ofi, UCX_TLS=tcp"


def test_the_files_of_machines_have_different_names(home):
    machines = [HERE, replace(HERE, cpu="other"), replace(HERE, library="Open MPI")]
    files = {find.default_file(machine) for machine in machines}
    assert len(files) == 3
    assert {path.parent for path in files} == {find.user_folder()}


# ---- rules ----------------------------------------------------------------------------------


def test_keys_of_points_tell_operations_apart():
    ordered = call_signature("reduce", 64, op="", commutative=False)
    assert key_of(ordered, NODE) == MeasuredCall("reduce", "ordered", 1, 4, NODE.names)
    assert key_of(call_signature("reduce", 64), NODE).operation == "native"
    assert key_of(call_signature("bcast", 64), NODE).operation == ""
    shared = replace(call_signature("bcast", 64), mapped=True)
    assert key_of(shared, NODE) == MeasuredCall("bcast", "", 1, 4, NODE.names, shared=True)


def test_what_was_measured_on_shared_arrays_serves_them_alone():
    plain = call_signature("bcast", 4 * KiB)
    shared = replace(plain, mapped=True)
    pull = point(4 * KiB, Times((use("pull", "solo"), 10.0), (None, 50.0)))
    of_arrays = replace(pull, key=key_of(shared, NODE))
    attached = replace(NODE, attach=True)
    for points, choices in (
        ([SMALL], ["flat", BUILT_IN]),
        ([of_arrays], [BUILT_IN, "pull"]),
        ([SMALL, of_arrays], ["flat", "pull"]),
    ):
        rules = RuleTable(None, attached, NodeTraits(), table(*points))
        for signature, expected in zip((plain, shared), choices, strict=True):
            choice = rules.decide(signature).choice
            assert (choice.rule if choice.rule == BUILT_IN else choice.levels[-1].algorithm) == (
                expected
            )
