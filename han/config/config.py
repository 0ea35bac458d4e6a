"""The configuration: what it holds, and the one function that loads and merges it.

    levels (innermost first), rules (first match wins), sockets (that trees in shared memory look
    at, below all levels), memory, plans, wait, check, trials

``load_config`` reads a YAML file, the name of a ready configuration or a mapping, puts over it
what the environment and ``han.rc`` say, and returns one frozen ``Config`` or raises
``ConfigError`` with all that is wrong. ``validate_names`` then holds it against the submodules
that there are.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from han.config import checks
from han.config.errors import Origin, config_error
from han.config.parts import SIZE, Level, Scope, Wait, as_document
from han.config.rc import VARIABLES, rc
from han.config.settings import with_settings
from han.config.source import read_document

if TYPE_CHECKING:
    from han.config.catalogue import Catalogue
    from han.config.rules import Rule

TWO_LEVELS = (Level("node", "shared_memory", "s"), Level("network", "all", "i"))


@dataclass(frozen=True)
class Config:
    """What the user decided; the defaults are two levels and no rules.

    Levels are innermost first, and those without a symbol are given one. `memory` is the shared
    memory of one channel in bytes, `plans` the number of plans that a communicator keeps.
    Raises ConfigError if the parts do not fit together.
    """

    levels: tuple[Level, ...] = TWO_LEVELS
    rules: tuple[Rule, ...] = ()
    sockets: Scope = "socket"
    memory: int = field(default=16 * 2**20, metadata=SIZE)
    plans: int = 512
    wait: Wait = field(default_factory=Wait)
    check: bool = False
    trials: bool = True
    origin: Origin = field(default=Origin(), repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", checks.with_symbols(self.levels))
        problems = [
            *checks.level_problems(self.levels),
            *checks.rule_problems(self.rules, self.levels),
            *checks.socket_problems(self.sockets),
        ]
        if problems:
            raise config_error(problems, self.origin)

    @property
    def source(self) -> str:
        """The file that the configuration was read from, or what else it came from."""
        return self.origin.name

    def place(self, *path: str | int) -> str:
        """Return where a value was written: ``place("rules", 0)`` is ``"cluster.yaml:12"``."""
        return self.origin.place(path)

    def to_yaml(self) -> str:
        """Return the configuration as YAML that ``load_config`` reads."""
        import yaml

        return yaml.safe_dump(as_document(self), sort_keys=False, allow_unicode=True)

    def fingerprint(self) -> str:
        """Return a hash of all that the ranks must agree on: everything but ``wait``.

        It is the same in every process and for every order of keys.
        """
        data = {key: value for key, value in as_document(self).items() if key != "wait"}
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def default_config() -> Config:
    """Return two levels, ``node`` in shared memory and ``network`` between, and no rules."""
    return Config()


def load_config(
    source: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """Return the configuration that ``source`` and the settings around it make.

    ``source`` is a YAML file, the bare name of a ready configuration (``ready_configs``), or a
    mapping of the same keys; None means ``han.rc.config``, then ``HAN_CONFIG``, then the
    defaults. A Config is complete and comes back as it is. For the single settings of
    ``han.rc`` the first of these that says something wins: a mapping given by the program, an
    attribute of ``han.rc``, the environment, the file, the default.

    Raises ConfigError, which lists all that is wrong with file, line, key, value and the known
    names.
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
        return Config(origin=document.origin)
    from han.config import documents

    data = documents.checked(documents.Config, document.data, document.origin)
    return Config(**data, origin=document.origin)


def validate_names(config: Config, catalogue: Catalogue) -> Config:
    """Return ``config`` with the parameters of its rules parsed as ``catalogue`` says.

    Raises ConfigError for submodules, algorithms and parameters that the catalogue does not
    have, with the known ones, and for values that a parameter does not take.
    """
    rules, problems = checks.named_rules(config.rules, catalogue)
    if problems:
        raise config_error(problems, config.origin)
    return replace(config, rules=rules)
