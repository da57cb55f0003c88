"""Tests of reports in a real Chromium."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pytest

from annotate.capsule.pack import unpack
from annotate.evidence import Column, Evidence
from gpuwatch.report.record import ReportedWindow
from tests.gpuwatch import chromium
from tests.gpuwatch.chromium import Browser, Page
from tests.gpuwatch.report.conftest import judged, rendered, scaled, scene, with_processes
from tests.gpuwatch.report.test_html_page import CAPSULE, HOSTILE

Opened: TypeAlias = Callable[..., Page]
DRAWN = "document.documentElement.dataset.drawn === 'yes'"
TIMELINE = "document.querySelector('[data-timeline]')"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.running() as found:
        yield found


@pytest.fixture(scope="module")
def recorded() -> dict[str | None, Evidence]:
    return {piece.window.label: piece for piece in unpack(CAPSULE.read_bytes())}


@pytest.fixture(scope="module")
def opened(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    pages: list[Page] = []
    folder = tmp_path_factory.mktemp("reports")

    def show(*windows: ReportedWindow) -> Page:
        target = folder / f"report-{len(pages)}.html"
        target.write_text(rendered(*windows))
        page = browser.open(target)
        pages.append(page)
        page.until(DRAWN)
        return page

    yield show
    for page in pages:
        page.close()


@pytest.fixture(scope="module")
def plain_run(opened: Opened, recorded: dict[str | None, Evidence]) -> Page:
    """Return the report of the recording with a regime change, shared by several tests."""
    return opened(judged(recorded["plain-run"]))


@pytest.fixture(scope="module")
def from_idle(opened: Opened) -> Page:
    """Return the report of one run from idle, shared because each page unpacks and compiles Plotly."""
    return opened(judged(scene("from-idle")))


@pytest.fixture(scope="module")
def two_runs(opened: Opened) -> Page:
    """Return the report of two runs of one benchmark, shared because drawing is slow."""
    slow = scene("from-idle")
    return opened(judged(slow, run_id="0a"), judged(scaled(slow, 0.9, "tuned"), run_id="0b"))


def colours(page: Page) -> list[str]:
    """Return the background colours of the page and of the first picture."""
    script = f"[getComputedStyle(document.body).backgroundColor, {TIMELINE}.querySelector('.main-svg').style.background]"
    return [str(each) for each in page.run(script)]


def quiet(page: Page) -> None:
    assert page.complaints() == []
    asked = page.requests()
    assert len(asked) == 1
    assert asked[0].startswith("file:")


@pytest.mark.parametrize("label", ["plain-run", "neighbour-gemm-4096"])
def test_recording_is_drawn_without_requests(
    opened: Opened, plain_run: Page, recorded: dict[str | None, Evidence], label: str
) -> None:
    page = plain_run if label == "plain-run" else opened(judged(recorded[label]))
    titles = page.run(f"[...{TIMELINE}.querySelectorAll('.annotation-text')].map((each) => each.textContent)")
    lanes = [title.split("  ")[0] for title in titles if not title.startswith(("limit ", "maximum "))]
    assert lanes == [
        "Findings", "SM clock", "Power", "Temperature", "Clock event reasons", "Processes on this GPU",
    ]  # fmt: skip
    words = page.run(f"{TIMELINE}.textContent")
    assert "power cap (sw_power_cap)" in words
    assert ("foreign" in words) == (label != "plain-run")
    assert page.run("document.querySelector('.watermark')") is None
    quiet(page)


def test_dragging_keys_and_buttons_zoom_all_lanes_at_once(plain_run: Page) -> None:
    page = plain_run
    assert page.run(f"{TIMELINE}._fullData.every((each) => each.xaxis === 'x')")

    def seen() -> tuple[float, float]:
        low, high = page.run(f"{TIMELINE}.layout.xaxis.range.map(Number)")
        ticks = page.run(
            f"[...{TIMELINE}.querySelectorAll('.xtick')].map((each) => Number(each.textContent.replace('−', '-')))"
        )
        assert all(low <= tick <= high for tick in ticks)
        return low, high

    whole = seen()
    page.run(f"{TIMELINE}.scrollIntoView()")
    left, top, width, height = page.run(
        f"(() => {{ const r = {TIMELINE}.querySelector('.nsewdrag').getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; }})()"
    )
    page.drag((left + 0.25 * width, top + height / 2), (left + 0.5 * width, top + height / 2))
    page.until(f"Number({TIMELINE}.layout.xaxis.range[0]) > {whole[0]}")
    dragged = seen()
    assert dragged[1] - dragged[0] == pytest.approx((whole[1] - whole[0]) / 4, rel=0.1)

    page.run(f"{TIMELINE}.focus()")
    page.press("ArrowRight")
    page.until(f"Number({TIMELINE}.layout.xaxis.range[0]) > {dragged[0]}")
    page.press("Home")
    page.until(f"Math.abs(Number({TIMELINE}.layout.xaxis.range[0]) - {whole[0]}) < 1e-9")
    page.run("[...document.querySelectorAll('[data-zoom]')].find((each) => each.textContent === 'regime-change').focus()")
    page.press("Enter")
    page.until(f"Number({TIMELINE}.layout.xaxis.range[1]) < {whole[1]}")
    quiet(page)


def test_theme_follows_system_until_chosen(plain_run: Page) -> None:
    """The theme follows the system until the reader chooses one, and pictures follow the theme."""
    page = plain_run
    light = colours(page)
    page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.until(f"{TIMELINE}.querySelector('.main-svg').style.background !== {light[1]!r}")
    dark = colours(page)
    assert light[0] == light[1] == "rgb(255, 255, 255)"
    assert dark[0] == dark[1] == "rgb(18, 22, 27)"
    page.run("document.getElementById('theme').focus()")
    page.press("Enter")
    page.until(f"{TIMELINE}.querySelector('.main-svg').style.background === {light[1]!r}")
    assert colours(page) == light
    quiet(page)


def test_narrow_window_keeps_pictures_off_text(two_runs: Page) -> None:
    """In a narrow window pictures cover no text, cut off no text, and have no toolbar; sentences stay wide."""
    page = two_runs
    page.ask("Emulation.setDeviceMetricsOverride", width=390, height=900, deviceScaleFactor=1, mobile=False)
    page.until(f"{TIMELINE}.querySelector('.main-svg').getBoundingClientRect().width < 390")
    beyond = "[...document.querySelectorAll('.picture')].filter((each) => each.scrollHeight > each.clientHeight).length"
    assert page.run(beyond) == 0
    assert page.run("document.documentElement.scrollWidth") <= 390
    page.until(f"{TIMELINE}.layout.margin.l < 60")  # drawn again for the narrow window
    assert page.run("document.querySelectorAll('.modebar-group').length") == 0
    beside = "((a, b) => a.width && (a.right > b.right + 1 || a.left < b.left - 1))"
    texts = "[...document.querySelectorAll('.picture')].flatMap((each) => [...each.querySelectorAll('text')].map((text) => [each, text]))"
    cut = f"{texts}.filter(([each, text]) => {beside}(text.getBoundingClientRect(), each.getBoundingClientRect()))"
    assert page.run(f"{cut}.map(([, text]) => text.textContent)") == []
    assert page.run(f"{texts}.filter(([, text]) => text.textContent.endsWith('…')).length") == 0
    assert page.run("document.querySelector('.words td:last-child').clientWidth") > 300
    page.ask("Emulation.clearDeviceMetricsOverride")


def test_axes_fit_readings_in_the_window(two_runs: Page) -> None:
    """The axis of a lane with varying readings ends near the window's extremes; limits are named in the titles."""
    drawn = two_runs.run("JSON.parse(document.getElementById('gpuwatch-drawn').textContent)")["windows"][0]["timeline"]
    layout = two_runs.run(f"({{layout: {TIMELINE}.layout}})")["layout"]
    fitted = 0
    for number, lane in enumerate(drawn["lanes"], 1):
        seen = [
            y for each in lane.get("series", []) for x, y in zip(each["x"], each["y"], strict=True)
            if y is not None and 0 <= x <= drawn["length_s"]
        ]  # fmt: skip
        if seen and (span := max(seen) - min(seen)) > 0.05 * max(seen):
            low, high = layout[f"yaxis{number}" if number > 1 else "yaxis"]["range"]
            assert min(seen) - 0.6 * span <= low <= min(seen) < max(seen) <= high <= max(seen) + 0.6 * span, lane["title"]
            fitted += 1
    assert fitted >= 2
    texts = two_runs.run(f"[...{TIMELINE}.querySelectorAll('.annotation-text')].map((each) => each.textContent)")
    assert any(text.startswith("Power") and "limit 700 W" in text for text in texts)
    assert not any(text.startswith("limit") for text in texts), "a name on the curve"


def test_legend_names_lines_with_their_mark(opened: Opened, from_idle: Page) -> None:
    """A line, a point and a limit have different marks; a line outside the window says so, and a lone reading has no name."""
    titles = "[...document.querySelector('[data-timeline=\"{}\"]').querySelectorAll('.annotation-text')].map((each) => each.textContent)"
    read = from_idle.run(titles.format(0))
    clock, power = (next(text for text in read if text.startswith(title)) for title in ("SM clock", "Power"))
    assert "━ NVML" in clock
    assert "● true, per iteration" in clock
    assert "limit 700 W" in power
    trace, begin_ns, dense = scene("from-idle").trace, scene("from-idle").window.begin_ns, scene("from-idle").trace.dense_power
    late = dense.at_ns > begin_ns - 500_000_000
    changed = []
    for until_ns in (begin_ns, begin_ns - 1_900_000_000):
        at_ns = np.arange(begin_ns - 1_990_000_000, until_ns, 200_000_000, dtype=np.int64)
        sampled = Column(at_ns, np.full(len(at_ns), 123.0))
        columns = {**trace.columns, "power_w": sampled}
        changed.append(replace(trace, dense_power=Column(dense.at_ns[late], dense.values[late]), columns=columns))
    page = opened(*(judged(replace(scene("from-idle"), trace=each), run_id=f"{n}") for n, each in enumerate(changed)))
    for number, name in enumerate(("━ NVML, outside the window", "Power  ━ every 20 ms  ")):
        assert any(name in text for text in page.run(titles.format(number)))


def test_times_and_their_distribution_share_an_axis(two_runs: Page) -> None:
    """Iterations over time and the distribution of times share one picture, cut at named percentiles."""
    figure = "document.querySelector('[data-times]')"
    axes = two_runs.run(f"{figure}.data.map((each) => [each.mode, each.xaxis || 'x', each.yaxis || 'y'])")
    assert ["markers", "x", "y"] in axes
    assert ["lines", "x2", "y"] in axes
    assert "0.5th to 99.5th percentile" in two_runs.run(f"{figure}.textContent")
    assert "Drawn from the 0.5th to the 99.5th percentile; " in two_runs.run("document.body.innerText")


def test_controls_are_reached_by_tab(plain_run: Page) -> None:
    page = plain_run
    reached = set()
    for _ in range(30):
        page.press("Tab")
        reached.add(page.run("document.activeElement.id || document.activeElement.className || document.activeElement.tagName"))
        reached.add(page.run("Object.keys(document.activeElement.dataset).join()"))
    assert {"theme", "SUMMARY", "timeline", "save"} <= reached


def test_paper_is_light_and_cuts_no_picture(from_idle: Page) -> None:
    page = from_idle
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.ask("Emulation.setEmulatedMedia", features=dark)
    page.run("dispatchEvent(new Event('beforeprint'))")
    page.ask("Emulation.setEmulatedMedia", media="print", features=dark)
    page.ask(
        "Emulation.setDeviceMetricsOverride", width=718, height=1047, deviceScaleFactor=1, mobile=False
    )  # A4 without margins
    page.until(f"{TIMELINE}.querySelector('.main-svg').getBoundingClientRect().right <= 718")
    assert (
        page.run(
            "[...document.querySelectorAll('.main-svg')].map((each) => each.getBoundingClientRect().right).filter((x) => x > 718)"
        )
        == []
    )
    assert page.run("document.documentElement.scrollWidth") <= 718
    assert "Drag to zoom" not in page.run("document.body.innerText")
    assert "Save the evidence" not in page.run("document.body.innerText")
    assert colours(page)[1] == "rgb(255, 255, 255)"
    page.ask("Emulation.setEmulatedMedia", media="", features=dark)
    page.run("dispatchEvent(new Event('afterprint'))")
    page.until(f"{TIMELINE}.querySelector('.main-svg').style.background !== 'rgb(255, 255, 255)'")
    paper = base64.b64decode(page.ask("Page.printToPDF", printBackground=True)["data"])
    assert paper.startswith(b"%PDF")
    quiet(page)


def test_two_runs_are_overlaid_under_watermark(two_runs: Page) -> None:
    page = two_runs
    names = page.run(
        "[...document.querySelectorAll('[data-overlaid]')].map((each) => each._fullData.map((trace) => trace.name))"
    )
    assert names == [["from-idle", "tuned"]] * 2
    assert page.run("document.querySelector('.decision').textContent") == "FASTER"
    assert page.run("getComputedStyle(document.querySelector('.watermark')).position") == "fixed"
    quiet(page)


def test_hostile_names_run_and_fetch_nothing(opened: Opened) -> None:
    hostile = HOSTILE.replace("alert(1)", "window.ran=1").replace("alert(2)", "window.ran=2")
    plain = scene("neighbour")
    evidence = replace(
        with_processes(plain, name=hostile, user=hostile),
        window=replace(plain.window, label=hostile),
        declared={"exception": hostile, hostile: hostile},
        host=replace(plain.host, hostname=hostile),
    )
    page = opened(
        judged(evidence, process=hostile, user=hostile, run_id=hostile, begun="d"), judged(evidence, user="b", run_id="c")
    )
    page.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.run("document.querySelectorAll('[data-zoom]').forEach((each) => each.click())")
    assert "window.ran=2" in page.run("document.body.innerText")
    assert page.run("window.ran === undefined")
    assert page.run("document.querySelectorAll('main img, main script').length") == 0
    quiet(page)
    # The second barrier: injected markup would run nothing and fetch nothing.
    page.run("document.body.insertAdjacentHTML('beforeend', '<img src=http://127.0.0.1:9/x onerror=\"window.ran=3\">')")
    assert page.run("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')") == "refused"
    assert page.run("new Promise((done) => setTimeout(() => done(window.ran === undefined), 200))")
    assert all("Content Security Policy" in each or "ERR_BLOCKED_BY_CSP" in each for each in page.complaints())


def test_save_buttons_save_the_evidence_of_each_window(two_runs: Page) -> None:
    page = two_runs
    page.run(
        "window.saved = []; URL.createObjectURL = (blob) => { window.saved.push(blob.arrayBuffer()); return 'data:,'; };"
        "HTMLAnchorElement.prototype.click = () => {}; document.querySelectorAll('[data-save]').forEach((each) => each.click())"
    )
    saved = page.run(
        "Promise.all(window.saved).then((all) => all.map((each) => btoa([...new Uint8Array(each)].map((b) => String.fromCharCode(b)).join(''))))"
    )
    assert len(saved) == 2
    assert [unpack(base64.b64decode(each))[0].window.label for each in saved] == ["from-idle", "tuned"]
