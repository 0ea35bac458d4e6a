"""What files of the system say."""

from __future__ import annotations

from pathlib import Path


def text_of(file: Path) -> str:
    """Return what a file of the system says, "" if nothing: an adapter may be down."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
