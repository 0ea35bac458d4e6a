"""Importing han is quick, and says what is missing: what is heavy comes in when it is needed."""

import json
import os

import pytest
from processes import printed, python

import han

HEAVY = (
    "networkx", "pydantic", "yaml", "rich", "typer", "matplotlib", "hypothesis", "pytest", "mpi4py",
)  # fmt: skip

NO_LIBRARY = "cannot load MPI library\nlibmpi.so.12: cannot open shared object file"

# How MPI is missing: no library that mpi4py finds, its module barred, no mpi4py at all.
MISSING = {
    "no library": "",
    "no module": "sys.modules['mpi4py.MPI'] = None",
    "no mpi4py": "sys.modules['mpi4py'] = None",
}

COMMANDS = """
plan allreduce 1MiB --nodes 4 --ppn 2 --verify
plan bcast 64KiB --nodes 2 --ppn 2 --disassemble 1
plan bcast 64KiB --nodes 2 --ppn 2 --save plan.json
explain reduce 4KiB --ppn 8 --op max --dtype i4
verify plan.json
diff default libnbc allreduce 1MiB --nodes 2 --ppn 2
diff plan.json plan.json
simulate bcast 64KiB --machine emulated-1gbit --nodes 2 --ppn 2
simulate --machine emulated-1gbit --nodes 2 --ppn 2 --plan plan.json
compare bench.json bench.json
--help
"""
TIMES = {"median": 2.0, "low": 1.0, "high": 3.0, "calls": 5}
BENCH = {
    "format": "han-bench", "version": 1,
    "settings": {"mode": "blocking", "dtype": "float64", "op": "sum", "root": 0},
    "machine": {"library": "A 1", "nodes": 1, "ranks": 2},
    "rows": [{"collective": "bcast", "nbytes": 8, "han": TIMES, "mpi": TIMES}],
}  # fmt: skip


def run_without_mpi(tmp_path, *arguments):
    """Run Python where importing mpi4py's MPI fails as it does without an MPI library."""
    fake = tmp_path / "mpi4py"
    fake.mkdir(exist_ok=True)
    (fake / "__init__.py").touch()
    (fake / "MPI.py").write_text(f"raise RuntimeError({NO_LIBRARY!r})")
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    return python(*arguments, folder=tmp_path, PYTHONPATH=os.pathsep.join(paths))


def test_a_missing_library_is_told_with_the_way_out(tmp_path):
    code = """
import han
for name in ("Comm", "Request", "shared_arrays"):
    try:
        getattr(han, name)
    except ImportError as error:
        print(type(error).__name__, "|", error, "|", repr(error.__cause__))
"""
    lines = run_without_mpi(tmp_path, "-c", code).stdout.splitlines()
    assert len(lines) == 3
    assert len(set(lines)) == 1
    name, said, cause = lines[0].split(" | ")
    assert name == "MissingLibraryError"
    assert "pip install mpich" in said
    assert "module load" in said
    assert "(cannot load MPI library)" in said
    assert cause.startswith("RuntimeError(")


def test_a_missing_mpi4py_is_told(tmp_path):
    code = f"import sys; {MISSING['no mpi4py']}; from han import Comm"
    done = run_without_mpi(tmp_path, "-c", code)
    assert "MissingLibraryError: han needs mpi4py" in done.stderr
    assert "pip install mpi4py" in done.stderr


@pytest.mark.parametrize("script", [False, True])
@pytest.mark.parametrize("command", ["info", "bench", "explain"])
def test_a_command_that_needs_mpi_says_in_one_line_that_there_is_no_library(
    tmp_path, script, command
):
    path = tmp_path / "han"
    path.write_text("from han.cli.main import main\nmain()\n")
    arguments = [command, "bcast", "8"] if command != "info" else [command]
    done = run_without_mpi(tmp_path, *([str(path)] if script else ["-m", "han"]), *arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: han needs an MPI library")


@pytest.mark.parametrize("missing", MISSING)
def test_plans_are_made_proved_and_simulated_without_mpi(tmp_path, missing):
    code = f"""
import sys
{MISSING[missing]}
from han.cli.main import main
for line in {COMMANDS.split(chr(10))!r}:
    if line:
        sys.argv = ["han", *line.split()]
        try:
            main()
        except SystemExit as done:
            assert not done.code, (line, done.code)
assert "mpi4py.MPI" not in sys.modules or sys.modules["mpi4py.MPI"] is None
"""
    (tmp_path / "bench.json").write_text(json.dumps(BENCH))
    done = run_without_mpi(tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("proved") >= 2


@pytest.mark.parametrize("missing", MISSING)
def test_a_program_plans_without_mpi(tmp_path, missing):
    code = f"""
import sys
{MISSING[missing]}
import han
from han.model.topology import virtual
from han.tasks.call import call_signature
from han.tasks.verify import verify
from han.tuning.planner import Planner
from han.tuning.built_in.choosing import NodeTraits
from han.config import default_config

planner = Planner(virtual(4, 2), default_config(), NodeTraits(), 1, False)
plan = planner.planned(call_signature("allreduce", "64KiB")).plan
print(len(planner.program(plan).code) > 0, verify([plan] * 3).events > 0, repr(plan.graph))
"""
    done = run_without_mpi(tmp_path, "-c", code)
    assert done.stdout.startswith("True True <TaskGraph"), done.stderr


def test_dir_lists_the_public_names_and_finds_them():
    code = "import han; print([n for n in han.__all__ if n not in dir(han)], han.Comm, han.Request)"
    assert printed(code).split()[0] == "[]"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'han' has no attribute 'Communicator'"):
        _ = han.Communicator


def test_import_brings_nothing_heavy():
    code = f"import sys, han; print([m for m in {HEAVY} if m in sys.modules])"
    assert printed(code) == "[]"


def test_a_communicator_without_a_file_brings_nothing_that_takes_long_to_import():
    left = ("networkx", "rich", "typer", "matplotlib", "pydantic", "yaml", "importlib.metadata")
    code = f"""
import sys
from mpi4py import MPI
import han
comm = han.Comm(MPI.COMM_SELF)
comm.Barrier()
print([m for m in {left} if m in sys.modules])
"""
    assert printed(code) == "[]"


OLD = "/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by _native.so)"
REFUSED = {
    f"ImportError({OLD!r})": "han was built for machines with glibc 2.34 or newer",
    "ImportError('no symbol x')": "han's compiled part cannot be loaded (no symbol x)",
    "ModuleNotFoundError('', name='han._native')": "han's compiled part was not built for this",
}  # fmt: skip


@pytest.mark.parametrize("error", REFUSED)
def test_a_compiled_part_that_cannot_be_loaded_is_told_in_one_line(error):
    code = f"""
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "han._native":
            raise {error}
sys.meta_path.insert(0, Finder())
sys.argv = ["han", "plan", "bcast", "8", "--ppn", "2"]
from han.cli.main import main
main()
"""
    done = python("-c", code)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: {REFUSED[error]}")
    assert "pip install ." in line


def test_a_compiled_part_of_another_version_is_refused():
    code = """
import sys
import han._native as native
native.NUMBERS["layout"]["SMALL_BANKS"] += 1
try:
    import han.runtime.state
except ImportError as error:
    print(error)
"""
    assert "compiled part says SMALL_BANKS = 17, han says 16" in printed(code)
