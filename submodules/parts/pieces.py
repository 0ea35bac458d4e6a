"""Cut a stream's tasks into the pieces that an algorithm moves at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

from han.tasks.context import Context
from han.tasks.graph import Task
from han.tasks.stream import Stream


class Piece(NamedTuple):
    """The `nbytes` bytes [start, stop) of the message.

    `first` and `last` tell its place in its task.
    """

    index: int  # type: ignore[assignment]  # it hides tuple.index
    task: Task
    start: int
    stop: int
    first: bool
    last: bool
    nbytes: int

    def within(self, length: int) -> int:
        """Return how many bytes of the piece lie in a block of `length` bytes.

        Pieces are cut for the largest block; shorter blocks end earlier.
        """
        return max(0, min(self.stop, length) - self.start)


Told = tuple[int, int]  # where the operations of a task start, and how many
_made = partial(tuple.__new__, Piece)  # Piece._make without its check: there may be thousands


def cut(tasks: tuple[Task, ...], size: int, grain: int, index: int = 0) -> list[Piece]:
    """Cut tasks into pieces of at most `size` bytes (whole grains), numbered from `index`.

    An empty task becomes one empty piece, because it still synchronises.
    """
    step = max(grain, size // grain * grain)
    pieces: list[Piece] = []
    for task in tasks:
        begin, end = task.start, task.stop
        for start in range(begin, end, step) or (begin,):
            stop = start + step if start + step < end else end
            first, last = start == begin, stop == end
            pieces.append(_made((index, task, start, stop, first, last, stop - start)))
            index += 1
    return pieces


def numbered(context: Context, size: int) -> list[Piece]:
    """Cut the context's tasks into pieces, numbered on from the stream's earlier ones."""
    pieces = cut(context.tasks, size, context.grain, context.stream.sequence)
    context.stream.sequence += len(pieces)
    return pieces


class Turn(Protocol):
    """A part of a task, such as a piece."""

    @property
    def task(self) -> Task:
        """The task."""

    @property
    def first(self) -> bool:
        """Whether the task begins with it."""

    @property
    def last(self) -> bool:
        """Whether the task ends with it."""


T = TypeVar("T", bound=Turn)


def in_turn(context: Context, pieces: Sequence[T]) -> Iterator[T]:
    """Yield pieces one after the other, and begin and end their tasks."""
    stream = context.stream
    for piece in pieces:
        if piece.first:
            stream.begin(piece.task)
        yield piece
        if piece.last:
            stream.end(piece.task)


def in_strides(context: Context) -> Iterator[Task]:
    """Yield tasks in turn, begun and ended here, but only those that tell operations for others.

    Operations change at constant strides over tasks of one size that follow each other. So two of
    these tasks are enough.
    """
    stream = context.stream
    for tasks in _alike(context.tasks):
        told = list[Told]()
        for k, task in enumerate(tasks):
            if len(told) == 2 and told[0][1] == told[1][1]:
                _repeat(stream, told, tasks[k:])
                break
            stream.begin(task)
            begun = len(stream)
            yield task
            told.append((begun, len(stream) - begun))
            stream.end(task)


def _repeat(stream: Stream, told: list[Told], tasks: tuple[Task, ...]) -> None:
    """Emit the operations of tasks that follow two others."""
    (first, length), (second, _) = told
    ends = stream.again(first, second, length, stream.turns(tasks))
    for task, position in zip(tasks, ends, strict=True):
        stream.end(task, position)


def _alike(tasks: tuple[Task, ...]) -> Iterator[tuple[Task, ...]]:
    """Yield tasks of one size that follow each other."""
    first = 0
    for k, (task, following) in enumerate(pairwise(tasks), 1):
        if following.start != task.stop or following.nbytes != task.nbytes:
            yield tasks[first:k]
            first = k
    yield tasks[first:]


def show_ahead(
    context: Context, pieces: Sequence[T], ahead: int, show: Callable[[T], None]
) -> Iterator[T]:
    """Yield pieces in turn; first show each, and so many of the following ones."""
    shown = 0
    for k, piece in enumerate(in_turn(context, pieces)):
        for following in pieces[shown : k + 1 + ahead]:
            if following.first and following is not piece:
                context.stream.begin(following.task)
            show(following)
        shown = k + 1 + ahead
        yield piece


def number(tasks: tuple[Task, ...], size: int, grain: int) -> int:
    """Return into how many pieces :func:`cut` cuts tasks."""
    step = max(grain, size // grain * grain)
    return sum([-((task.start - task.stop) // step) or 1 for task in tasks])
