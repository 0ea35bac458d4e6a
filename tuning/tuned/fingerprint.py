"""Fingerprints of machines: what a tuned table was measured on, and how far away that is."""

from __future__ import annotations

from dataclasses import dataclass, fields

SAME = ("cpu", "cores", "library")  # other machines differ in one of these
UNTOLD = ("layout", "binding", "link", "wait")  # "" and 0 are unknown
ALIKE = 1.1  # largest ratio of the rates of links that count as one
# How far machines are from each other for which so much differs. Where data goes counts more than
# versions, and all versions together less than any of it. Ranks of one job may wait in several ways
# and may have different numbers of processors; they must find the same table all the same.
WEIGHTS = {
    "layout": 8, "quota": 8, "mesh": 8, "link": 8, "transport": 4, "library_version": 1, "han": 1,
    "binding": 0, "wait": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Fingerprint:
    """A machine, its MPI library and han's version, as one rank sees them.

    `transport` is how the library moves messages, as far as it tells. `quota` is the number of
    processors whose time a node's ranks may use; 0: no limit. `layout` are sockets, NUMA domains
    and L3 caches; `binding` says how many processors a rank may use: ``all``, ``one`` or
    ``several``. `link` is the rate of the rank's network adapter in Mbit/s; 0: unknown.
    `wait` is how ranks wait.
    """

    cpu: str
    cores: int
    library: str
    library_version: str
    transport: str = ""
    quota: float = 0.0
    mesh: bool = False
    han: str = ""
    layout: str = ""
    binding: str = ""
    link: float = 0.0
    wait: str = ""

    def differences(self, other: Fingerprint) -> dict[str, tuple[object, object]]:
        """Return what differs, by name: the value here, and the other one.

        What is unknown of one of both is no difference.
        """
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return {name: pair for name, pair in pairs.items() if _differ(name, *pair)}

    def is_other(self, other: Fingerprint) -> bool:
        """Whether the other machine is another one, so that nothing measured there holds here."""
        return any(name in SAME for name in self.differences(other))

    def links_as(self, other: Fingerprint) -> bool:
        """Whether what was measured between nodes of the other machine may hold between nodes here.

        Where its link is known, the one here must be known to be as fast.
        """
        return not other.link or bool(self.link and not _differ("link", self.link, other.link))

    def farness(self, other: Fingerprint) -> int:
        """Return the sum of the weights of what differs from a machine that is no other one."""
        return sum(WEIGHTS[name] for name in self.differences(other))

    @property
    def versions(self) -> str:
        """``MPICH 5.0.2, han 1.0``."""
        return f"{self.library} {self.library_version}" + (f", han {self.han}" if self.han else "")

    def distance(self, other: Fingerprint) -> str:
        """Return ``this machine``, or what differs: ``cores: 2 here, 64 there``."""
        told = [
            f"{name}: {_told(name, here)} here, {_told(name, there)} there"
            for name, (here, there) in self.differences(other).items()
        ]
        return "; ".join(told) or "this machine"


def _differ(name: str, here: object, there: object) -> bool:
    if name in UNTOLD and not (here and there):
        return False
    if name == "link":
        assert isinstance(here, float | int)
        assert isinstance(there, float | int)
        return max(here, there) > ALIKE * min(here, there)
    return here != there


def _told(name: str, value: object) -> str:
    return f"{value:g} Mbit/s" if name == "link" else str(value)
