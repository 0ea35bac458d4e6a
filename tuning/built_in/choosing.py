"""Built-in choices, from what all ranks know: a row of the table for the segment and each level."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

from han.model.channel_layout import PAGE
from han.model.facts import COMPOSITIONS, Facts
from han.model.topology import Topology
from han.submodules.parts.factors import primes
from han.submodules.registry import submodule
from han.tasks.choice import Choice, LevelChoice
from han.tasks.compositions import TREE, as_called, composition
from han.tasks.lanes import inner_levels, outer_levels, sizes_at
from han.tasks.outline import levels_of
from han.tasks.signature import Signature
from han.tuning.built_in.table import ChoiceTable, shipped
from han.tuning.profile import UNKNOWN, Profile
from han.tuning.row import Row

BUILT_IN = "built-in"  # the name of their rule


class NodeTraits(NamedTuple):
    """Facts about nodes. The first two are true if they hold on at least one node."""

    oversubscribed: bool = False  # ranks outnumber processors
    mesh: bool = False  # cache lines move slowly from core to core
    cores: int = 0  # of the node that has fewest; 0: not known
    rdma: bool = False  # all nodes have adapters that do remote DMA
    profile: Profile = UNKNOWN  # what else is known of the machine, as rank 0 knows it
    latency: float = 0.0  # us of rank 0's first messages to another node; 0: links are not long

    @property
    def link_latency(self) -> float:
        """Microseconds of a message between nodes: by a calibration, or by the first messages."""
        return self.profile.latency or self.latency

    @property
    def has_long_links(self) -> bool:
        """Whether links between nodes are long, as far as it is known."""
        return Profile(latency=self.link_latency).has_long_links


class Allowed(NamedTuple):
    """What a call may do on the levels of its topology, whatever rows prefer."""

    cells: bool  # its elements fit into cells
    attach: bool  # ranks that share memory can attach each other's
    mapped: tuple[bool, ...]  # for each level: ranks can read all buffers where these are


class Rowed(NamedTuple):
    """A built-in choice, and the names of the rows that decided: (level or segment, row)."""

    choice: Choice
    rows: tuple[tuple[str, str], ...]


class RowSearch:
    """A call of one composition, for which rows are searched."""

    def __init__(
        self, signature: Signature, topology: Topology, name: str, allowed: Allowed,
        traits: NodeTraits, table: ChoiceTable | None = None,
    ) -> None:  # fmt: skip
        self.table = shipped() if table is None else table
        self.signature, self.name, self.allowed = signature, name, allowed
        self.view = as_called(topology, signature, name)
        self.active = levels_of(self.view, signature)
        self.traits = traits
        self.size = topology.nodes, topology.ppn
        self.rows: list[tuple[str, str]] = []
        self._same = self._facts_of_all_levels()
        self._known: dict[tuple[object, ...], tuple[str, LevelChoice]] = {}

    def _facts_of_all_levels(self) -> tuple[int, ...]:
        """The facts that are the same on all levels, in their order."""
        signature, view = self.signature, self.view
        sockets = signature.reduces and signature.commutative and view.several_sockets
        return (
            *self.size,
            signature.root,
            view.rail_count,
            self.traits.cores,
            signature.commutative,
            signature.native,
            self.allowed.attach,
            signature.uneven,
            signature.in_place,
            self.traits.mesh,
            self.traits.rdma,
            self.traits.oversubscribed,
            sockets,
            signature.canonical,
            signature.heavy,
            COMPOSITIONS.index(self.name) if self.name in COMPOSITIONS else 0,
        )

    def facts(
        self, ranks: int, nbytes: int, outermost: bool, whole: bool = False, mapped: bool = False
    ) -> Facts:
        """Return the facts of a task of `nbytes` bytes among so many ranks."""
        total = nbytes * ranks * (ranks if self.signature.by_blocks else 1)
        share, link = nbytes // (ranks or 1), nbytes // (ranks - 1 if ranks > 3 else 2)
        sizes = nbytes, share, link, total
        found = *sizes, ranks, largest_prime(ranks), *self._same, mapped, outermost, whole
        return tuple.__new__(Facts, found)  # as _make does, without its check

    def choice(self, rule: str) -> Rowed:
        """Return the choice; levels on which the call does not communicate run nothing."""
        sides = bool(composition(self.name).sides) and not self.signature.by_blocks
        in_sides = sides and bool(inner_levels(self.view) and outer_levels(self.view))
        segment = None if in_sides and self.name == "nap" else self._segment()
        sections = self._sections()
        levels = [IDLE[section] for section in sections]
        for level in self.active:
            if self.signature.own:
                levels[level] = self._paired(level)
            elif self.name == "ring":
                levels[level] = self._ringed(level, sections[level])
            elif in_sides:
                levels[level] = self._composed(level)
            else:
                levels[level] = self._level(level, sections[level], segment)
        choice = Choice(tuple(levels), segment, composition=self.name, rule=rule)
        return Rowed(choice, tuple(self.rows))

    def composition(self) -> Row | None:
        """Return the row that decides on the composition; None: a tree."""
        facts = self.facts(self.view.nodes, self.signature.nbytes, True)
        row = self.table.section("compositions").find(self.signature.collective, facts)
        return None if row is None or row.composition == TREE else row

    def find(self, section: str, where: str, facts: Facts) -> Row | None:
        """Return the row that decides, and remember its name."""
        row = self.table.section(section).find(self.signature.collective, facts)
        if row is not None:
            self.rows.append((where, row.name))
        return row

    def _segment(self) -> int | None:
        if len(self.active) < 2 or self.signature.by_blocks:
            return None
        facts = self.facts(self.view.nodes, self.signature.nbytes, True)
        row = self.find("segments", "segment", facts)
        return None if row is None else row.segment_for(facts)

    def _sections(self) -> list[str]:
        """Return the section of the table for each level."""
        if self.signature.own:
            return ["pairs"] * self.view.depth
        if self.signature.by_blocks:
            return ["blocks" if self.view.whole is not None else "bundles"] * self.view.depth
        cells = self.allowed.cells
        return ["cells" if cells and shared else "messages" for shared in self.view.shared]

    def _level(self, level: int, section: str, segment: int | None) -> LevelChoice:
        view, nbytes = self.view, self.signature.nbytes
        outermost = level == self.active[-1]
        messages = section == "messages" or (section == "bundles" and outermost)
        ranks = view.widest(level) if messages else view.channel_ranks[level]
        key = section, ranks, outermost, self.allowed.mapped[level]
        found = self._known.get(key)
        if found is not None:  # a level inside this one is alike
            self.rows.append((view.names[level], found[0]))
            return found[1]
        whole = outermost and segment is None
        facts = self.facts(ranks, nbytes, outermost, whole, self.allowed.mapped[level])
        piece = nbytes if segment is None or segment > nbytes else segment
        made = self._used(section, level, facts, piece)
        self._known[key] = self.rows[-1][1], made
        return made

    def _composed(self, level: int) -> LevelChoice:
        """Choose for a level of nap or lanes; between nodes, a lane has its share.

        Of nap the outermost level inside nodes takes part as a whole.
        """
        inner, nbytes = inner_levels(self.view), self.signature.nbytes
        outermost, between = level == self.active[-1], level not in inner
        if between and self.name == "lanes":
            lanes = prod(sizes_at(self.view, each)[0] for each in inner)
            nbytes = max(1, self.signature.count // lanes) * self.signature.element
        nap = self.name == "nap"
        section = "messages" if between and not (nap and outermost) else self.name
        whole = nap and level == inner[-1]
        facts = self.facts(self.view.widest(level), nbytes, outermost, whole)
        return self._used(section, level, facts, nbytes)

    def _paired(self, level: int) -> LevelChoice:
        """Choose for blocks whose sizes only two ranks know."""
        if not self.allowed.attach or not self.view.shared[level]:
            return LevelChoice("bundle", "linear")
        ranks, nbytes = self.view.channel_ranks[level], self.signature.nbytes
        facts = self.facts(ranks, nbytes, level == self.active[-1])
        return self._used("pairs", level, facts, nbytes)

    def _ringed(self, level: int, section: str) -> LevelChoice:
        """Choose for a level of a ring; pieces go between nodes on the outermost one."""
        outermost = level == self.active[-1]
        if outermost or section == "cells":
            section = "ring"
        facts = self.facts(self.view.widest(level), self.signature.nbytes, outermost)
        return self._used(section, level, facts, self.signature.nbytes)

    def _used(self, section: str, level: int, facts: Facts, piece: int) -> LevelChoice:
        row = self.find(section, self.view.names[level], facts)
        assert row is not None, "safe rows serve all calls"
        return row.level_for(facts.bytes, piece, facts.ranks)


def choose(
    signature: Signature, topology: Topology, traits: NodeTraits, name: str = TREE
) -> Choice:
    """Make the built-in choice for a call, of the composition `name`."""
    return rowed(signature, topology, traits, name).choice


def rowed(
    signature: Signature, topology: Topology, traits: NodeTraits, name: str = TREE,
    table: ChoiceTable | None = None,
) -> Rowed:  # fmt: skip
    """Return the built-in choice and the rows that decided; None: of the table that is shipped.

    In place, or by elements that fill no cell, no rank reads a peer's memory.
    """
    reads = signature.element <= PAGE and not signature.in_place
    mapped: tuple[bool, ...] = (False,) * topology.depth
    if reads and signature.mapped:
        solo, view = submodule("solo"), as_called(topology, signature, name)
        mapped = tuple(solo.reads_mapped(view, signature, k) for k in range(view.depth))
    allowed = Allowed(signature.element <= PAGE, topology.attach and reads, mapped)
    return RowSearch(signature, topology, name, allowed, traits, table).choice(BUILT_IN)


def composed(signature: Signature, topology: Topology, traits: NodeTraits) -> Rowed | None:
    """Return the built-in choice of a composition other than a tree, between nodes; or None."""
    if topology.whole is not None:
        return None
    row = RowSearch(signature, topology, TREE, Allowed(True, False, ()), traits).composition()
    if row is None:
        return None
    choice, rows = rowed(signature, topology, traits, row.composition)
    return Rowed(choice, (("composition", row.name), *rows))


def facts_of_call(signature: Signature, topology: Topology, traits: NodeTraits) -> Facts:
    """Return the facts of a call as a whole, among all ranks.

    `mapped` is that all buffers of all ranks are shared arrays.
    """
    case = RowSearch(signature, topology, TREE, Allowed(True, topology.attach, ()), traits)
    return case.facts(topology.size, signature.nbytes, True, mapped=signature.mapped)


# What is named for levels on which a call does not communicate.
IDLE = {
    "cells": LevelChoice("sm", "flat"),
    "messages": LevelChoice("adapt", "binomial"),
    "blocks": LevelChoice("sm", "blocks"),
    "bundles": LevelChoice("sm", "blocks"),
    "pairs": LevelChoice("sm", "pairs"),
}


@lru_cache(maxsize=256)
def largest_prime(number: int) -> int:
    """Return the largest prime factor; 1 for the number 1."""
    return max(primes(number), default=1)
