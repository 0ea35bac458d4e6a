"""Run the programs of README and docs/ under mpiexec."""

from pathlib import Path
from unittest import mock

import pages
import pytest
from pages import PAGES, name_of

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
