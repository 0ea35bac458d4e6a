"""Calls on memory of a device: the ranks find out that all make the same one; then MPI makes it.

A rank whose buffers are on the host cannot know of a peer's that are not. It would wait in han's
call, and the peer in MPI's. So a rank with memory of a device first takes part in an allreduce of
a number that stands for its call. Ranks that make another call show another number, or none.
"""

from __future__ import annotations

import numpy as np

from han.common.errors import MismatchError
from han.message.message import Message
from han.model.element_types import kernel
from han.ranks.health import Health
from han.ranks.mismatch import DEVICES
from han.runtime.native_plans import identity
from han.tasks.signature import Signature

AGREEMENT = Signature("allreduce", 1, 8, "sum", "uint64")


def agreement(signature: Signature, health: Health) -> Message:
    """Make the allreduce that comes before a call; its end raises MismatchError."""
    mine, total = np.array([identity(signature)], np.uint64), np.zeros(1, np.uint64)

    def end() -> None:
        if total[0] != mine.repeat(health.size).sum(dtype=np.uint64):
            raise health.give_up(
                MismatchError(
                    f"the ranks do not make the same calls: rank {health.rank} calls "
                    f"{signature.describe()}, another rank does not; {DEVICES}"
                )
            )

    return Message(
        AGREEMENT, mine.ctypes.data, total.ctypes.data, (mine, total), end=end,
        numbers=kernel("sum", "uint64"),
    )  # fmt: skip
