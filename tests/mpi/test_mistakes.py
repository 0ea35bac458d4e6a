"""A user's mistake is printed once if all ranks make it, and all ranks exit with one status."""

import pytest
from _jobs import LONGEST, launch

import han

RANKS = 4

# Every rank writes its exit status to a file, as the launcher returns only one. It exits after all
# ranks have written, as a launcher may kill the others when one exits with an error.
HAN = f"""
import glob, os, sys, time
sys.argv[0] = "han"
from han.cli.main import main
try:
    main()
except SystemExit as leaving:
    with open(f"writing-{{os.getpid()}}", "w") as file:
        file.write(str(leaving.code))
    os.rename(file.name, f"status-{{os.getpid()}}")
    limit = time.monotonic() + {LONGEST // 2}
    while len(glob.glob("status-*")) < {RANKS} and time.monotonic() < limit:
        time.sleep(0.01)
    raise
"""
PROGRAM = """
from mpi4py import MPI
import han
han.Comm(MPI.COMM_WORLD, config={"levels": [{"name": "node", "scope": "cabinet"}], "memory": "x"})
"""
CAUGHT = """
import sys
from mpi4py import MPI
import han
try:
    han.Comm(MPI.COMM_WORLD, config="no-such-file")
except han.ConfigError as error:
    alike = MPI.COMM_WORLD.allgather(str(error))
    assert len(set(alike)) == 1 and "no such file" in alike[0], alike
hook = sys.excepthook
comm = han.Comm(MPI.COMM_WORLD)
if comm.rank == 1:
    raise RuntimeError("mine")
"""
MISMATCH = """
import numpy as np
from mpi4py import MPI
import han
comm = han.Comm(MPI.COMM_WORLD)
comm.Bcast(np.zeros(20 if comm.rank else 10))
"""
ONE_RANK = """
import sys
from mpi4py import MPI
from han.cli import info, main
from han.common.errors import ArgumentError

def fails(*arguments):
    if MPI.COMM_WORLD.rank == 2:
        raise ArgumentError("only rank 2")

info.collect = fails
info.as_text = str
sys.argv = ["han", "info"]
main.main()
"""


def launch_all(folder, source, *arguments):
    """Run a program on all ranks in a folder."""
    (folder / "program.py").write_text(source)
    return launch(folder, RANKS, "program.py", *arguments)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["explain", "alreduce"], "1", "Error: unknown collective 'alreduce'; did you mean"),
        (["info", "--config", "none"], "1", "config = 'none': no such file"),
        (["plan", "bcast", "8", "--config", "none"], "1", "config = 'none': no such file"),
        (["plan"], "2", "Error: Missing argument"),
        (["benhc"], "2", "Error: unknown command 'benhc'; did you mean 'bench'? Known: ablation"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_the_command_prints_a_mistake_once(tmp_path, arguments, status, said):
    done = launch_all(tmp_path, HAN, *arguments)
    assert done.returncode
    assert done.stderr.count("Error: ") == 1, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.read_text() for path in tmp_path.glob("status-*")] == [status] * RANKS


def test_help_and_version_are_printed_once(tmp_path):
    assert launch_all(tmp_path, HAN, "--version").stdout == f"han {han.__version__}\n"
    assert launch_all(tmp_path, HAN, "plan", "--help").stdout.count("Usage: ") == 1


def test_a_mistake_that_one_rank_makes_is_printed(tmp_path):
    done = launch_all(tmp_path, ONE_RANK)
    assert done.returncode
    assert done.stderr.count("Error: only rank 2") == 1, done.stderr


def test_a_program_prints_a_configuration_error_once(tmp_path):
    done = launch_all(tmp_path, PROGRAM)
    assert done.returncode
    assert done.stderr.count("han.ConfigError: ") == 1, done.stderr
    assert done.stderr.count("2 problems in the configuration:") == 1
    assert done.stderr.count("Traceback") == 1
    assert "program.py" in done.stderr, "the line of the program is named"
    assert "han/comm.py" not in done.stderr, "lines inside han are left out"


def test_an_error_of_han_has_its_public_name_and_the_line_of_the_program(tmp_path):
    done = launch_all(tmp_path, MISMATCH)
    assert done.returncode
    assert "\nhan.MismatchError: rank " in done.stderr
    assert "comm.Bcast(np.zeros(20 if comm.rank else 10))" in done.stderr
    assert "waiting for " in done.stderr
    assert "han/collectives.py" not in done.stderr, "lines inside han are left out"


def test_a_program_catches_the_error_on_all_ranks_and_prints_other_errors(tmp_path):
    done = launch_all(tmp_path, CAUGHT)
    assert done.returncode
    assert "RuntimeError: mine" in done.stderr
    assert "no such file" not in done.stderr
