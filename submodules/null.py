"""``null``: does nothing. What is left is the overhead of everything else."""

from __future__ import annotations

from han.model.collectives import BOTH, BY_BLOCKS
from han.tasks.context import Context
from han.tasks.contract import Algorithm, Parameter, Question
from han.tasks.outline import Outline


class Null:
    """Nothing: results are wrong by design."""

    name = "null"
    about = "does nothing: measures overhead, results are wrong by design"
    algorithms = {
        "default": Algorithm("nothing", (*BOTH, *BY_BLOCKS), "always"),
        "allreduce": Algorithm("nothing, at one go", ("allreduce",), "always"),
    }
    parameters: dict[str, Parameter] = {}

    def supports(self, question: Question) -> str | None:
        """Return None: nothing can always be done."""
        return None

    def footprint(self, plan: Outline, level: int) -> int:
        """Return 0: no cells."""
        return 0

    def lower(self, context: Context) -> None:
        """Emit nothing."""
        for task in context.tasks:
            context.stream.begin(task)
            context.stream.end(task)
