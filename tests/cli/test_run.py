"""``han run`` on one process: what runs, with which arguments, and what is refused."""

import os
import sys

import pytest
from processes import python

PRINT = "import sys; print(__name__, sys.argv, sys.path[0])"


def run(folder, *arguments, options=(), text=None):
    words = (*options, "-m", "han", "run", *arguments)
    paths = os.pathsep.join(path for path in sys.path if path)
    return python(*words, folder=folder, given=text, PYTHONPATH=paths)


def printed(folder, *arguments, **more):
    done = run(folder, *arguments, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def as_python(folder, *arguments):
    """Return what a program prints that Python itself runs."""
    return python(*arguments, folder=folder).stdout.strip()


@pytest.fixture
def program(tmp_path):
    """Return a program that prints how it was started, in a folder of its own."""
    folder = tmp_path / "programs"
    folder.mkdir()
    path = folder / "program.py"
    path.write_text(PRINT)
    return path


def test_words_after_the_program_are_the_programs(tmp_path, program):
    words = ["--stats", "-h", "--config", "-m", "--", "x"]
    name = "programs/program.py"
    assert printed(tmp_path, name, *words) == f"__main__ {[name, *words]} {program.parent}"


def test_modules_code_and_standard_input_run_as_python_runs_them(tmp_path, program):
    at_home = f"{program.parent}"
    said = printed(program.parent, "-m", "program", "--stats", "-c")
    assert said == f"__main__ {[str(program), '--stats', '-c']} {at_home}"
    assert printed(tmp_path, "-c", PRINT, "--stats") == "__main__ ['-c', '--stats']"
    assert printed(tmp_path, "-", "--stats", text=PRINT) == "__main__ ['-', '--stats']"
    (program.parent / "__main__.py").write_text(PRINT)
    assert printed(tmp_path, "programs", "1") == as_python(tmp_path, "programs", "1")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="python -P is new in Python 3.11")
def test_a_safe_path_stays(tmp_path, program):
    first = printed(tmp_path, program, options=["-P"]).split()[-1]
    assert first not in (str(program.parent), str(tmp_path))


@pytest.mark.parametrize(
    ("code", "status"),
    [("raise SystemExit", 0), ("raise SystemExit(3)", 3), ("raise SystemExit('bye')", 1),
     ("1 / 0", 1), ("import os; os._exit(9)", 9), ("import han; raise han.ConfigError('mine')", 1),
     ("import typer; raise typer.Abort", 1)],
)  # fmt: skip
def test_the_exit_status_is_the_programs(tmp_path, code, status):
    done = run(tmp_path, "-c", code)
    assert done.returncode == status
    told = {"1 / 0": "ZeroDivisionError: ", "mine": "ConfigError: mine", "typer": "Abort"}
    wanted = next((text for part, text in told.items() if part in code), "")
    assert (wanted or "bye") in done.stderr or status not in (1,)
    assert bool(wanted) == ("Traceback" in done.stderr)


@pytest.mark.parametrize("how", ["file", "module", "code", "input"])
def test_a_traceback_begins_in_the_program(tmp_path, how):
    text = "def f():\n    1 / 0\n\n\nf()\n"
    (tmp_path / "failing.py").write_text(text)
    words = {
        "file": ["failing.py"],
        "module": ["-m", "failing"],
        "code": ["-c", text],
        "input": ["-"],
    }
    done = run(tmp_path, *words[how], text=text)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("  File")]
    assert [line.rpartition(" in ")[2] for line in lines] == ["<module>", "f"]
    assert done.stderr.startswith("Traceback (most recent call last):\n")


def test_a_hook_of_the_program_gets_its_errors(tmp_path):
    code = """
import sys, traceback
sys.excepthook = lambda kind, error, trace: print(kind.__name__, len(traceback.extract_tb(trace)))
1 / 0
"""
    done = run(tmp_path, "-c", code)
    assert (done.returncode, done.stdout) == (1, "ZeroDivisionError 1\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 2, "Error: Missing argument 'PROGRAM"),
        (["nosuch.py"], 1, "Error: nosuch.py: no such file; to run a module write -m nosuch.py"),
        (["--stat", "p.py"], 2, "no such option: --stat"),
        (["-m"], 2, "-m needs a module"),
        (["-c"], 2, "-c needs code"),
        (["--config", "none", "-c", "1"], 1, "Error: config = 'none': no such file"),
        (["--json", "none/s.json", "-c", "1"], 1, "Error: none/s.json: cannot be written"),
        (["--json", "s.txt", "-c", "1"], 1, "Error: --json s.txt: expected the name of a .json"),
    ],
)
def test_mistakes_are_told_in_a_line_before_the_program_runs(tmp_path, arguments, status, said):
    done = run(tmp_path, *arguments)
    assert done.returncode == status
    assert said in done.stderr
    assert done.stderr.count("Error") == 1
    assert not done.stdout


def test_a_program_without_mpi_is_not_touched(tmp_path):
    code = "import sys; print('mpi4py.MPI' in sys.modules)"
    assert printed(tmp_path, "--stats", "-c", code) == "False"


def test_a_missing_mpi_library_is_told_where_the_program_imports_it(tmp_path):
    fake = tmp_path / "mpi4py"
    fake.mkdir()
    (fake / "__init__.py").touch()
    (fake / "MPI.py").write_text("raise RuntimeError('cannot load MPI library')")
    done = run(tmp_path, "-c", "from mpi4py import MPI")
    assert done.returncode == 1
    assert "MissingLibraryError: han needs an MPI library" in done.stderr.splitlines()[-1]
    code = """
try:
    from mpi4py import MPI
except RuntimeError as error:
    print(error)
"""
    assert printed(tmp_path, "-c", code) == "cannot load MPI library"


def test_mpi_that_is_initialized_later_is_served_later(tmp_path):
    code = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py.MPI import COMM_WORLD
from mpi4py import MPI
import han, numpy as np
assert COMM_WORLD is MPI.COMM_WORLD and type(COMM_WORLD) is type(MPI.COMM_SELF) is han.Comm
assert "not used" in repr(COMM_WORLD)
MPI.Init_thread(MPI.THREAD_FUNNELED)
assert "1 rank" in repr(COMM_WORLD) or COMM_WORLD.Allreduce(np.ones(3), np.ones(3)) is None
assert "1 rank" in repr(COMM_WORLD)
print(MPI.Query_thread() == MPI.THREAD_FUNNELED)
MPI.Finalize()
"""
    done = run(tmp_path, "--stats", "-c", code)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
    assert done.stderr.count("# han served 1 of 1 calls (100.0 % of the seconds)") == 1


SEEN = """
import atexit, os, pickle, sys, threading, time
os.chdir("/")


class Thing:
    pass


def check(when):
    pickle.loads(pickle.dumps(Thing()))
    there = os.path.exists(__file__) if when == "in main" else True
    mine = sys.modules["__main__"].__dict__ is globals()
    print(when, there, hasattr(__builtins__, "print"), mine, flush=True)


atexit.register(check, "at exit")
threading.Thread(target=lambda: (time.sleep(0.2), check("in a thread"))).start()
check("in main")
"""


def test_the_program_stays_main_for_threads_and_at_exit(tmp_path):
    (tmp_path / "seen.py").write_text(SEEN)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(SEEN)
    right = [f"{when} True True True" for when in ("in main", "in a thread", "at exit")]
    for words in (["seen.py"], ["-m", "seen"], ["package"], ["-m", "package"]):
        assert as_python(tmp_path, *words).splitlines() == right
        assert printed(tmp_path, *words).splitlines() == right
    code = SEEN.replace("os.path.exists(__file__)", "'__file__' not in globals()")
    right[1:] = []  # pickles need a module that can be found: it is __main__, with the class in it
    assert printed(tmp_path, "-c", code).splitlines()[:1] == right


def test_an_old_mpi4py_is_told_in_one_line(tmp_path):
    folder = tmp_path / "mpi4py"
    folder.mkdir()
    (folder / "__init__.py").write_text("__version__ = '3.1.6'")
    program = "import han\ntry:\n han.Comm\nexcept han.MissingLibraryError as e:\n print(e)"
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    said = python("-c", program, PYTHONPATH=paths).stdout
    wanted = "han needs mpi4py 4.0 or newer, this is 3.1.6; pip install 'mpi4py>=4'"
    assert said.startswith(wanted)
    (folder / "MPI.py").write_text("def Is_initialized():\n    return False\n")
    imports = "from mpi4py import MPI"
    for words in (["-c", "from han import Comm"], ["-m", "han", "run", "-c", imports]):
        done = python(*words, PYTHONPATH=paths)
        assert done.stderr.splitlines()[-1].endswith(f"MissingLibraryError: {wanted}")
    done = python("-m", "han", "info", PYTHONPATH=paths)
    assert done.stderr.splitlines() == [f"Error: {wanted}"]
