"""What tests under MPI take from outside: their numbers of ranks, and a han.Comm.

This is a plugin, as the ranks of a job see fixtures of a conftest in its first test file alone.
"""

import inspect

import pytest

PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, name, obj):
    """Mark a test that takes ranks, but names none, with what is `usual` in its module."""
    usual = getattr(collector.obj, "usual", None)
    if usual is not None and name.startswith("test") and inspect.isfunction(obj):
        named = {mark.name for mark in getattr(obj, "pytestmark", [])}
        if "mpi" not in named and {"mpi_ranks", "comm"} & {*inspect.signature(obj).parameters}:
            usual(obj)


@pytest.fixture
def comm(request):
    """Make a han.Comm of all ranks on one level, or on those that a test's parameter says.

    It is freed after the test, but not after an error, which other ranks may not have.
    """
    from _support import FLAT, new_comm

    made = new_comm(request.node.callspec.params.get("levels", FLAT))
    yield made
    if PASSED in request.node.stash:
        made.Free()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Keep that a test has passed."""
    found = yield
    item.stash[PASSED] = True
    return found
