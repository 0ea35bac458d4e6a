"""Make the helpers importable, and select the tests to run and the jobs that run them."""

import os
import sys
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

import _fixtures
import pool.plugin

TURN = "HAN_TEST_TURN"  # "k/n": run the variants of a test whose number is k modulo n
RANKS = "HAN_TEST_RANKS"  # run only pooled tests on so many ranks


@pytest.hookimpl(trylast=True)  # after pytest-isolate-mpi, so that hooks of pools run first
def pytest_configure(config):
    pool.plugin.register(config)
    config.pluginmanager.register(_fixtures)


def pytest_collection_modifyitems(config, items):
    """Deselect tests as the environment says; ranks of a job run every test that they are sent."""
    if pool.plugin.is_rank(config):
        return
    wanted = _in_turn(items)
    if os.environ.get(RANKS):
        wanted = [item for item in wanted if _is_on(item, int(os.environ[RANKS]))]
    if len(wanted) < len(items):
        kept = set(wanted)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = wanted


def _is_on(item, ranks):
    return pool.plugin.is_pooled(item) and pool.plugin.ranks_of(item) == ranks


def _in_turn(items):
    """Return this turn's variants of each test, so that several MPI libraries can share them.

    Tests marked `any_library` are shared as if they were the variants of one test.
    """
    turn = os.environ.get(TURN)
    if not turn:
        return items
    k, n = map(int, turn.split("/"))
    variants = Counter(_test(item) for item in items)
    seen: Counter[tuple[str, str]] = Counter()
    ours = []
    for item in items:
        shared = item.get_closest_marker("any_library") is not None
        test = ("", "") if shared else _test(item)
        alone = variants[_test(item)] == 1 or getattr(item.module, "ALL_VARIANTS", False)
        if (alone and not shared) or seen[test] % n == k:
            ours.append(item)
        seen[test] += 1
    return ours


def _test(item):
    return item.location[0], item.originalname


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Start a module's ranks with its ENVIRONMENT, which MPI libraries read when they start."""
    with mock.patch.dict(os.environ, getattr(item.module, "ENVIRONMENT", {})):
        yield


def pytest_sessionfinish(session):
    """Unregister hypothesis's plugin if unused, as its summary would import all of hypothesis."""
    manager = session.config.pluginmanager
    if "hypothesis" not in sys.modules and manager.has_plugin("hypothesispytest"):
        manager.unregister(name="hypothesispytest")
