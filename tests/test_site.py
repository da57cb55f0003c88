"""Tests of the documentation site and its pages."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests import shown_output

ROOT = Path(__file__).parents[1]
# Elements with an address that a browser fetches without a click.
FETCHED = {
    ("link", "href"),
    ("script", "src"),
    ("img", "src"),
    ("source", "src"),
    ("source", "srcset"),
    ("iframe", "src"),
    ("object", "data"),
}
UNLINKED = {"search.html", "index.html"}  # the target of the search form; the redirect to the home page


class PageAddresses(HTMLParser):
    """The addresses of one page: fetched by the browser, or followed by a reader."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: set[str] = set()
        self.followed: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and (tag, name) in FETCHED:
                self.fetched.add(value)
            elif value and (tag, name) == ("a", "href"):
                self.followed.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    folders = ["-d", str(out / "trees"), ".", str(out / "html")]
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs/site", *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out / "html"


@cache
def read_pages(site: Path) -> Mapping[Path, PageAddresses]:
    pages = {path: PageAddresses() for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        page.feed(path.read_text(encoding="utf-8"))
    return pages


def test_site_fetches_nothing_from_outside(site: Path) -> None:
    """Every style, script, font and picture is a file of the site, so the site works offline."""
    for path, page in read_pages(site).items():
        for address in page.fetched:
            assert not urlsplit(address).netloc, (path.name, address)
            target = site if address.startswith("/") else path.parent
            assert address.startswith("data:") or (target / unquote(urlsplit(address).path)).exists(), (path.name, address)
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style.name


def test_site_home_reaches_every_page(site: Path) -> None:
    """Links from the home page reach every page, including decisions, and no link leads to a missing page."""
    links = {
        path: {
            (path.parent / unquote(urlsplit(each).path)).resolve()
            for each in page.followed
            if not urlsplit(each).scheme and urlsplit(each).path
        }
        for path, page in read_pages(site).items()
    }
    seen, waiting = set[Path](), [site / "docs" / "index.html"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        for target in links.get(page, ()):
            assert target.exists(), (page.name, target.name)
            waiting += [target] if target.suffix == ".html" else []
    unseen = {path.relative_to(site).as_posix() for path in set(links) - seen}
    assert unseen <= UNLINKED, unseen


def test_site_root_redirects_to_home(site: Path) -> None:
    assert 'url=docs/index.html"' in (site / "index.html").read_text(encoding="utf-8")


def test_site_has_light_and_dark_colours(site: Path) -> None:
    assert "prefers-color-scheme" in (site / "_static" / "styles" / "furo.css").read_text(encoding="utf-8")


def test_guide_and_concept_pages_show_output() -> None:
    """``python -m tests.pages --check`` compares the verdicts on these pages with the current judge's output."""
    assert len(shown_output.pages()) >= 4


def test_shown_output_replaces_stale_blocks() -> None:
    """A block's stale output is rewritten, and the command stays."""
    command = "gpuwatch judge docs/concepts/recordings/steady-gemm.capsule"
    page = f"{shown_output.MARK}\n```console\n$ {command}\nREJECTED of old\n```\n"
    fresh = shown_output.write_page(page)
    assert fresh.startswith(f"{shown_output.MARK}\n```console\n$ {command}\nVALID  SIMULATED")
    assert "of old" not in fresh


def test_shown_output_refuses_other_programs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a gpuwatch command"):
        shown_output.run_command("rm -r x", tmp_path)


def test_decision_numbers_are_unique() -> None:
    """Decisions have consecutive numbers, repeated in their titles, and a date; two branches may have used the same number."""
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert [page.name[:4] for page in pages] == [f"{number:04d}" for number in range(1, len(pages) + 1)]
    for page in pages:
        title, date, *_ = page.read_text(encoding="utf-8").split("\n\n")
        assert title.startswith(f"# {page.name[:4]}: "), page.name
        assert re.fullmatch(r"Date: \d{4}-\d\d-\d\d", date), page.name
