"""Tests of the names, links and paths on pages; ``test_shown_code`` runs the code on pages."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch.client.window import Window
from tests.shown_code import blocks, pages

ROOT = Path(__file__).parents[1]
MAP_ROWS_COUNT = 30  # a longer map would be useless
CALLS: dict[str, Callable[..., object]] = {
    "gpuwatch.bench": gpuwatch.bench,
    "gpuwatch.compare": gpuwatch.compare,
    "gpuwatch.window": gpuwatch.window,
}


SNIPPETS = [(block.page, block.code) for block in blocks() if block.language == "python"]


@pytest.mark.parametrize(("page", "code"), SNIPPETS)
def test_shown_keywords_and_methods_exist(page: str, code: str) -> None:
    """Keyword arguments and methods of windows in Python blocks exist."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name in CALLS:
            known = inspect.signature(CALLS[name]).parameters
            assert {keyword.arg for keyword in node.keywords} <= set(known), page
        elif name.startswith("w."):
            assert hasattr(Window, name.removeprefix("w.")), page


@pytest.mark.parametrize("page", pages())
def test_page_links_have_targets(page: str) -> None:
    """Every file that a page links to or shows as a picture exists."""
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target


def test_map_names_existing_paths() -> None:
    """Every path on the map of DEVELOPMENT.md exists, and the map stays short."""
    table = (ROOT / "DEVELOPMENT.md").read_text().partition("## The map")[2].partition("The life cycle of a window")[0]
    named = re.findall(r"`((?:annotate|gpuwatch|tests|dashboards|systemd)/[\w/-]*(?:\.\w+)?)`", table)
    assert len(named) > 20
    for path in named:
        assert (ROOT / path).exists(), path
    assert table.count("\n| `") <= MAP_ROWS_COUNT


@pytest.mark.parametrize("page", ["README.md", "DEVELOPMENT.md", "SECURITY.md", "CHANGELOG.md"])
def test_page_paths_exist(page: str) -> None:
    """Every path from the root in backticks exists; capitals before .py, as in ``bench_NAME.py``, match any word."""
    for path in re.findall(r"`((?:annotate|gpuwatch|tests|dashboards|systemd|docs)/[\w./-]+)`", (ROOT / page).read_text()):
        assert any(ROOT.glob(re.sub(r"[A-Z]{4,}(?=\.py)", "*", path))), path


def test_security_page_names_existing_tests() -> None:
    """Every test named in SECURITY.md exists, so that renaming a test cannot leave a promise untested."""
    defined = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text()))
    assert len(named) > 5
    assert named <= defined, named - defined


def test_recipes_name_existing_classes() -> None:
    """Every class in a recipe, such as "one `Alert`", is a class of this tree."""
    recipes = (ROOT / "DEVELOPMENT.md").read_text().partition("## Recipes")[2].partition("## Code style")[0]
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*)`", recipes))
    code = [
        path.read_text() for folder in ("annotate", "gpuwatch", "dashboards", "tests") for path in (ROOT / folder).rglob("*.py")
    ]
    assert len(named) > 5
    assert named <= {name for text in code for name in re.findall(r"^class (\w+)", text, re.M)}
