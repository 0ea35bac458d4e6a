"""Reductions of ``adapt``: a rank combines its children's pieces with its own operand."""

from __future__ import annotations

from dataclasses import dataclass

from han.model.channel_layout import lines
from han.model.program import Ref
from han.submodules.adapt.trees import Child, Kin, kin
from han.submodules.adapt.window import Window
from han.submodules.parts.series import Row
from han.tasks.context import Context
from han.tasks.stream import Stream

Places = tuple[Ref, Ref]  # where this rank combines, and where its own operand is


def reduce(context: Context) -> None:
    """Reduce towards the group's root along the tree."""
    window, tree = Window.of(context), kin(context)
    inbox = _Inbox.of(context, tree, window)
    places = _place_of_result(context, tree)
    combine = _as_they_arrive if inbox.arrival else _in_order
    for number in range(len(tree.children)):
        window.series.emit(inbox.post(number, 0), 0, window.ahead)
    rows = [*combine(inbox, *places), *_pass_on(context, tree, inbox, places)]
    window.series.emit(rows, 0, window.series.count + window.ahead)


def _pass_on(context: Context, tree: Kin, inbox: _Inbox, places: Places) -> list[Row]:
    """Send the result to the parent, if there is one; a task ends when it has been sent."""
    stream, window = context.stream, inbox.window
    rows: list[Row] = [(stream, "label", 0)]
    rows += [(stream, "follow", 0, branch, branch.index) for branch in inbox.branches]
    if tree.parent is None:
        return [*rows, (stream, "end", 0)]
    at, requests = places[0 if tree.children else 1], window.requests(context.builder)
    return [
        *rows,
        (stream, "test", -window.ahead, requests),
        (stream, "end", -window.ahead),
        (stream, "isend", 0, at, context.group.ranks[tree.parent], requests),
    ]


def _place_of_result(context: Context, tree: Kin) -> Places:
    """Return where this rank combines, and where its own operand is.

    A rank with a parent and children combines in the accumulator, as its send buffer is the user's.
    """
    own = context.source
    if tree.parent is None:
        return context.result, own
    return (context.builder.accumulator() if tree.children else own), own


def _in_order(inbox: _Inbox, dst: Ref, own: Ref) -> list[Row]:
    """Combine the children's operands in a fixed order."""
    before = inbox.stream(0)
    rows: list[Row] = [(before, "label", 0), (before, "begin", 0)]
    for k, child in enumerate(inbox.children):
        branch, so_far = inbox.stream(k), dst if k else own
        rows += inbox.take(k, before)
        arrived = inbox.cells[k]
        operands = (arrived, so_far) if child.before else (so_far, arrived)
        rows.append((branch, "reduce", 0, dst, *operands))
        rows += inbox.post(k, inbox.window.ahead)
        before = branch
    return rows


def _as_they_arrive(inbox: _Inbox, dst: Ref, own: Ref) -> list[Row]:
    """Combine every child's operand with the result as soon as it is there."""
    context = inbox.context
    first = context.builder.branch(context.stream, len(inbox.branches))  # copies the own operand
    rows: list[Row] = [(first, "label", 0), (first, "begin", 0), (first, "copy", 0, dst, own)]
    for k in range(len(inbox.children)):
        rows += inbox.take(k, first)
        rows.append((inbox.stream(k), "accumulate", 0, dst, inbox.cells[k]))
        rows += inbox.post(k, inbox.window.ahead)
    return rows


@dataclass(frozen=True)
class _Inbox:
    """Receive buffers and requests for pieces from the children: a window of each per child.

    Where branches help, each child has one, which takes its pieces and combines them. Children
    share branches if there are more of them.
    """

    context: Context
    children: tuple[Child, ...]
    window: Window
    branches: tuple[Stream, ...]
    arrival: bool
    cells: list[tuple[Ref, ...]]  # by child
    requests: list[tuple[int, ...]]

    @classmethod
    def of(cls, context: Context, tree: Kin, window: Window) -> _Inbox:
        """Choose branches for a stream, the same for all of its tasks."""
        arrival = ("order", "arrival") in context.choice.parameters
        builder, stream, children = context.builder, context.stream, tree.children
        most = builder.most_branches - arrival  # one more makes the first copy
        useful = most > 1 and len(children) > 1 and (arrival or window.in_all > 1)
        branches = [builder.branch(stream, k) for k in range(min(len(children), most) * useful)]
        found = cls(context, children, window, tuple(branches), arrival and useful, [], [])
        size = lines(window.series.most)
        for k in range(len(children)):  # a rank with several lanes has several such trees
            room = found.stream(k).room(window.ahead * size, k)
            found.cells.append(tuple([room + turn * size for turn in range(window.ahead)]))
            found.requests.append(window.requests(builder))
        return found

    def stream(self, number: int) -> Stream:
        """Return the stream that takes the pieces of a child."""
        branches = self.branches
        return branches[number % len(branches)] if branches else self.context.stream

    def post(self, number: int, ahead: int) -> list[Row]:
        """Post a receive of a piece from a child, into the buffer of one that has been combined."""
        stream, rank = self.stream(number), self.context.group.ranks[self.children[number].member]
        return [
            (stream, "label", ahead),
            (stream, "irecv", ahead, self.cells[number], rank, self.requests[number]),
        ]

    def take(self, number: int, after: Stream) -> list[Row]:
        """Wait for a child's piece, and for what another stream does before it is combined."""
        stream = self.stream(number)
        rows: list[Row] = [(stream, "label", 0), (stream, "test", 0, self.requests[number])]
        return [*rows, *[(stream, "follow", 0, after, after.index)] * (after is not stream)]
