"""The table of submodules: a new submodule is a file and a row here.

Other packages add submodules as entry points of the group ``han.submodules``, a program adds its
own with ``register``. A submodule is imported when it is first asked for.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from han.model.topology import Topology
from han.tasks.choice import Choice
from han.tasks.contract import Submodule
from han.tasks.plan import Plan, make_plan
from han.tasks.signature import Signature

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "han.submodules"
ROWS = {  # name: module and class
    "sm": ("han.submodules.sm.sm", "Sm"),
    "solo": ("han.submodules.solo.solo", "Solo"),
    "adapt": ("han.submodules.adapt.adapt", "Adapt"),
    "exchange": ("han.submodules.exchange.exchange", "Exchange"),
    "nap": ("han.submodules.nap", "Nap"),
    "ring": ("han.submodules.ring", "Ring"),
    "bundle": ("han.submodules.bundle.bundle", "Bundle"),
    "scan": ("han.submodules.scan", "Scan"),
    "libnbc": ("han.submodules.mpi", "Libnbc"),
    "mpi": ("han.submodules.mpi", "Mpi"),
    "null": ("han.submodules.null", "Null"),
}
_imported: dict[str, Submodule] = {}


def register(part: Submodule) -> None:
    """Add a submodule, or put it in place of the one of its name, in this process.

    All ranks of a program must register the same, before they make a ``han.Comm``. Raises
    ValueError if it would replace a submodule of han and lacks one of its algorithms, which the
    built-in choices name.
    """
    if part.name in ROWS:
        lost = [name for name in _import(part.name).algorithms if name not in part.algorithms]
        if lost:
            raise ValueError(f"submodule {part.name!r} lacks the algorithm(s) {', '.join(lost)}")
    _imported[part.name] = part


def submodule(name: str) -> Submodule:
    """Return the submodule of that name; raises KeyError if there is none."""
    part = _imported.get(name)
    if part is None:
        part = _imported[name] = _import(name)
    return part


def plan_of_choice(topology: Topology, signature: Signature, choice: Choice, memory: int) -> Plan:
    """Plan a call with a choice; channels hold about `memory` bytes."""
    parts = tuple(submodule(level.submodule) for level in choice.levels)
    return make_plan(topology, signature, choice, memory, parts)


def registered() -> dict[str, Submodule]:
    """Return every submodule by name: han's own, then those of programs and installed packages."""
    return {name: submodule(name) for name in (*ROWS, *_imported, *_installed())}


def is_own(name: str) -> bool:
    """Whether the submodule of that name is han's, not one of a program or of another package."""
    part = _imported.get(name)
    return name in ROWS and (part is None or type(part).__module__ == ROWS[name][0])


def others() -> tuple[Submodule, ...]:
    """Return the submodules of the program and of other packages that this process uses."""
    return tuple(part for name, part in _imported.items() if not is_own(name))


def _import(name: str) -> Submodule:
    if name in ROWS:
        module, kind = ROWS[name]
        part: Submodule = getattr(import_module(module), kind)()
        return part
    other: Submodule = _installed()[name].load()()
    return other


@cache
def _installed() -> dict[str, EntryPoint]:
    """Return the entry points of installed packages by name; the look takes milliseconds.

    Of several entry points of one name the first counts.
    """
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in reversed(list(entry_points(group=GROUP)))}
