"""The context in which a submodule lowers the tasks of one stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from han.model.program import Ref
from han.model.topology import Group
from han.tasks.choice import LevelChoice
from han.tasks.graph import Task
from han.tasks.stream import Builder, Stream


@dataclass(frozen=True)
class Context:
    """The tasks, this rank's place in the group that carries them out, and where its data is."""

    tasks: tuple[Task, ...]
    group: Group
    stream: Stream
    choice: LevelChoice
    source: Ref  # this rank's operand, or the data that it broadcasts
    result: Ref  # where the result is written, if this rank gets one

    @cached_property
    def builder(self) -> Builder:
        """The builder, which allocates cells, flags, requests and scratch."""
        return self.stream.builder

    @cached_property
    def grain(self) -> int:
        """Bytes of the least part of the message; pieces hold whole grains."""
        return self.stream.builder.signature.grain
