"""What ``han info`` tells about rails: those of the configuration, and what binds the ranks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from mpi4py import MPI

from han.comm import Comm
from han.common.units import plural, spans
from han.config.rails import rails_of
from han.ranks.adapters import VARIABLES, bound, contradictions

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
