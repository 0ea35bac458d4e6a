"""How benchmarks call a collective."""

import enum


class Mode(str, enum.Enum):
    """How a collective is called."""

    BLOCKING = "blocking"
    NONBLOCKING = "nonblocking"
    PERSISTENT = "persistent"
