"""Slow tests come first, so that no process ends with one; the number of tests is told."""

import gc
import os
from pathlib import Path

import pytest

from han.tuning.tuned import find

CASES = "HAN_TEST_CASES"  # a file that each session appends the number of its tests to
# Results must not depend on tuned tables: those of the user, and those that come with han.
NOTHING = Path(__file__).parent / "no-data"
os.environ["XDG_DATA_HOME"] = str(NOTHING)
find.SHIPPED = NOTHING
ISOLATED = "PYTEST_ISOLATE_MPI_IS_FORKED"  # set in a session that is one rank of a test
_run: set[str] = set()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let communicators neither descend from a root nor become one."""
    from han.runtime.roots import Roots

    monkeypatch.setattr("han.runtime.making.ROOTS", Roots(0))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for tuned tables of the user, and of han."""
    monkeypatch.setattr(find, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def few_objects() -> None:
    """Let the collections of a module's tests pass over what other tests have left."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Let later garbage collections pass modules and tests over."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logfinish(nodeid: str) -> None:
    _run.add(nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count a test once, on however many ranks it ran."""
    if not _run or ISOLATED in os.environ:
        return
    terminalreporter.write_line(f"cases: {len(_run)}")
    if CASES in os.environ:
        with Path(os.environ[CASES]).open("a") as file:
            file.write(f"{len(_run)}\n")
