"""Settings of the documentation site, which ``make docs`` builds with Sphinx."""

import re
import sys
from pathlib import Path
from typing import Any

import mpi4py
import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

mpi4py.rc.initialize = False  # the reference imports han on one process, outside any job
DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

from han import __version__  # noqa: E402
from han.cli import main  # noqa: E402

SOURCE = "https://github.com/han-collectives/han"
UNIT = re.compile(r"(?<=\d) (?=(?:B|[KMG]iB|us|ms|s|%)(?: |$))", re.M)
OUTSIDE = re.compile(r"(?<=\]\()(?![a-z]+:)([^)\s#]+)")

project = "han"
author = "The han developers"
copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"
exclude_patterns = ["_build"]
nitpicky = True
nitpick_ignore_regex = [("py:mod", r"han\..*")]  # modules without a page

myst_heading_anchors = 4  # as GitHub makes them

default_role = "code"  # names of arguments in docstrings
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "none"  # most arguments are whatever mpi4py takes
python_use_unqualified_type_names = True

html_theme = "pydata_sphinx_theme"
html_title = f"han {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["versions.js"]
html_copy_source = False
html_sidebars = {page: [] for page in ("index", "does-it-help", "tutorial")}  # they have no pages
html_theme_options = {
    "logo": {"text": html_title},
    "github_url": SOURCE,
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
    # Each version of the list has the address of its site.
    "switcher": {"json_url": "_static/versions.json", "version_match": release},
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
}


def point_to_source(app: Sphinx, docname: str, content: list[str]) -> None:
    """Turn links that leave docs/, and those to its folders, into links to the repository."""
    folder = (DOCS / docname).parent

    def pointed(match: re.Match[str]) -> str:
        target = (folder / match[1]).resolve()
        if target.is_file() and target.is_relative_to(DOCS):
            return match[0]
        kind = "tree" if target.is_dir() else "blob"
        return f"{SOURCE}/{kind}/main/{target.relative_to(ROOT)}"

    content[0] = OUTSIDE.sub(pointed, content[0])


def keep_units(app: Sphinx, docname: str, content: list[str]) -> None:
    """Keep numbers and units of tables on one line."""
    rows = re.compile(r"^\|.*$", re.M)
    content[0] = rows.sub(lambda row: UNIT.sub("\N{NO-BREAK SPACE}", row[0]), content[0])


class Commands(SphinxDirective):
    """A section for each command, with its help as the command prints it."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        whole = typer.main.get_command(main.app)
        with whole.make_context("han", [], resilient_parsing=True) as parent:
            return [self._section(row.name, row.load(), parent) for row in main.COMMANDS]

    def _section(self, name: str, command: Any, parent: Any) -> nodes.Node:
        with command.make_context(name, [], parent=parent, resilient_parsing=True) as context:
            context.terminal_width = context.max_content_width = 76
            text = command.get_help(context)
        section = nodes.section(ids=[f"han-{name}"])
        section += nodes.title(text=f"han {name}")
        section += nodes.literal_block(text, text, language="text")
        return section


def setup(app: Sphinx) -> None:
    """Register the directive and the functions above."""
    app.add_directive("han-commands", Commands)
    app.connect("source-read", point_to_source)
    app.connect("source-read", keep_units)
