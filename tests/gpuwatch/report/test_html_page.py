"""Tests of the HTML report."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from annotate.capsule.pack import unpack
from annotate.claims import Claim
from annotate.evidence import Evidence, Ownership, Process
from annotate.judge import judge
from annotate.user_policy import Policy
from annotate.verdict import Status
from gpuwatch.errors import ExportError
from gpuwatch.report import conditions, html_page, read_page, thinned_series
from gpuwatch.report.record import ReportedWindow
from gpuwatch.report.redaction import redacted
from gpuwatch.sources.simulated.offline import simulate
from gpuwatch.sources.simulated.simulated_source import scenes_named
from gpuwatch.tui.text import finding_words
from gpuwatch.tui.text.words import text
from tests.gpuwatch.report.conftest import NONCE, Page, judged, rendered, scene, with_processes

CAPSULE = Path(__file__).parents[2] / "traces" / "h200-windows.capsule"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'{{7*7}}\u2028<!--"


@pytest.fixture(scope="module")
def recorded() -> tuple[Evidence, ...]:
    return unpack(CAPSULE.read_bytes())


@pytest.fixture(scope="module")
def from_idle() -> Page:
    return Page(rendered(judged(scene("from-idle"), run_id="0a", begun="2026-11-21 12:00:00", user="ann", process="python")))


def test_recordings_fit_in_six_megabytes(recorded: tuple[Evidence, ...]) -> None:
    html = rendered(*map(judged, recorded))
    assert len(html.encode()) < 6_000_000
    read = Page(html)
    assert read.tags.count("h1") == len(recorded)
    assert "SIMULATED" not in read.words
    assert "Differences between these windows" in read.words


def test_page_begins_with_verdict_and_sentence(from_idle: Page) -> None:
    """Verdict and sentence come first, then conditions, time line, findings, times, environment and the method."""
    parts = ["FLAGGED", "Quote this number", "Conditions", "Time line", "Findings", "Times", "Environment", "Judging"]
    places = [from_idle.words.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)
    assert "What to do: Measure one state only" in from_idle.words
    assert "Why it matters." in from_idle.words


def test_sentence_names_the_cause_and_no_unasked_precision() -> None:
    """A cap under a fixed clock is the cause; only a requested precision makes the sentence speak of repeatability."""
    capped = judge(scene("steady-gemm"), Policy(claim=Claim.FIXED_CLOCK))
    assert (capped.status, [each.rule for each in capped.causes if each.severity == "flag"]) == (
        Status.FLAGGED,
        ["power-limited"],
    )
    assert html_page.sentence(capped).startswith("Quote this number with its hazard: power-capped")
    earlier = replace(capped, findings=tuple(replace(each, kind="label", severity="note") for each in capped.hazards))
    assert "stored no cause" in html_page.sentence(earlier)
    assert earlier.budget is not None
    asked = replace(earlier, budget=replace(earlier.budget, precision_ratio=0.01))
    assert "repeats less well than requested" in html_page.sentence(asked)


def test_sentence_of_a_valid_window_says_if_times_are_missing() -> None:
    timed = judge(scene("steady-gemm"))
    untimed = judge(replace(scene("steady-gemm"), timings=None))
    assert html_page.sentence(timed) == "Everything that the claim requires was shown."
    assert html_page.sentence(untimed) == "Everything that a claim without times requires was shown."


def test_time_line_has_every_observed_lane(from_idle: Page) -> None:
    drawn = from_idle.data("gpuwatch-drawn")["windows"][0]["timeline"]
    assert [lane["title"] for lane in drawn["lanes"]] == [
        "SM clock", "Power", "Temperature", "Clock event reasons", "Processes on this GPU", "Iterations",
    ]  # fmt: skip
    assert [each["name"] for each in drawn["lanes"][0]["series"]] == ["NVML", "true, per iteration"]
    assert drawn["lanes"][3]["spans"][0]["name"] == "power cap (sw_power_cap)"
    assert "The board reached its power limit" in from_idle.words


def test_time_line_marks_findings_with_a_span() -> None:
    """Findings with a time span have a lane, and the page highlights iterations inside a span."""
    drawn = Page(rendered(judged(scene("mem-clock")))).data("gpuwatch-drawn")["windows"][0]["timeline"]
    lanes = {lane["title"]: lane for lane in drawn["lanes"]}
    assert next(iter(lanes)) == "Findings"
    assert [each["name"] for each in lanes["Iterations"]["series"]] == ["outside every finding", "inside a finding"]
    assert {each["rule"]: each["whole"] for each in drawn["findings"]}["mem-clock-change"] is False


def test_process_outside_the_window_is_not_called_foreign() -> None:
    """A process that only lists before or after the window name has the distance from the window instead of an owner."""
    piece = scene("neighbour")
    begin_ns, end_ns = piece.window.begin_ns, piece.window.end_ns

    def seen(*at_ns: int) -> dict[str, str | None]:
        stranger = Process(pid=1456, ownership=Ownership.FOREIGN)
        lists = [replace(each, at_ns=at, processes=(stranger,)) for at in at_ns for each in piece.trace.process_lists[:1]]
        every = tuple(sorted([*piece.trace.process_lists, *lists], key=lambda each: each.at_ns))
        changed = replace(piece, trace=replace(piece.trace, process_lists=every))
        lanes = Page(rendered(judged(changed))).data("gpuwatch-drawn")["windows"][0]["timeline"]["lanes"]
        spans = next(lane for lane in lanes if lane["title"] == "Processes on this GPU")["spans"]
        return {each["name"]: each.get("note") for each in spans}

    assert seen(begin_ns - 400_000_000)["process 1456"] == "last seen 0.4 s before the window"
    assert seen(end_ns + 300_000_000)["process 1456"] == "first seen 0.3 s after the window"
    assert seen(begin_ns - 1, end_ns + 1)["process 1456"] == "seen only before and after the window"
    within = seen(begin_ns - 400_000_000, begin_ns + 100_000_000)
    assert within["process 1456, foreign"] is None
    assert "neighbour 60101, foreign" in within
    assert any(name.endswith(", own") for name in within)


def test_part_of_the_window_has_the_unit_of_its_length(from_idle: Page) -> None:
    """The time under the power cap is in the unit of the window's length."""
    length_s = scene("from-idle").window.length_s
    held = conditions.conditions(judged(scene("from-idle")))["held by the power cap"]
    assert re.fullmatch(rf"[\d.]+ of {length_s:.1f} s", held)
    assert held in from_idle.words
    assert conditions.part_words(0.0031, "6.0 s") == "0.019 of 6.0 s"
    assert conditions.part_words(0.317, "60 ms") == "19 of 60 ms"


def test_sampled_power_fills_gap_of_dense_record(recorded: tuple[Evidence, ...]) -> None:
    """Sampled power continues the line after the last sample of the dense record."""
    short = next(piece for piece in recorded if piece.window.label == "short-50ms")
    lanes = Page(rendered(judged(short))).data("gpuwatch-drawn")["windows"][0]["timeline"]["lanes"]
    dense, sampled = next(lane for lane in lanes if lane["title"] == "Power")["series"]
    assert (dense["name"], sampled["name"]) == ("every 20 ms", "NVML")
    assert dense["x"][-1] < 0  # the daemon reads the record once a second, last before this window
    drawn_s = [at_s for at_s, watts in zip(sampled["x"], sampled["y"], strict=True) if watts is not None]
    assert min(drawn_s) > dense["x"][-1] - 0.1
    assert any(0 <= at_s <= short.window.length_s for at_s in drawn_s)


def test_finding_table_omits_facts_of_the_sentence(from_idle: Page) -> None:
    named = re.findall(r'<th scope="row">(\w+)</th>', from_idle.html.partition("<h2>Findings</h2>")[2])
    assert {"bound_ratio", "steady_by"} <= set(named)  # the finding's sentence shows its labels; the table has only figures
    assert not {"what", "because", "clock"} & set(named)


def test_phrases_of_a_finding_have_no_joining_colon(recorded: tuple[Evidence, ...]) -> None:
    """The table of facts, in the report and in top, shows a phrase without the colon that joins it to the sentence."""
    window = judged(next(piece for piece in recorded if piece.window.label == "neighbour-gemm-4096"))
    phrase = next(finding for finding in window.verdict.hazards if finding.facts.get("advice"))
    advice = str(phrase.facts["advice"])
    assert advice.startswith(":")
    assert f"<td>{advice[2:]}</td>" in rendered(window)
    shown = " ".join(text(finding_words.lines(phrase, str, 999)).split())
    assert f"advice {advice[2:]}" in shown


def test_times_are_drawn_raw_and_at_one_clock(from_idle: Page) -> None:
    times = from_idle.data("gpuwatch-drawn")["windows"][0]["times"]
    assert [each["name"] for each in times["drift"]] == ["measured", "at 1431 MHz"]
    assert times["sensitivity"]["beta"] == pytest.approx(0.93, abs=0.05)
    assert "as measured" in from_idle.words


def test_page_gives_reason_for_uncorrected_times() -> None:
    evidence = scene("from-idle")
    assert evidence.timings is not None
    bare = replace(evidence, timings=replace(evidence.timings, sm_clock_mhz=None))
    assert "Not corrected for the clock: No warm iteration carries its clock" in Page(rendered(judged(bare))).words


def test_page_fetches_nothing_and_runs_own_script_only(from_idle: Page) -> None:
    fetching = {"src", "href", "srcset", "action", "data", "poster", "xlink:href"}
    fetched = [value for _, name, value in from_idle.attributes if name in fetching]
    assert all(value is not None and value.startswith("#") for value in fetched)
    style = from_idle.html[from_idle.html.index("<style>") : from_idle.html.index("</style>")]
    assert not re.search(r"url\(|@import", style)
    assert "http://" not in from_idle.blocks["code"]
    assert "https://" not in from_idle.blocks["code"]
    policy = next(value or "" for tag, name, value in from_idle.attributes if tag == "meta" and name == "content")
    assert policy.startswith(f"default-src 'none'; script-src 'nonce-{NONCE}'")
    assert [script.get("nonce") for script in from_idle.scripts if "type" not in script] == [NONCE]


def test_simulated_page_has_banner_and_watermark(from_idle: Page) -> None:
    assert "SIMULATED: these GPUs do not exist" in from_idle.words
    assert ("div", "class", "watermark") in from_idle.attributes


def test_hostile_names_never_become_markup() -> None:
    plain = scene("neighbour")
    hostile = replace(
        with_processes(plain, name=HOSTILE, user=HOSTILE),
        window=replace(plain.window, label=HOSTILE),
        declared={"torch_version": HOSTILE, "exception": HOSTILE, HOSTILE: HOSTILE},
        host=replace(plain.host, hostname=HOSTILE, profilers=HOSTILE),
    )
    tame = Page(rendered(judged(plain, process="a", user="b", run_id="c", begun="d")))
    found = Page(rendered(judged(hostile, process=HOSTILE, user=HOSTILE, run_id=HOSTILE, begun=HOSTILE)))
    assert "alert(1)" in found.words
    assert "{{7*7}}" in found.words
    assert found.tags.count("script") == tame.tags.count("script")
    assert found.tags.count("img") == 0
    assert not [name for _, name, _ in found.attributes if name.startswith("on")]
    assert "<!--" not in found.html
    for name in ("gpuwatch-record", "gpuwatch-drawn"):
        assert not set("<>&\u2028") & set(found.blocks[name])
    assert found.data("gpuwatch-record")["windows"][0]["verdict"]["label"] == HOSTILE


def test_window_without_evidence_has_no_time_line() -> None:
    verdict = replace(judged(scene("from-idle")).verdict, status=Status.UNPROVEN, findings=(), why="no GPU was there")
    found = Page(rendered(ReportedWindow(verdict=verdict, evidence=None)))
    assert "Nobody can say whether this number may be trusted: no GPU was there." in found.words
    assert "Time line" not in found.words


def test_long_series_are_thinned_and_keep_their_extremes() -> None:
    values = np.random.default_rng(3).normal(size=100_000)
    values[71_234], values[9] = 99.0, -99.0
    kept = thinned_series.thinned(values)
    assert len(kept) <= 4_002
    assert {71_234, 9, 0, 99_999} <= set(kept.tolist())


def test_too_large_report_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_page, "MOST_BYTES", 1_000_000)
    with pytest.raises(ExportError, match=r"at most 1 MB, found .* report fewer runs"):
        rendered(judged(scene("from-idle")))


def test_ten_minutes_and_a_hundred_thousand_times_fit() -> None:
    scene_of_minutes = replace(scenes_named("steady-gemm")[0], bench=(4.0, 624.0))
    evidence = simulate(scene_of_minutes)[0]
    assert evidence.window.length_s >= 600
    assert evidence.timings is not None
    assert len(evidence.timings.at_ns) >= 100_000
    some = replace(
        evidence.timings,
        at_ns=evidence.timings.at_ns[:120_000],
        took_s=evidence.timings.took_s[:120_000],
        sm_clock_mhz=None if evidence.timings.sm_clock_mhz is None else evidence.timings.sm_clock_mhz[:120_000],
    )
    html = rendered(judged(replace(evidence, timings=some)))
    assert len(html.encode()) < 6_000_000
    lanes = Page(html).data("gpuwatch-drawn")["windows"][0]["timeline"]["lanes"]
    assert all(len(each["x"]) <= 4_002 for lane in lanes for each in lane.get("series", ()))


def test_tags_are_shown_read_back_and_redacted(tmp_path: Path) -> None:
    """A report shows a window's tags, ``read_page`` returns them, and redaction replaces names in the tags."""
    tags = {"team": "vision", "user": "annabel", "node": "rack7-node3", "image": "annabel/gemm:<b>2</b>"}
    window = judged(scene("from-idle"), tags=tags, user="annabel")
    path = tmp_path / "report.html"
    path.write_text(rendered(window))
    page = Page(path.read_text())
    assert "tag team" in page.text
    assert "annabel/gemm:<b>2</b>" in page.text
    content = read_page.load(path)
    assert (content.as_written, content.record.windows[0].tags) == (True, tags)
    (without,) = redacted([window], ("user", "host"))
    assert without.tags == {
        "team": "vision", "user": "redacted-user-1", "node": "redacted-host-1", "image": "redacted-user-1/gemm:<b>2</b>",
    }  # fmt: skip
