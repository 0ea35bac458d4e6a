"""Models of what users may write in a configuration. Unknown keys are errors.

Each model checks one part of a document. `document.data()` returns it as plain data: the class of
`parts` or `rules` with the model's name and fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from han.common.suggest import unknown
from han.config import parts, rules
from han.config.document_types import (
    SCOPES,
    Binding,
    Collectives,
    Expression,
    FromList,
    Identifier,
    Letter,
    Model,
    Named,
    Names,
    NotEmpty,
    Parameter,
    Segment,
    Size,
    validated,
    values_of,
)
from han.config.errors import Inconsistent, Origin, Problem
from han.config.rules import Composition, Schedule
from han.model.topology import MAX_LEVELS

SMALLEST_MEMORY = 4096
_ONE_LEVEL = "tests one level, and a rule is for a whole call: only built-in rows have it"
OF_LEVELS = {
    "outermost": _ONE_LEVEL,
    "whole": _ONE_LEVEL,
    "composition": "is what a rule decides: write it in use",
    "reproducible": "is what a rule decides: write it in use",
}


def _optional(about: str) -> Any:
    """Return the field of a key that need not be given."""
    return Field(default=None, description=about)


class SizeScope(Model):
    """Groups of consecutive ranks within the enclosing level. The last group may be smaller."""

    size: int = Field(ge=1, description="Ranks of a group.")


class HostsScope(Model):
    """Groups of the ranks on the named hosts. A host that is not named is a group by itself."""

    hosts: Annotated[Mapping[str, Names], NotEmpty] = Field(
        description="The hosts of each group, by the name of the group."
    )

    @model_validator(mode="after")
    def _in_one_group(self) -> HostsScope:
        groups: dict[str, str] = {}
        for group, hosts in self.hosts.items():
            for host in hosts:
                if host in groups:
                    raise ValueError(f"host {host!r} is in {groups[host]!r} and in {group!r}")
                groups[host] = group
        return self


class RegexScope(Model):
    """Groups of the ranks whose host names match an expression in the same way.

    The first group of the expression is compared, or the whole match if it has no group. A host
    that does not match is a group by itself.
    """

    regex: Expression = Field(
        description="A regular expression of Python, matched with the names of hosts.",
    )


def _scope_tag(scope: object) -> str | None:
    if isinstance(scope, str):
        return "<name>"
    keys = scope if isinstance(scope, Mapping) else getattr(type(scope), "model_fields", ())
    return next((f"<{key}>" for key in ("size", "hosts", "regex") if key in keys), None)


Scope = Annotated[
    Annotated[Named, Tag("<name>")]
    | Annotated[SizeScope, Tag("<size>")]
    | Annotated[HostsScope, Tag("<hosts>")]
    | Annotated[RegexScope, Tag("<regex>")],
    Discriminator(
        _scope_tag,
        custom_error_type="scope",
        custom_error_message=unknown("scope", "", SCOPES),
    ),
]


class Level(Model):
    """One level of the machine: the ranks of a group communicate on it."""

    name: Identifier = Field(
        description="The name, an identifier that rules refer to.",
        json_schema_extra={"pattern": "^[^\\W\\d]\\w*$"},
    )
    scope: Scope = Field(description="Which ranks form a group of this level.")
    symbol: Letter = Field(
        default="",
        description="One letter for names of tasks. By default it is chosen from the name.",
        json_schema_extra={"pattern": "^[A-Za-z]$"},
    )


class _Range(Model):
    @model_validator(mode="after")
    def _in_order(self) -> _Range:
        low, high = self.data()
        if low > high:
            raise ValueError(f"min {low} is larger than max {high}")
        return self

    def data(self) -> rules.Ends:
        """Return both ends."""
        low, high = dict(self).values()
        return low or 0, rules.MOST if high is None else high


class Count(_Range):
    """A range of counts. Both ends are included; without an end the range is open there."""

    min: int | None = Field(default=None, ge=0, description="The least count.")
    max: int | None = Field(default=None, ge=0, description="The largest count.")


class Bytes(_Range):
    """A range of sizes. Both ends are included; without an end the range is open there."""

    min: Size | None = _optional("The least size in bytes.")
    max: Size | None = _optional("The largest size in bytes.")


class When(Model):
    """The calls that a rule is for. A key that is not given is for all calls."""

    collective: Collectives | None = _optional("A collective, or a list of collectives.")
    bytes: Bytes | None = _optional("The bytes of one rank's data.")
    nodes: Count | None = _optional("The number of nodes.")
    ppn: Count | None = _optional("The largest number of ranks on a node.")
    commutative: bool | None = _optional("Whether the operation is commutative.")
    ranks: Count | None = _optional("The number of ranks.")
    prime: Count | None = _optional("The largest prime factor of the number of ranks.")
    root: Count | None = _optional("The rank of the root.")
    rails: Count | None = _optional("The number of network adapters that ranks are bound to.")
    cores: Count | None = _optional("The cores of the node that has fewest.")
    share: Bytes | None = _optional("The bytes, divided among the ranks.")
    link: Bytes | None = _optional("The bytes for each link of a chain of all ranks.")
    total: Bytes | None = _optional("The bytes of all ranks.")
    native: bool | None = _optional("Whether han has a kernel for the operation and the type.")
    heavy: bool | None = _optional("Whether it is slower than memory.")
    mapped: bool | None = _optional("Whether all buffers of all ranks are shared arrays.")
    attach: bool | None = _optional("Whether ranks can attach each other's memory.")
    uneven: bool | None = _optional("Whether blocks differ in size.")
    in_place: bool | None = _optional("Whether the call is in place.")
    mesh: bool | None = _optional("Whether cache lines move slowly from core to core.")
    rdma: bool | None = _optional("Whether the adapters of all nodes do remote DMA.")
    oversubscribed: bool | None = _optional("Whether ranks outnumber processors on a node.")
    sockets: bool | None = _optional("Whether ranks that share memory are on several sockets.")

    @model_validator(mode="before")
    @classmethod
    def _of_calls(cls, given: Any) -> Any:
        """Name what keys of rows of built-in choices test that are not about a call."""
        found = [key for key in OF_LEVELS if isinstance(given, Mapping) and key in given]
        if found:
            raise Inconsistent([Problem((key,), OF_LEVELS[key]) for key in found])
        return given

    def data(self) -> rules.When:
        """Return the condition."""
        given = {name: one for name, one in values_of(self).items() if one is not None}
        return rules.When.of(given.pop("collective", ()), given)


class KindUse(Model):
    """What one kind of tasks runs, where it differs from the level: algorithm and parameters."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Parameter]

    algorithm: str | None = _optional(
        "An algorithm. By default the level's, with the level's parameters."
    )

    def data(self) -> rules.KindUse:
        """Return the plain data: all keys but the algorithm are parameters."""
        return rules.KindUse(self.algorithm, self.model_extra or {})


class LevelUse(Model):
    """The submodule of one level, its algorithm, and parameters of the algorithm."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Parameter]

    submodule: str = Field(description="The submodule that carries out the tasks of the level.")
    algorithm: str | None = _optional(
        "An algorithm of the submodule. By default the built-in choice's or the first."
    )
    reduce: KindUse | None = _optional("What reductions run, if other.")
    bcast: KindUse | None = _optional("What broadcasts run, if other.")

    def data(self) -> rules.LevelUse:
        """Return the plain data: all keys but the named ones are parameters."""
        written = {kind: getattr(self, kind) for kind in rules.KINDS}
        kinds = {kind: use.data() for kind, use in written.items() if use is not None}
        return rules.LevelUse(self.submodule, self.algorithm, self.model_extra or {}, kinds)


class Use(Model):
    """What a rule decides. The built-in choice decides what the rule does not name."""

    composition: Composition | None = _optional(
        "How the levels work together: 'tree' reduces up the levels and broadcasts "
        "down, 'flat' has all ranks in one group, in 'nap' every rank of a node exchanges with "
        "another node, in 'lanes' ranks of one place in their nodes combine a share each, in "
        "'ring' pieces go round all nodes."
    )
    segment: Segment | None = _optional("Bytes of a segment, or 'whole' for no segmentation.")
    schedule: Schedule | None = _optional(
        "When tasks start: with their data (dataflow), or stage by stage (lockstep)."
    )
    levels: Mapping[str, LevelUse] = Field(
        default={}, description="The submodule of each level, by the name of the level."
    )
    reproducible: bool | None = _optional("Whether results have the same bits in any placement.")


class Rule(Model):
    """One rule: which calls it is for, and what they run."""

    when: When = Field(default=When(), description="The calls that the rule is for.")
    use: Use = Field(description="What such calls run.")


class Wait(Model):
    """How a rank waits. Ranks may wait in different ways."""

    policy: parts.Policy = Field(
        default="auto", description="What a waiting rank does between polls."
    )
    spin: int = Field(default=1000, ge=0, description="Polls before a waiting rank yields.")
    timeout: float = Field(
        default=600.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds until a collective that does not finish raises. 0 means never.",
    )
    progress: parts.Progress = Field(
        default="auto",
        description="Who steps nonblocking collectives while the rank does something else: a "
        "thread after a moment (auto), a thread from the start (thread), nobody (off).",
    )


class Rails(Model):
    """The network adapters (rails) of a node, and which of them carries a rank's messages."""

    count: int = Field(default=1, ge=1, description="Rails of a node.")
    bind: Binding = Field(
        default="local_rank",
        description="How the launcher binds ranks to rails: the ranks of a node take them in turn "
        "(local_rank), or the rail of each rank of a node.",
    )


class Config(Model):
    """What the user decided; the defaults are two levels and no rules."""

    levels: Annotated[tuple[Level, ...], FromList] = Field(
        default=(
            Level(name="node", symbol="s", scope="shared_memory"),
            Level(name="network", symbol="i", scope="all"),
        ),
        description="The levels of the machine, innermost first.",
        json_schema_extra={"minItems": 1, "maxItems": MAX_LEVELS},
    )
    rules: Annotated[tuple[Rule, ...], FromList] = Field(
        default=(),
        description="What calls run. The first rule that matches a call and can serve it decides.",
    )
    sockets: Scope = Field(
        default="socket",
        description="The groups below all levels that trees in shared memory follow.",
    )
    rails: Rails = Field(default=Rails(), description="The network adapters of a node.")
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
        default=True, description="Whether calls try two plans and keep the quicker one."
    )
    tuned: Annotated[str, NotEmpty] = Field(
        default="auto",
        description="A tuned table of 'han tune', 'auto' for the one of this machine, or 'off'.",
    )
    reproducible: bool = Field(
        default=False, description="Whether results have the same bits in any placement."
    )


MODELS: Mapping[str, type[Model]] = {
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
    **dict.fromkeys(("ranks", "prime", "root", "rails"), Count),
    **dict.fromkeys(("share", "link", "total"), Bytes),
    "use": Use,
    "rails": Rails,
    "wait": Wait,
}
KNOWN_KEYS = {key: tuple(model.model_fields) for key, model in MODELS.items()}


def checked(model: type[Model], data: object, origin: Origin) -> dict[str, Any]:
    """Return the plain data of a document by field; raises ConfigError with all problems."""
    return values_of(validated(model, data, origin, KNOWN_KEYS))


Kind = Literal["config", "machine"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(kind: Kind, submodules: Iterable[str] = ()) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file; editors offer the names of `submodules`."""
    from han.config.machine import MachineModel

    model, title = (
        (Config, "Configuration of han")
        if kind == "config"
        else (MachineModel, "Machine for predictions of han")
    )
    found = model.model_json_schema()
    use = found["$defs"].get("LevelUse")
    if use is not None and submodules:
        use["properties"]["submodule"]["examples"] = sorted(submodules)
    return {"$schema": DIALECT, **found, "title": title}


def schema_text(kind: Kind, submodules: Iterable[str] = ()) -> str:
    """Return the schema as the text of a file."""
    return json.dumps(schema(kind, submodules), indent=2) + "\n"
