"""Fingerprints of machines: what a tuned table was measured on, and how far away that is."""

from __future__ import annotations

from dataclasses import dataclass, fields

SAME = ("cpu", "cores", "library")  # other machines differ in one of these


@dataclass(frozen=True)
class Fingerprint:
    """A machine, its MPI library and han's version, as one rank sees them.

    `transport` is how the library moves messages, as far as it tells. `quota` is the number of
    processors whose time a node's ranks may use; 0: no limit.
    """

    cpu: str
    cores: int
    library: str
    library_version: str
    transport: str = ""
    quota: float = 0.0
    mesh: bool = False
    han: str = ""

    def differences(self, other: Fingerprint) -> dict[str, tuple[object, object]]:
        """Return what differs, by name: the value here, and the other one."""
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def is_other(self, other: Fingerprint) -> bool:
        """Whether the other machine is another one, so that nothing measured there holds here."""
        return any(name in SAME for name in self.differences(other))

    @property
    def versions(self) -> str:
        """``MPICH 5.0.2, han 1.0``."""
        return f"{self.library} {self.library_version}" + (f", han {self.han}" if self.han else "")

    def distance(self, other: Fingerprint) -> str:
        """Return ``this machine``, or what differs: ``cores: 2 here, 64 there``."""
        told = [f"{n}: {a} here, {b} there" for n, (a, b) in self.differences(other).items()]
        return "; ".join(told) or "this machine"
