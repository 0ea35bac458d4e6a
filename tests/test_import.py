"""Importing han is quick: what is heavy comes in when it is needed."""

import subprocess
import sys

HEAVY = ("networkx", "pydantic", "yaml", "rich", "typer", "matplotlib", "hypothesis", "pytest")


def test_import_brings_nothing_heavy():
    code = f"import sys, han; print([m for m in {HEAVY} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
