"""Tests of the pages' names, links and paths; ``test_shown_code`` runs the code on them."""

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
ROOMS_COUNT = 30  # a longer map would be useless
CALLS: dict[str, Callable[..., object]] = {
    "gpuwatch.bench": gpuwatch.bench,
    "gpuwatch.compare": gpuwatch.compare,
    "gpuwatch.window": gpuwatch.window,
}


SNIPPETS = [(block.page, block.code) for block in blocks() if block.language == "python"]


@pytest.mark.parametrize(("page", "code"), SNIPPETS)
def test_every_keyword_shown_is_one(page: str, code: str) -> None:
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
def test_every_link_leads_somewhere(page: str) -> None:
    """Every link and picture of a page exists; a picture exists in both themes."""
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target


def test_every_module_on_the_map_exists() -> None:
    table = (ROOT / "DEVELOPMENT.md").read_text().partition("## The map")[2].partition("The life cycle of a window")[0]
    named = re.findall(r"`((?:annotate|gpuwatch|tests|dashboards|systemd)/[\w/-]*(?:\.\w+)?)`", table)
    assert len(named) > 20
    for path in named:
        assert (ROOT / path).exists(), path
    assert table.count("\n| `") <= ROOMS_COUNT


@pytest.mark.parametrize("page", ["README.md", "DEVELOPMENT.md", "SECURITY.md", "CHANGELOG.md"])
def test_every_path_named_exists(page: str) -> None:
    """Every path from the top of the tree exists; a word in capitals, as in ``bench_NAME.py``, stands for any word."""
    for path in re.findall(r"`((?:annotate|gpuwatch|tests|dashboards|systemd|docs)/[\w./-]+)`", (ROOT / page).read_text()):
        assert any(ROOT.glob(re.sub(r"[A-Z]{4,}(?=\.py)", "*", path))), path


def test_every_test_that_security_names_exists() -> None:
    """Every test named in SECURITY.md exists, so that a renamed test cannot leave a promise untested."""
    defined = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text()))
    assert len(named) > 5
    assert named <= defined, named - defined


def test_every_record_that_a_recipe_names_exists() -> None:
    """A recipe that names a class, such as "one `Alert`", names a class of this tree."""
    recipes = (ROOT / "DEVELOPMENT.md").read_text().partition("## Recipes")[2].partition("## Code style")[0]
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*)`", recipes))
    code = [
        path.read_text() for folder in ("annotate", "gpuwatch", "dashboards", "tests") for path in (ROOT / folder).rglob("*.py")
    ]
    assert len(named) > 5
    assert named <= {name for text in code for name in re.findall(r"^class (\w+)", text, re.M)}
