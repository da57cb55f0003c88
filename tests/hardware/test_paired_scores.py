"""Tests of the scores of paired windows, on a small sample of real windows and on synthetic rows."""

from __future__ import annotations

import lzma
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from annotate.capsule.pack import pack
from annotate.case import Case
from annotate.evidence import Evidence, RecordedWindow
from annotate.judge import judge
from annotate.rules import RETIRED, RULES
from annotate.verdict import Status
from annotate.work_record import recorded_window, work_record
from tests.hardware import paired_page, paired_scores, paired_statuses
from tests.hardware.paired_data import NUMBERS, Kept, Row, write_truth
from tests.hardware.paired_disturbances import FAMILIES, TIMED, Disturbance
from tests.hardware.paired_scores import Scored
from tests.hardware.render import MASKED_UUID
from tests.proof.scores import Answer, coverage
from tests.proof.scores import Row as ScoreRow
from tests.truth_windows import truth_windows

STALL = Disturbance(family="host-stall", kind="sleep", depth=0.1)
UUID = "GPU-0badcafe-0000-0000-0000-000000000001"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of judged data: a stalled softmax between two clean windows."""
    folder = tmp_path_factory.mktemp("paired")
    triple = truth_windows()["stall-0.3-softmax"]
    kept = [_kept(1, triple.before), _kept(2, triple.disturbed, STALL), _kept(3, triple.after)]
    write_truth(folder / "paired-1.json", kept, {"torch": "2.11", "date": "2026-11-22", "failed": [kept[1][0]]})
    (folder / "paired-1-0.capsule").write_bytes(pack([evidence for _, evidence in kept[:2]]))
    (folder / "paired-1-1.capsule").write_bytes(pack([evidence for _, evidence in kept[2:]]))
    paired_scores.add(paired_scores.read_runs(folder), folder)
    paired_scores.judge_all(folder)
    return folder


def _kept(number: int, of: Evidence, disturbance: Disturbance | None = None) -> Kept:
    assert of.timings is not None
    assert of.device is not None
    window_s = (of.window.end_ns - of.window.begin_ns) / 1e9
    row = Row(
        number=number, seed=1, work="softmax-fp32", mode="stamped", length_s=window_s, is_capped=False, run_id=str(number),
        disturbance=disturbance, calls_count=len(of.timings.took_s), window_s=window_s, events_s=window_s,
    )  # fmt: skip
    return row, replace(of, device=replace(of.device, uuid=UUID))


def made_up(
    throughput: float,
    *,
    status: str = "valid",
    bound: float = 0.002,
    card: str = "1",
    work: str = "gemm",
    family: str = "host-stall",
) -> Scored:
    """Return a window with this error of the throughput; a window of the family ``nothing`` is clean."""
    truth: Mapping[str, float] = dict.fromkeys(NUMBERS, 0.0) | {"throughput": throughput}
    row = ScoreRow(
        seed=1, family=family, clean=family == paired_scores.CLEAN, workload=work, variant="stamped", length_s=3.5, truth=truth,
        answer=Answer(bounds={"throughput": bound}, repeatability={}, status=status, named=frozenset()),
    )  # fmt: skip
    return Scored(row=row, card=card, date="2026-11-22", is_capped=True, references_differ={"throughput": 0.001}, words="sleep")


def test_stored_windows_keep_their_times(stored: Path) -> None:
    whole, evidences = paired_scores.read(stored)
    assert [each.window.number for each in whole.windows] == [1, 2, 3]
    assert whole.failed_count == 1
    for each, of in zip(whole.windows, evidences, strict=True):
        assert of.timings is not None
        assert len(of.timings.took_s) == each.window.calls_count


def test_stored_windows_are_anonymous(stored: Path) -> None:
    whole, evidences = paired_scores.read(stored)
    assert len({each.card for each in whole.windows}) == 1
    assert {of.device.uuid for of in evidences if of.device} == {MASKED_UUID}
    assert UUID[4:12].encode() not in lzma.decompress((stored / f"{paired_scores.STEM}.json.xz").read_bytes())


def test_call_is_added_once(stored: Path, tmp_path: Path) -> None:
    for _ in range(2):
        paired_scores.add(paired_scores.read_runs(stored), tmp_path)
    whole, evidences = paired_scores.read(tmp_path)
    assert len(whole.windows) == len(evidences) == 3
    assert whole == paired_scores.read(stored)[0]


def test_stored_stall_is_covered_and_not_valid(stored: Path) -> None:
    """Bound plus repeatability covers the true value from the surrounding clean windows."""
    found = paired_scores.load(stored)
    assert found is not None
    before, disturbed, after = found.scored
    assert disturbed.row.truth["throughput"] == pytest.approx(-0.10, abs=0.01)
    assert coverage([disturbed.row], "throughput").count == 1
    assert disturbed.row.answer.status in ("flagged", "rejected")
    assert before.row.clean
    assert after.row.clean
    assert set(before.row.truth.values()) == {0.0}


def test_stored_answer_matches_the_evidence(stored: Path) -> None:
    whole, evidences = paired_scores.read(stored)
    found = paired_scores.load(stored)
    assert found is not None
    again = paired_scores.scored(whole.windows[1], evidences[1])
    assert again.row.answer.status == found.scored[1].row.answer.status
    assert again.row.answer.named == found.scored[1].row.answer.named


def test_page_shows_the_sample(stored: Path) -> None:
    text = "\n".join(paired_page.section(stored))
    assert "3 windows" in text
    assert "too few for intervals" in text
    assert "| host-stall | 1 of 1 |" in text


def test_page_counts_the_windows_of_a_call(stored: Path) -> None:
    """The table of calls counts a call's windows: clean, not valid, stalled, disturbed, with references and covered."""
    found = paired_scores.load(stored)
    assert found is not None
    valid = sum(each.row.answer.status == "valid" for each in found.scored if each.row.clean)
    assert f"| 1 | 1 | 2 | {2 - valid} | 0 | 1 | 1 | 1 of 1 |" in paired_page.calls(found)


def test_page_is_empty_without_windows(tmp_path: Path) -> None:
    assert paired_page.section(tmp_path) == []


def test_intervals_need_ten_independent_clusters() -> None:
    """Windows of one card, day and kernel form one cluster; fewer than ten clusters give no interval."""
    few = [made_up(0.0, work="gemm") for _ in range(40)]
    many = [made_up(0.0, work=f"kernel {i}") for i in range(10)]
    assert any("| throughput | 40 | 100.0% | 100.0% | 0 | 0 | – |" in line for line in paired_page.covered(few))
    assert any("| throughput | 10 | 100.0% | 100.0% | 0 | 0 | 69.2% to 100.0% |" in line for line in paired_page.covered(many))


def test_miss_below_the_references_difference_is_not_clear() -> None:
    """A miss below the references' difference (0.1 % here, with a bound of 0.2 %) is not clear."""
    unclear, clear = made_up(0.0025), made_up(0.0035)
    assert [each.row.covers("throughput") for each in (unclear, clear)] == [False, False]
    assert [each.is_clear_miss("throughput") for each in (unclear, clear)] == [False, True]
    assert any("| throughput | 2 | 0.0% | 50.0% | 2 | 1 |" in line for line in paired_page.covered([unclear, clear]))


def test_deviation_from_a_value_between_the_references_counts() -> None:
    """Half of the references' difference (0.1 %) adds to the bound (0.2 %) in one column, and not in the other."""
    within, beyond = made_up(0.00249), made_up(0.0026)
    assert [each.is_covered_between_references("throughput") for each in (within, beyond)] == [True, False]
    assert any("| throughput | 2 | 0.0% | 50.0% | 2 |" in line for line in paired_page.covered([within, beyond]))


def test_valid_window_that_is_off_is_listed() -> None:
    lines = paired_statuses.misses([made_up(-0.05), made_up(-0.2, status="rejected"), made_up(-0.001)])
    assert [line.split(" | ")[4] for line in lines if line.startswith("| gemm")] == ["-5.00%"]


def test_only_rules_of_the_family_name_its_hazard() -> None:
    def a(named: str, throughput: float = -0.1) -> Scored:
        one = made_up(throughput, status="rejected")
        return replace(one, row=replace(one.row, answer=replace(one.row.answer, named=frozenset({named}))))

    lines = paired_statuses.named([a("idle-stretch"), a("clock-levels"), made_up(-0.1), a("idle-stretch", -0.001)])
    assert "| host-stall | 3 | 1 | 1 | 1 | 1 | 1 | 1 | 1 |" in lines


def test_every_family_has_rules_that_name_it() -> None:
    """Every family has an entry, and its rules are known, because a renamed rule would not count."""
    assert paired_statuses.NAMES.keys() == {*FAMILIES, paired_scores.STALLED}
    assert frozenset().union(*paired_statuses.NAMES.values()) - RETIRED.keys() <= {rule.name for rule in RULES} | {
        "mid-run-compile"
    }


def test_status_counts_false_alarms_of_clean_windows() -> None:
    clean = [made_up(0.0, status=status, family=paired_scores.CLEAN) for status in ("valid", "flagged", "unproven", "rejected")]
    lines = paired_statuses.statuses(clean)
    assert "| clean, not valid | 4 | 3 | 75.0% | – |" in lines
    assert "| clean, flagged or rejected | 4 | 2 | 50.0% | – |" in lines


@pytest.mark.parametrize(("second", "said"), [((0.0, 0.0), "1.00"), ((1.0, 1.0), "none (all alike)")])
def test_correlation_within_clusters(second: tuple[float, float], said: str) -> None:
    """The correlation within clusters is 1 if the cluster determines the value, and "none" if all values are equal."""
    of = [*(made_up(value, card="1") for value in (1.0, 1.0)), *(made_up(value, card="2") for value in second)]
    assert paired_statuses.within_clusters(of, lambda each: each.row.truth["throughput"]) == said


def test_windows_without_references_are_left_out() -> None:
    told = made_up(0.0)
    untold = replace(told, row=replace(told.row, truth={}), has_truth=False, references_differ={})
    assert any("| throughput | 1 | 100.0%" in line for line in paired_page.covered([told, untold]))


def test_own_stream_throughout_is_bounded_by_the_record() -> None:
    """A second stream throughout a plain window is found only against a record.

    Without a record the verdict is valid, and compares the window with itself only.  The four clean windows of the same work,
    one of them twice, make a record.  Against it ``record-shift`` rejects the window, and the clean windows stay valid.
    """
    whole, evidences = paired_scores.read()
    work = [
        (each.window, about)
        for each, about in zip(whole.windows, evidences, strict=True)
        if (each.card, each.window.work, each.window.mode) == ("ede58b07", "attention", "plain")
    ]
    [stream] = [about for window, about in work if window.disturbance is not None and window.disturbance.family == "own-stream"]
    clean = [about for window, about in work if window.is_reference]
    alone = judge(stream)
    assert alone.status is Status.VALID
    assert "against itself only" in str(alone)
    kept = [recorded_window(about, judge(about)) for about in clean]
    clocks = [RecordedWindow(steady_clock_mhz=each.steady_clock_mhz) for each in kept if each is not None]
    record = work_record([*clocks, clocks[0]])  # the recording holds four, and a record needs five
    assert judge(replace(stream, record=record)).finding("record-shift").severity == "reject"
    assert {judge(replace(about, record=record)).status for about in clean} == {Status.VALID}


def test_utilisation_exceeds_times_by_events_at_most_by_a_timer() -> None:
    """The source of the allowance of 3.5 µs: clean paired windows with unstamped times of CUDA events, and loops that wait."""
    whole, evidences = paired_scores.read()
    both = zip(whole.windows, evidences, strict=True)
    by_events = [each for of, each in both if of.window.is_reference and of.window.mode == TIMED]
    beyond_s = [found for each in by_events if (found := _beyond_s(each)) is not None]
    assert len(beyond_s) >= 60
    assert max(beyond_s) <= 3.2e-6
    waiting = truth_windows()["hogs-small-kernel"]
    assert max(_beyond_s(waiting.before) or 0.0, _beyond_s(waiting.after) or 0.0) <= 0.0


def _beyond_s(evidence: Evidence) -> float | None:
    """Return by how much utilisation exceeds the timed work, per call; None without books."""
    case = Case(evidence)
    if (accounts := case.accounts) is None:
        return None
    calls_count = len(case.timings.at_ns) * case.timings.calls_count
    return (accounts.busy.ratio - accounts.timed_ratio - accounts.other_ratio) * evidence.window.length_s / calls_count
