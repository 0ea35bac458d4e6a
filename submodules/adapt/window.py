"""The pieces of ``adapt``, and how many of them are under way between two ranks."""

from __future__ import annotations

from typing import NamedTuple

from han.submodules.measured import SEGMENT, WINDOW
from han.submodules.parts.pieces import number
from han.submodules.parts.series import Series
from han.tasks.context import Context
from han.tasks.stream import Builder


class Window(NamedTuple):
    """The pieces of a context's tasks; their stream has `in_all` pieces.

    At most `size` of them are under way between two ranks, `ahead` of those of the context.
    """

    series: Series
    in_all: int
    size: int
    ahead: int

    @classmethod
    def of(cls, context: Context) -> Window:
        """Cut the context's tasks into pieces."""
        most, size = context.choice.get("segment", SEGMENT), context.choice.get("window", WINDOW)
        series = Series(context, most)
        tasks, in_all = context.builder.tasks_of(context.stream), series.count
        if len(tasks) > len(context.tasks):
            in_all = number(tasks, most, context.grain)
        return cls(series, in_all, size, min(size, series.count))

    def requests(self, builder: Builder) -> tuple[int, ...]:
        """Return new requests, which pieces use in turn."""
        return self.of_each(builder, 1)[0]

    def of_each(self, builder: Builder, number: int) -> list[tuple[int, ...]]:
        """Return new requests for each of `number` ranks to which pieces go one after the other."""
        found = [builder.request() for _ in range(self.ahead * number)]
        return [tuple(found[k::number]) for k in range(number)]
