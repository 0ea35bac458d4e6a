"""Messages that carry parts of a task's data, and the requests that they use."""

from __future__ import annotations

from han._native import Mail
from han._native import Transfer as Transfer
from han.tasks.context import Context

MOST = 1 << 30  # bytes of a message, so that MPI's counts stay below 2^31


def mail_of(context: Context) -> Mail:
    """Return the mail of a context's stream, to and from the members of its group."""
    request = context.builder.request
    return Mail(context.stream, context.group.ranks, context.grain, request)
