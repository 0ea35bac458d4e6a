"""The table of submodules: a new submodule is a file and a row here.

Other packages add submodules as entry points of the group ``han.submodules``.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from han.submodules.adapt import Adapt
from han.submodules.exchange.exchange import Exchange
from han.submodules.libnbc import Libnbc
from han.submodules.mpi import Mpi
from han.submodules.null import Null
from han.submodules.sm.sm import Sm
from han.submodules.solo.solo import Solo
from han.tasks.contract import Submodule

BUILT_IN: tuple[Submodule, ...] = (Sm(), Solo(), Adapt(), Exchange(), Libnbc(), Mpi(), Null())
SUBMODULES = {part.name: part for part in BUILT_IN}


@cache
def registered() -> dict[str, Submodule]:
    """Return every submodule by name: han's own, then those of installed packages.

    A package cannot replace a submodule of han's own.
    """
    found = dict(SUBMODULES)
    for entry in entry_points(group="han.submodules"):
        found.setdefault(entry.name, entry.load()())
    return found


def submodule(name: str) -> Submodule:
    """Return the submodule of that name.

    Raises KeyError if there is none.
    """
    return SUBMODULES.get(name) or registered()[name]
