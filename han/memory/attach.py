"""A test whether ranks that share memory can access each other's private memory by attach."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from han import _native
from han.memory.channel import Channel
from han.ranks.meeting import Meeting

STEP = "the making of a han.Comm"
WORD = 0x68616E5F61747463  # plus the rank: the word that a peer must find


def refusal(meeting: Meeting, channels: Sequence[Channel]) -> str:
    """Read and write a word of every peer that shares a channel with this rank; collective.

    Returns an empty string if all ranks can access all their peers. Otherwise returns the first
    reason, the same on all ranks.
    """
    word = np.array([WORD + meeting.rank, 0], np.uint64)  # the second word is for peers to write to
    _native.let_attach()
    places = meeting.share(lambda: (os.getpid(), word.ctypes.data), STEP)
    peers = sorted({rank for channel in channels for rank in channel.ranks} - {meeting.rank})
    reasons = meeting.share(
        lambda: next(filter(None, (_try(meeting.rank, r, *places[r]) for r in peers)), ""), STEP
    )
    return next(filter(None, reasons), "")


def _try(rank: int, peer: int, pid: int, address: int) -> str:
    try:
        found = _native.peek(pid, address)
    except OSError as error:
        return f"rank {rank} may not read the memory of rank {peer}: {error.strerror}"
    if found != WORD + peer:
        return f"rank {rank} finds another process under the process number of rank {peer}"
    try:
        _native.poke(pid, address + 8, WORD)
    except OSError as error:
        return f"rank {rank} may not write to the memory of rank {peer}: {error.strerror}"
    return ""
