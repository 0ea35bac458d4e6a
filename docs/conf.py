"""Settings of the documentation site, which ``make docs`` builds with Sphinx."""

import re
import sys
from pathlib import Path

import mpi4py
from sphinx.application import Sphinx

mpi4py.rc.initialize = False  # the reference imports han on one process, outside any job
DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

from han import __version__  # noqa: E402

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
html_copy_source = False
html_sidebars = {page: [] for page in ("index", "does-it-help", "tutorial")}  # they have no pages
html_theme_options = {
    "logo": {"text": html_title},
    "github_url": SOURCE,
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
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


def setup(app: Sphinx) -> None:
    """Register the functions above."""
    app.connect("source-read", point_to_source)
    app.connect("source-read", keep_units)
