"""Which rail (network adapter of its node) carries the messages of each rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from han.config.errors import Origin, Problem, config_error

if TYPE_CHECKING:
    from han.config.arrange import Facts
    from han.config.parts import Rails

# The launchers of Open MPI, MPICH and Intel MPI, Cray's and Slurm's tell a rank its number there.
LOCAL_RANK = (
    "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "SLURM_LOCALID",
)  # fmt: skip


def launched_place(environ: Mapping[str, str]) -> int | None:
    """Return the number that the launcher gave this rank on its node, or None."""
    return next((int(v) for name in LOCAL_RANK if (v := environ.get(name, "")).isdigit()), None)


def rails_of(rails: Rails, facts: Sequence[Facts], origin: Origin) -> tuple[int, ...]:
    """Return the rail of each rank; `origin` is that of the configuration.

    A rank's number on its node is the launcher's, else its place among these ranks. Raises
    ConfigError, which is the same for all ranks, if a rank is bound to no rail.
    """
    places = local_ranks([f.memory for f in facts])
    local = [p if f.local is None else f.local for f, p in zip(facts, places, strict=True)]
    if rails.bind == "local_rank":
        return tuple(rail_of(number, rails.count) for number in local)
    problems = [
        Problem(
            ("rails", "bind"),
            f"rank {rank} is number {number} of its node, {facts[rank].host}, and is bound to no"
            f" rail: {len(rails.bind)} of the node's ranks are; name more rails, or local_rank",
            list(rails.bind),
        )
        for rank, number in enumerate(local)
        if number >= len(rails.bind)
    ]
    if problems:
        raise config_error(problems[:1], origin)
    return tuple(rails.bind[number] for number in local)


def rail_problems(rails: Rails) -> Iterator[Problem]:
    """Yield a problem for each rail that `bind` names and that does not exist."""
    for k, rail in enumerate(() if rails.bind == "local_rank" else rails.bind):
        if not 0 <= rail < rails.count:
            last = f", rails are 0 to {rails.count - 1}" if rails.count > 1 else ", only rail 0"
            reason = f"there is no such rail: count is {rails.count}{last}"
            yield Problem(("rails", "bind", k), reason, rail)


def rail_of(local: int, rails: int) -> int:
    """Return the rail that carries all messages of rank number `local` of a node."""
    return local % rails


def local_ranks(nodes: Sequence[int]) -> list[int]:
    """Return the number of each rank among the ranks of its node; `nodes` are by rank."""
    seen: dict[int, int] = {}
    found = []
    for node in nodes:
        found.append(seen.get(node, 0))
        seen[node] = found[-1] + 1
    return found
