"""What a proof says."""

from __future__ import annotations

from dataclasses import dataclass

CHECKED = (
    "operations, peers, requests, tags and streams that programs name exist; counts fit into ints",
    "the values of a flag only grow, whichever ranks post it",
    "all ranks take the same part of their rings",
    "sends and receives match, with equal sizes and in one order per tag",
    "calls of MPI collectives match",
    "a request belongs to one stream, and completes before it is used again and before the end",
    "no deadlock, also if sends wait for receives: the graph of events has no cycle",
    "accesses are inside their memory, outside the flags, and as the kernels and their room allow",
    "every read is ordered after its write, every write after the reads before it",
    "reads find only bytes that were written and are not in flight",
    "a peer's own memory is accessed only after it has entered and before it leaves",
    "send buffers are only read; programs announce which shared memory they write",
    "the result is as specified, with operands in order if the operation does not commute",
    "reproducible results are combined in the canonical order of ranks",
    "all ranks of an allreduce combine in the same order",
    "ranks that synchronise leave after all have entered",
)


@dataclass(frozen=True)
class Report:
    """What was proved, and of which runs; `apart`: it also holds without MPI.IN_PLACE."""

    runs: tuple[str, ...]
    ranks: int
    events: int
    apart: bool = True
    checked: tuple[str, ...] = CHECKED
    sizes: str = ""  # for which sizes of messages it holds too

    def __str__(self) -> str:
        lines = [f"proved for {self.ranks} ranks and all interleavings ({self.events} events):"]
        lines += [f"  run {k}: {text}" for k, text in enumerate(self.runs)]
        lines += [f"  sizes: {self.sizes}"] if self.sizes else []
        return "\n".join([*lines, *(f"  - {text}" for text in self.checked)])
