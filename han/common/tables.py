"""Tables of texts, as commands print them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Literal

WIDEST = 1 << 16  # columns: numbers and names are never cut


def shown_table(
    title: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Iterable[str] = (),
    plain: bool = False,
    styles: Iterable[str] = (),
) -> str:
    """Lay out a table of texts. The first column and those of `left` heads are left-aligned.

    `plain`: without bold heads, also where standard output is a terminal. `styles` are those of
    rows on a terminal.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for k, head in enumerate(heads):
        justify: Literal["left", "right"] = "left" if not k or head in left else "right"
        table.add_column(head, justify=justify, no_wrap=True)
    for row, style in zip_longest(rows, styles):
        table.add_row(*row, style=style)
    console = Console(width=WIDEST, force_terminal=False if plain else None, markup=False)
    with console.capture() as shown:
        console.print(table)
    return "\n".join(line.rstrip() for line in shown.get().rstrip().splitlines())
