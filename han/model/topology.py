"""Where ranks stand: plain data, one domain a rank and level, innermost level first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from han.common.errors import ConfigError
from han.model.channel_layout import MAX_CHANNELS

MAX_LEVELS = MAX_CHANNELS  # each level may need a channel of its own


def number_domains(ids: Sequence[object]) -> tuple[int, ...]:
    """Rename domain identities to 0, 1, ... in the order of their first ranks."""
    names: dict[object, int] = {}
    return tuple(names.setdefault(i, len(names)) for i in ids)


@dataclass(frozen=True)
class Group:
    """The ranks that talk at one level below one parent, as one member sees them.

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
    """The machine as han sees it.

    ``domains[k][r]`` is the domain of rank r at level k; the domains of a level are unions of
    those of the level below, and the outermost level has one domain. ``memory[r]`` names the
    memory that rank r shares. ``homes`` are the domains that own the channels: the same, but
    for a topology made by :meth:`ordered`. `attach` says that ranks that share memory can also read
    each other's own (cross-memory attach). ``sockets[r]`` is the part of the machine that rank r
    stands in below all levels, for trees that look at it; one for all where none are told.
    """

    names: tuple[str, ...]
    symbols: tuple[str, ...]
    domains: tuple[tuple[int, ...], ...]
    memory: tuple[int, ...]
    homes: tuple[tuple[int, ...], ...] = field(default=())
    attach: bool = False
    sockets: tuple[int, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "domains", tuple(number_domains(d) for d in self.domains))
        object.__setattr__(self, "memory", number_domains(self.memory))
        if not self.homes:
            object.__setattr__(self, "homes", self.domains)
        object.__setattr__(self, "sockets", number_domains(self.sockets or (0,) * self.size))
        self._check()

    def __repr__(self) -> str:
        found = len(set(self.sockets))
        sockets = f"; {found} sockets" if found > len(set(self.memory)) else ""
        return f"<Topology {self.describe()}: {' < '.join(self.names)}{sockets}>"

    def _check(self) -> None:
        if self.depth > MAX_LEVELS:
            raise ConfigError(f"{self.depth} levels, at most {MAX_LEVELS}")
        for inner, outer, name in zip(self.domains, self.domains[1:], self.names[1:], strict=False):
            if len(set(zip(inner, outer, strict=True))) != len(set(inner)):
                raise ConfigError(
                    f"level {name!r}: its groups cut through groups of the level below; "
                    "each level must be made of whole groups of the level inside it"
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
        return tuple(_members(d) for d in self.homes)

    @cached_property
    def nodes(self) -> int:
        """Number of members of the outermost level's group: the nodes, on two levels."""
        return len(self._ranks[-2]) if self.depth > 1 else 1

    @cached_property
    def ppn(self) -> int:
        """Ranks of the fullest domain just below the outermost level."""
        inner = self._ranks[-2] if self.depth > 1 else self._ranks[0]
        return max(len(ranks) for ranks in inner.values())

    def describe(self) -> str:
        """One line for people: ``8 ranks, 4 x up to 2``."""
        from han.common.units import plural

        return f"{plural(self.size, 'rank')}, {self.nodes} x up to {self.ppn}"

    def widest(self, level: int) -> int:
        """Members of the largest group at `level`."""
        if not level:
            return max(map(len, self._ranks[0].values()))
        pairs = set(zip(self.domains[level], self.domains[level - 1], strict=True))
        outer = [o for o, _ in pairs]
        return max(map(outer.count, set(outer)))

    def channel_ranks(self, level: int) -> int:
        """How many ranks share the largest channel at `level`."""
        return max(len(self.home(level, r)) for r in range(self.size))

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
    def whole(self) -> int | None:
        """The innermost level at which all ranks share one channel; None if none does."""
        levels = (k for k in range(self.depth) if self.shared[k] and len(self._home_ranks[k]) == 1)
        return next(levels, None)

    def everyone(self, level: int, rank: int, root: int) -> Group:
        """All ranks as one group at `level`, where they share a channel."""
        ranks = tuple(range(self.size))
        return Group(level, ranks, ranks, root, rank)

    def leader(self, level: int, rank: int, root: int) -> int:
        """Who speaks for `rank`'s domain at `level`: the root if it is in it, else the lowest."""
        domain = self.domains[level]
        return root if domain[root] == domain[rank] else self.domain(level, rank)[0]

    def group(self, level: int, rank: int, root: int) -> Group | None:
        """The group in which `rank` talks at `level`; None if another rank speaks for it."""
        if level and self.leader(level - 1, rank, root) != rank:
            return None
        ranks = self._talkers(level, rank, root)
        home = {r: k for k, r in enumerate(self.home(level, rank))}
        return Group(
            level=level,
            ranks=ranks,
            slots=tuple(home[r] for r in ranks),
            root=ranks.index(self.leader(level, rank, root)),
            me=ranks.index(rank),
        )

    def _talkers(self, level: int, rank: int, root: int) -> tuple[int, ...]:
        ranks = self.domain(level, rank)
        if not level:
            return ranks
        inner = self.domains[level - 1]
        first: dict[int, int] = {}
        for r in ranks:
            first.setdefault(inner[r], r)
        return tuple(self.leader(level - 1, r, root) for r in first.values())

    def ordered(self) -> Topology:
        """Split domains into runs of consecutive ranks, as reductions that do not commute need.

        A group's result then covers consecutive operands; ranks keep their channels.
        """
        runs = tuple(_runs(d) for d in self.domains)
        return self if runs == self.domains else replace(self, domains=runs, homes=self.homes)


def _members(domains: Sequence[int]) -> dict[int, tuple[int, ...]]:
    ranks: dict[int, list[int]] = {}
    for rank, domain in enumerate(domains):
        ranks.setdefault(domain, []).append(rank)
    return {domain: tuple(members) for domain, members in ranks.items()}


def _runs(domains: Sequence[int]) -> tuple[int, ...]:
    runs, previous = [-1], None
    for domain in domains:
        runs.append(runs[-1] + (domain != previous))
        previous = domain
    return tuple(runs[1:])


def virtual(size: int, *sizes: int) -> Topology:
    """Make a topology of consecutive ranks for planning without a machine.

    `sizes` are the ranks per domain of every level but the outermost, innermost first; all
    ranks share one memory.
    """
    names = [f"level{k}" for k in range(len(sizes))] + ["network"]
    symbols = "snabcdefgh"[: len(sizes)] + "i"
    domains = [tuple(r // k for r in range(size)) for k in sizes] + [(0,) * size]
    return Topology(tuple(names), tuple(symbols), tuple(domains), (0,) * size)
