"""The errors of han, under their public name; see :mod:`han.common.errors`."""

from han.common.errors import (
    ArgumentError,
    ArgumentTypeError,
    CollectiveTimeoutError,
    ConfigError,
    HanError,
    MismatchError,
    MissingLibraryError,
    NoRuleError,
    PeerError,
    RevokedError,
    SetupError,
    SharedMemoryError,
)

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "CollectiveTimeoutError",
    "ConfigError",
    "HanError",
    "MismatchError",
    "MissingLibraryError",
    "NoRuleError",
    "PeerError",
    "RevokedError",
    "SetupError",
    "SharedMemoryError",
]
