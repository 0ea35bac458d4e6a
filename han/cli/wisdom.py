"""The command ``han wisdom``: lists and removes stored plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from han.cli.common import JsonFlag, say
from han.cli.world import rank
from han.common.errors import ArgumentError, ConfigError
from han.common.units import format_size
from han.tasks.signature import Signature


def wisdom(
    folder: Annotated[
        Path | None, typer.Argument(help="The folder of the plans. By default that of HAN_WISDOM.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all stored plans.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List or remove the plans that HAN_WISDOM has stored.

    \b
    Examples:
      HAN_WISDOM=~/.cache/han mpiexec -n 4 python prog.py
      HAN_WISDOM=~/.cache/han han wisdom
      han wisdom ~/.cache/han --clear
    """
    if rank():  # rank 0 reads and removes the files
        return
    place = folder or _folder()
    if place is not None and not place.is_dir():
        raise ArgumentError(f"{place}: no such folder; name the one that HAN_WISDOM has named")
    rows = _rows(place) if place is not None else []
    if clear and place is not None:
        for row in rows:
            Path(row["path"]).unlink(missing_ok=True)
        say(f"{len(rows)} stored plans removed from {place}")
    elif as_json:
        say(json.dumps({"folder": None if place is None else str(place), "plans": rows}, indent=1))
    else:
        say(_text(place, rows))


def _folder() -> Path | None:
    from han.runtime.stored_plans import wisdom_folder

    name, problem = wisdom_folder()
    if problem is not None:
        raise ConfigError(problem)
    return Path(name) if name else None


def _rows(place: Path) -> list[dict[str, Any]]:
    """Return a record for each file, also for those that cannot be used."""
    from han.runtime.stored_plans import about, stored

    return [
        {"path": str(one.path), "bytes": one.nbytes, **_said(about(one.path))}
        for one in sorted(stored(place), key=lambda one: one.path.name)
    ]


def _said(key: dict[str, Any]) -> dict[str, Any]:
    if "unusable" in key:
        return key
    try:
        call, topology = key["call"], key["topology"]
        return {
            "call": Signature(**call["signature"]).describe(),
            "rank": key["rank"],
            "ranks": len(topology["memory"]),
            "levels": list(topology["names"]),
            "han": key["han"],
            "blocking": call["blocking"],
        }
    except (KeyError, TypeError) as error:
        return {"unusable": f"not a plan of this version: {error}"}


def _text(place: Path | None, rows: list[dict[str, Any]]) -> str:
    if place is None:
        return "plans are not stored; set HAN_WISDOM to a folder of your own to store them"
    if not rows:
        return f"no stored plans in {place}"
    total = format_size(sum(row["bytes"] for row in rows))
    lines = [f"{len(rows)} stored plans in {place}, {total}"]
    for row in rows:
        if "unusable" in row:
            lines.append(f"  {Path(row['path']).name}: not usable: {row['unusable']}")
        else:
            lines.append(
                f"  {row['call']}, rank {row['rank']} of {row['ranks']}, "
                f"{' < '.join(row['levels'])}, {row['bytes']} bytes"
            )
    return "\n".join(lines)
