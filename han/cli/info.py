"""The command ``han info``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

import han
from han import _native
from han.cli import options
from han.cli.common import answer, check_files
from han.comm import Comm
from han.common.grouped import grouped
from han.common.units import format_size, plural, spans
from han.config.arrange import Facts
from han.config.rails import rails_of
from han.measure.bench_machine import described, look
from han.memory.arena import limit, process_arena
from han.memory.pages import describe, policy
from han.model.topology import Topology
from han.ranks import autogroup
from han.ranks.adapters import VARIABLES, bound, contradictions
from han.ranks.calibration import kept
from han.ranks.machine import fingerprint
from han.runtime.state import State
from han.submodules.registry import registered
from han.tasks.call import call_signature
from han.tasks.choice import LevelChoice
from han.tasks.contract import Algorithm, Question
from han.tasks.own_sizes import own_sizes
from han.tasks.signature import Signature
from han.tuning.built_in.choosing import NodeTraits
from han.tuning.built_in.machine_classes import standing
from han.tuning.built_in.table import shipped
from han.tuning.profile import written

PROBED = 1 << 10  # bytes of the calls that algorithms are asked to serve
SHOWN_GROUPS = 4
MESH = "lines are slow from core to core (a mesh): single copies already for small messages"
NEAR = "lines are fast from core to core: single copies for large messages only"
THREADS = {
    MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled",
    MPI.THREAD_SERIALIZED: "serialized", MPI.THREAD_MULTIPLE: "multiple",
}  # fmt: skip


def info(config: options.Config = None, json_file: options.JsonFile = None) -> None:
    """Show versions, levels, settings and usable submodules.

    \b
    Examples:
      han info
      mpiexec -n 4 han info --config virtual-2x2
      mpiexec -n 4 han info --json
    """
    check_files(json_file)
    record = collect(Comm(MPI.COMM_WORLD.Dup(), config))
    answer(json_file, lambda: as_text(record), lambda: record)


def collect(comm: Comm) -> dict[str, Any]:
    """Collect versions, settings, levels and submodules of a communicator; collective."""
    state, machine = comm._han, look(comm, comm)
    parts, tuned = state.parts, state.parts.given.tuned
    return {
        "han": han.__version__,
        "kernels": _native.isa(),
        "python": machine.python,
        "numpy": np.__version__,
        "mpi4py": machine.mpi4py,
        "library": machine.library,
        "library_version": machine.library_version,
        "standard": ".".join(map(str, MPI.Get_version())),
        "threads": THREADS[MPI.Query_thread()],
        "cpu": machine.cpu,
        "allowed_cpus": machine.allowed,
        "mesh": parts.conditions.mesh,
        "ranks": machine.ranks,
        "nodes": machine.nodes,
        "config": machine.config,
        "memory": parts.config.memory,
        "tuned": {
            "table": tuned.table.source if tuned.table is not None else None,
            "about": tuned.about,
            "rows": 0 if tuned.table is None else tuned.table.size,
            "collectives": _tuned_here(state),
            "shape": "" if tuned.table is None else tuned.table.says_of(parts.topology),
        },
        "built_in": {
            "table": shipped().source,
            "rows": shipped().count,
            "about": shipped().distance(fingerprint(parts.config.wait)),
        },
        "class": _class(parts.planner.traits),
        "calibration": _calibration(parts.facts),
        "check": parts.config.check,
        "wait": machine.wait,
        "autogroups": machine.autogroups,
        "timeout": parts.config.wait.timeout,
        "settings": machine.settings,
        "attach": parts.shared.attach_refused or True,
        "arenas": parts.shared.arenas().refused or True,
        "arena": "" if parts.shared.arenas().refused else process_arena().kind,
        "arena_limit": limit(),
        "arena_pages": describe(
            "" if parts.shared.arenas().refused else process_arena().kind, policy()
        ),
        "windows": [window.nbytes for window in parts.shared.windows],
        "levels": [_level(parts.topology, k) for k in range(parts.topology.depth)],
        "sockets": _sockets(parts.topology),
        "rails": rails_record(comm),
        "submodules": submodule_uses(parts.topology),
    }


def _sockets(topology: Topology) -> list[str]:
    """Return the ranks of each socket."""
    ranks = grouped((socket, rank) for rank, socket in enumerate(topology.sockets))
    return [spans(members) for members in ranks.values()]


def _level(topology: Topology, level: int) -> dict[str, Any]:
    groups = {ranks: None for r in range(topology.size) for ranks in [topology.domain(level, r)]}
    return {
        "name": topology.names[level],
        "symbol": topology.symbols[level],
        "shares_memory": topology.shared[level],
        "used": level in topology.active,
        "groups": [spans(ranks) for ranks in groups],
    }


def submodule_uses(topology: Topology) -> dict[str, dict[str, Any]]:
    """Return the algorithms of every submodule that each level can use, and the reasons if not."""
    return {
        name: {
            "about": part.about,
            "algorithms": list(part.algorithms),
            "levels": {
                topology.names[k]: _usable(topology, k, name) for k in range(topology.depth)
            },
        }
        for name, part in registered().items()
    }


def _usable(topology: Topology, level: int, name: str) -> dict[str, Any]:
    """Ask a submodule, algorithm by algorithm, whether it can serve a level."""
    part = registered()[name]
    answers = {
        algorithm: part.supports(
            Question(topology, level, _probe(row), LevelChoice(name, algorithm))
        )
        for algorithm, row in part.algorithms.items()
    }
    usable = [algorithm for algorithm, reason in answers.items() if reason is None]
    reasons = dict.fromkeys(reason for reason in answers.values() if reason is not None)
    return {"algorithms": usable, "reasons": list(reasons)}


def _probe(row: Algorithm) -> Signature:
    """Return a call that an algorithm is for: an allreduce, if it takes part in one."""
    if row.own:
        return own_sizes("alltoallv")
    reduces = row.families == ("everyone",) or "allreduce" in row.kinds or "bcast" in row.kinds
    kind = "allreduce" if reduces else row.kinds[0]
    return call_signature(kind, PROBED)


def as_text(record: Mapping[str, Any]) -> str:
    """Return the record as text."""
    timeout = f"{record['timeout']:g} s" if record["timeout"] else "never"
    size = format_size(PROBED)
    lines = [
        f"han        {record['han']}, kernels {record['kernels']}",
        f"python     {record['python']}, NumPy {record['numpy']}, mpi4py {record['mpi4py']}",
        f"library    {described(record['library'], record['library_version'])}, "
        f"MPI {record['standard']}, "
        f"threads {record['threads']}",
        f"machine    {record['cpu']}, CPUs {record['allowed_cpus']}",
        f"ranks      {record['ranks']} on {plural(record['nodes'], 'node')}",
        f"config     {record['config']}; {format_size(record['memory'])} shared memory per channel"
        f"; checked mode {'on' if record['check'] else 'off'}",
        f"tuned      {_tuned(record['tuned'])}",
        f"built-in   {_built_in(record['built_in'])}",
        f"class      {_class_line(record['class'])}",
        f"calibrated {record['calibration']['about']}",
        f"wait       {record['wait']}; timeout {timeout}",
        *(
            [f"yields     {autogroup.describe(record['autogroups'])}"]
            if record["autogroups"] > 1
            else []
        ),
        *(f"setting    {name}={value}" for name, value in record["settings"].items()),
        f"caches     {MESH if record['mesh'] else NEAR}",
        f"single copy {_attach(record['attach'])}",
        f"shared arrays {_arenas(record)}",
        f"windows    {_windows(record['windows'])}",
        "levels     (innermost first)",
        *(f"  {_level_line(level)}" for level in record["levels"]),
        f"sockets    {_groups(record['sockets'])}",
        *rails_lines(record["rails"]),
        f"submodules (algorithms of a level, and why it cannot use others, in calls of {size})",
    ]
    for name, part in record["submodules"].items():
        lines.append(f"  {name:<10} {part['about']}")
        lines += [f"    {level:<10} {_usable_line(use)}" for level, use in part["levels"].items()]
    return "\n".join(lines)


def _tuned(record: Mapping[str, Any]) -> str:
    if record["table"] is None:
        return f"no table: {record['about']}"
    here = ", ".join(record["collectives"]) or "none"
    size = plural(record["rows"], "row")
    shape = f" ({record['shape']})" if record["shape"] else ""
    return f"{record['table']} ({record['about']}); {size}, for these ranks: {here}{shape}"


def _built_in(record: Mapping[str, Any]) -> str:
    if not record["table"]:
        return "safe choices only: the table that comes with han cannot be used"
    return f"{record['table']}; {plural(record['rows'], 'row')}, nearest machine: {record['about']}"


def _class(traits: NodeTraits) -> dict[str, Any]:
    """Return the class of machines of these nodes, how far it is, and what tells it."""
    where = standing(traits)
    found = where.found
    return {
        "name": None if found is None else found.name,
        "about": "" if found is None else found.about,
        "rows": 0 if found is None else len(found.rows),
        "nearest": where.machine,
        "distance": where.distance if where.shared else None,
        "by": [*where.shared],
        "calibrated": where.calibrated,
        "how": where.how,
        "cores": traits.cores,
        "rdma": traits.rdma,
    }


def _class_line(record: Mapping[str, Any]) -> str:
    """Return ``fabric: 80 rows for calls between nodes; nearest machine stampede2, ...``."""
    adapters = "remote DMA" if record["rdma"] else "no remote DMA"
    nodes = f"{record['cores'] or 'unknown'} cores a node, {adapters}"
    if record["name"] is None:
        return f"none, measured choices only ({nodes})"
    rows = f"{plural(record['rows'], 'row')} for calls between nodes"
    runs = rows if record["rows"] else "built-in choices"
    far = distance_line(record["nearest"], record["distance"], record["by"])
    return f"{record['name']}: {runs}; {far}; {record['how']} ({nodes})"


def distance_line(machine: str, distance: float | None, by: Sequence[str]) -> str:
    """Return ``nearest machine stampede2, values differ 1.38 times (cores, latency)``."""
    if distance is None:
        return f"nearest machine {machine}, no value is known of both"
    return f"nearest machine {machine}, values differ {distance:.2f} times ({', '.join(by)})"


def _calibration(facts: Sequence[Facts]) -> dict[str, Any]:
    """Return the calibration that rank 0 finds, or why there is none that is used."""
    found = kept()
    kinds = {one.kind for one in facts}
    differ = "nodes differ, so no calibration is used" if len(kinds) > 1 else ""
    return {
        "profile": written(found.profile),
        "made": None if found.found is None else found.found.made,
        "about": differ or found.about,
    }


def _tuned_here(state: State) -> list[str]:
    """Return the collectives whose rows hold for these ranks."""
    table = state.parts.given.tuned.table
    return [] if table is None else table.calls_of(state.parts.topology)


def _attach(answer: bool | str) -> str:
    told = "ranks of a node read each other's memory (cross-memory attach)"
    return told if answer is True else f"no: {answer}"


def _arenas(record: Mapping[str, Any]) -> str:
    if record["arenas"] is not True:
        return f"no: {record['arenas']}"
    limit = record["arena_limit"]
    most = format_size(limit if limit < 1 << 30 else limit >> 20 << 20)  # whole MiB
    told = f"{record['arena']}, at most {most} per rank; ranks of a node map each other's"
    return f"{told}; pages: {record['arena_pages']}"


def _windows(sizes: Sequence[int]) -> str:
    if not sizes:
        return "none attached (comm.attach_window)"
    told = ", ".join(map(format_size, sizes))
    return f"{len(sizes)} attached, of {told}; persistent calls read arrays in them"


def _level_line(level: Mapping[str, Any]) -> str:
    how = "shared memory" if level["shares_memory"] else "messages"
    idle = "" if level["used"] else ", not used: groups of one rank"
    return f"{level['name']} ({level['symbol']}): {_groups(level['groups'])}; {how}{idle}"


def _groups(groups: Sequence[str]) -> str:
    shown = " ".join(f"[{group}]" for group in groups[:SHOWN_GROUPS])
    more = f" and {len(groups) - SHOWN_GROUPS} more" if len(groups) > SHOWN_GROUPS else ""
    return f"ranks {shown}{more}"


def _usable_line(use: Mapping[str, Any]) -> str:
    parts = [f"yes: {', '.join(use['algorithms'])}"] if use["algorithms"] else []
    return "; ".join([*parts, *(f"no: {reason}" for reason in use["reasons"])])


SHOWN = 4


def rails_record(comm: Comm) -> dict[str, Any]:
    """Return the rails of the configuration and the adapters of the environment; collective."""
    state = comm._han
    config = state.parts.config
    count, rails = config.rails.count, rails_of(config.rails, state.parts.facts, config.origin)
    found = comm.allgather(bound(MPI.Get_processor_name(), os.environ))
    missing = {
        f"{one.host} has no adapter {m}" for row in found for one in row for m in one.missing
    }
    adapters: dict[str, dict[str, list[int]]] = {}
    for rank, row in enumerate(found):
        for one in row:
            adapters.setdefault(one.variable, {}).setdefault(one.value, []).append(rank)
    return {
        "count": count,
        "ranks": [spans([r for r in range(comm.size) if rails[r] == k]) for k in range(count)],
        "adapters": {
            variable: {value: spans(ranks) for value, ranks in values.items()}
            for variable, values in adapters.items()
        },
        "problems": sorted(missing) + (contradictions(rails, found) if count > 1 else []),
    }


def rails_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the record; none for one rail that nothing names."""
    if record["count"] == 1 and not record["adapters"]:
        return
    shown = "; ".join(
        f"{k}: ranks {ranks}" if ranks else f"{k}: no rank"
        for k, ranks in enumerate(record["ranks"])
    )
    yield f"rails      {plural(record['count'], 'rail')} a node; {shown}"
    for variable, values in record["adapters"].items():
        bound_to = "; ".join(f"{value}: ranks {ranks}" for value, ranks in values.items())
        yield f"adapters   {variable} (read by {VARIABLES[variable]}): {bound_to}"
    if not record["adapters"]:
        yield f"adapters   the MPI library chooses: none of {', '.join(VARIABLES)} is set"
    problems = record["problems"]
    yield from (f"  problem: {problem}" for problem in problems[:SHOWN])
    if len(problems) > SHOWN:
        yield f"  and {len(problems) - SHOWN} more problems"
