"""Sphinx's settings for the documentation site, which ``make docs`` builds from the Markdown pages of the repository."""

from __future__ import annotations

import gc
import shutil
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

gc.disable()  # a build makes millions of small objects that stay in use: collections take a quarter of the CPU time

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


_navigations: dict[str, Callable[..., str]] = {}  # by folder


def share_navigation(_app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: Any) -> None:
    """Render the sidebar's entries once for all decisions: no decision is among them, and all have the same addresses."""
    if page.startswith("docs/decisions/0"):
        context["toctree"] = _navigations.setdefault("decisions", cache(context["toctree"]))


class CachedEnglish(SearchEnglish):
    """English for the search index; each word's stem is computed once."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._stem = cache(super().stem)

    def stem(self, word: str) -> str:
        """Return the stem of a word."""
        return self._stem(word)


def setup(app: Sphinx) -> None:
    """Register the cached stems, the shared sidebar, before the theme reads it, and the copying of pictures."""
    app.add_search_language(CachedEnglish)
    app.connect("html-page-context", share_navigation, priority=400)
    app.connect("build-finished", copy_pictures)
