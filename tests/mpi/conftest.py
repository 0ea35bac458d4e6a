"""Let the tests here import what those above share; choose which run, and where."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

import pool.plugin

TURN = "HAN_TEST_TURN"  # "k/n": of a test's variants those whose number is k modulo n
RANKS = "HAN_TEST_RANKS"  # only tests on so many ranks that need no mpiexec of their own


@pytest.hookimpl(trylast=True)  # after pytest-isolate-mpi: pools are asked first
def pytest_configure(config):
    pool.plugin.register(config)


def pytest_collection_modifyitems(config, items):
    """Leave out what the environment says; the ranks themselves run whatever they are sent."""
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
    """Let several MPI libraries share the variants of a test (numbers of ranks and the like)."""
    turn = os.environ.get(TURN)
    if not turn:
        return items
    k, n = map(int, turn.split("/"))
    variants = Counter(_test(item) for item in items)
    seen: Counter[tuple[str, str]] = Counter()
    ours = []
    for item in items:
        alone = variants[_test(item)] == 1 or getattr(item.module, "ALL_VARIANTS", False)
        if alone or seen[_test(item)] % n == k:
            ours.append(item)
        seen[_test(item)] += 1
    return ours


def _test(item):
    return item.location[0], item.originalname


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Start a module's ranks with its ENVIRONMENT: MPI libraries read theirs when they begin."""
    with mock.patch.dict(os.environ, getattr(item.module, "ENVIRONMENT", {})):
        yield


def pytest_sessionfinish(session):
    """Keep hypothesis's plugin from importing all of hypothesis for a summary of nothing."""
    manager = session.config.pluginmanager
    if "hypothesis" not in sys.modules and manager.has_plugin("hypothesispytest"):
        manager.unregister(name="hypothesispytest")
