"""Calls in several threads at once."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def run_in_threads(work: Callable[..., Any], *calls: tuple[Any, ...]) -> list[Any]:
    """Call `work` in several threads at once; return the results, or raise one call's error."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(work, *arguments) for arguments in calls]
        return [future.result() for future in futures]


@contextlib.contextmanager
def switching() -> Iterator[None]:
    """Let threads take turns as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
