"""A group of commands that imports a command's module when the command is run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_command


@dataclass(frozen=True)
class Command:
    """One row of the table of commands: its function is `name` in `module`, with underscores.

    `settings` are the context settings of click.
    """

    name: str
    module: str
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Any:
        """Import the module, and return the command."""
        function = getattr(importlib.import_module(self.module), self.name.replace("-", "_"))
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(self.name, context_settings=dict(self.settings))(function)
        return get_command(alone)


@dataclass(frozen=True)
class Completion:
    """A word that the shell may complete, with the attributes that click's completion reads."""

    value: str
    help: str
    type: str = "plain"


class LazyGroup(TyperGroup):
    """Lists, completes and describes the commands of `table` without their modules.

    A program may register commands of its own, which come after those of the table.
    """

    table: ClassVar[tuple[Command, ...]] = ()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the table."""
        return [*(row.name for row in self.table), *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name, or None."""
        for row in self.table:
            if row.name == cmd_name:
                return row.load()
        return super().get_command(ctx, cmd_name)

    def summaries(self) -> list[tuple[str, str]]:
        """Return the name and the summary of each command."""
        own = [(name, command.get_short_help_str()) for name, command in self.commands.items()]
        return [*((row.name, row.summary) for row in self.table), *own]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line for each command: its name and its summary."""
        with formatter.section("Commands"):
            formatter.write_dl(self.summaries())

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return the commands, or the options, that begin with `incomplete`."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [Completion(*row) for row in self.summaries() if row[0].startswith(incomplete)]
