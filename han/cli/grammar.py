"""What the lines of all commands have in common: words, older spellings, and --json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from han.cli.older import renewed, tell

JSON = "--json"


def is_size(word: str) -> bool:
    """Whether a word is a size or a range of sizes, not a name."""
    return word[:1].isdigit()


class Line(TyperCommand):
    """A command whose words name collectives and sizes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; those of the version before are told in the new spelling."""
        known = {name for one in self.params for name in (one.name, *one.opts)}
        new = renewed(args, known)
        if new != args and not ctx.resilient_parsing:
            tell(["han", str(ctx.info_name), *new])
        if "json_file" in known and ctx.allow_interspersed_args and not ctx.resilient_parsing:
            new = printing(new)
        return super().parse_args(ctx, new)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the line of usage, without brackets around several words."""
        pieces = super().collect_usage_pieces(ctx)
        return [one[1:-4] if " " in one and one.endswith("...") else one for one in pieces]


def printing(args: Sequence[str]) -> list[str]:
    """Return arguments in which --json without a file is followed by -, which prints."""
    new: list[str] = []
    for word, after in zip(args, [*args, "--"][1:], strict=True):
        new += [word, "-"] if word == JSON and not _names_file(after) else [word]
    return new


def _names_file(word: str) -> bool:
    """Whether a word names a file, not an option, a collective or a size."""
    from han.model.collectives import calls  # needs the compiled part, which may be missing

    called = word in calls() or (is_size(word) and "." not in word)
    return not word.startswith("--") and not called
