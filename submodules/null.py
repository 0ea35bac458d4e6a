"""``null``: moves no data, so that a call takes only the overhead of the other parts of han."""

from __future__ import annotations

from han.model.collectives import BOTH, BY_BLOCKS, SCANS
from han.tasks.compositions import FAMILIES
from han.tasks.context import Context
from han.tasks.contract import Algorithm, Question, Submodule


class Null(Submodule):
    """Moves no data; results are wrong by design."""

    name = "null"
    about = "does nothing: measures overhead, results are wrong by design"
    correct = False
    algorithms = {
        "default": Algorithm("nothing", (*BOTH, *BY_BLOCKS, *SCANS), "always", families=FAMILIES),
        "allreduce": Algorithm(
            "nothing, as one task for both", ("allreduce",), "always", families=FAMILIES
        ),
    }

    def supports(self, question: Question) -> str | None:
        """Return None: every call can be served."""
        return None

    def lower(self, context: Context) -> None:
        """Begin and end each task, without operations between."""
        for task in context.tasks:
            context.stream.begin(task)
            context.stream.end(task)
