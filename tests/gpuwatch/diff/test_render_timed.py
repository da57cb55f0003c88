"""Tests of the timed part of the text, the Markdown and the page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from annotate.output.markup import fenced
from gpuwatch.diff.compiled import Compiled
from gpuwatch.diff.diff_page import render_page
from gpuwatch.diff.explained_pair import ExplainedPair, explain_pair
from gpuwatch.diff.kernel_code import SideCode
from gpuwatch.diff.kernel_counters import Counters
from gpuwatch.diff.kernel_roofline import read_peaks
from gpuwatch.diff.render_diff import as_markdown, as_text
from gpuwatch.diff.render_timed import decision_line, own_clock_lines
from gpuwatch.diff.run_diff import Diff
from gpuwatch.diff.timed_pair import TimedPair
from tests.gpuwatch import chromium
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.diff.timed_builders import H200, counters, static, timed, times

NCU = counters(
    "ncu", dram_bytes=(9e8, 5e8), fp32_flops_count=(1e9, 1e9), store_efficiency_ratio=(0.125, 1.0), bank_conflicts_count=(0, 3_067_000),
    sm_throughput_ratio=(0.3, 0.4), l2_hit_ratio=((0.5, 0.9, 0.2), (0.6, 0.6, 0.6)), occupancy_ratio=(0.938, 0.845),
)  # fmt: skip


def explained(pair: TimedPair | None = None, found: Counters = NCU) -> ExplainedPair:
    return explain_pair(pair or timed(), static("1 LDG.32", "4 LDG.32, 4 LDS.32"), found, read_peaks(H200, {}))


def compared(*pairs: ExplainedPair) -> Diff:
    sides = [SideCode(name, Compiled(compiler="NVRTC 13.5"), ()) for name in ("a.cu", "b.cu")]
    return Diff(
        sides[0], sides[1], "sm_90", (static("1 LDG.32", "4 LDG.32, 4 LDS.32"),) * max(1, len(pairs)), "no GPU", explained=pairs
    )


def test_decision_is_the_first_line() -> None:
    text = as_text(compared(explained()), [])
    assert text.splitlines()[0] == "FASTER 1.142x [1.139, 1.146] at one clock, 1545 MHz true"
    assert "not timed" not in text
    assert as_markdown(compared(explained()), []).splitlines()[2].startswith("FASTER 1.142x")


def test_several_kernels_have_one_decision_each() -> None:
    lines = as_text(compared(explained(), explained(timed("SAME", 1.0))), []).splitlines()
    assert [line.split(" [")[0] for line in lines[:2]] == ["k: FASTER 1.142x", "k: SAME 1.000x"]


@pytest.mark.parametrize(
    ("pair", "line"),
    [
        (timed("INCOMPARABLE", None, reason="B writes out of bounds"), "INCOMPARABLE: B writes out of bounds"),
        (
            timed("INCONCLUSIVE", 1.002, reason="40 more pairs are needed"),
            "INCONCLUSIVE 1.002x [0.999, 1.006] at one clock, 1545 MHz true: 40 more pairs are needed",
        ),
        (replace(timed(), a=times(mhz=None), b=times(mhz=None)), "FASTER 1.142x [1.139, 1.146], clock not known"),
    ],
)
def test_decision_line_has_reason_and_clock(pair: TimedPair, line: str) -> None:
    assert decision_line(pair) == line


def test_own_clock_ratio_is_shown_if_measured() -> None:
    assert list(own_clock_lines(timed())) == []
    assert list(own_clock_lines(timed(own=1.08))) == ["1.080x each at its own clock: power limits them"]
    assert list(own_clock_lines(timed(own=1.142))) == ["1.142x each at its own clock, too"]


def test_narrow_interval_has_four_decimals() -> None:
    narrow = TimedPair("SLOWER", "", 0.99507, 0.99501, 0.99513, None, "valid", None, None)
    assert decision_line(narrow) == "SLOWER 0.9951x [0.9950, 0.9951], clock not known"


def test_screen_has_groups_roofline_and_caveat() -> None:
    text = " ".join(as_text(compared(explained()), []).split())
    for words in (
        "1. bytes used of each 32-byte sector stored: A 4.0, B 32.0 (ncu)",
        "cache L2 hits 53.3% 60.0% +6.7 pp ?",
        "bank conflicts 0 3 067 000 +3 067 000",
        "warp states occupancy 93.8% 84.5% -9.3 pp",
        "operations per byte 1.11 2",
        "bound latency latency",
        "ncu replays a launch once for each set of counters",
    ):
        assert words in text
    assert "pp ?" not in text.split("occupancy 93.8%")[1]  # without an interval there is no mark
    assert "replays" not in as_text(compared(explained(found=Counters("none", "none"))), [])


def test_conditions_name_the_clock_of_the_peak() -> None:
    known = explained()
    unknown = explained(replace(timed(), a=times(mhz=None), b=times(mhz=None)))
    assert [pair.peak_clock for pair in (known, unknown)] == ["true clock", "maximum clock"]
    assert "arithmetic by specification, at the true clock" in as_text(compared(known), [])
    assert "arithmetic by specification, at the maximum clock" in as_text(compared(unknown), [])
    assert ["Roofline at the maximum clock" in render_page(compared(each), "n") for each in (known, unknown)] == [False, True]


def test_timed_pair_json_matches_the_schema() -> None:
    for pair in (explained(), explained(timed("INCOMPARABLE", None, reason="x")), explained(found=Counters("none", "none"))):
        data = json.loads(json.dumps({"schema": 1} | compared(pair).to_dict()))
        check(data, "urn:gpuwatch:diff:1")
        assert data["timed"][0]["decision"] == pair.timed.decision


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "timed.html").write_text(render_page(compared(explained(), explained(timed("SAME", 1.0), counters("GPM"))), "n"))
    (folder / "untimed.html").write_text(render_page(compared(), "n"))
    return folder


def test_diff_page_lists_decision_reasons_and_counters(pages: Path) -> None:
    html = (pages / "timed.html").read_text()
    assert html.index("FASTER 1.142x") < html.index("bytes used of each 32-byte sector") < html.index("3 067 000")
    assert "Not timed: no GPU" in (pages / "untimed.html").read_text()
    assert len(html) < 3_000_000


def test_markdown_escapes_names() -> None:
    """An untrusted name makes no heading, tag, mention, table cell or end of a fence."""
    name = "a|b`c`\n# <b>_d_ @e.cu"
    side = SideCode(name, Compiled(compiler=name, flags=(name,)), ())
    found = replace(compared(explained()), a=side, b=side)
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(as_markdown(found, ["sass"]))
    shown = "a|b`c`\\n# &lt;b&gt;_d_ @\u200be.cu"
    assert html.count(shown) == 8
    assert "<h1>" not in html
    assert "<td>median of a call</td>" in html
    assert fenced(["```", "x"], "diff") == ["````diff", "```", "x", "````"]


def test_html_page_escapes_names() -> None:
    found = replace(compared(explained()), a=SideCode("<script>alert(1)</script>.cu", Compiled(compiler="x"), ()))
    assert "<script>alert" not in render_page(found, "n")


def test_diff_page_is_not_clipped_at_400_px(pages: Path) -> None:
    clipped = (
        "[...document.querySelectorAll('svg text')].filter((each) => { const text = each.getBoundingClientRect(),"
        " place = each.closest('.picture').getBoundingClientRect();"
        " return text.width && (text.left < place.left - 1 || text.right > place.right + 1); }).map((each) => each.textContent)"
    )
    with chromium.running() as browser:
        page = browser.open(pages / "timed.html")
        page.ask("Emulation.setDeviceMetricsOverride", width=400, height=900, deviceScaleFactor=1, mobile=False)
        page.until("document.documentElement.dataset.drawn === 'yes'")
        page.until("[...document.querySelectorAll('.main-svg')].every((each) => each.getBoundingClientRect().right <= 400)")
        assert page.run("document.documentElement.scrollWidth") <= 400
        assert (
            page.run("[...document.querySelectorAll('.wide')].filter((each) => each.scrollWidth > each.clientWidth).length")
            == 0
        )
        assert page.run(clipped) == []
        assert page.complaints() == []
