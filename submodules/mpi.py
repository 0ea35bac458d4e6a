"""``mpi``: the MPI library's blocking collectives, the baseline and the fallback."""

from __future__ import annotations

from han.submodules.libnbc import native_reason, start
from han.tasks.context import Context
from han.tasks.contract import Algorithm, Question, Submodule


class Mpi(Submodule):
    """Calls the MPI library's blocking collectives."""

    name = "mpi"
    about = "the MPI library's blocking collectives: the baseline"
    may_block = True
    algorithms = {
        "default": Algorithm("Reduce and Bcast", ordered="always", one_segment=True),
        "allreduce": Algorithm("Allreduce in place of both", ("allreduce",), "always", True),
    }

    def supports(self, question: Question) -> str | None:
        """Return None if one blocking collective can serve the call, else the reason."""
        if not question.blocking:
            return "blocking collectives cannot serve a nonblocking or persistent call"
        if question.segmented:
            return "blocking collectives take the message in one segment (segment: whole)"
        return native_reason(question)

    def lower(self, context: Context) -> None:
        """Emit one blocking collective for each task."""
        request = context.builder.request()
        for k, task in enumerate(context.tasks):
            context.stream.begin(task)
            start(context, k, request, blocking=True)
            context.stream.end(task)
