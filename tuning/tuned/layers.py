"""Several tuned tables one after the other: where the first one says nothing, the next may."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from han.config.rules import Use
from han.model.topology import Topology
from han.tasks.signature import Signature
from han.tuning.tuned.fingerprint import Fingerprint
from han.tuning.tuned.rows import FoundRow, RowTable
from han.tuning.tuned.table import Found, TunedTable


@dataclass(frozen=True)
class Layers:
    """Two tables or more, the one that decides first comes first.

    `source`, `size` and `unit` are of that one.
    """

    tables: tuple[TunedTable | RowTable, ...]

    @property
    def source(self) -> str:
        """The file of the first table."""
        return self.tables[0].source

    @property
    def digest(self) -> str:
        """What stands for the content: ranks with the same one decide alike."""
        return " ".join(table.digest for table in self.tables)

    @property
    def unit(self) -> str:
        """What `size` counts."""
        return self.tables[0].unit

    @property
    def size(self) -> int:
        """The number of points or rows of the first table."""
        return self.tables[0].size

    def about(self, here: Fingerprint) -> str:
        """Return how far the machine of the first table is from this one, and what comes next."""
        first, *others = self.tables
        then = [f"then {table.source} ({table.about(here)})" for table in others]
        return "; ".join([first.about(here), *then])

    def find(
        self, signature: Signature, topology: Topology, traits: tuple[bool, bool]
    ) -> Found | FoundRow | None:
        """Return what decides for a call: that of the first table that has something for it."""
        for table in self.tables:
            found = table.find(signature, topology, traits)
            if found is not None:
                return found
        return None

    def uses(self, topology: Topology) -> list[Use]:
        """Return what calls of ranks of a topology may run."""
        return [use for table in self.tables for use in table.uses(topology)]

    def thresholds(self, topology: Topology) -> tuple[int, ...]:
        """Return the sizes from which on another choice may hold for ranks of a topology."""
        return tuple(sorted({n for table in self.tables for n in table.thresholds(topology)}))

    def calls_of(self, topology: Topology) -> list[str]:
        """Return the collectives that the tables are for on ranks of a topology."""
        return list(
            dict.fromkeys(call for table in self.tables for call in table.calls_of(topology))
        )


Tables = TunedTable | RowTable | Layers
"""What decides for a communicator."""


def layered(tables: Iterable[TunedTable | RowTable]) -> Tables | None:
    """Return the table that stands for several, the first of which decides first; None: of none."""
    found = tuple(tables)
    if len(found) > 1:
        return Layers(found)
    return found[0] if found else None
