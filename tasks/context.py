"""What a submodule gets to lower the tasks of one stream."""

from __future__ import annotations

from dataclasses import dataclass

from han.model.program import Ref
from han.model.topology import Group
from han.tasks.choice import LevelChoice
from han.tasks.graph import Task
from han.tasks.stream import Builder, Stream


@dataclass(frozen=True)
class Context:
    """The tasks, this rank's place among those that carry them out, and where its data is."""

    tasks: tuple[Task, ...]
    group: Group
    stream: Stream
    choice: LevelChoice
    source: Ref  # where this rank's operand, or what it broadcasts, is
    result: Ref  # where the result goes, if this rank gets one

    @property
    def builder(self) -> Builder:
        """Where cells, flags, requests and scratch come from."""
        return self.stream.builder

    @property
    def element(self) -> int:
        """Bytes of an element: no piece cuts one."""
        return self.stream.builder.signature.element
