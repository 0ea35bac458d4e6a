"""Which rail carries the messages of a rank: the adapter that the MPI library is told to use."""

import re
from pathlib import Path

from host import EmulationError

LOCAL_RANK, NONE = "local_rank", "none"
RAIL = Path(__file__).with_name("rail.sh")


def rails_of(bind: str, ppn: int, rails: int) -> tuple[int, ...] | None:
    """Return the rail of each local rank, or None if the library chooses the adapters of a rank.

    `bind`: "local_rank" (ranks of a node take the rails in turn), "none", or the rails by local
    rank, as in "0,0,1". Raises EmulationError for a rail that does not exist and for a rank that is
    bound to no rail.
    """
    if bind == NONE:
        return None
    if bind == LOCAL_RANK:
        return tuple(rank % rails for rank in range(ppn))
    if not re.fullmatch(r"\d+(,\d+)*", bind):
        known = f"{LOCAL_RANK}, {NONE} or rails by local rank, as in 0,1"
        raise EmulationError(f"--bind {bind!r}: {known} expected")
    named = tuple(map(int, bind.split(",")))
    if max(named) >= rails:
        raise EmulationError(
            f"--bind {bind}: there is no rail {max(named)}; with --rails {rails} a node has"
            f" {'rail 0' if rails == 1 else f'rails 0 to {rails - 1}'}"
        )
    if len(named) < ppn:
        raise EmulationError(
            f"--bind {bind}: local rank {len(named)} is bound to no rail; name one for each of"
            f" {ppn} ranks of a node, or write {LOCAL_RANK}"
        )
    return named
