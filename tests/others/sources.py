"""Get the source distributions that hold others' tests."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "others"  # git ignores it


class Unreachable(Exception):
    """A source distribution cannot be downloaded."""


def unpacked(name: str, release: str) -> Path:
    """Return the folder of an unpacked source distribution; download it where it is not there.

    Raises Unreachable.
    """
    place = CACHE / f"{name}-{release}"
    if not place.is_dir():
        archive = _downloaded(name, release)
        with tarfile.open(archive) as packed:
            top = packed.getnames()[0].split("/")[0]
            safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # 3.11.4 and later
            packed.extractall(CACHE / "unpacking", **safe)
        (CACHE / "unpacking" / top).rename(place)
    return place


def _downloaded(name: str, release: str) -> Path:
    """Download a source distribution; raise Unreachable."""
    CACHE.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check",
        "--no-deps", "--no-binary", name, "--dest", str(CACHE), f"{name}=={release}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(CACHE.glob(f"{name.replace('-', '_')}-{release}.tar.gz"))
    if done.returncode or not found:
        raise Unreachable(f"{name} {release}: no source distribution: {done.stderr.strip()[-500:]}")
    return found[0]


def required() -> bool:
    """Return whether tests that cannot be got are an error, as in CI."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")
