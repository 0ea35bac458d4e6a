"""Spellings of the version before. They work in this version, which tells the new ones."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from han.cli.endings import is_first

OF_CALLS = ("--collective", "--collectives", "--sizes", "--bytes")  # now words, in this order
RENAMED = {"--gantt": "--plot", "--calls": "--iterations"}  # where the new one is known
NOTE = "Note: an old spelling, which the next version will not take; write:"


def tell(line: Sequence[str]) -> None:
    """Print the new spelling of a command line on rank 0."""
    if is_first():
        print(NOTE, shlex.join(line), file=sys.stderr)


def renewed(args: Sequence[str], known: set[Any]) -> list[str]:
    """Return arguments in the new spelling; `known` are the parameters of the command."""
    new = list(args)
    if "words" in known:
        words = [taken(new, name) for name in OF_CALLS if name not in known]
        at = next((i for i, word in enumerate(new) if word.startswith("-")), len(new))
        new[at:at] = [word for word in words if word is not None]
    if "nodes" in known and "mesh" in known:
        new = _shaped(new)
    for old, name in RENAMED.items():
        if name in known and old not in known:
            new = [re.sub(rf"^{old}(?==|$)", name, word) for word in new]
    if new[:1] == ["quality"] and "quality" in known and Path(" ".join(new[1:2])).suffix:
        new += ["--plot", new.pop(1)]
    return new


def taken(args: list[str], option: str) -> str | None:
    """Remove an option from arguments and return its value, or None if it is not among them."""
    for i, word in enumerate(args):
        name, equals, value = word.partition("=")
        if name == option and (equals or i + 1 < len(args)):
            found = value if equals else args[i + 1]
            del args[i : i + (1 if equals else 2)]
            return found
    return None


def _shaped(args: list[str]) -> list[str]:
    """Return arguments with the nodes and ranks a node of --ranks and --ppn."""
    new, given = list(args), [word.partition("=")[0] for word in args]
    told, each = taken(new, "--ranks"), taken(new, "--ppn")
    numbers = [text for text in (told, each) if text is not None]
    if told is None or "--nodes" in given or not all(n.isdecimal() and int(n) for n in numbers):
        return args
    ranks, ppn = int(told), int(each or told)
    shape = ["--nodes", str(-(-ranks // ppn)), "--ppn", str(ppn)]
    if ranks <= ppn:
        shape = ["--ppn", told]
    elif ranks % ppn:
        shape += ["--ranks", told]
    at = min(given.index(name) for name in ("--ranks", "--ppn") if name in given)
    return [*new[:at], *shape, *new[at:]]
