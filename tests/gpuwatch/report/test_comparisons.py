"""Tests of several runs in one report."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
from markdown_it import MarkdownIt

from annotate.compare.decision import Comparison, Decision
from annotate.evidence import Evidence
from gpuwatch.report import histograms
from gpuwatch.report.ci_formats import markdown
from gpuwatch.report.comparisons import comparisons, names
from tests.annotate.builders import DEVICE, evidence
from tests.annotate.compare.test_decision import stamped
from tests.gpuwatch.report.conftest import Page, judged, rendered, scaled, scene
from tests.gpuwatch.report.test_html_page import HOSTILE


def slow() -> Evidence:
    return scene("from-idle")


@cache
def quick() -> Evidence:
    return scaled(slow(), 0.9, "tuned")


def test_page_orders_conditions_decision_windows() -> None:
    page = Page(rendered(judged(slow(), run_id="0a"), judged(scene("neighbour"), run_id="0b"), judged(quick(), run_id="0c")))
    parts = [
        "3 windows",
        "Differences between these windows",
        "processes",
        "Comparison of the times",
        "INCOMPARABLE",
        "FASTER",
        "Conditions GPU",
    ]
    places = [page.words.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)
    assert "tuned against from-idle: time at the same clock -10.00 %" in page.words
    overlaid = page.data("gpuwatch-drawn")["overlaid"]
    assert [each["name"] for each in overlaid["measured"]] == ["from-idle", "neighbour", "tuned"]
    assert all(max(each["y"]) == 1 for each in (*overlaid["measured"], *overlaid["corrected"]))


def test_comparisons_take_first_of_same_gpu_and_other_run() -> None:
    device = quick().device
    other = replace(quick(), device=replace(device, uuid="GPU-2")) if device else quick()
    found = comparisons(
        [judged(slow(), run_id="0a"), judged(other, run_id="0a"), judged(scaled(other, 1.0, "again"), run_id="0b")]
    )
    assert [(each.a, each.b) for each in found] == [("tuned", "again")]
    assert [(each.a, each.b) for each in comparisons([judged(slow()), judged(quick())])] == [("from-idle", "tuned")]


def test_page_compares_two_cards_at_one_clock() -> None:
    """The page shows the decision, the common clock and the spread between cards."""
    here, there = (evidence(timings=stamped(2e-3, mhz, seed=seed)) for mhz, seed in ((1490.0, 0), (1430.0, 3)))
    there = replace(there, device=replace(DEVICE, uuid="GPU-2"))
    page = Page(rendered(judged(here, run_id="0a"), judged(there, run_id="0b")))
    assert "SAME test (2) against test (1): time at the same clock" in page.words
    assert "two machines, at 1462 MHz" in page.words
    assert "between cards 0.40 %" in page.words


def test_windows_of_equal_label_are_numbered() -> None:
    windows = [judged(slow(), run_id="0a"), judged(slow(), run_id="0b"), judged(quick(), run_id="0c")]
    assert names(windows) == ["from-idle (1)", "from-idle (2)", "tuned"]
    assert [each.decision for each in comparisons(windows)] != [Decision.FASTER] * 2


def test_page_reports_missing_times() -> None:
    """Without times of both windows there is no comparison, and the page gives the reason."""
    windows = [judged(replace(slow(), timings=None), run_id="0a"), judged(quick(), run_id="0b")]
    assert comparisons(windows) == []
    assert (
        "Times are not compared: a comparison needs two runs with times of single iterations" in Page(rendered(*windows)).words
    )


def test_distributions_share_their_bins_and_hide_nothing() -> None:
    rng = np.random.default_rng(5)
    found = histograms.histograms(
        {"wide": rng.normal(10, 1, 20_000), "narrow": rng.normal(12, 0.05, 3_000), "one": np.array([11.0])}
    )
    assert len({tuple(each["x"]) for each in found}) == 1
    assert [sum(each["counts"]) + each["beyond_count"] for each in found] == [20_000, 3_000, 1]


def test_markdown_of_hostile_names_is_text() -> None:
    """A real Markdown parser finds no markup in hostile names."""
    hostile = f"{HOSTILE} @everyone [x](http://x) `a` | b"
    evil = replace(slow(), window=replace(slow().window, label=hostile), declared={"exception": hostile})
    tokens = (
        MarkdownIt("commonmark", {"html": False})
        .enable("table")
        .parse(markdown([judged(evil, run_id="0a"), judged(scaled(evil, 0.9, hostile), run_id="0b")]))
    )
    kinds = {child.type for token in tokens for child in token.children or ()} | {token.type for token in tokens}
    assert "code_block" in kinds
    assert not {"link_open", "image", "html_inline", "html_block", "fence"} & kinds
    assert sum(token.type == "table_open" for token in tokens) == 2


def test_comparison_in_notebook_escapes_names() -> None:
    shown = Comparison(a=HOSTILE, b=HOSTILE, decision=Decision.SAME, reasons=(HOSTILE,))._repr_html_()
    page = Page(shown)
    assert page.tags == ["pre"]
    assert "alert(1)" in page.words
