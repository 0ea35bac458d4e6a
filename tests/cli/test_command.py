"""The command itself: its table of commands, help, completion, and errors."""

import os
import shlex
import subprocess
import sys

import pytest
from commands import call
from processes import printed, python

import han
from han.cli import endings
from han.cli.main import COMMANDS
from han.common import launcher

WIDTH = 80  # of a terminal, and of help
MAIN = "import sys; sys.argv[0] = 'han'; from han.cli.main import main; main()"


def run(*arguments, **variables):
    return python("-c", MAIN, *arguments, **variables)


def test_help_imports_no_command():
    code = f"import sys; sys.argv = ['han', '--help']; {MAIN[12:]}"
    watched = f"""
import atexit, sys
modules = ["han.cli." + n.replace("-", "_") for n in {[c.name for c in COMMANDS]}]
tell = lambda: print("loaded", [m for m in modules if m in sys.modules])
atexit.register(tell)
{code}
"""
    said = printed(watched)
    assert "Commands:" in said
    assert said.endswith("loaded []")


def test_help_shows_the_summary_of_each_command_whole():
    lines = call("-h").splitlines()
    for command in COMMANDS:
        (line,) = (line for line in lines if line.startswith(f"  {command.name} "))
        assert line.split(maxsplit=1)[1] == command.summary
        assert len(line) < WIDTH
        assert command.summary.endswith(".")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_is_loaded_and_has_help(command):
    text = call(command.name, "-h")
    assert f"{command.name} [OPTIONS]" in text
    assert "Examples:" in text or "Example:" in text


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_version(option):
    assert call(option) == f"han {han.__version__}\n"


# ---- completion in bash --------------------------------------------------------------------------


def complete(tmp_path, *lines):
    """Return what bash completes at the end of each line, by the script that han prints."""
    script = run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert script.returncode == 0, script.stderr
    command = tmp_path / "han"
    command.write_text(f"#!{sys.executable}\n{MAIN}\n")
    command.chmod(0o755)
    ask = f"{script.stdout}\ncomplete -p han >/dev/null || exit 9\n"
    for *words, last in (line.split(" ") for line in lines):
        ask += f"""
COMP_WORDS=({shlex.join(words)} {shlex.quote(last)})
COMP_CWORD={len(words)}
_han_completion han
echo "${{COMPREPLY[@]}}"
"""
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", ask], capture_output=True, text=True, check=True,
        env={**os.environ, "PATH": path},
    )  # fmt: skip
    return [line.split() for line in done.stdout.splitlines()]


def test_bash_completes_commands_options_and_choices(tmp_path):
    commands, command, parts, choice, option = complete(
        tmp_path, "han ", "han ca", "han plan bcast --dis", "han plan bcast 8 --as m", "han --v"
    )
    assert commands == [command.name for command in COMMANDS]
    assert command == ["calibrate"]
    assert "--disassemble" in parts
    assert choice == ["mermaid"]
    assert "--version" in option


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["explain", "alreduce"], 1, "Error: unknown collective 'alreduce'; did you mean"),
        (["plan", "bcast", "8", "--config", "none"], 1, "Error: config = 'none': no such file"),
        (["trace", "/none"], 1, "Error: /none"),
        (["plan"], 2, "Error: Missing argument"),
        (["schema", "--what"], 2, "Error: No such option"),
    ],
)
def test_a_mistake_is_printed_without_a_traceback(arguments, status, said):
    done = run(*arguments)
    assert done.returncode == status
    assert said in done.stderr
    assert done.stderr.count("Error") == 1
    assert not done.stdout


def test_an_unknown_variable_is_a_warning():
    done = run("schema", HAN_TIMOUT="3")
    assert done.returncode == 0
    assert done.stderr.startswith("Warning: unknown environment variable HAN_TIMOUT; did you mean")


def test_before_mpi_is_loaded_the_launcher_tells_the_rank(monkeypatch):
    monkeypatch.setattr(endings, "world", lambda: None)
    for name in launcher.RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert endings.is_first()
    monkeypatch.setenv("PMI_RANK", "3")
    assert not endings.is_first()
    monkeypatch.setenv("PMI_RANK", "0")
    assert endings.is_first()


def test_other_errors_are_no_mistakes_of_the_user():
    assert not endings.is_mistake(han.PeerError("a peer died"))
    assert endings.is_mistake(han.ConfigError("wrong"))


def test_the_launcher_has_time_to_forward_an_error_before_the_job_is_aborted(monkeypatch, capsys):
    done = []

    class Job:
        def Abort(self, status):
            done.append((status, capsys.readouterr().err))

    monkeypatch.setattr(endings, "world", Job)
    monkeypatch.setattr(endings.time, "sleep", lambda seconds: done.append(seconds))
    with pytest.raises(SystemExit):
        endings.abort("interrupted")
    assert done == [endings.GRACE, (1, "Error: interrupted\n")]
