"""The one hierarchy of han's errors."""

from __future__ import annotations

__all__ = [
    "ArgumentError", "ArgumentTypeError", "CollectiveTimeoutError", "ConfigError", "HanError",
    "MismatchError", "MissingLibraryError", "NoRuleError", "PeerError", "RevokedError",
    "SetupError", "SharedMemoryError",
]  # fmt: skip


class HanError(Exception):
    """Base of every error that han raises by itself."""


class MissingLibraryError(HanError, ImportError):
    """The MPI library or mpi4py is missing. The text says how to install it."""


class ConfigError(HanError, ValueError):
    """A configuration is wrong. The text names file or key, value and the known names."""

    rank: int | None = None  # this rank, where all ranks of a communicator raised it together


class NoRuleError(ConfigError):
    """Neither a rule nor the built-in choice can serve a call; `passed`: (rule, reason) of each."""

    def __init__(self, call: str, passed: list[tuple[str, str]]) -> None:
        reasons = "; ".join(f"{rule}: {reason}" for rule, reason in passed)
        super().__init__(f"no rule can serve {call}: {reasons}")
        self.passed = tuple(passed)


class ArgumentError(HanError, ValueError):
    """An argument of a call is wrong. Raised before data moves."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of a call is of the wrong kind (an object, a device array, a string)."""


class TypeCodeError(ArgumentTypeError, KeyError):
    """A type code is unknown; mpi4py raises a KeyError."""

    __str__ = Exception.__str__  # that of KeyError shows the text as a literal


class SharedMemoryError(HanError, OSError, MemoryError):
    """Shared memory cannot be reserved. The text names size, place and remedy.

    All ranks raise it, unless it is `alone`: then the others raise PeerError.
    """

    alone = False


class SetupError(HanError, RuntimeError):
    """A step that prepares communication failed on some rank; raised on all ranks.

    `problems` holds (rank, errno or None, text) of each rank on which it failed.
    """

    def __init__(self, step: str, problems: list[tuple[int, int | None, str]]) -> None:
        super().__init__(f"{step}: " + "; ".join(f"rank {r} raised {t}" for r, _, t in problems))
        self.problems = problems


class PeerError(HanError, RuntimeError):
    """A peer raised inside a collective, or died."""


class CollectiveTimeoutError(HanError, TimeoutError):
    """A collective exceeded ``HAN_TIMEOUT``. The text says which rank waits for which."""


class RevokedError(HanError, RuntimeError):
    """The communicator had an error in an earlier collective and cannot be used any more."""


class MismatchError(HanError, ValueError):
    """The ranks of one collective call do not agree.

    With ``HAN_CHECK=1`` it is raised before data moves, and the communicator stays usable.

    Otherwise `between` holds the peer whose calls differ and the rank that found it, and `story` is
    what this rank was in. A rank tells its peers both.
    """

    between: tuple[int, int] | None = None
    story: str = ""


class WrongResultError(HanError, AssertionError):
    """han and the MPI library computed different results."""
