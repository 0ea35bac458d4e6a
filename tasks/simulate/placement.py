"""Where ranks are: the machine's domains of each rank, and the channels of a plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from han.config.machine import MachineModel
from han.config.rails import local_ranks, rail_of
from han.model.channel_layout import SMALL
from han.model.opcodes import ATTACHED, DATA, READS, WRITES
from han.model.program import PEER, Area, Base, PeerBase
from han.tasks.equal_roles import Role
from han.tasks.plan import Plan
from han.tasks.simulate.caches import Caches

Numbers = npt.NDArray[np.int64]


class Placement:
    """The place of each rank in the machine, and the ranks that share its channels.

    ``place[k, r]`` is the domain of rank r on level k of the machine. ``homes[c][r]`` numbers the
    domains of all channels; those of a channel come one after the other.
    """

    def __init__(self, plan: Plan, machine: MachineModel, place: Sequence[Sequence[int]]) -> None:
        self.place = np.array(place, np.int32)
        self.node_of = self.place[machine.node_level]
        self.memory_of = self.place[machine.memory_level]
        self.machine, self.topology = machine, plan.topology
        links = machine.levels
        self.has_rates = any(k.copy_rate or k.reduce_rate or k.cache for k in links)
        self.caches = Caches.of(plan, machine, self.place)
        self.channels = plan.channels
        self.geometries = [g for g in plan.geometries if g is not None]
        self.homes: list[npt.NDArray[np.int32]] = []
        members: list[npt.NDArray[np.intp]] = []
        first = [0]
        for level in self.channels:
            domain = np.array(plan.topology.homes[level], np.int32)
            self.homes.append(domain + len(first) - 1)
            members.append(np.argsort(domain, kind="stable"))
            first += (first[-1] + np.cumsum(np.bincount(domain))).tolist()
        self.first_home = np.array(first, np.int32)
        self.members = np.concatenate([np.zeros(0, np.intp), *members]).astype(np.int32)

    def levels(self, rank: int, peers: Numbers) -> Numbers:
        """Return the innermost level of the machine that contains a rank and each of its peers."""
        found = np.full(len(peers), len(self.place) - 1)
        for k in reversed(range(len(self.place))):
            found[self.place[k][peers] == self.place[k][rank]] = k
        return found

    def outside(self, levels: Numbers) -> Numbers:
        """Return the first level outside nodes where levels are inside, if there is one."""
        first = min(self.machine.node_level + 1, len(self.place) - 1)
        return np.maximum(levels, first)

    def channels_of_ranks(self) -> tuple[npt.NDArray[np.int32], ...]:
        """Return each rank's domain of each channel, where domains begin, and their ranks."""
        homes = [np.zeros(0, np.int32), *self.homes]
        return np.concatenate(homes), self.first_home, self.members

    def rails(self) -> npt.NDArray[np.int32]:
        """Return each rank's rail: a node's ranks take its rails in turn."""
        local = local_ranks(self.node_of.tolist())
        return np.array([rail_of(k, self.machine.node.rails) for k in local], np.int32)

    def rates(self, role: Role) -> Numbers:
        """Return the row of the rates of each operation: 0 if its data is the rank's own.

        Else it is 1 + the level of the farthest rank in whose memory or cells an operand is. Rows
        of operations whose data is in caches follow those of all levels.
        """
        rank, code = role.rank, role.program.code
        far = np.zeros(len(code), np.int64)
        for name in DATA:
            where = np.flatnonzero(code["code"] == name)
            for ref in {*READS[name], *WRITES[name]} if len(where) else ():
                owners = self._owners(rank, code["base"][where, ref], code["off"][where, ref])
                if ATTACHED.get(name) == ref:
                    owners = code["peer"][where].astype(np.int64)
                rows = np.where(owners == rank, 0, 1 + self.levels(rank, owners))
                far[where] = np.maximum(far[where], rows)
            far[where] += self._in_caches(code[where], {*READS[name], *WRITES[name]})
        return far

    def _in_caches(self, code: npt.NDArray[np.void], refs: set[int]) -> Numbers:
        """Return what to add to the rows of operations whose data is in caches."""
        bases = code["base"][:, sorted(refs)]
        cells = (bases >= Base.CHANNEL) & (bases < PEER)
        held = np.where(cells, self.caches.hold_cells, self.caches.hold_buffers).all(axis=1)
        return np.where(held, 1 + len(self.place), 0)

    def _owners(self, rank: int, base: Numbers, offset: Numbers) -> Numbers:
        """Return the ranks in whose buffers, slots or cells some addresses are."""
        found = np.full(len(base), rank)
        for channel, geometry in enumerate(self.geometries):
            home = np.array(self.topology.home(self.channels[channel], rank))
            for area, each in ((Area.SMALL, SMALL), (Area.CELLS, geometry.ring)):
                here = base == Base.CHANNEL + len(Area) * channel + area
                found[here] = home[offset[here] // each]
        for k in np.flatnonzero(base >= PEER).tolist():
            peer = PeerBase.of(int(base[k]))
            found[k] = self.topology.home(self.channels[peer.channel], rank)[peer.slot]
        return found
