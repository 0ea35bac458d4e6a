"""Let the tests here import what those above share, and start quickly: once per rank and test."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def pytest_sessionfinish(session):
    """Keep hypothesis's plugin from importing all of hypothesis for a summary of nothing."""
    manager = session.config.pluginmanager
    if "hypothesis" not in sys.modules and manager.has_plugin("hypothesispytest"):
        manager.unregister(name="hypothesispytest")
