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
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator

from han.common.units import format_size, parse_size
from han.config import checks as checks
from han.config.catalogue import Catalogue, ParameterInfo, SubmoduleInfo
from han.config.errors import Inconsistent, Origin, config_error, problems_of
from han.config.models import (
    Bytes,
    Count,
    FromList,
    HostsScope,
    Level,
    LevelUse,
    Model,
    RegexScope,
    Rule,
    Scope,
    Size,
    SizeScope,
    Use,
    Wait,
    When,
)
from han.config.rc import VARIABLES, rc
from han.config.settings import with_settings
from han.config.source import read_document, ready_configs
from han.model.collectives import COLLECTIVES
from han.model.topology import MAX_LEVELS

__all__ = [
    "COLLECTIVES",
    "Bytes",
    "Catalogue",
    "Config",
    "Count",
    "HostsScope",
    "Level",
    "LevelUse",
    "ParameterInfo",
    "RegexScope",
    "Rule",
    "Scope",
    "SizeScope",
    "SubmoduleInfo",
    "Use",
    "Wait",
    "When",
    "default_config",
    "format_size",
    "load_config",
    "parse_size",
    "ready_configs",
    "validate_names",
]

TWO_LEVELS = (
    Level(name="node", symbol="s", scope="shared_memory"),
    Level(name="network", symbol="i", scope="all"),
)
SMALLEST_MEMORY = 4096


class Config(Model):
    """What the user decided; the defaults are two levels and no rules."""

    levels: Annotated[tuple[Level, ...], FromList] = Field(
        default=TWO_LEVELS,
        description="The levels of the machine, innermost first.",
        json_schema_extra={"minItems": 1, "maxItems": MAX_LEVELS},
    )
    rules: Annotated[tuple[Rule, ...], FromList] = Field(
        default=(),
        description="What calls run. The first rule that matches wins, built-in rules come last.",
    )
    sockets: Scope = Field(
        default="socket", description="The groups below all levels that trees in memory look at."
    )
    memory: Annotated[Size, Field(ge=SMALLEST_MEMORY)] = Field(
        default=16 * 2**20, description="Shared memory of one channel in bytes."
    )
    plans: Annotated[int, Field(ge=1)] = Field(
        default=512, description="Plans that a communicator keeps."
    )
    wait: Wait = Field(default=Wait(), description="How a rank waits.")
    check: bool = Field(
        default=False, description="Whether the ranks compare their arguments in every call."
    )
    trials: bool = Field(
        default=True, description="Whether large calls try two ways and keep the quicker one."
    )
    _origin: Origin = PrivateAttr(default=Origin())

    @field_validator("levels")
    @classmethod
    def _give_symbols(cls, levels: tuple[Level, ...]) -> tuple[Level, ...]:
        if not levels:
            raise ValueError("needs at least one level")
        if len(levels) > MAX_LEVELS:
            raise ValueError(f"{len(levels)} levels, at most {MAX_LEVELS}")
        return checks.with_symbols(levels)

    @model_validator(mode="after")
    def _hold_together(self) -> Config:
        problems = [
            *checks.level_problems(self.levels),
            *checks.rule_problems(self.rules, self.levels),
            *checks.socket_problems(self.sockets),
        ]
        if problems:
            raise Inconsistent(problems)
        return self

    @property
    def source(self) -> str:
        """The file that the configuration was read from, or what else it came from."""
        return self._origin.name

    def place(self, *path: str | int) -> str:
        """Return where a value was written: ``place("rules", 0)`` is ``"cluster.yaml:12"``."""
        return self._origin.place(path)

    def to_yaml(self) -> str:
        """Return the configuration as YAML that ``load_config`` reads."""
        import yaml

        data = self.model_dump(mode="json", exclude_none=True)
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)

    def fingerprint(self) -> str:
        """Return a hash of all that the ranks must agree on: everything but ``wait``.

        It is the same in every process and for every order of keys.
        """
        data = self.model_dump(mode="json", exclude={"wait"})
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
    return _validated(document.data, document.origin)


def validate_names(config: Config, catalogue: Catalogue) -> Config:
    """Return ``config`` with the parameters of its rules parsed as ``catalogue`` says.

    Raises ConfigError for submodules, algorithms and parameters that the catalogue does not
    have, with the known ones, and for values that a parameter does not take.
    """
    rules, problems = checks.named_rules(config.rules, catalogue)
    if problems:
        raise config_error(problems, config._origin)
    return config.model_copy(update={"rules": rules})


def _validated(data: object, origin: Origin) -> Config:
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        raise config_error(problems_of(error, _KNOWN_KEYS), origin) from None
    config._origin = origin
    return config


_MODELS: Mapping[str, type[Model]] = {
    "": Config,
    "levels": Level,
    "<size>": SizeScope,
    "<hosts>": HostsScope,
    "<regex>": RegexScope,
    "rules": Rule,
    "when": When,
    "bytes": Bytes,
    "nodes": Count,
    "ppn": Count,
    "use": Use,
    "wait": Wait,
}
_KNOWN_KEYS = {key: tuple(model.model_fields) for key, model in _MODELS.items()}
