"""Configurations: YAML files, the environment, ``han.rc``, machine models.

Names are imported at first use, so ``han.rc`` does not import pydantic.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from han.config.config import Config, default_config, load_config
    from han.config.source import ready_configs

__all__ = ["Config", "default_config", "load_config", "ready_configs"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        module = "source" if name == "ready_configs" else "config"
        return getattr(import_module(f"han.config.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
