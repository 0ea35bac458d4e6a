"""Topologies: the domain of each rank on each level, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from han.common.errors import ConfigError
from han.common.units import plural
from han.model.channel_layout import MAX_CHANNELS
from han.model.splits import blocks, runs

MAX_LEVELS = MAX_CHANNELS  # each level may need a channel of its own


def number_domains(ids: Sequence[object]) -> tuple[int, ...]:
    """Number domains 0, 1, ... in the order of their first ranks."""
    names: dict[object, int] = {}
    return tuple(names.setdefault(i, len(names)) for i in ids)


@dataclass(frozen=True)
class Group:
    """The ranks that communicate on one level in one call, as one member sees them.

    `root` and `me` are positions in `ranks`; `slots` are the members' places in the channel
    that all ranks of the domain share.
    """

    level: int
    ranks: tuple[int, ...]
    slots: tuple[int, ...]
    root: int
    me: int

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.ranks)

    @property
    def leads(self) -> bool:
        """Whether this rank is the group's root."""
        return self.me == self.root


@dataclass(frozen=True, repr=False)
class Topology:
    """The levels, innermost first, and the domain of each rank on each level.

    ``domains[k][r]`` is the domain of rank r at level k. A domain is a union of domains of the
    level below; the outermost level has one domain. Ranks with the same ``memory[r]`` share memory.
    ``homes`` are the domains that own the channels: the same as `domains`, except in a topology
    made by :meth:`ordered` and the like. `attach` is true if ranks that share memory can also read
    each other's private memory (cross-memory attach). ``sockets[r]`` is the socket of rank r, below
    all levels, for trees in shared memory; by default all ranks are in one socket. ``rails[r]`` is
    the network adapter of its node that carries the messages of rank r; by default all have the
    first one.
    """

    names: tuple[str, ...]
    symbols: tuple[str, ...]
    domains: tuple[tuple[int, ...], ...]
    memory: tuple[int, ...]
    homes: tuple[tuple[int, ...], ...] = field(default=())
    attach: bool = False
    sockets: tuple[int, ...] = field(default=())
    rails: tuple[int, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "domains", tuple(number_domains(d) for d in self.domains))
        object.__setattr__(self, "memory", number_domains(self.memory))
        if not self.homes:
            object.__setattr__(self, "homes", self.domains)
        object.__setattr__(self, "sockets", number_domains(self.sockets or (0,) * self.size))
        object.__setattr__(self, "rails", self.rails or (0,) * self.size)
        self._check()

    def __repr__(self) -> str:
        sockets = f"; {len(set(self.sockets))} sockets" if self.several_sockets else ""
        return f"<Topology {self.describe()}: {' < '.join(self.names)}{sockets}>"

    def _check(self) -> None:
        if self.depth > MAX_LEVELS:
            raise ConfigError(f"{self.depth} levels, at most {MAX_LEVELS}")
        for inner, outer, name in zip(self.domains, self.domains[1:], self.names[1:], strict=False):
            if len(set(zip(inner, outer, strict=True))) != len(set(inner)):
                raise ConfigError(
                    f"level {name!r} splits groups of the level inside it; "
                    "its groups must consist of whole groups of that level"
                )
        if len(set(self.domains[-1])) > 1:
            raise ConfigError(
                f"level {self.names[-1]!r}: the outermost level must hold all ranks "
                f"(scope: all), it has {len(set(self.domains[-1]))} groups"
            )

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.memory)

    @property
    def depth(self) -> int:
        """Number of levels."""
        return len(self.names)

    @cached_property
    def _ranks(self) -> tuple[dict[int, tuple[int, ...]], ...]:
        return tuple(_members(d) for d in self.domains)

    @cached_property
    def _home_ranks(self) -> tuple[dict[int, tuple[int, ...]], ...]:
        return self._ranks if self.homes == self.domains else tuple(map(_members, self.homes))

    @cached_property
    def nodes(self) -> int:
        """Number of domains just below the outermost level: the nodes, if there are two levels."""
        return len(self._ranks[-2]) if self.depth > 1 else 1

    @cached_property
    def ppn(self) -> int:
        """Ranks of the largest domain just below the outermost level."""
        inner = self._ranks[-2] if self.depth > 1 else self._ranks[0]
        return max(len(ranks) for ranks in inner.values())

    def describe(self) -> str:
        """Return a text such as ``8 ranks on 4 nodes of up to 2``."""
        nodes = self._home_ranks[-2] if self.depth > 1 else {0: range(self.size)}
        most = f" of up to {max(map(len, nodes.values()))}" if len(nodes) > 1 else ""
        return f"{plural(self.size, 'rank')} on {plural(len(nodes), 'node')}{most}"

    def widest(self, level: int) -> int:
        """Members of the largest group at `level`."""
        return self.group_sizes[level][-1]

    @cached_property
    def group_sizes(self) -> tuple[tuple[int, ...], ...]:
        """For each level, how many members its groups have: ascending, each number once."""
        members = [Counter(self.domains[0])]
        for inner, outer in pairwise(self.domains):
            members.append(Counter(o for o, _ in set(zip(outer, inner, strict=True))))
        return tuple(tuple(sorted(set(each.values()))) for each in members)

    @cached_property
    def channel_ranks(self) -> tuple[int, ...]:
        """For each level, the number of ranks of its largest channel."""
        return tuple(max(map(len, ranks.values())) for ranks in self._home_ranks)

    @cached_property
    def rail_count(self) -> int:
        """Number of rails that ranks are bound to."""
        return len(set(self.rails))

    @cached_property
    def active(self) -> tuple[int, ...]:
        """The levels on which any group has more than one member."""
        below = [self.size] + [len(ranks) for ranks in self._ranks]
        return tuple(k for k in range(self.depth) if below[k + 1] < below[k])

    def domain(self, level: int, rank: int) -> tuple[int, ...]:
        """All ranks of `rank`'s domain at `level`, ascending."""
        return self._ranks[level][self.domains[level][rank]]

    def home(self, level: int, rank: int) -> tuple[int, ...]:
        """All ranks that share `rank`'s channel at `level`, ascending."""
        return self._home_ranks[level][self.homes[level][rank]]

    @cached_property
    def shared(self) -> tuple[bool, ...]:
        """For each level, whether the members of every domain share memory."""
        return tuple(
            all(len({self.memory[r] for r in ranks}) == 1 for ranks in level.values())
            for level in self._home_ranks
        )

    @cached_property
    def channels(self) -> tuple[bool, ...]:
        """For each level, whether its domains have channels.

        They share memory, and are not the same as those of the level below.
        """
        below = (None, *self.homes)
        pairs = zip(self.shared, self.homes, below, strict=False)
        return tuple(shared and homes != lower for shared, homes, lower in pairs)

    @cached_property
    def firsts(self) -> tuple[int, ...]:
        """For each rank the lowest rank that shares a channel with it."""
        levels = [k for k in range(self.depth) if self.channels[k]]
        return tuple(min([r, *(self.home(k, r)[0] for k in levels)]) for r in range(self.size))

    @cached_property
    def whole(self) -> int | None:
        """The innermost level at which all ranks share one channel; None if none does."""
        levels = (k for k in range(self.depth) if self.shared[k] and len(self._home_ranks[k]) == 1)
        return next(levels, None)

    def leader(self, level: int, rank: int, root: int) -> int:
        """The leader of `rank`'s domain at `level`: the root if it is there, else the lowest."""
        domain = self.domains[level]
        return root if domain[root] == domain[rank] else self.domain(level, rank)[0]

    def group(self, level: int, rank: int, root: int) -> Group | None:
        """The group of `rank` at `level`; None if it does not lead its domain one level below."""
        if level and self.leader(level - 1, rank, root) != rank:
            return None
        ranks = self._talkers(level, rank, root)
        return Group(
            level=level,
            ranks=ranks,
            slots=self.slots(level, ranks),
            root=ranks.index(self.leader(level, rank, root)),
            me=ranks.index(rank),
        )

    def slots(self, level: int, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """Return the places of ranks in the channel that they share at `level`."""
        home = self.home(level, ranks[0])
        if home is ranks or home == ranks:  # as in most topologies
            return tuple(range(len(ranks)))
        slots = self._slots[level]
        return tuple([slots[r] for r in ranks])

    def _talkers(self, level: int, rank: int, root: int) -> tuple[int, ...]:
        ranks = self.domain(level, rank)
        if not level:
            return ranks
        domain = self.domains[level][rank]
        firsts = self._firsts[level][domain]
        if self.domains[level][root] != domain or root in firsts:
            return firsts
        inner = self.domains[level - 1]
        return tuple([root if inner[r] == inner[root] else r for r in firsts])

    @cached_property
    def _firsts(self) -> tuple[dict[int, tuple[int, ...]], ...]:
        """For each level and domain, the first rank of each domain one level below."""
        found: list[dict[int, tuple[int, ...]]] = [{}]
        for inner, level in zip(self.domains, self._ranks[1:], strict=False):
            first = {d: {inner[r]: r for r in reversed(ranks)} for d, ranks in level.items()}
            found.append({d: tuple(sorted(by.values())) for d, by in first.items()})
        return tuple(found)

    @cached_property
    def _slots(self) -> tuple[dict[int, int], ...]:
        """For each level, the place of each rank among those that share its channel."""
        return tuple(
            {r: k for ranks in level.values() for k, r in enumerate(ranks)}
            for level in self._home_ranks
        )

    @cached_property
    def ordered(self) -> Topology:
        """The domains split into runs of consecutive ranks, for operations that do not commute.

        The result of a group then covers consecutive operands. Ranks keep their channels.
        """
        return self._split(runs)

    @cached_property
    def aligned(self) -> Topology:
        """The domains split into whole blocks of the canonical order, for reproducible reductions.

        A block has ranks from a multiple of a power of two on. Ranks keep their channels.
        """
        return self._split(blocks)

    @cached_property
    def flat(self) -> Topology:
        """The same ranks in one group, on the first level that has all of them.

        Ranks keep their channels.
        """
        alone, last = tuple(range(self.size)), self._first_of_all
        domains = (*(alone,) * last, *((0,) * self.size,) * (self.depth - last))
        return self if domains == self.domains else replace(self, domains=domains, homes=self.homes)

    @cached_property
    def one_network(self) -> Topology:
        """The levels up to that of the nodes; all nodes are one group.

        Without nodes of ranks that share memory the topology is flat. Ranks keep their channels.
        """
        node, last = self.node_level, self._first_of_all
        if node is None:
            return self.flat
        between = (self.domains[node],) * (last - node - 1)
        above = ((0,) * self.size,) * (self.depth - last)
        domains = (*self.domains[: node + 1], *between, *above)
        return self if domains == self.domains else replace(self, domains=domains, homes=self.homes)

    @cached_property
    def two_levels(self) -> Topology:
        """The ranks of a node in one group, and all nodes in one.

        Without nodes of ranks that share memory the topology is flat. Ranks keep their channels.
        """
        inside, view = self.node_channel, self.one_network
        if inside is None:
            return self.flat
        domains = (*(tuple(range(self.size)),) * inside, *view.domains[inside:])
        return view if domains == view.domains else replace(view, domains=domains)

    @cached_property
    def several_sockets(self) -> bool:
        """Whether ranks that share memory are on several sockets."""
        return len(set(self.sockets)) > len(set(self.memory))

    @cached_property
    def node_level(self) -> int | None:
        """The outermost level whose domains share memory inside the first level with all ranks.

        Its domains are the nodes. None: there is no such level.
        """
        return next((k for k in range(self._first_of_all - 1, -1, -1) if self.shared[k]), None)

    @cached_property
    def node_channel(self) -> int | None:
        """The innermost level on which all ranks of a node share a channel.

        None: no node has several ranks.
        """
        node = self.node_level
        if node is None or max(map(len, self._home_ranks[node].values())) == 1:
            return None
        return self.homes.index(self.homes[node])

    @cached_property
    def node_ranks(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each node, nodes in the order of their first ranks."""
        level = self.node_level if self.node_level is not None else max(0, self.depth - 2)
        return tuple(self._ranks[level].values())

    @cached_property
    def nodes_alike(self) -> bool:
        """Whether all nodes have the same numbers of ranks, in domains and sockets of one shape."""
        inside = (*self.domains[: self.node_level or 0], self.sockets)
        shapes = {
            tuple(number_domains([domains[rank] for rank in ranks]) for domains in inside)
            for ranks in self.node_ranks
        }
        return len(shapes) == 1

    @cached_property
    def units(self) -> dict[int, dict[int, tuple[int, ...]]]:
        """What the domains of each active level consist of: domains of the active level below.

        On the innermost active level these are ranks. They are in the order of their first ranks.
        """
        found: dict[int, dict[int, tuple[int, ...]]] = {}
        below: Sequence[int] = range(self.size)
        for level in self.active:
            made: dict[int, dict[int, None]] = {}
            for unit, domain in zip(below, self.domains[level], strict=True):
                made.setdefault(domain, {})[unit] = None
            found[level] = {domain: tuple(units) for domain, units in made.items()}
            below = self.domains[level]
        return found

    @cached_property
    def unit_numbers(self) -> dict[int, tuple[int, int]]:
        """The least and the largest number of units of a domain of each active level."""
        sizes = {level: [*map(len, units.values())] for level, units in self.units.items()}
        return {level: (min(of_level), max(of_level)) for level, of_level in sizes.items()}

    @property
    def _first_of_all(self) -> int:
        return self.homes.index(self.homes[-1])

    def _split(self, cut: Callable[[Sequence[int]], tuple[int, ...]]) -> Topology:
        parts = tuple(number_domains(cut(d)) for d in self.domains)
        return self if parts == self.domains else replace(self, domains=parts, homes=self.homes)


def _members(domains: Sequence[int]) -> dict[int, tuple[int, ...]]:
    ranks: dict[int, list[int]] = {}
    for rank, domain in enumerate(domains):
        ranks.setdefault(domain, []).append(rank)
    return {domain: tuple(members) for domain, members in ranks.items()}


def virtual(size: int, *sizes: int) -> Topology:
    """Return a topology of consecutive ranks, for plans without a machine.

    `sizes` are the numbers of ranks of a domain on all levels but the outermost, innermost first.
    All ranks share one memory.
    """
    names = [f"level{k}" for k in range(len(sizes))] + ["network"]
    symbols = "snabcdefgh"[: len(sizes)] + "i"
    domains = [tuple(r // k for r in range(size)) for k in sizes] + [(0,) * size]
    return Topology(tuple(names), tuple(symbols), tuple(domains), (0,) * size)
