"""The spans of tasks that the simulator has kept, as times of a timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from han.model.timeline import TaskTime
from han.tasks.signature import Signature

# The layout of `sim_span` (native/simulate/world.h).
SPAN = np.dtype(
    [
        ("rank", "i4"), ("run", "i4"), ("stream", "i4"), ("task", "u4"), ("begin", "f8"),
        ("end", "f8"), ("copying", "f8"), ("reducing", "f8"), ("start", "f8"),
    ]
)  # fmt: skip
Labels = Sequence[tuple[tuple[str, ...], Sequence[str]]]


def task_times(spans: bytes, labels: Labels, signature: Signature) -> Iterator[TaskTime]:
    """Yield the times of tasks; `labels` are the names of each rank's streams and tasks."""
    rows = np.frombuffer(spans, SPAN).tolist()
    for rank, run, stream, task, begin, end, copying, reducing, start in rows:
        streams, tasks = labels[rank]
        name = tasks[task] if tasks else "copy"
        yield TaskTime(
            rank, run, signature.collective, streams[stream], name, begin, end, copying, reducing,
            start - begin, nbytes=signature.nbytes,
        )  # fmt: skip
