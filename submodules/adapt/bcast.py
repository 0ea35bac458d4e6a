"""Broadcasts of ``adapt``: a rank forwards each piece when it has arrived."""

from __future__ import annotations

from han.submodules.adapt.trees import kin
from han.submodules.adapt.window import Window
from han.submodules.parts.series import Row
from han.tasks.context import Context
from han.tasks.stream import Stream


def bcast(context: Context) -> None:
    """Broadcast from the group's root along the tree."""
    parent, kids = kin(context)
    children = [context.group.ranks[child.member] for child in kids]
    stream, window = context.stream, Window.of(context)
    receives = () if parent is None else window.requests(context.builder)
    rows: list[Row] = [(stream, "label", 0)]
    rows.append((stream, "begin", 0) if parent is None else (stream, "test", 0, receives))
    shares = _shares(context, children, window)
    rows += _forward(context, shares, window)
    rows.append((stream, "end", 0))
    if parent is not None:
        rows += _receive_ahead(context, context.group.ranks[parent], window, receives)
    window.series.emit(rows, -window.ahead, window.series.count + window.ahead)
    if context.builder.plan.lockstep:
        for branch, _ in shares:
            stream.follow(branch)
        stream.end(context.tasks[-1])


def _receive_ahead(
    context: Context, parent: int, window: Window, requests: tuple[int, ...]
) -> list[Row]:
    """Post the receive of a later piece; other streams may still read that part of the buffer."""
    stream, ahead = context.stream, window.ahead
    return [
        (stream, "begin", ahead),
        (stream, "irecv", ahead, context.result, parent, requests),
    ]


def _shares(
    context: Context, children: list[int], window: Window
) -> list[tuple[Stream, list[int]]]:
    """Return the streams that send to the children, and which child has which.

    Where more pieces are sent than fit into a window, each child has a branch, so that those with
    free windows get their pieces.
    """
    builder, stream = context.builder, context.stream
    branches = min(len(children), builder.most_branches)
    if branches < 2 or window.in_all <= window.size:
        return [(stream, children)]
    return [(builder.branch(stream, k), children[k::branches]) for k in range(branches)]


def _forward(context: Context, shares: list[tuple[Stream, list[int]]], window: Window) -> list[Row]:
    """Send a piece to all children, each after the send of a window before."""
    stream, rows, last = context.stream, list[Row](), context.stream
    targets = [(branch, rank) for branch, ranks in shares for rank in ranks]
    each = window.of_each(context.builder, len(targets))
    for (branch, rank), requests in zip(targets, each, strict=True):
        if branch is not last:
            rows += [(branch, "label", 0), (branch, "follow", 0, stream, stream.index)]
        last = branch
        rows.append((branch, "test", -window.ahead, requests))
        rows.append((branch, "isend", 0, context.source, rank, requests))
    return rows
