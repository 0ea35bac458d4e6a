"""Read the project's pages: their fenced blocks, commands, links and anchors.

The info string of a block says how the tests use it:

- ``python run ranks=4``: all such blocks of a page are one program, which runs on four ranks.
- ``sh run``: commands that run without MPI.
- ``yaml file=NAME``, ``python file=NAME``: a file that commands of the page may name.
- ``bash``: commands of a site's shell, which the tests do not know.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")
HEADING = re.compile(r"#+ (.*)")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block: the language, the words after it, and the line where its text begins."""

    language: str
    words: tuple[str, ...]
    text: str
    line: int

    def option(self, name: str) -> str | None:
        """Return the value of ``name=value`` among the words."""
        found = (w.partition("=")[2] for w in self.words if w.startswith(f"{name}="))
        return next(found, None)


@dataclass(frozen=True)
class Command:
    """A line of a shell block: environment, words, and the ranks that it is started on."""

    environment: dict[str, str]
    words: tuple[str, ...]
    ranks: int = 0  # 0: without mpiexec


def name_of(page: Path) -> str:
    """Return what a page is called in the names of tests."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """List the fenced blocks of a page."""
    found, opened, begun = [], None, 0
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if not line.startswith("```"):
            continue
        if opened is None:
            opened, begun = line[3:].split(), number + 1
            continue
        text = "\n".join(lines[begun - 1 : number - 1]) + "\n"
        language, *words = opened or [""]
        found.append(Block(language, tuple(words), text, begun))
        opened = None
    assert opened is None, f"{page}: the block of line {begun - 1} is not closed"
    return found


def prose(page: Path) -> str:
    """Return a page without its blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def program(page: Path) -> tuple[str, int]:
    """Return the program of a page, with its lines where the page has them, and its ranks."""
    lines: list[str] = []
    ranks = 1
    for block in blocks(page):
        if block.language == "python" and "run" in block.words:
            lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
            ranks = max(ranks, int(block.option("ranks") or 1))
    return "\n".join(lines), ranks


def commands(page: Path, only_run: bool = False) -> Iterator[Command]:
    """Yield the commands of a page's shell blocks; `only_run`: of blocks marked ``run``."""
    for block in blocks(page):
        if block.language == "sh" and ("run" in block.words or not only_run):
            for line in block.text.replace("\\\n", " ").splitlines():
                for part in line.partition(" #")[0].split("&&"):
                    yield from _command(shlex.split(part))


def _command(words: list[str]) -> Iterator[Command]:
    environment = {}
    while words and ASSIGNMENT.fullmatch(words[0]):
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    if words[:2] == ["mpiexec", "-n"]:
        yield Command(environment, tuple(words[3:]), int(words[2]))
    elif words and not words[0].startswith("#"):
        yield Command(environment, tuple(words))


def files(page: Path) -> dict[str, str]:
    """Return the files that a page shows, by name."""
    named = ((block.option("file"), block.text) for block in blocks(page))
    return {name: text for name, text in named if name}


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    lines = (HEADING.fullmatch(line) for line in prose(page).splitlines())
    found: set[str] = set()
    for match in filter(None, lines):
        text = re.sub(r"[^\w\- ]", "", match[1].strip().lower()).replace(" ", "-")
        number = 0
        while (anchor := f"{text}-{number}" if number else text) in found:
            number += 1
        found.add(anchor)
    return found


def links(page: Path) -> list[str]:
    """List the targets of a page's links and pictures, except those on other sites."""
    return [t for t in LINK.findall(prose(page)) if not re.match(r"[a-z]+:", t)]
