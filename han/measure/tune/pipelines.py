"""Pipelines of calls, kept over sizes: that of a message that is not cut has the same steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from han.tasks.choice import Choice
from han.tasks.outline import Outline
from han.tasks.signature import Signature
from han.tuning.costs.shares import told_apart
from han.tuning.costs.stages import Pipeline, pipeline_of_choice


class Pipelines:
    """The stages of calls with a choice, in short form; `plan` plans a call."""

    def __init__(self, plan: Callable[[Signature, Choice], Outline]) -> None:
        self._plan = plan
        self._whole: dict[tuple[Signature, Choice], Pipeline] = {}  # of any size

    def of(self, signature: Signature, choice: Choice) -> Pipeline:
        """Return the stages of a call."""
        if choice.segment is not None:
            return self._made(signature, choice)
        key = replace(signature, count=0), choice
        known = self._whole.get(key)
        if known is not None:
            return replace(known, segment=signature.nbytes)
        found = self._made(signature, choice)
        if found.segment == signature.nbytes and found.count == 1:
            self._whole[key] = found
        return found

    def _made(self, signature: Signature, choice: Choice) -> Pipeline:
        return told_apart(pipeline_of_choice(signature, choice, self._plan))
