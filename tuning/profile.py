"""Profiles: what is known of a machine in numbers, and how far one machine is from another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from han.common.suggest import unknown
from han.tuning.measured import LONG_LINK

if TYPE_CHECKING:
    from han.config.machine import MachineModel

TIMES = ("latency", "overhead", "flag")  # in microseconds; the other values but cores are in MB/s
NETWORK = ("latency", "overhead", "bandwidth", "injection")  # of messages between nodes
# What tells machines from each other. The rest describes them to the simulator.
TELLING = ("cores", "latency", "bandwidth", "injection", "flag", "copy", "reduce")
LEAST, MOST = 1e-6, 1e12  # of a value: the distance of others may overflow


class Profile(NamedTuple):
    """Times in microseconds and rates in MB/s; 0 where nothing is known.

    `latency` is that of a small message between nodes, with what it takes of both processors, and
    `overhead` what it takes of one. `bandwidth` is that of one pair of ranks, `injection` that of
    all ranks of a node in one direction. `flag` is the hand-over of a cache line. A rank copies and
    reduces what another rank wrote at the rates `copy` and `reduce`. `memory` is the rate at which
    all ranks of a node copy.
    """

    cores: float = 0.0  # of a node
    latency: float = 0.0
    overhead: float = 0.0
    bandwidth: float = 0.0
    injection: float = 0.0
    flag: float = 0.0
    copy: float = 0.0
    reduce: float = 0.0
    memory: float = 0.0

    def __bool__(self) -> bool:
        """Return whether anything is known."""
        return any(self)

    @property
    def has_network(self) -> bool:
        """Whether messages between nodes were measured."""
        return self.latency > 0

    @property
    def has_long_links(self) -> bool:
        """Whether a message between nodes takes milliseconds, as from site to site."""
        return self.latency >= LONG_LINK

    def known(self) -> dict[str, float]:
        """Return the values that are known, by name."""
        return {name: value for name, value in self._asdict().items() if value}

    def shared(self, other: Profile) -> list[str]:
        """Return the names of the values by which two machines can be told from each other."""
        return [name for name in TELLING if getattr(self, name) and getattr(other, name)]

    def distance(self, other: Profile) -> float:
        """Return how many times values differ on average: 1 for machines that are alike.

        It is the exponential of the root mean square of the logarithms of all ratios.
        """
        names = self.shared(other)
        logs = [math.log(getattr(self, name) / getattr(other, name)) for name in names]
        return math.exp(math.sqrt(sum(x * x for x in logs) / len(logs))) if logs else math.inf

    def over(self, older: Profile) -> Profile:
        """Return these values, and those of an older profile where nothing is known."""
        return Profile(*(new or old for new, old in zip(self, older, strict=True)))


UNKNOWN = Profile()


def profile_from(record: object, where: str) -> Profile:
    """Return the profile that a file holds; raises ValueError, whose text names the key."""
    if not isinstance(record, Mapping):
        raise ValueError(f"{where}: expected keys and values")
    for key, value in record.items():
        if key not in Profile._fields:
            raise ValueError(f"{where}: {unknown(f'key {key!r}', key, Profile._fields)}")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not LEAST <= value <= MOST:
            said = repr(value)[:40]
            raise ValueError(f"{where}.{key}: expected {LEAST:g} to {MOST:g}, not {said}")
    return Profile(**record)


def written(profile: Profile) -> dict[str, float]:
    """Return a profile as files have it, with four digits of each value."""
    return {name: float(f"{value:.4g}") for name, value in profile.known().items()}


def profile_of(machine: MachineModel) -> Profile:
    """Return the profile of a machine model, as a calibration would measure it."""
    node, inside, between = machine.node, machine.levels[machine.node_level], machine.levels[-1]
    adapters = node.injection * node.rails
    found = Profile(
        cores=node.cores or 0,
        flag=1e6 * inside.flag,
        copy=1e-6 * (inside.copy_rate or node.copy_rate),
        reduce=1e-6 * (inside.reduce_rate or node.reduce_rate),
        memory=1e-6 * node.memory,
    )
    if between is inside:
        return found
    pair = min(between.bandwidth, adapters if node.stripe else node.injection)
    return found._replace(
        latency=1e6 * (between.latency + 2 * between.overhead),
        overhead=1e6 * between.overhead,
        bandwidth=1e-6 * min(pair, between.copying or pair),
        injection=1e-6 * adapters,
    )
