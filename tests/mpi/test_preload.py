"""C and Fortran programs under ``han run``: the same results as without, and who served them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from _jobs import LONGEST
from mpi4py import MPI

from han.cli.executable import found, settings
from han.common.errors import ArgumentError

PROGRAMS = Path(__file__).resolve().parents[1] / "preload"
RIGHT = "wrong: 0\n"
SETTLED = 7  # calls of a communicator before han serves it
SHARED = ("-shared", "-fPIC")
RUN = (sys.executable, "-m", "han", "run")
OPEN_MPI = MPI.Get_library_version().startswith("Open MPI")
INTEL = MPI.Get_library_version().startswith("Intel")
BESIDE = Path(shutil.which("mpiexec") or "mpiexec").parent  # where the library's own programs are
OF_MPICH = Path(__file__).resolve().parents[2] / ".venv-mpich" / "bin"


@pytest.fixture(scope="module")
def compiler():
    """Return the path of the library's mpicc; Intel MPI takes programs that MPICH's compiled."""
    if (BESIDE / "mpicc").exists():
        return str(BESIDE / "mpicc")
    if INTEL and (OF_MPICH / "mpicc").exists():
        return str(OF_MPICH / "mpicc")
    pytest.skip(f"neither {BESIDE} nor {OF_MPICH} has an mpicc for this MPI library")


@pytest.fixture(scope="module")
def built(compiler, tmp_path_factory):
    """Return a function that compiles a program, and the path of the executable."""
    folder = tmp_path_factory.mktemp("programs")

    def build(name, *more):
        path = folder / name
        if not path.exists():
            source = PROGRAMS / f"{name}.c"
            flags = ["-O1", "-rdynamic", "-Wall", "-Wextra", "-Werror"]
            flags += ["-Wl,--unresolved-symbols=ignore-all", "-Wl,-z,lazy"]  # Fortran's names
            command = [compiler, *flags, source, *more, "-o", path]
            subprocess.run(command, check=True, timeout=LONGEST)
        return str(path)

    return build


def start(ranks, *command, **variables):
    """Run a command on all ranks with the library beside mpiexec; return the finished mpiexec."""
    libraries = str(BESIDE.parent / "lib"), os.environ.get("LD_LIBRARY_PATH")
    known = {
        "HAN_TEST_SETTLED": str(SETTLED), "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
    }  # fmt: skip
    return subprocess.run(
        [BESIDE / "mpiexec", "-n", str(ranks), *command], capture_output=True, text=True,
        check=False, timeout=LONGEST, stdin=subprocess.DEVNULL,
        env={**os.environ, **known, **variables},
    )  # fmt: skip


def check(done):
    assert (done.returncode, done.stdout) == (0, RIGHT), done.stdout + done.stderr


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_results_are_right(built, ranks):
    words = ["errors"] if INTEL else ["errors", "cut"]  # with which Intel MPI waits for ever
    check(start(ranks, built("corners"), *words))
    check(start(ranks, *RUN, built("corners"), *words))


def test_results_are_right_on_several_nodes(built):
    check(start(4, *RUN, built("corners"), HAN_CONFIG="virtual-2x2"))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_results_of_requests_and_neighbours_are_right(built, ranks):
    if not INTEL:  # its own MPI_Gather_init gathers nothing
        check(start(ranks, built("requests")))
    elif ranks == 1:
        pytest.skip("a communicator of one rank is MPI's: Intel's MPI_Gather_init gathers nothing")
    check(start(ranks, *RUN, built("requests")))


def test_results_of_requests_are_right_on_several_nodes(built):
    check(start(4, *RUN, built("requests"), HAN_CONFIG="virtual-2x2"))


@pytest.mark.parametrize("ranks", [2, 3])
def test_results_of_derived_types_are_right(built, ranks):
    check(start(ranks, *RUN, built("types")))
    check(start(ranks, *RUN, built("types"), HAN_CONFIG="virtual-2x2"))


def test_sessions_run_on_mpi_alone_without_a_world_and_beside_one(built):
    check(start(2, *RUN, built("sessions")))
    check(start(2, *RUN, built("sessions"), "beside"))


def test_communicators_of_two_worlds_run_on_mpi_alone(built):
    """Both where spawned ranks have the library and where they do not."""
    if INTEL:
        pytest.skip("MPI_Comm_spawn of Intel MPI's wheel ends with a segmentation fault")
    check(start(2, *RUN, built("spawned")))
    check(start(2, built("spawned"), **settings()))


def test_arguments_may_be_compared(built):
    check(start(2, *RUN, built("corners"), HAN_CHECK="1"))
    check(start(2, *RUN, built("requests"), HAN_CHECK="1"))


def test_statistics_tell_who_served(built, tmp_path):
    path = tmp_path / "stats.json"
    check(start(2, *RUN, "--json", str(path), built("corners")))
    rows = json.loads(path.read_text())["rows"]
    names = {row["call"] for row in rows}
    assert {"Allreduce", "Bcast", "Reduce", "Gather", "Alltoall", "Scan", "Barrier"} <= names
    assert {row["by"] for row in rows} == {"han"}


def test_names_of_fortran(built):
    if not OPEN_MPI:
        pytest.skip("the wheel has no Fortran library; MPICH's would call the functions of C")
    check(start(3, *RUN, built("fortran")))


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "start it with `han run`"),
        ({"HAN_PRELOAD_LIBPYTHON": "/nowhere/libpython3.so"}, "/nowhere/libpython3.so: cannot"),
    ],
)
def test_without_python_the_program_runs_on_mpi_alone(built, variables, said):
    """Also where only one rank has no Python."""
    known = settings()
    broken = {"LD_PRELOAD": known["LD_PRELOAD"], "HAN_PRELOAD_PYTHON": sys.executable, **variables}
    words = [f"{name}={value}" for name, value in broken.items()]
    whole = [f"{name}={value}" for name, value in known.items()]
    program = built("corners")
    done = start(1, "env", *words, program, ":", "-n", "1", "env", *whole, program)
    check(done)
    assert f"han: this program runs on MPI alone: {said}" in done.stderr


def test_without_a_configuration_the_program_runs_on_mpi_alone(built):
    known = settings() | {"HAN_CONFIG": "/nowhere.yaml"}
    words = [f"{name}={value}" for name, value in known.items()]
    done = start(2, "env", *words, built("corners"))
    check(done)
    lines = [line for line in done.stderr.splitlines() if "runs on MPI alone" in line]
    assert 1 <= len(lines) <= 2, "each rank that is the first one of a communicator tells it once"
    assert "/nowhere.yaml: no such file" in lines[0].replace("'", "")


def test_a_program_that_is_linked_to_python_shares_it(built, tmp_path):
    library = settings()["HAN_PRELOAD_LIBPYTHON"]
    program = built("linked", library, f"-Wl,-rpath,{os.path.dirname(library)}")
    check(start(2, program, PYTHONHOME=sys.base_prefix))
    path = tmp_path / "stats.json"
    check(start(2, *RUN, "--json", str(path), program))
    assert json.loads(path.read_text())["calls_of_han"] > 20


def test_an_exit_in_the_middle_is_the_programs(built):
    done = start(2, *RUN, built("leaves"))
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def python_program(built):
    """Return the words that run the Python program."""
    words = PROGRAMS / "python_program.py", built("extension", *SHARED)
    # Of Intel MPI's own calls in threads one may keep the others from the library's lock for ever.
    return (*words, "alone") if INTEL else words


def start_python(ranks, *words, **variables):
    """Run a Python program with the library on all ranks."""
    known = [f"{name}={value}" for name, value in (settings() | variables).items()]
    return start(ranks, "env", *known, sys.executable, *words)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_c_calls_of_a_python_program(built, ranks):
    """By an extension in C, by mpi4py and by han.Comm in turn; also at Python's end and later."""
    check(start_python(ranks, *python_program(built)))


def test_c_calls_of_a_python_program_from_the_first_one(built):
    words = python_program(built)
    check(start(2, sys.executable, *words))
    check(start_python(2, *words, HAN_TEST_SETTLED="0"))


def test_statistics_tell_who_served_a_python_program(built, tmp_path):
    path = tmp_path / "stats.json"
    words = python_program(built)
    check(start_python(2, *words, HAN_STATS=str(path)))
    rows = json.loads(path.read_text())["rows"]
    assert {"Allreduce", "Bcast", "Allgather", "Barrier"} <= {row["call"] for row in rows}
    assert {row["by"] for row in rows} == {"han"}


def test_calls_of_a_python_program_are_served_once():
    source = (
        "from mpi4py import MPI; import han; comm = han.Comm(MPI.COMM_WORLD)\n"
        "for k in range(20): MPI.COMM_WORLD.Barrier(); comm.Barrier()\n"
        "info = comm.cache_info(); print(f'{info.hits + info.misses} ', end='', flush=True)"
    )
    done = start_python(2, "-c", source)
    served = str(20 + 20 - SETTLED)
    assert (done.returncode, done.stdout.split()) == (0, [served, served]), done.stderr


def test_a_python_program_without_han_runs_on_mpi_alone():
    hidden = "import sys; sys.modules['han'] = None; sys.argv = sys.argv[1:]\n"
    source = (
        "from mpi4py import MPI\n"
        "for k in range(20): MPI.COMM_WORLD.Barrier()\n"
        "if MPI.COMM_WORLD.rank == 0: print('wrong: 0')"
    )
    done = start_python(2, "-c", hidden + source)
    check(done)
    said = "han: this program runs on MPI alone: its Python cannot import han: "
    lines = [line for line in done.stderr.splitlines() if "han" in line]
    assert [line[: len(said)] for line in lines] == [said, said], done.stderr


def test_measuring_from_c(tmp_path):
    if not (BESIDE / "mpicc").exists():
        done = start(1, sys.executable, "-m", "han", "bench-c")
        assert done.returncode
        assert "mpicc" in done.stderr
        pytest.skip(f"{BESIDE} has no mpicc")
    path = tmp_path / "c.json"
    words = "allreduce,alltoallv", "8,1KiB", "--rounds", "3", "--time", "0.01", "--json", str(path)
    done = start(2, sys.executable, "-m", "han", "bench-c", *words)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line[0] != "#"]
    assert [(row[0], row[1]) for row in rows[1:]] == [
        ("allreduce", "8"), ("allreduce", "1024"), ("alltoallv", "8"), ("alltoallv", "1024")
    ]  # fmt: skip
    record = json.loads(path.read_text())
    assert [row["collective"] for row in record["rows"]] == [row[0] for row in rows[1:]]
    assert all(row["han_us"] > 0 for row in record["rows"])
    for mode in ("nonblocking", "persistent"):
        done = start(2, sys.executable, "-m", "han", "bench-c", *words, "--mode", mode)
        assert done.returncode == 0, done.stderr
        assert json.loads(path.read_text())["mode"] == mode
    wrong = start(1, sys.executable, "-m", "han", "bench-c", "alreduce")
    assert "did you mean 'allreduce'" in wrong.stderr


def test_what_is_an_executable(tmp_path):
    for name, text, mode, expected in (
        ("a.py", "#!/usr/bin/env python\n", 0o755, False), ("b.py", "print()", 0o644, False),
        ("c.sh", "#!/bin/sh\n", 0o755, True), ("d", "\x7fELF", 0o755, True),
        ("e", "text", 0o644, False),
    ):  # fmt: skip
        path = tmp_path / name
        path.write_text(text)
        path.chmod(mode)
        assert (found(str(path)) is not None) == expected, name
    assert found("sh")
    assert not found("no-such-program")
    path.write_text("\x7fELF")
    with pytest.raises(ArgumentError, match="chmod"):
        found(str(path))
