"""The configuration of a communicator, and the function that loads it.

``load_config`` reads a YAML file, a ready configuration or a mapping. Settings of the environment
and of ``han.rc`` override its values. The result is a frozen ``Config``; a ``ConfigError`` lists
all problems. ``han.submodules.names`` checks names of submodules, algorithms and parameters.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from han.config import checks
from han.config.errors import Origin, config_error
from han.config.parts import SIZE, Level, Rails, Scope, Wait, as_document
from han.config.rails import rail_problems
from han.config.rc import VARIABLES, rc
from han.config.settings import with_settings
from han.config.source import read_document

if TYPE_CHECKING:
    from han.config.rules import Rule

TWO_LEVELS = (Level("node", "shared_memory", "s"), Level("network", "all", "i"))


@dataclass(frozen=True)
class Config:
    """The user's configuration. By default it has two levels and no rules.

    `levels` are innermost first; a level without a symbol gets one. `sockets` are the groups below
    all levels that trees in shared memory follow, `rails` the adapters of a node. `memory` is the
    shared memory of one channel in bytes, `plans` the number of plans that a communicator keeps.
    `tuned` is the file of a tuned table, ``auto`` or ``off``. `reproducible`: reductions have the
    same bits for any placement of the ranks. Raises ConfigError if values contradict each other.
    """

    levels: tuple[Level, ...] = TWO_LEVELS
    rules: tuple[Rule, ...] = ()
    sockets: Scope = "socket"
    rails: Rails = field(default_factory=Rails)
    memory: int = field(default=16 * 2**20, metadata=SIZE)
    plans: int = 512
    wait: Wait = field(default_factory=Wait)
    check: bool = False
    trials: bool = True
    tuned: str = "auto"
    reproducible: bool = False
    origin: Origin = field(default=Origin(), repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", checks.with_symbols(self.levels))
        problems = [
            *checks.level_problems(self.levels),
            *checks.rule_problems(self.rules, self.levels),
            *checks.socket_problems(self.sockets),
            *rail_problems(self.rails),
        ]
        if problems:
            raise config_error(problems, self.origin)

    @property
    def source(self) -> str:
        """The file of the configuration, or a name for its other origin."""
        return self.origin.name

    def thresholds(self, ranks: int) -> tuple[int, ...]:
        """Return the bytes from which on another rule may match a call among so many ranks."""
        return tuple(n for rule in self.rules for n in rule.when.thresholds(ranks))

    def place(self, *path: str | int) -> str:
        """Return where a value was written: ``place("rules", 0)`` is ``"cluster.yaml:12"``."""
        return self.origin.place(path)

    def to_yaml(self) -> str:
        """Return the configuration as YAML that ``load_config`` reads."""
        import yaml

        return yaml.safe_dump(as_document(self), sort_keys=False, allow_unicode=True)

    def fingerprint(self) -> str:
        """Return a hash of everything on which the ranks must agree: all but ``wait``.

        It is the same in every process and for every order of keys.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        data = {key: value for key, value in as_document(self).items() if key != "wait"}
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def default_config() -> Config:
    """Return the default: levels ``node`` (shared memory) and ``network`` (all), no rules."""
    return Config()


def load_config(
    source: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """Return the configuration of ``source``, with settings of ``han.rc`` and the environment.

    ``source`` is a YAML file, the name of a ready configuration (``ready_configs``), or a mapping
    of the same keys. None means ``han.rc.config``, then ``HAN_CONFIG``, then the defaults. A Config
    is complete and is returned unchanged. A single setting takes its value from the first of these
    that has one: a mapping given by the program, ``han.rc``, the environment, the file, the
    default.

    Raises ConfigError, which lists all problems with file, line, key, value and the known names.
    """
    said_by = "config"
    if source is None and rc.config is not None:
        said_by, source = "han.rc.config", rc.config
    elif source is None and environ.get(VARIABLES["config"]):
        said_by, source = VARIABLES["config"], environ[VARIABLES["config"]]
    if isinstance(source, Config):
        return source
    document = with_settings(read_document(source, said_by), environ)
    if not document.data and isinstance(document.data, Mapping):
        return _without_values(document.origin.name)
    from han.config import documents

    data = documents.checked(documents.Config, document.data, document.origin)
    return Config(**data, origin=document.origin)


@lru_cache(maxsize=4)
def _without_values(origin: str) -> Config:
    return Config(origin=Origin(origin))
