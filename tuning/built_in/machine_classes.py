"""Classes of machines: what calls between nodes run there, as the simulator found it.

Nobody has tuned most machines. Among the classes for nodes of so many cores, a calibration says to
which one a machine belongs: that of the machine whose profile is nearest. Without a calibration the
kind of adapters does, which can be seen at once. Machines with long links are in classes of their
own: the first messages between nodes tell. The rows of a class decide after tuned tables and before
built-in choices. ``han classes compute`` writes the files.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from han.common.json_files import Format
from han.config.rules import When
from han.config.source import READY
from han.model.topology import Topology
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.built_in.table import UNUSED, ChoicesError, content_of
from han.tuning.measured import FARTHEST
from han.tuning.profile import UNKNOWN, Profile, profile_from, written
from han.tuning.row import Row, thresholds
from han.tuning.row_reading import CALLS, known_keys, rows_of, when_of

FOLDER = READY / "classes"
FORMAT = Format("han-machine-class", 1, "class of machines", "compute", ChoicesError)
KEYS = ("format", "version", "about", "when", "machines", "grids", "rows")
RULE = "class"  # of machines: begins the name of their rule
MEASURED = 16  # ranks on one node, up to which the built-in choices were measured
ONE_NODE = 1, 1  # nodes of a row for calls on one node; all other rows are for several


@dataclass(frozen=True, eq=False)
class MachineClass:
    """A class of machines: the nodes that belong to it, and the rows of their calls.

    `machines` are the models on which the rows were computed, with their profiles. Without rows
    the built-in choices decide.
    """

    name: str
    about: str
    when: When
    machines: tuple[tuple[str, Profile], ...]
    rows: tuple[Row, ...]
    source: str = ""

    @property
    def has_long_links(self) -> bool:
        """Whether it is one of machines whose links are long."""
        return any(profile.has_long_links for _, profile in self.machines)

    def holds(self, traits: NodeTraits) -> bool:
        """Return whether nodes with these traits belong to the class."""
        return self.when.may_hold({"rdma": traits.rdma}) and self.may_hold(traits)

    def may_hold(self, traits: NodeTraits) -> bool:
        """Return whether nodes of so many cores may belong to the class, by their network."""
        alike = self.has_long_links == traits.has_long_links
        return alike and self.when.may_hold({"cores": traits.cores})


CALIBRATED, SEEN = "by calibration", "by what the system tells"


class Standing(NamedTuple):
    """The class of some nodes, and the machine of it that is nearest to them.

    `distance` is how many times values differ. `shared` names these values. `how` says from what
    the class follows.
    """

    found: MachineClass | None = None
    machine: str = ""
    distance: float = 0.0
    shared: tuple[str, ...] = ()
    how: str = SEEN

    @property
    def calibrated(self) -> bool:
        """Whether the class follows from a calibration, not from what can be seen at once."""
        return self.how == CALIBRATED


@lru_cache(64)
def _on(
    found: MachineClass, nodes: int, ppn: int, ranks: int, names: tuple[str, ...]
) -> tuple[tuple[Row, ...], tuple[int, ...]]:
    """Return the rows that may serve calls of some ranks, and the sizes at which they end.

    They are found once for all communicators of one shape.
    """
    here = {"nodes": nodes, "ppn": ppn, "ranks": ranks}
    rows = (row for row in found.rows if row.when.levels in ((), names))
    own = tuple(
        row
        for row in rows
        if row.when.may_hold(here) and (row.when.ends("nodes") == ONE_NODE) == (nodes == 1)
    )
    return own, thresholds(own, ranks)


def parse(content: bytes, name: str, place: str) -> MachineClass:
    """Return the class of a file's content; `place` names it. Raises ChoicesError."""
    record = FORMAT.record(content, place)
    try:
        known_keys(record, KEYS, "", ("when", "machines", "grids", "rows"))
        machines = _machines_of(record["machines"])
        if not isinstance(record["grids"], dict):
            raise ValueError("grids: expected a grid for each call")
        when, rows = when_of(record["when"], CALLS), rows_of(record["rows"], CALLS)
    except ValueError as error:
        raise ChoicesError(f"{place}: {error}") from None
    named = tuple(replace(row, rule=f"{RULE} {name}", source=place) for row in rows)
    return MachineClass(name, str(record.get("about", "")), when, machines, named, place)


def _machines_of(record: object) -> tuple[tuple[str, Profile], ...]:
    if not isinstance(record, dict):
        raise ValueError("machines: expected the profile of each machine")
    return tuple((name, profile_from(one, f"machines.{name}")) for name, one in record.items())


def document(found: MachineClass, grids: dict[str, Any], rows: Iterable[dict[str, Any]]) -> Any:
    """Return a class as files have it; `grids` by collective are what rows were computed for."""
    return {
        "format": FORMAT.name,
        "version": FORMAT.version,
        "about": found.about,
        "when": found.when.document(),
        "machines": {name: written(profile) for name, profile in found.machines},
        "grids": grids,
        "rows": [*rows],
    }


# ---- those that come with han, read once in a process -------------------------------------------


@cache
def contents() -> tuple[tuple[Path, bytes], ...]:
    """Return the files as this process first found them: the ranks have agreed on them."""
    return tuple((file, _content(file)) for file in sorted(FOLDER.glob("*.json")))


def _content(file: Path) -> bytes:
    try:
        return content_of(file)
    except ChoicesError:
        return b""  # damaged, as a warning will say


@cache
def digest() -> str:
    """Return what stands for all classes: ranks with the same one choose alike."""
    found = hashlib.blake2b(digest_size=16)
    for file, content in contents():
        found.update(file.name.encode() + b"\0" + content)
    return found.hexdigest()


@cache
def shipped() -> tuple[MachineClass, ...]:
    """Return the classes; without those whose files cannot be used, after a warning."""
    found = (_parsed(file, content) for file, content in contents())
    return tuple(one for one in found if one is not None)


def _parsed(file: Path, content: bytes) -> MachineClass | None:
    try:
        return parse(content, file.stem, str(file))
    except ChoicesError as error:
        warnings.warn(f"class of machines: {error}; {UNUSED}", UserWarning, stacklevel=2)
        return None


def class_of(traits: NodeTraits) -> MachineClass | None:
    """Return the class of machines to which nodes belong; None if that is none."""
    return standing(traits).found


def standing(traits: NodeTraits) -> Standing:
    """Return to which class of machines nodes belong, and how far they are from its machines."""
    if not traits.cores:
        return Standing()
    profile = traits.profile._replace(cores=traits.cores)
    if profile.has_network:
        found = _nearest(tuple(one for one in shipped() if one.may_hold(traits)), profile)
        if found.distance <= FARTHEST:
            return found._replace(how=CALIBRATED)
    found = _nearest(tuple(one for one in shipped() if one.holds(traits)), profile)
    if not traits.has_long_links:
        return found
    return found._replace(how=f"by messages between nodes, {traits.link_latency / 1e3:.3g} ms each")


@lru_cache(64)
def _nearest(classes: tuple[MachineClass, ...], profile: Profile) -> Standing:
    """Return the class of the machine that is nearest to a profile."""
    every = [
        Standing(one, name, profile.distance(other), tuple(profile.shared(other)))
        for one in classes
        for name, other in one.machines or (("", UNKNOWN),)
    ]
    return min(every, key=lambda standing: standing.distance, default=Standing())


def class_rows(topology: Topology, traits: NodeTraits) -> tuple[Row, ...]:
    """Return the rows of the class of machines for calls of ranks of a topology.

    On one node they are for more ranks than built-in choices were measured with. Ranks that share
    memory are on one node, so no row serves a configuration that gives them several.
    """
    return _here(topology, traits)[0]


def class_thresholds(topology: Topology, traits: NodeTraits) -> tuple[int, ...]:
    """Return the sizes from which on another choice of the class may hold."""
    return _here(topology, traits)[1]


def _here(topology: Topology, traits: NodeTraits) -> tuple[tuple[Row, ...], tuple[int, ...]]:
    many = topology.nodes == 1 and topology.ppn > MEASURED
    found = class_of(traits) if many or topology.whole is None else None
    if found is None:
        return (), ()
    return _on(found, topology.nodes, topology.ppn, topology.size, topology.names)
