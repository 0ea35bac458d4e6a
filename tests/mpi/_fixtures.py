"""A han.Comm for a test; a plugin, as ranks of jobs lose fixtures of a conftest that is read."""

import pytest

PASSED = pytest.StashKey[bool]()


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
