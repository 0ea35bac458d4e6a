"""The grammar of all command lines: words, one machine, and spellings of the version before."""

import json
import shlex

import pytest
from commands import call, refuse
from typer.testing import CliRunner

from han.cli.grammar import Line, printing
from han.cli.main import COMMANDS, app
from han.cli.older import NOTE, renewed
from han.cli.words import calls_of

FILES = ("verify", "validate", "compare", "trace")  # whose words are files
OTHERS = ("info", "schema", "calibrate", "preload", "run", *FILES)


def parsed(line):
    """Return the parameters of a command line, without running it, and what is printed."""
    name, *words = shlex.split(line)
    (command,) = (row.load() for row in COMMANDS if row.name == name)
    return command.make_context(name, words).params


def told(line):
    """Return what a line says on standard error: the new spelling, or nothing."""
    done = CliRunner().invoke(app, shlex.split(line))
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stderr


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_collectives_and_sizes_are_words_of_every_command(row):
    names = {one.name for one in row.load().params}
    assert ("words" in names) == (row.name not in OTHERS)
    assert not names & {"sizes", "nbytes", "collective", "collectives", "gantt"}
    assert isinstance(row.load(), Line)


def test_a_word_that_begins_with_a_digit_is_a_size():
    assert calls_of(["allreduce,bcast", "8:8MiB"]) == (("allreduce", "bcast"), "8:8MiB")
    assert calls_of(["8", "bcast", "4KiB,1MiB"]) == (("bcast",), "8,4KiB,1MiB")
    assert calls_of(["8"], ["bcast"]) == (("bcast",), "8")
    assert calls_of(None, ["bcast"], "64KiB") == (("bcast",), "64KiB")
    assert "missing at a comma" in refuse("bench", "bcast,")


@pytest.mark.parametrize("words", [[], ["8"], ["bcast", "reduce"]])
def test_some_commands_take_one_collective(words):
    if words:
        assert "name one of bcast, " in refuse("plan", *words)
    assert "name one of bcast, " in refuse("simulate", "bcast,reduce", "--machine", "thor")


OLDER = {
    "simulate --machine emulated-1gbit --collective allreduce --bytes 64 --nodes 2 --ppn 2":
        "simulate allreduce 64 --machine emulated-1gbit --nodes 2 --ppn 2",
    "simulate --bytes=64 --machine emulated-1gbit --ppn 2":
        "simulate 64 --machine emulated-1gbit --ppn 2",
    "explain allreduce 1MiB --ranks 64 --ppn 8": "explain allreduce 1MiB --nodes 8 --ppn 8",
    "explain allreduce 64 --ppn=4 --ranks=14": "explain allreduce 64 --nodes 4 --ppn 4 --ranks 14",
    "plan bcast 8 --ranks 4": "plan bcast 8 --ppn 4",
    "plan bcast 8 --ranks 4 --ppn 8": "plan bcast 8 --ppn 4",
    "diff default libnbc bcast 64 --ranks 4 --ppn 2":
        "diff default libnbc bcast 64 --nodes 2 --ppn 2",
    "bench bcast reduce --sizes 8 --rounds 1 --time 0 --only han":
        "bench bcast reduce 8 --rounds 1 --time 0 --only han",
    "classes regret --machine thor --nodes 2 --ppn 2 --collectives bcast --bytes 8 --jobs 1":
        "classes regret bcast 8 --machine thor --nodes 2 --ppn 2 --jobs 1",
    "paper bienz-14 --nodes 2 --ppn 2 --bytes 8": "paper bienz-14 8 --nodes 2 --ppn 2",
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), OLDER.items())
def test_an_older_spelling_works_and_tells_the_new_one_in_one_line(old, new):
    assert told(old).splitlines()[0] == f"{NOTE} han {new}"
    assert NOTE not in told(new)
    assert parsed(old) == parsed(new)


def test_older_options_of_pictures():
    assert renewed(["t", "--gantt", "a.png"], {"--plot"}) == ["t", "--plot", "a.png"]
    assert renewed(["t", "--gantt=a.png"], {"--plot"}) == ["t", "--plot=a.png"]
    known = {"words", "quality", "--plot"}
    old = ["quality", "a.png", "--collectives", "bcast", "--limit", "3s"]
    assert renewed(old, known) == ["quality", "bcast", "--limit", "3s", "--plot", "a.png"]


@pytest.mark.parametrize(
    "line",
    ["run prog.py --sizes 8 --gantt a --json --x", "trace t --ranks 0-7", "classes --ranks 8"],
)
def test_other_options_of_these_names_stay(line):
    (command,) = (row.load() for row in COMMANDS if row.name == line.split()[0])
    known = {name for one in command.params for name in (one.name, *one.opts)}
    assert renewed(line.split()[1:], known) == line.split()[1:]


ALIKE = (
    "--json", "--plot", "--config", "--dtype", "--op", "--root", "--time", "--iterations",
    "--nodes", "--ppn", "--mesh", "--rdma", "--cores", "--sockets", "--oversubscribed",
)  # fmt: skip
NUMBERS = ("classes", "tune")  # of nodes and ranks, with commas


def test_the_common_options_mean_the_same_in_all_commands():
    found = {}
    for row in COMMANDS:
        for one in row.load().params:
            for name in {*one.opts} & {*ALIKE} if not one.hidden else ():
                several = name in ("--nodes", "--ppn") and row.name in NUMBERS
                told = one.opts, one.required, one.is_flag, one.help
                if row.name != "run" or name != "--json":  # of statistics, at the program's end
                    found.setdefault((name, several), set()).add(tuple(map(str, told)))
    assert {name for name, _ in found} == {*ALIKE}
    assert {key: told for key, told in found.items() if len(told) > 1} == {}


def test_every_command_writes_json_but_the_one_that_prints_it_always():
    for row in COMMANDS:
        names = {name for one in row.load().params for name in one.opts}
        assert ("--json" in names) == (row.name != "schema")


@pytest.mark.parametrize(
    "line",
    [
        "info", "explain bcast 8 --ppn 2", "plan bcast 8 --ppn 2", "paper bienz-14 8 --nodes 2",
        "plan bcast 8 --ppn 2 --disassemble 0", "plan bcast 8 --ppn 2 --verify", "classes",
        "diff default libnbc bcast 64 --nodes 2 --ppn 2", "paper",
        "simulate 8 --machine emulated-1gbit",
    ],
)  # fmt: skip
def test_json_goes_to_a_file_beside_the_text_or_alone_to_the_output(line, tmp_path):
    words, file = shlex.split(line), tmp_path / "a.json"
    text = call(*words, "--json", file)
    assert not text.startswith(("{", "["))
    there, printed = json.loads(file.read_text()), json.loads(call(*words, "--json"))
    assert type(there) is type(printed)
    assert len(there) == len(printed)


def test_a_file_that_a_command_reads_is_not_written(tmp_path):
    plan = tmp_path / "plan.json"
    call("plan", "bcast", 8, "--ppn", 2, "--save", plan)
    before = plan.read_bytes()
    assert "would be overwritten" in refuse("verify", plan, "--json", plan)
    assert plan.read_bytes() == before
    out = tmp_path / "out.json"
    call("verify", plan, "--json", out)
    call("verify", plan, "--json", out)
    assert json.loads(out.read_text())[0]["file"] == str(plan)


def test_json_without_a_file_prints():
    assert printing(["--json", "bcast", "8"]) == ["--json", "-", "bcast", "8"]
    assert printing(["--json", "64KiB"]) == ["--json", "-", "64KiB"]
    assert printing(["--json", "8.json"]) == ["--json", "8.json"]
    assert printing([]) == []
    assert printing(["--json"]) == ["--json", "-"]
    assert printing(["--json", "--time", "0"]) == ["--json", "-", "--time", "0"]
    assert printing(["--json", "a.json"]) == ["--json", "a.json"]
    quick = ("bench", "bcast", "8", "--rounds", "1", "--time", "0", "--only", "han")
    assert json.loads(call(*quick, "--json"))["rows"][0]["collective"] == "bcast"


# ---- a machine ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "topology"),
    [
        ("--nodes 3", "24 ranks on 3 nodes of up to 8"),
        ("--ppn 4", "4 ranks on 1 node"),
        ("--nodes 4 --ppn 4 --ranks 14", "14 ranks on 4 nodes of up to 4"),
        ("--machine emulated-1gbit --ppn 2", "8 ranks on 4 nodes of up to 2"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "plan"])
def test_options_describe_a_machine(command, options, topology):
    assert f"topology  {topology}" in call(command, "bcast", "8", *options.split())


def test_ranks_must_fill_all_nodes_but_the_last():
    said = refuse("plan", "bcast", 8, "--nodes", 4, "--ppn", 4, "--ranks", 12)
    assert said == "--ranks 12: 4 nodes of 4 have 13 to 16"


def test_without_a_command_the_help_ends_with_what_to_try():
    lines = call().splitlines()
    assert lines[-4] == "Try next:"
    for line in lines[-3:]:
        shown = line.strip().partition("   ")[0].removeprefix("mpiexec -n 4 ")
        assert parsed(shown.removeprefix("han "))["words"]
    assert "Commands:" in lines
