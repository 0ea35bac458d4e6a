"""The stub of the compiled module agrees with the module."""

import importlib.util
import os
import subprocess
import sys

import pytest

needs_mypy = pytest.mark.skipif(
    importlib.util.find_spec("mypy") is None,
    reason="mypy is not installed: han-collectives[lint] has it",
)


@needs_mypy
def test_the_stub_agrees_with_the_compiled_part(tmp_path):
    command = [sys.executable, "-m", "mypy.stubtest", "han._native", "--ignore-disjoint-bases"]
    environ = {**os.environ, "MYPY_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
