"""The includes of the C core: folders include only those below them, files form no cycle."""

import re
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[2] / "han" / "native"
FILES = sorted(NATIVE.rglob("*.[ch]"))

# The folders that each folder may include; "" holds common layouts, the clock and the MPI table.
MAY_INCLUDE = {
    "": {""},
    "data": {"", "data"},
    "memory": {"", "memory"},
    "engine": {"", "data", "engine"},
    "simulate": {"", "simulate"},
    "door": {"", "door"},
    "python": {"", "data", "memory", "engine", "simulate", "python"},
}

# Headers of what several files of their folder define.
SHARED = {"engine/stepping", "python/module", "python/objects", "simulate/world"}

INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
COMMENT = re.compile(r"/\*.*?\*/", re.S)
DECLARED = re.compile(r"^(?!typedef)[A-Za-z][\w \t*]*?\b(han_\w+)\((?:[^()]|\([^()]*\))*\);", re.M)
FUNCTION_TYPE = re.compile(r"^typedef [\w \t*]*?\b(han_\w+)\(", re.M)
BY_TYPE = re.compile(r"^(han_\w+) (han_[\w,\s]+);", re.M)
DEFINED = re.compile(r"^[A-Za-z][\w \t*]*?\b(han_\w+)\((?:[^()]|\([^()]*\))*\)\s*\{", re.M)


def part(path: Path) -> str:
    """Return the common name of a header and its C file, such as "engine/queue"."""
    return path.relative_to(NATIVE).with_suffix("").as_posix()


def included(path: Path) -> list[str]:
    return INCLUDE.findall(path.read_text())


def graph() -> dict[str, set[str]]:
    """Return the parts that each part includes."""
    edges: dict[str, set[str]] = {}
    for path in FILES:
        others = {name.rsplit(".", 1)[0] for name in included(path)}
        edges.setdefault(part(path), set()).update(others - {part(path)})
    return edges


def circle(edges: dict[str, set[str]]) -> list[str]:
    """Return the parts that include a cycle, directly or through others."""
    left = dict(edges)
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    return sorted(left)


def test_every_include_names_a_file_from_the_root_of_the_core():
    missing = [
        (part(p), name) for p in FILES for name in included(p) if not (NATIVE / name).exists()
    ]
    assert not missing


def test_folders_include_only_folders_below_them():
    wrong = [
        (part(path), name)
        for path in FILES
        for name in included(path)
        if name.rpartition("/")[0] not in MAY_INCLUDE[part(path).rpartition("/")[0]]
    ]
    assert not wrong


def test_no_files_include_each_other_in_a_circle():
    assert circle({"a": {"b"}, "b": {"a"}, "c": {"a"}}) == ["a", "b", "c"]
    assert not circle(graph())


def test_a_c_file_includes_its_own_header_first():
    others = [p for p in FILES if p.suffix == ".c" and p.with_suffix(".h").exists()]
    assert not [part(p) for p in others if included(p)[0] != f"{part(p)}.h"]


def declared(text: str) -> set[str]:
    """Return the functions that a header declares: by prototypes, or by a type of functions."""
    lists = [names for kind, names in BY_TYPE.findall(text) if kind in function_types()]
    return set(DECLARED.findall(text)) | {
        name.strip() for names in lists for name in names.split(",")
    }


def function_types() -> set[str]:
    return {name for path in FILES for name in FUNCTION_TYPE.findall(path.read_text())}


def sources(header: Path) -> list[Path]:
    """Return the C file of a header's part, or those of its folder if they share it."""
    own = header.with_suffix(".c")
    if part(header) in SHARED:
        return sorted(header.parent.glob("*.c"))
    return [own] if own.exists() else []


def test_a_header_declares_only_functions_of_its_own_part():
    for header in (p for p in FILES if p.suffix == ".h"):
        text = "".join(COMMENT.sub("", source.read_text()) for source in sources(header))
        names = declared(COMMENT.sub("", header.read_text()))
        assert names <= set(DEFINED.findall(text)), part(header)


def test_files_are_short():
    assert not [part(p) for p in FILES if len(p.read_text().splitlines()) > 400]
