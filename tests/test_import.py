"""Importing han is quick, and says what is missing: what is heavy comes in when it is needed."""

import os
import subprocess
import sys

HEAVY = ("networkx", "pydantic", "yaml", "rich", "typer", "matplotlib", "hypothesis", "pytest")

NO_LIBRARY = "cannot load MPI library\nlibmpi.so.12: cannot open shared object file"


def run_without_mpi(tmp_path, *arguments):
    """Run Python where importing mpi4py's MPI fails as it does without an MPI library."""
    fake = tmp_path / "mpi4py"
    fake.mkdir(exist_ok=True)
    (fake / "__init__.py").touch()
    (fake / "MPI.py").write_text(f"raise RuntimeError({NO_LIBRARY!r})")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=environ
    )


def test_a_missing_library_is_told_with_the_way_out(tmp_path):
    code = """
try:
    import han
except ImportError as error:
    print(type(error).__name__, "|", error, "|", repr(error.__cause__))
"""
    name, said, cause = run_without_mpi(tmp_path, "-c", code).stdout.split(" | ")
    assert name == "MissingLibraryError"
    assert "pip install mpich" in said
    assert "module load" in said
    assert "(cannot load MPI library)" in said
    assert cause.startswith("RuntimeError(")


def test_a_missing_mpi4py_is_told(tmp_path):
    done = run_without_mpi(
        tmp_path, "-c", "import sys; sys.modules['mpi4py'] = None; import han"
    )  # as if it were not there
    assert "MissingLibraryError: han needs mpi4py" in done.stderr
    assert "pip install mpi4py" in done.stderr


def test_the_command_says_in_one_line_that_there_is_no_library(tmp_path):
    script = tmp_path / "han"
    script.write_text("from han.cli import main\nmain()\n")
    for command in (["-m", "han", "info"], [str(script), "info"]):
        done = run_without_mpi(tmp_path, *command)
        assert done.returncode == 1
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert line.startswith("Error: han needs an MPI library")


def test_import_brings_nothing_heavy():
    code = f"import sys, han; print([m for m in {HEAVY} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_compiled_part_of_another_version_is_refused():
    code = """
import sys
import han._native as native
del sys.modules["han.runtime.state"]
native.NUMBERS["layout"]["SMALL_BANKS"] += 1
try:
    import han.runtime.state
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "compiled part says SMALL_BANKS = 17, han says 16" in done.stdout, done.stderr
