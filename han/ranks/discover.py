"""Finding out where ranks stand: MPI, sysfs and the configuration's scopes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mpi4py import MPI

from han import _native
from han.common.errors import ConfigError
from han.config.arrange import Facts, arrange
from han.model.topology import Topology
from han.ranks.quota import processors

if TYPE_CHECKING:
    from han.config.config import Config
    from han.ranks.meeting import Meeting

CPUS = Path("/sys/devices/system/cpu")
STEP = "the making of a han.Comm"


class Conditions(NamedTuple):
    """What choices look at, true where it is so on any node."""

    oversubscribed: bool = False  # there are fewer processors than ranks
    rationed: bool = False  # the container's quota of processors' time is below the ranks
    mesh: bool = False  # cores hand lines over slowly


def discover(meeting: Meeting, config: Config) -> tuple[Topology, Conditions]:
    """Return the topology that the configuration describes, and the conditions; collective."""
    scopes = {s for s in (*(x.scope for x in config.levels), config.sockets) if isinstance(s, str)}
    wanted = [s for s in scopes if s in ("numa", "l3", "socket")]
    meeting.barrier(STEP)
    memory = _memory_of(meeting.comm)
    facts = meeting.share(lambda: _look(memory, wanted), STEP)
    return arrange(config.levels, facts, config.sockets), conditions(facts)


def _memory_of(comm: MPI.Intracomm) -> int:
    """Return the lowest rank that this one shares memory with."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.Get_rank())
    lowest: int = node.bcast(comm.Get_rank(), root=0)
    node.Free()
    return lowest


def _look(memory: int, wanted: Sequence[str]) -> Facts:
    cpus = frozenset(os.sched_getaffinity(0))
    places = {name: frozenset(_place(cpu, name) for cpu in cpus) for name in wanted}
    return Facts(memory, MPI.Get_processor_name(), cpus, places, processors(), _native.on_mesh())


def _place(cpu: int, name: str) -> str:
    """Name the socket, NUMA node or last-level cache of a processor, as sysfs numbers it."""
    folder = CPUS / f"cpu{cpu}"
    if name == "numa":
        return next((n.name for n in sorted(folder.glob("node[0-9]*"))), "node0")
    file = folder / (
        "topology/physical_package_id" if name == "socket" else "cache/index3/shared_cpu_list"
    )
    try:
        return file.read_text().strip()
    except OSError:
        return "unknown"


def conditions(facts: Sequence[Facts]) -> Conditions:
    """Find out whether ranks outnumber the processors that they may use, or a quota of time,
    and what kind of processors these are.

    Whether ranks share a quota cannot be seen: those of one memory are taken to.
    """
    nodes = [[f for f in facts if f.memory == memory] for memory in {f.memory for f in facts}]
    return Conditions(
        any(len(here) > len(frozenset().union(*(f.cpus for f in here))) for here in nodes),
        any(len(here) > min(f.quota for f in here) for here in nodes),
        any(f.mesh for f in facts),
    )


def _whose(ranks: Sequence[int], size: int) -> str:
    """Say who has a problem, unless everybody has."""
    if len(ranks) == size:
        return ""
    shown = ", ".join(map(str, ranks[:8]))
    return f"rank{'s' * (len(ranks) > 1)} {shown}{', ...' if len(ranks) > 8 else ''}: "


def check_agreement(
    meeting: Meeting, fingerprint: str, problem: str | None, folder: str = ""
) -> None:
    """Compare the ranks' configurations and where their traces go.

    Raises ConfigError on all of them when they differ, or one has a problem.
    """
    rows = meeting.allgather((fingerprint, problem, folder), STEP)
    problems: dict[str, list[int]] = {}
    for r, (_, p, _) in enumerate(rows):
        if p:
            problems.setdefault(p, []).append(r)
    if problems:
        told = [f"{_whose(ranks, len(rows))}{text}" for text, ranks in problems.items()]
        raise ConfigError("the configuration cannot be used: " + "; ".join(told))
    _same("the configuration", [f for f, _, _ in rows], "file and HAN_* variables")
    _same("HAN_TRACE", [f for _, _, f in rows], "folder, or none")


def _same(what: str, values: Sequence[str], remedy: str) -> None:
    ranks: dict[str, list[int]] = {}
    for r, value in enumerate(values):
        ranks.setdefault(value, []).append(r)
    if len(ranks) > 1:
        groups = sorted(ranks.values(), key=len, reverse=True)
        odd = ", ".join(str(r) for g in groups[1:] for r in g)
        raise ConfigError(
            f"{what} differs between ranks: rank(s) {odd} have another one than "
            f"rank(s) {', '.join(map(str, groups[0]))}; give all ranks the same {remedy}"
        )


def try_to_load(config: Any) -> tuple[Any, str | None]:
    """Load the configuration, or return what is wrong with it; only rules name submodules."""
    from han.config.config import load_config, validate_names
    from han.submodules.catalogue import catalogue

    try:
        loaded = load_config(config)
        return validate_names(loaded, catalogue()) if loaded.rules else loaded, None
    except (ConfigError, OSError) as error:
        return None, str(error)
