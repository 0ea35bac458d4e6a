"""Imports go one way: between rooms by a table, between files without a circle; files stay short.

Every import counts, also those inside functions, under TYPE_CHECKING, and by the name of a module
in a string.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
# Each room may import itself and the rooms before it; the front is the files in han/ itself.
ORDER = (
    "common", "model", "config", "tasks", "submodules", "tuning", "message", "ranks", "memory",
    "trace", "runtime", "front", "measure", "plots", "cli", "torch",
)  # fmt: skip
# Modules that a room below them loads by name, at first use.
BY_NAME = {("han.common.pictures", "han.plots.tasks")}  # notebooks show pictures of plans
COMPILED = "han._native"  # lies below all rooms
COMMAND = "han.__main__"  # starts the command line, so it is of its room

LONGEST_FILE = 400  # lines
LONG_FUNCTION, SHORT_FUNCTIONS = 25, 0.9  # lines with the docstring; the share that has no more


class Import(NamedTuple):
    """A file's import of another one."""

    file: str
    line: int
    importer: str
    imported: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.importer} imports {self.imported}"


@cache
def modules() -> dict[str, Path]:
    """Return the file of each module of han, the linked folders' too."""
    found = {}
    for folder, _, names in os.walk(ROOT / "han", followlinks=True):
        for path in (Path(folder, name) for name in names if name.endswith(".py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(p for p in parts if p != "__init__")] = path
    return found


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text())


def imports(name: str) -> Iterator[Import]:
    """Yield what a module imports of han, wherever the statement is."""
    file = str(modules()[name].relative_to(ROOT))
    for node in ast.walk(tree(name)):
        wanted: list[str] = []
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}:{node.lineno}: a relative import"
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            wanted = [n if n in modules() or n == COMPILED else str(node.module) for n in inside]
        elif isinstance(node, ast.Constant) and (name, node.value) not in BY_NAME:
            wanted = [str(node.value)] if str(node.value).startswith("han.") else []
        for other in dict.fromkeys(wanted):
            if other in modules() and other != name:
                yield Import(file, node.lineno, name, other)


@cache
def all_imports() -> tuple[Import, ...]:
    return tuple(one for name in modules() for one in imports(name))


def room(module: str) -> str:
    if module == COMMAND:
        return "cli"
    folder = "".join(module.split(".")[1:2])
    return folder if folder and (ROOT / "han" / folder).is_dir() else "front"


def test_every_room_has_its_place():
    assert {room(name) for name in modules()} <= set(ORDER)


def test_rooms_import_only_rooms_below_them():
    upward = [
        f"{one}: '{room(one.importer)}' lies below '{room(one.imported)}'"
        for one in all_imports()
        if ORDER.index(room(one.imported)) > ORDER.index(room(one.importer))
    ]
    assert not upward, "\n".join(upward)


def test_no_files_import_each_other_in_a_circle():
    edges: dict[str, set[str]] = {name: set() for name in modules()}
    for one in all_imports():
        edges[one.importer].add(one.imported)
    told = ""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        circle = error.args[1]  # each is imported by the one behind it
        pairs = set(zip(circle[1:], circle, strict=False))
        told = "\n".join(str(one) for one in all_imports() if (one.importer, one.imported) in pairs)
    assert not told, f"a circle:\n{told}"


def test_files_are_short():
    lines = {name: len(path.read_text().splitlines()) for name, path in modules().items()}
    assert not {name: n for name, n in lines.items() if n > LONGEST_FILE}


def test_functions_are_short():
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    sizes = [
        node.end_lineno - node.lineno + 1
        for name in modules()
        for node in ast.walk(tree(name))
        if isinstance(node, kinds) and node.end_lineno is not None
    ]
    assert sum(n <= LONG_FUNCTION for n in sizes) >= SHORT_FUNCTIONS * len(sizes)
