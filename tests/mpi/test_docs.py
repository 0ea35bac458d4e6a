"""Run the programs and the commands of README and docs/ under mpiexec."""

import math
import os
import shutil
from pathlib import Path
from unittest import mock

import pages
import pytest
from commands import app
from mpi4py import MPI
from pages import PAGES, name_of
from typer.testing import CliRunner

from han.cli.bench import OF_OSU, OF_PROGRAMS
from han.cli.main import COMMANDS as TABLE
from han.measure.program_mix import DEFAULT
from han.model.collectives import ROWS
from han.submodules import registry

PROGRAMS = [(page, ranks) for page in PAGES for ranks in [pages.program(page)[1]] if ranks > 1]


def run_program(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the program of a page in this process, with the page's own line numbers."""
    monkeypatch.chdir(folder)
    code = compile(pages.program(page)[0], name_of(page), "exec", dont_inherit=True)
    with mock.patch.dict(ROWS), mock.patch.dict(registry._imported):  # programs may add to them
        exec(code, {"__name__": "__main__"})


def of_ranks(n: int) -> list[Path]:
    return [page for page, ranks in PROGRAMS if ranks == n]


def stem_of(page: Path) -> str:
    """Return a name without characters that have a meaning in the selection of tests."""
    return page.stem


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
@pytest.mark.parametrize("page", of_ranks(2), ids=stem_of)
def test_programs_of_two_ranks(mpi_ranks, page, tmp_path, monkeypatch):
    run_program(page, tmp_path, monkeypatch)


@pytest.mark.mpi(ranks=3, timeout=60, unit="s")
@pytest.mark.parametrize("page", of_ranks(3), ids=stem_of)
def test_programs_of_three_ranks(mpi_ranks, page, tmp_path, monkeypatch):
    run_program(page, tmp_path, monkeypatch)


@pytest.mark.mpi(ranks=4, timeout=60, unit="s")
@pytest.mark.parametrize("page", of_ranks(4), ids=stem_of)
@pytest.mark.leaves("a communicator that failed")
def test_programs_of_four_ranks(mpi_ranks, page, tmp_path, monkeypatch):
    run_program(page, tmp_path, monkeypatch)


SMALL = {  # options appended to a command, which override its own
    "--rounds": "1", "--iterations": "1", "--time": "0", "--calls": "2",
    "--budget": "3s",
}  # fmt: skip
COMMANDS = {  # without programs and tuned tables: test_programs.py, test_preload.py, test_tune.py
    command.words: command
    for page in PAGES
    for command in pages.commands(page)
    if command.ranks and command.words[0] == "han" and command.words[1] not in ("run", "bench-c")
    if "--tuned" not in command.words
}


@pytest.mark.mpi(ranks=2, timeout=180, unit="s")
def test_commands(mpi_ranks, tmp_path, monkeypatch):
    """Run every mpiexec command of a page on two ranks, shortened."""
    monkeypatch.chdir(tmp_path)
    for name in ("DISTURBED", "SLOW"):  # of a calibration, which may run on a busy machine
        monkeypatch.setattr(f"han.tuning.tuned.combined.{name}", math.inf)
    monkeypatch.setattr("han.cli.measuring.parse_sizes", lambda text: [64])
    shutil.copy(DEFAULT, "stats.json")  # stands for what a program of the user recorded
    shutil.copytree(DEFAULT.parent, "configs/mixes")  # as in a checkout
    for command in COMMANDS.values():
        arguments = [*command.words[1:], *shortened(command.words)]
        # What han tune writes on a busy machine must not decide for the commands after it.
        with mock.patch.dict(os.environ, {"HAN_TUNED": "off"} | command.environment):
            done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, (arguments, done.output, done.exception)
        assert done.output or MPI.COMM_WORLD.rank, arguments
    MPI.COMM_WORLD.Barrier()
    shutil.rmtree(os.environ["XDG_DATA_HOME"], ignore_errors=True)  # what han tune wrote


def shortened(words: tuple[str, ...]) -> list[str]:
    """Return options that shorten the run of a command."""
    (command,) = (row.load() for row in TABLE if row.name == words[1])
    few = {"--programs": OF_PROGRAMS, "--osu": OF_OSU}
    kind = next((few[word] for word in words if word in few), None)
    taken = kind or {p.name for p in command.params}
    known = {o for p in command.params if p.name in taken for o in p.opts}
    return [word for option in SMALL if option in known for word in (option, SMALL[option])]
