"""What a communicator is set up with, before its ranks meet: from its arguments and surroundings.

A child takes over what its parent was given, so nothing is read or compared once more.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from han.common.errors import ConfigError
from han.common.units import plural
from han.config.config import Config
from han.config.environment import statistics_output
from han.config.parts import Wait
from han.ranks.discover import Settings, try_to_load
from han.ranks.machine import fingerprint
from han.trace.tracing import trace_folder
from han.tuning.built_in import machine_classes, table
from han.tuning.tuned.find import OFF, Search, find_table

LISTED = 8  # ranks in a message, at most


def tuned_table(config: Config | None) -> Search:
    """Return the table that this rank found for a configuration; it never raises."""
    wanted = OFF if config is None else config.tuned
    wait = Wait() if config is None else config.wait
    return find_table(wanted, partial(fingerprint, wait))


def agreed_table(mine: Search, others: Sequence[int]) -> Search:
    """Return the table that all ranks use; `others` found another one, or none, than rank 0."""
    if not others:
        return mine
    ranks = ", ".join(map(str, others[:LISTED])) + (", ..." if len(others) > LISTED else "")
    return mine.without_table(
        f"{plural(len(others), 'rank')} ({ranks}) found another tuned table than rank 0, so the "
        "built-in choices are used; give all ranks the same file: HAN_TUNED=FILE"
    )


def tell_problem(search: Search, rank: int) -> None:
    """Warn on rank 0 about a table that cannot be used."""
    if search.problem and rank == 0:
        warnings.warn(f"tuned table: {search.problem}", UserWarning, stacklevel=5)


class Given(NamedTuple):
    """The configuration, what all ranks must have alike (`settings`), and what they need not.

    `config` is None if it cannot be used; `problem` then says why. `statistics` is where counts of
    calls go, or "". `tuned` is the tuned table. `number` stands for the settings that were
    read; 0 if they name a problem.
    """

    config: Config
    settings: Settings
    problem: ConfigError | None
    statistics: str
    tuned: Search
    number: int

    @classmethod
    def read(cls, config: Any) -> Given:
        """Read the configuration and the environment; it raises nothing."""
        loaded, problem = try_to_load(config)
        folder, trouble = trace_folder()
        statistics, mistake = statistics_output()
        said = trouble or mistake if problem is None else str(problem)
        fingerprint = loaded.fingerprint() if loaded else ""
        tuned = tuned_table(loaded)
        choices = f"{table.digest()} {machine_classes.digest()}"
        settings = Settings(fingerprint, said, folder, bool(statistics), tuned.digest, choices)
        return cls(loaded, settings, problem, statistics, tuned, _number(settings))

    def using(self, tuned: Search) -> Given:
        """Return the same with another tuned table, or none; `number` still tells what was set."""
        return self._replace(tuned=tuned, settings=self.settings._replace(tuned=tuned.digest))


def _number(settings: Settings) -> int:
    if settings.problem:
        return 0
    digest = hashlib.blake2b(repr(settings).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) or 1
