"""HAN_TRACE on a program that traces nothing: rank 0 says so at exit."""

import os
import subprocess
import sys

import pytest


def said(program, folder, **more):
    """Return what a program says on standard error."""
    environ = os.environ | {"HAN_TRACE": str(folder)} | more
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    return done.stderr


def test_a_program_that_makes_no_communicator_is_told(tmp_path):
    told = said("import han", tmp_path / "t")
    assert told == (
        f"han: HAN_TRACE={tmp_path / 't'}: no trace was written: this program ran no call of a "
        "han.Comm. To trace a program unchanged, start it with 'han run'\n"
    )
    (tmp_path / "trace-old-0.json").write_text("{}")
    os.utime(tmp_path / "trace-old-0.json", (0, 0))
    assert "no trace" in said("import han", tmp_path)


@pytest.mark.parametrize("more", [{"HAN_TRACE": ""}, {"PMI_RANK": "1"}])
def test_it_is_said_once_and_only_where_a_trace_was_wanted(more, tmp_path):
    assert said("import han", tmp_path, **more) == ""


def test_commands_do_not_say_it(tmp_path):
    assert (
        said(
            "import sys; sys.argv[1:] = ['schema']; from han.cli.main import main; main()", tmp_path
        )
        == ""
    )


def test_a_written_trace_is_not_missed(tmp_path):
    (tmp_path / "trace-c-0.json").write_text("{}")
    assert said("import han", tmp_path) == ""
