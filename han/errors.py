"""The errors that han raises: the public name of :mod:`han.common.errors`."""

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
