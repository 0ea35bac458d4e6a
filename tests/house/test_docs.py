"""README and the pages of docs/: links, terms, variables; their commands exist, and run."""

import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pages
import pytest
import typer
from commands import app, call
from pages import PAGES, ROOT, Command, name_of

import han
from han.cli.main import COMMANDS as TABLE
from han.cli.paper import FIGURES
from han.config import load_config
from han.submodules.names import validate_names
from han.submodules.registry import registered

PAGE = pytest.mark.parametrize("page", PAGES, ids=name_of)
LARGEST_README = 8192  # bytes
LONGEST = 300  # lines of the architecture
PICTURES = ("svg", "png", "pdf")
ELSEWHERE = ("mkdir", "cd", ".")  # commands of the shell
VARIABLE = re.compile(r"\bHAN_[A-Z_]+\b")
WALK = re.compile(r"^\d+\. \[`([\w.]+)`\]\(([^)]+)\)", re.M)


def with_blocks(language: str, word: str) -> pytest.MarkDecorator:
    """Parametrize over the pages that have such blocks."""
    found = [
        page for page in PAGES
        if any(b.language == language and word in " ".join(b.words) for b in pages.blocks(page))
    ]  # fmt: skip
    return pytest.mark.parametrize("page", found, ids=name_of)


# ---- text ---------------------------------------------------------------------------------------


def target_of(page: Path, path: str) -> Path:
    """Return the file that a link names; a source distribution has the linked folders in han/."""
    target = (page.parent / path).resolve()
    return target if target.exists() else ROOT / "han" / target.relative_to(ROOT)


@PAGE
def test_links_resolve(page: Path) -> None:
    for link in pages.links(page):
        path, _, anchor = link.partition("#")
        target = target_of(page, path) if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in pages.anchors(target), link


def test_every_page_is_linked() -> None:
    seen, new = set(), [PAGES[0]]
    while new:
        page = new.pop()
        seen.add(page)
        found = ((page.parent / link.partition("#")[0]).resolve() for link in pages.links(page))
        new += {target for target in found if target.suffix == ".md"} - seen
    assert seen >= {*PAGES}


def test_every_picture_is_shown() -> None:
    shown = {(page.parent / link).resolve() for page in PAGES for link in pages.links(page)}
    assert {p for p in (ROOT / "docs").iterdir() if p.suffix[1:] in PICTURES} <= shown


def test_every_picture_has_a_source() -> None:
    """Pictures of papers are named as the figures that `han paper` knows."""
    told = (ROOT / "docs" / "reference" / "pictures.md").read_text()
    for path in (ROOT / "docs").rglob("*.png"):
        known = path.stem in FIGURES if path.parent.name == "papers" else f"`{path.stem}`" in told
        assert known, path


def test_the_reference_has_every_method_of_han() -> None:
    text = (ROOT / "docs" / "reference" / "comm.md").read_text()
    told = {*re.findall(r"^\.\. automethod:: \w+\.(\w+)$", text, re.M)}
    for kind in (han.Comm, han.Topocomm):
        ours = [base for base in kind.__mro__ if base.__module__.startswith("han.")]
        assert {n for base in ours for n in vars(base) if not n.startswith("_")} <= told


def test_the_site_lists_this_version() -> None:
    versions = json.loads((ROOT / "docs" / "_static" / "versions.json").read_text())
    assert [one["version"] for one in versions if one["version"] == han.__version__]
    assert all({"name", "url"} <= one.keys() for one in versions)


def test_sizes() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= LARGEST_README
    assert len((ROOT / "docs" / "architecture.md").read_text().splitlines()) <= LONGEST


def test_terms_are_unique_and_in_order() -> None:
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|", (ROOT / "docs" / "glossary.md").read_text(), re.M)
    terms = [term.lower() for row in rows for term in row.split(", ")]
    assert len(terms) == len({*terms}) > 0
    assert all(a.lower() < b.lower() for a, b in pairwise(rows))


def test_environment_variables() -> None:
    known = {*VARIABLE.findall(call("--help"))}
    named = {v for page in PAGES for v in VARIABLE.findall(page.read_text())}
    assert {v for v in named if not v.startswith("HAN_TEST_")} == known
    configuration = (ROOT / "docs" / "configuration.md").read_text()
    assert known == {*re.findall(r"^\| `(HAN_\w+)`", configuration, re.M)}
    assert {f"HAN_{name.upper()}" for name in type(han.rc).__slots__} <= known


def test_the_walk_of_a_call_names_functions_that_are_there() -> None:
    page = ROOT / "docs" / "architecture.md"
    steps = WALK.findall(page.read_text())
    assert len(steps) > 10
    for name, link in steps:
        text = target_of(page, link).read_text()
        last = name.rpartition(".")[2]
        assert re.search(rf"\b(def|class) {last}\b|^[\w *]+\b{last}\(", text, re.M), (name, link)


def test_every_command_has_a_section() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    for row in TABLE:
        assert f"\n## han {row.name}\n" in text, row.name


def test_submodules_algorithms_and_parameters_are_listed() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    for name, info in registered().items():
        section = re.search(rf"^### {name}$(.*?)(^##|\Z)", text, re.M | re.S)
        assert section, name
        words = {*re.findall(r"`(\w+)`", section[1])}
        assert {*info.algorithms, *info.parameters} <= words, name


def test_ready_files_are_listed() -> None:
    for page, folder in (("configuration", "configs"), ("predictions", "configs/machines")):
        text = (ROOT / "docs" / f"{page}.md").read_text()
        assert all(f"`{path.stem}`" in text for path in (ROOT / folder).glob("*.yaml"))


# ---- blocks -------------------------------------------------------------------------------------


@with_blocks("yaml", "file=")
def test_configurations_load(page: Path, tmp_path: Path) -> None:
    for name, text in pages.files(page).items():
        path = tmp_path / name
        path.write_text(text)
        if path.suffix == ".yaml" and not name.startswith("machine"):
            validate_names(load_config(path))


def test_programs_are_valid() -> None:
    for page in PAGES:
        for block in pages.blocks(page):
            if block.language == "python":
                compile(block.text, f"{name_of(page)}:{block.line}", "exec")


@with_blocks("python", "run")
def test_programs_run_on_one_rank(page: Path, tmp_path: Path) -> None:
    """On 2, 3 and 4 ranks: tests/mpi/test_docs.py."""
    text, ranks = pages.program(page)
    assert ranks <= 4
    if ranks > 1:
        return
    path = tmp_path / "program.py"
    path.write_text(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@with_blocks("sh", "run")
def test_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for name, text in pages.files(page).items():
        Path(name).write_text(text)
    for command in pages.commands(page, only_run=True):
        if not command.ranks and command.words[0] == "han":
            with mock.patch.dict(os.environ, command.environment):
                assert call(*command.words[1:]) or "--help" in command.words
    for command in pages.commands(page, only_run=True):
        for name in command.words:
            if name.rpartition(".")[2] in PICTURES and not command.ranks:
                assert Path(name).stat().st_size


@PAGE
def test_commands_exist(page: Path) -> None:
    known = {*VARIABLE.findall(call("--help"))}
    for command in pages.commands(page):
        assert {*command.environment} <= known, command
        check_command(command, page)


def check_command(command: Command, page: Path) -> None:
    """Fail unless what a command starts is there, with the options that it names."""
    name, *arguments = command.words
    if name == "han":
        parse(arguments)
    elif name == "make":
        check_make(arguments)
    elif name == "python":
        module = arguments[0] == "-m"
        target = arguments[1].replace(".", "/") + ".py" if module else arguments[0]
        shown = {*pages.files(page), "prog.py"}
        assert target in shown or (ROOT / target).is_file(), command
    elif name == "pip":
        check_pip(arguments)
    else:
        assert name in ELSEWHERE, command


def parse(arguments: list[str]) -> None:
    """Parse a command line of ``han`` without running it; raises for what it does not take."""
    group = typer.main.get_command(app)
    context = group.make_context("han", [*arguments], resilient_parsing=False)
    if not arguments[0].startswith("-"):
        chosen = group.get_command(context, arguments[0])
        assert chosen is not None, arguments
        chosen.make_context(arguments[0], arguments[1:], parent=context)


def check_make(arguments: list[str]) -> None:
    text = (ROOT / "Makefile").read_text()
    targets = {*re.findall(r"^([a-z-]+):.*##", text, re.M)}
    for word in arguments:
        variable = word.partition("=")[0]
        assert word in targets if "=" not in word else f"{variable} ?=" in text, word


def check_pip(arguments: list[str]) -> None:
    project = (ROOT / "pyproject.toml").read_text()
    optional = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = re.findall(r"\[([\w,]+)\]", " ".join(arguments))
    assert arguments[0] in ("install", "wheel")
    assert {e for group in extras for e in group.split(",")} <= {
        *re.findall(r"^\w+", optional, re.M)
    }
