"""Discovery of where the ranks are: from MPI, sysfs and the scopes of the configuration."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from han import _native
from han.common.errors import ConfigError
from han.common.grouped import grouped
from han.common.system import text_of
from han.config.arrange import Facts, arrange, empty_levels
from han.config.errors import config_error
from han.config.rails import launched_place, rails_of
from han.model.topology import Topology
from han.ranks.calibration import asks_first, known_profile
from han.ranks.links import long_latency
from han.ranks.machine import fingerprint
from han.ranks.quota import processors
from han.tuning.profile import UNKNOWN, Profile

if TYPE_CHECKING:
    from han.config.config import Config
    from han.ranks.meeting import Meeting

CPUS, CLASSES = Path("/sys/devices/system/cpu"), Path("/sys/class")
# Kernel classes of adapters with remote DMA: verbs (InfiniBand, RoCE, Omni-Path, EFA), Slingshot,
# Aries and Gemini.
RDMA = "infiniband", "cxi", "cxi_user", "gni", "kgni"
STEP = "the making of a han.Comm"


class Conditions(NamedTuple):
    """Properties of the nodes that choices depend on; flags are true if they hold on any node."""

    oversubscribed: bool = False  # some node has fewer processors than ranks
    rationed: bool = False  # a quota of processor time is below the number of ranks
    mesh: bool = False  # cores exchange cache lines over a mesh
    cores: int = 0  # of the node that has fewest; 0: not known
    rdma: bool = False  # here it must hold on all nodes: adapters do remote DMA
    profile: Profile = UNKNOWN  # as rank 0 knows it, if all nodes have the same processors
    latency: float = 0.0  # us of rank 0's first messages to another node; 0: links are not long


def discover(facts: Sequence[Facts], config: Config) -> tuple[Topology, Conditions]:
    """Return the topology that the configuration describes for these ranks, and the conditions.

    Raises ConfigError, which is the same for all ranks, if a rank is bound to no rail, or if all
    ranks of the program are here and none is on a host of a level that names hosts.
    """
    problems = list(empty_levels(config.levels, facts))
    if problems and MPI.Is_initialized() and len(facts) == MPI.COMM_WORLD.size:
        raise config_error(problems, config.origin)
    rails = rails_of(config.rails, facts, config.origin)
    return arrange(config.levels, facts, config.sockets, rails), conditions(facts)


def gather_facts(meeting: Meeting, config: Config) -> list[Facts]:
    """Return the facts of all ranks, by rank; collective."""
    scopes = {s for s in (*(x.scope for x in config.levels), config.sockets) if isinstance(s, str)}
    wanted = [s for s in scopes if s in ("numa", "l3", "socket")]
    hosts = [host for (host,) in meeting.numbers([_host()], STEP)]
    memory = shared_with(meeting.comm)
    latency = long_latency(meeting, hosts, STEP)
    return meeting.share(lambda: _look(memory, wanted, meeting.rank == 0, latency), STEP)


def facts_of(facts: Sequence[Facts], ranks: Sequence[int]) -> list[Facts]:
    """Return the facts of some ranks as those of all ranks of a communicator."""
    lowest: dict[int, int] = {}
    for new, rank in enumerate(ranks):
        lowest.setdefault(facts[rank].memory, new)
    return [replace(facts[rank], memory=lowest[facts[rank].memory]) for rank in ranks]


def world_ranks(comm: MPI.Intracomm) -> tuple[int, ...]:
    """Return the ranks of a communicator on MPI.COMM_WORLD.

    They are MPI.UNDEFINED for spawned processes, and for those that use sessions only.
    """
    if not MPI.Is_initialized():
        return (MPI.UNDEFINED,) * comm.Get_size()
    own, world = comm.Get_group(), MPI.COMM_WORLD.Get_group()
    ranks = MPI.Group.Translate_ranks(own, [*range(comm.Get_size())], world)
    own.Free()
    world.Free()
    return tuple(ranks)


def shared_with(comm: MPI.Intracomm) -> int:
    """Return the lowest rank that this one shares memory with; collective."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.Get_rank())
    lowest = np.array([comm.Get_rank()])
    node.Bcast(lowest, root=0)  # mpi4py's objects need MPI.COMM_SELF, which sessions do not have
    node.Free()
    return int(lowest[0])


def _look(memory: int, wanted: Sequence[str], is_first: bool, latency: float) -> Facts:
    cpus = frozenset(os.sched_getaffinity(0))
    places = {name: frozenset(_place(cpu, name) for cpu in cpus) for name in wanted}
    return Facts(
        memory,
        MPI.Get_processor_name(),
        cpus,
        places,
        processors(),
        _native.on_mesh(),
        launched_place(os.environ),
        os.cpu_count() or 0,
        has_rdma(),
        _kind(),
        tuple(known_profile()) if is_first else (),
        is_first and asks_first(),
        latency,
    )


def _host() -> int:
    """Return a number that stands for the name of this node."""
    return zlib.crc32(MPI.Get_processor_name().encode())


def _kind() -> int:
    """Return a number that stands for the processors of this node."""
    here = fingerprint()
    return zlib.crc32(repr((here.cpu, here.cores, here.layout)).encode())


def has_rdma(classes: Path = CLASSES) -> bool:
    """Return whether this node has an adapter that does remote DMA, as the kernel classifies it."""
    return any(one.is_dir() and any(one.iterdir()) for one in (classes / name for name in RDMA))


def _place(cpu: int, name: str) -> str:
    """Return what sysfs calls the socket, NUMA node or last-level cache of a processor."""
    folder = CPUS / f"cpu{cpu}"
    if name == "numa":
        return next((n.name for n in sorted(folder.glob("node[0-9]*"))), "node0")
    file = folder / (
        "topology/physical_package_id" if name == "socket" else "cache/index3/shared_cpu_list"
    )
    return text_of(file) or "unknown"


def conditions(facts: Sequence[Facts]) -> Conditions:
    """Derive the conditions from the facts of all ranks.

    Ranks that share memory are assumed to share one quota, because the system does not tell.
    """
    nodes = [[f for f in facts if f.memory == memory] for memory in {f.memory for f in facts}]
    return Conditions(
        outnumber_processors((f.memory, f.cpus) for f in facts),
        any(len(here) > min(f.quota for f in here) for here in nodes),
        any(f.mesh for f in facts),
        min(f.cores for f in facts),
        all(f.rdma for f in facts),
        Profile(*facts[0].profile) if len({f.kind for f in facts}) == 1 else UNKNOWN,
        facts[0].latency,
    )


def outnumber_processors(places: Iterable[tuple[object, frozenset[int]]]) -> bool:
    """Return whether the ranks of some system are more than the processors that they may use.

    `places` holds for each rank its system and processors. Nodes that are containers of one system
    share its processors, and no node tells of it.
    """
    systems = grouped(places).values()
    return any(len(ranks) > len(frozenset().union(*ranks)) for ranks in systems)


def _whose(ranks: Sequence[int], size: int) -> str:
    """Return "rank 3: " or "ranks 3, 4: " as a prefix; "" if `ranks` are all ranks."""
    if len(ranks) == size:
        return ""
    shown = ", ".join(map(str, ranks[:8]))
    return f"rank{'s' * (len(ranks) > 1)} {shown}{', ...' if len(ranks) > 8 else ''}: "


class Settings(NamedTuple):
    """What a rank is set to do: all ranks need the same.

    `problem` is what is wrong with this rank's configuration, or None. `folder` is that of traces.
    `counts`: this rank counts its calls. `tuned` is the digest of a tuned table, or "".
    `built_in` stands for the table of built-in choices.
    """

    fingerprint: str
    problem: str | None
    folder: str
    counts: bool
    tuned: str = ""
    built_in: str = ""


def check_agreement(
    rows: Sequence[Settings], because: BaseException | None = None
) -> tuple[int, ...]:
    """Compare the settings of all ranks; `because` is the exception behind this rank's problem.

    Returns the ranks that have another tuned table than rank 0. Raises ConfigError, on all ranks,
    if the ranks differ otherwise, or if any rank has a problem.
    """
    problems = grouped((row.problem, r) for r, row in enumerate(rows) if row.problem)
    if problems:
        messages = [f"{_whose(ranks, len(rows))}{text}" for text, ranks in problems.items()]
        said = "the configuration cannot be used: " + "; ".join(messages)
        raise ConfigError(said) from (None if because is None else because.__cause__)
    _same("the configuration", [row.fingerprint for row in rows], "file and HAN_* variables")
    _same("the table of built-in choices", [row.built_in for row in rows], "installation of han")
    _same("HAN_TRACE", [row.folder for row in rows], "folder, or none")
    _same("HAN_STATS", [str(row.counts) for row in rows], "value")
    return tuple(r for r, row in enumerate(rows) if row.tuned != rows[0].tuned)


def _same(what: str, values: Sequence[str], remedy: str) -> None:
    ranks = grouped((value, r) for r, value in enumerate(values))
    if len(ranks) > 1:
        groups = sorted(ranks.values(), key=len, reverse=True)
        odd = ", ".join(str(r) for g in groups[1:] for r in g)
        raise ConfigError(
            f"{what} differs between ranks: rank(s) {odd} have a different one from "
            f"rank(s) {', '.join(map(str, groups[0]))}; give all ranks the same {remedy}"
        )


def try_to_load(config: Any) -> tuple[Any, ConfigError | None]:
    """Return the configuration and None, or None and the error that says what is wrong with it.

    The names of submodules are checked only if the configuration has rules, as only rules name
    them.
    """
    from han.config.config import load_config
    from han.submodules.names import validate_names

    try:
        loaded = load_config(config)
        return validate_names(loaded) if loaded.rules else loaded, None
    except ConfigError as error:
        return None, error
    except Exception as error:  # such as that of another package's submodule; peers are waiting
        known = isinstance(error, OSError)
        problem = ConfigError(str(error) if known else f"{type(error).__name__}: {error}")
        problem.__cause__ = None if known else error
        return None, problem
