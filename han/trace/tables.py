"""What is told of a timeline in words: its title, who came last, and a table of its streams."""

from __future__ import annotations

from collections.abc import Iterator

from han.model.arrivals import arrivals
from han.model.timeline import Share, Timeline, remarks, shape_name, shares, stream_shares

SHARES = ("overlapped", "waiting", "copying", "reducing")
HEADS = ("call", "task", "stream", "tasks", "median us", *SHARES)
LEFT = ("task", "stream")  # heads of columns of words
MOST_RANKS = 16  # in a table
MOST_SHAPES = 8  # of which a sentence says who came last


def title_of(timeline: Timeline) -> str:
    """Return the source, the communicator, where it ran, and how accurate the times are."""
    name = f" {timeline.communicator}" if timeline.communicator else ""
    return f"{timeline.source}{name}: {timeline.title}{remarks(timeline)}"


def sentences(timeline: Timeline) -> list[str]:
    """Return who came last to the calls, a sentence for each of the shapes with the most time."""
    return [one.describe() for one in arrivals(timeline)[:MOST_SHAPES]]


def rows_of(timeline: Timeline) -> Iterator[list[str]]:
    """Yield a row for each stream of each shape, then for all ranks, then for each rank."""
    for row in stream_shares(timeline):
        shape = shape_name(row.collective, row.nbytes)
        median = f"{row.median * 1e6:.2f}"
        yield [shape, row.kind, row.stream, str(row.tasks), median, *_cells(row.share)]
    found = shares(timeline)
    each = [(f"rank {rank}", share) for rank, share in found.ranks.items()][:MOST_RANKS]
    for whose, share in [("all ranks", found.overall), *each]:
        yield [whose, "", "", "", "", *_cells(share)]


def left_out(timeline: Timeline) -> str:
    """Return a remark on the ranks that the table leaves out, or ""."""
    more = len(timeline.ranks) - MOST_RANKS
    return f"... {more} more ranks, see --ranks and --json" if more > 0 else ""


def _cells(share: Share) -> list[str]:
    return [f"{getattr(share, name) * 100:.1f} %" for name in SHARES]
