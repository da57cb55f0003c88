"""Sphinx's settings for the documentation site, which ``make docs`` builds from the Markdown pages of the repository."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
project = "gpuwatch"
release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_parser"]
root_doc = "docs/index"
# The source is the root of the repository, because some pages lie in folders of code and tests.
include_patterns = [
    "*.md",
    "docs/**.md",
    "annotate/RULES.md",
    "dashboards/README.md",
    "systemd/README.md",
    "tests/traces/README.md",
]
exclude_patterns = [".*", "build", "docs/site", "**/__pycache__"]
myst_heading_anchors = 4
smartquotes = False  # "--option" in a sentence stays an option
suppress_warnings = [
    "toc.not_included",  # decisions: a hundred entries would fill the sidebar of every page; a test follows all links
    "misc.highlighting_failure",  # Pygments cannot parse PromQL with recording rules; such a block has fewer colours
    "myst.header",  # some generated pages skip a heading level
]

html_theme = "furo"
html_title = f"gpuwatch {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
templates_path = ["templates"]
html_additional_pages = {"index": "redirect.html"}  # the home page is docs/index.html
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_use_index = False
html_permalinks_icon = "#"
pygments_style = "tango"
pygments_dark_style = "monokai"


def copy_pictures(app: Sphinx, error: Exception | None) -> None:
    """Copy the pictures, because Sphinx does not copy pictures in HTML such as `<picture>` with a dark and a light source."""
    for path in (ROOT / "docs").glob("*-*.[ps][nv]g") if error is None else ():
        shutil.copy(path, app.outdir / "docs" / path.name)


def setup(app: Sphinx) -> None:
    """Register the copying of pictures after the build."""
    app.connect("build-finished", copy_pictures)
