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


@pytest.fixture(params=["one level", "two levels"])
def levels(request):
    """Return one level, then two, unless a test has its own."""
    from _support import FLAT, TWO_BY_TWO

    return {"one level": FLAT, "two levels": TWO_BY_TWO}[request.param]


@pytest.fixture
def comm(request):
    """Make a han.Comm of all ranks, on a test's `levels` or on one.

    It is freed after the test, but not after an error, which other ranks may not have.
    """
    from _support import FLAT, new_comm

    asked = "levels" in request.fixturenames
    made = new_comm(request.getfixturevalue("levels") if asked else FLAT)
    yield made
    if PASSED in request.node.stash:
        made.Free()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Keep that a test has passed."""
    found = yield
    item.stash[PASSED] = True
    return found
