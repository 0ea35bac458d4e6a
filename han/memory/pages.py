"""The size of the pages of shared arrays: huge pages for large arrays, where the system allows."""

from __future__ import annotations

import re
from pathlib import Path

from han.common.system import text_of
from han.common.units import format_size

FOLDER = Path("/sys/kernel/mm/transparent_hugepage")
POLICY = FOLDER / "shmem_enabled"
AT_ONCE = ("always", "within_size", "force")  # policies with huge pages for all large files
WHEN_TOUCHED = "advise"  # huge pages on request, at the first write


def policy() -> str:
    """Return the system's policy for huge pages in shared memory; "" if it has none."""
    found = re.search(r"\[(\w+)\]", text_of(POLICY))
    return found[1] if found else ""


def describe(kind: str, policy: str) -> str:
    """Describe the pages of arrays in an arena of this kind, and how to get huge pages."""
    if kind != "memfd":
        return f"as {kind} is mounted (huge=advise there allows huge ones)"
    if policy in (*AT_ONCE, WHEN_TOUCHED):
        return f"huge ones for arrays of {_size()} and more (the system's policy is {policy})"
    if not policy:
        return "small ones: this kernel has no huge ones for shared memory"
    return f"small ones: the system's policy is {policy} (as root: echo advise > {POLICY})"


def _size() -> str:
    size = text_of(FOLDER / "hpage_pmd_size")
    return format_size(int(size)) if size else "a huge page"
