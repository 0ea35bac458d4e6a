"""The MPI library's collectives: ``libnbc``, nonblocking, one per segment, and ``mpi``, blocking.

``mpi`` is the baseline and the fallback.

Source: HAN, section III (Libnbc).
"""

from __future__ import annotations

from han.model.collectives import ROWS
from han.model.element_types import NOT_MPIS
from han.model.program import Coll
from han.tasks.context import Context
from han.tasks.contract import Algorithm, Parameter, Question, Submodule
from han.tasks.stream import NOWHERE

MOST = (1 << 31) - 1


def _misfit(question: Question) -> str | None:
    """Return the reason why the MPI library's own collectives cannot serve a call, or None."""
    signature = question.signature
    if signature.packed:
        return "elements of derived types travel packed, the library combines them in their layout"
    if signature.reduces and signature.dtype in NOT_MPIS:
        return f"{signature.dtype} is not a type of the MPI standard"
    if signature.count > MOST:
        return f"{signature.count} elements exceed the MPI library's limit of {MOST} for one call"
    return None


class Libnbc(Submodule):
    """Calls the MPI library's nonblocking collectives."""

    name = "libnbc"
    about = "the MPI library's nonblocking collectives, one per segment"
    algorithms = {
        "default": Algorithm("Ireduce and Ibcast", ordered="always"),
        "allreduce": Algorithm("Iallreduce in place of both", ("allreduce",), "always"),
    }
    parameters = {"window": Parameter("int", "collectives in flight", 1, 64)}

    def supports(self, question: Question) -> str | None:
        """Return None if the MPI library can serve the call, else the reason."""
        return _misfit(question)

    def lower(self, context: Context) -> None:
        """Start the collective of each task, and wait for them in order, `window` in flight."""
        window = context.choice.get("window", 4)
        stream = context.stream
        requests = [context.builder.request() for _ in range(min(window, len(context.tasks)))]
        for k, task in enumerate(context.tasks):
            if k >= len(requests):
                stream.test(requests[k % len(requests)])
                stream.end(context.tasks[k - len(requests)])
            stream.begin(task)
            _start(context, k, requests[k % len(requests)], blocking=False)
        for k in range(len(context.tasks) - len(requests), len(context.tasks)):
            stream.test(requests[k % len(requests)])
            stream.end(context.tasks[k])


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
        return _misfit(question)

    def lower(self, context: Context) -> None:
        """Emit one blocking collective for each task."""
        request = context.builder.request()
        for k, task in enumerate(context.tasks):
            context.stream.begin(task)
            _start(context, k, request, blocking=True)
            context.stream.end(task)


def _start(context: Context, index: int, request: int, blocking: bool) -> None:
    """Emit the collective of task number `index`; a reduction of no bytes becomes a barrier."""
    task, group, builder = context.tasks[index], context.group, context.builder
    kind = ROWS[task.kind].code
    if not builder.signature.nbytes and task.kind != "bcast":
        kind = Coll.BARRIER
    count = task.nbytes if kind == Coll.BCAST else task.nbytes // builder.signature.element
    source = NOWHERE if kind == Coll.BCAST else context.source.to(task.start)
    result = context.result.to(task.start)
    if kind == Coll.REDUCE and not group.leads:
        result = NOWHERE
    comm = builder.comm(context.stream, group.ranks)
    flags = Coll.BLOCKING if blocking else 0
    context.stream.coll(kind | flags, result, source, count, group.root, comm, request)
