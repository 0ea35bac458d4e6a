"""Tuned tables as rules of a configuration, which a person can read and edit."""

from __future__ import annotations

from dataclasses import replace

from han.common.units import format_size
from han.tuning.row import Row
from han.tuning.tuned.table import TunedTable
from han.tuning.tuned.texts import spell
from han.tuning.tuned.uses import use_record


def chosen(table: TunedTable) -> TunedTable:
    """Return a table without the rows that keep the built-in choice."""
    return replace(table, rows=tuple(row for row in table.rows if row.use is not None))


def as_rules(table: TunedTable) -> str:
    """Return a table as YAML that ``load_config`` reads.

    Where the built-in choice is kept there is no rule.
    """
    import yaml

    lines = [
        f"# Made by 'han tune export' from {table.source or 'a tuned table'},",
        f"# measured on {table.machine.cpu}, {table.machine.library} "
        f"{table.machine.library_version}.",
        *(f"# {line}" for line in table.others()),
    ]
    rows = chosen(table).rows
    if not rows:
        return "\n".join([*lines, "# The built-in choices are the best ones found.", "rules: []\n"])
    lines.append("rules:")
    for row in rows:
        assert row.use is not None
        rule = {"when": row.when.document(), "use": use_record(row.use)}
        written = yaml.safe_dump([rule], sort_keys=False, allow_unicode=True)
        lines += [f"# {_about(row)}", written.rstrip()]
    return "\n".join(lines) + "\n"


def _about(row: Row) -> str:
    """Return the measured sizes of a row, how fast its choice is, and the choice."""
    choice = spell(row.use) if row.use else ""
    if not row.measured:
        return f"{row.name}: {choice}"
    ends = row.measured[0], row.measured[-1]
    sizes = " to ".join(dict.fromkeys(format_size(p.nbytes) for p in ends))
    gains = [p.default.median / p.best.median for p in row.measured]
    most = f"{min(gains):.2f} to {max(gains):.2f}" if len(gains) > 1 else f"{gains[0]:.2f}"
    return f"{sizes}: {most} times as fast as built-in; {choice}"
