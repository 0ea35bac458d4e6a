"""Let the tests here import what those above share, and start quickly: once per rank and test."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pool.plugin

TURN = "HAN_TEST_TURN"  # "k/n": of a test's variants those whose number is k modulo n
INSIDE = "PYTEST_ISOLATE_MPI_IS_FORKED"


@pytest.hookimpl(trylast=True)  # after pytest-isolate-mpi: pools are asked first
def pytest_configure(config):
    pool.plugin.register(config)


def pytest_collection_modifyitems(config, items):
    """Let several MPI libraries share the variants of a test (numbers of ranks and the like)."""
    turn = os.environ.get(TURN)
    if not turn or INSIDE in os.environ or not config.pluginmanager.has_plugin("pools"):
        return
    k, n = map(int, turn.split("/"))
    variants = Counter(_test(item) for item in items)
    seen: Counter[tuple[str, str]] = Counter()
    ours, others = [], []
    for item in items:
        alone = variants[_test(item)] == 1 or getattr(item.module, "ALL_VARIANTS", False)
        mine = alone or seen[_test(item)] % n == k
        (ours if mine else others).append(item)
        seen[_test(item)] += 1
    config.hook.pytest_deselected(items=others)
    items[:] = ours


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
