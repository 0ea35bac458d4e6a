"""Which pages shared arrays get: large ones are in huge pages where the system allows it."""

from __future__ import annotations

import re
from pathlib import Path

from han.common.units import format_size

FOLDER = Path("/sys/kernel/mm/transparent_hugepage")
POLICY = FOLDER / "shmem_enabled"
AT_ONCE = ("always", "within_size", "force")  # policies that give huge pages to whatever is large
WHEN_TOUCHED = "advise"  # the one that gives them to who asks, when he first writes


def policy() -> str:
    """Return the system's policy for huge pages in shared memory, "" where it has none."""
    try:
        found = re.search(r"\[(\w+)\]", POLICY.read_text())
    except OSError:
        return ""
    return found[1] if found else ""


def describe(kind: str, policy: str) -> str:
    """Say which pages arrays in an arena of this kind get, and what would give huge ones."""
    if kind != "memfd":
        return f"as {kind} is mounted (huge=advise there allows huge ones)"
    if policy in (*AT_ONCE, WHEN_TOUCHED):
        return f"huge ones for arrays of {_size()} and more (the system's policy is {policy})"
    if not policy:
        return "small ones: this kernel has no huge ones for shared memory"
    return f"small ones: the system's policy is {policy} (as root: echo advise > {POLICY})"


def _size() -> str:
    try:
        return format_size(int((FOLDER / "hpage_pmd_size").read_text()))
    except OSError:
        return "a huge page"
