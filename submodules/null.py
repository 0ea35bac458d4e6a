"""``null``: does nothing, so that calls show the overhead of all other parts."""

from __future__ import annotations

from han.model.collectives import BOTH, BY_BLOCKS
from han.tasks.context import Context
from han.tasks.contract import Algorithm, Question, Submodule


class Null(Submodule):
    """Nothing: results are wrong by design."""

    name = "null"
    about = "does nothing: measures overhead, results are wrong by design"
    correct = False
    algorithms = {
        "default": Algorithm("nothing", (*BOTH, *BY_BLOCKS), "always"),
        "allreduce": Algorithm("nothing, at one go", ("allreduce",), "always"),
    }

    def supports(self, question: Question) -> str | None:
        """Return None: nothing can always be done."""
        return None

    def lower(self, context: Context) -> None:
        """Emit nothing."""
        for task in context.tasks:
            context.stream.begin(task)
            context.stream.end(task)
