"""The stub of the compiled part agrees with the compiled part."""

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
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nfollow_imports = skip\n")  # NumPy takes longer than the stub
    command = [sys.executable, "-m", "mypy.stubtest", "han._native", "--ignore-disjoint-bases"]
    command += ["--mypy-config-file", str(settings)]
    environ = {**os.environ, "MYPY_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
