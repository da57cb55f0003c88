"""Tests of the record of the suite under load."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest

from tests import load_record
from tests.load_record import BEGIN, END, Circumstances, Run, due, go_on, load, rendered

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_one"/>
<testcase classname="tests.test_a" name="test_two"><failure message="no"/></testcase>
<testcase classname="tests.test_a" name="test_three"><skipped/></testcase>
<testcase classname="tests.test_b" name="test_four"><error message="at setup"/></testcase>
</testsuite></testsuites>"""
UNDER = Circumstances(machine="a machine", loops_count=2, workers_count=4)
ELSEWHERE = Circumstances(machine="another machine", loops_count=2, workers_count=4)


def made(selection: str, under: Circumstances = UNDER, *, date: str = "2026-11-22", failed: tuple[str, ...] = ()) -> Run:
    return Run(
        date=date, commit=f"of-{date}", python="3.11.2", under=under, selection=selection, took_s=60.0, passed_count=9,
        skipped_count=1, failed=failed,
    )  # fmt: skip


class Stopped(BaseException):
    """An interruption by Ctrl-C."""


def test_read_outcome_counts_pytest_results(tmp_path: Path) -> None:
    """Passed and skipped tests are counted, and failures and errors listed."""
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    found = load_record.read_outcome(report, 1)
    assert (found.passed_count, found.skipped_count) == (1, 1)
    assert found.failed == ("tests.test_a::test_two", "tests.test_b::test_four")


@pytest.mark.parametrize("is_there", [True, False])
def test_read_outcome_reports_unnamed_failures(tmp_path: Path, *, is_there: bool) -> None:
    """An exit code other than 0 without a failed test in the report counts as a failure."""
    report = tmp_path / "report.xml"
    if is_there:
        report.write_text("<testsuites><testsuite/></testsuites>")
    assert load_record.read_outcome(report, 3).failed == ("pytest ended with exit code 3",)


@pytest.mark.parametrize(
    ("had", "wanted", "expected"),
    [
        ((), (3, 1), ["timing", "timing", "all"]),
        (("timing", "timing"), (3, 1), ["all"]),
        (("all",), (3, 1), ["timing", "timing"]),
        (("all", "all"), (2, 1), []),
        (("timing", "timing", "timing"), (3, 1), ["all"]),
        (("timing",), (0, 0), []),
    ],
)
def test_due_counts_whole_runs_as_timing_runs(had: tuple[str, ...], wanted: tuple[int, int], expected: list[str]) -> None:
    """Runs of the whole suite also count as timing runs, and runs under different conditions do not count."""
    assert due([made(each) for each in had], UNDER, *wanted) == expected
    assert due([made(each, ELSEWHERE) for each in had], UNDER, *wanted) == due([], UNDER, *wanted)


def test_record_resumes_after_an_interruption(tmp_path: Path) -> None:
    """An interruption loses only the current run, and a later call makes the missing runs."""
    path = tmp_path / "record.json"

    def stopped_in_the_second(selection: str, under: Circumstances) -> Run:
        if load(path):
            raise Stopped
        return made(selection, under, date="2026-11-22")

    with pytest.raises(Stopped):
        go_on(path, UNDER, 3, 1, stopped_in_the_second)
    assert [each.date for each in load(path)] == ["2026-11-22"]
    go_on(path, UNDER, 3, 1, lambda selection, under: made(selection, under, date="2026-11-23"))
    assert [(each.selection, each.date) for each in load(path)] == [
        ("timing", "2026-11-22"), ("timing", "2026-11-23"), ("all", "2026-11-23"),
    ]  # fmt: skip
    assert go_on(path, UNDER, 3, 1, stopped_in_the_second) == []


def test_commit_is_a_hash_with_a_plus_for_changes() -> None:
    """The commit is twelve hexadecimal digits or "unknown", with a plus for changed files."""
    assert re.fullmatch(r"([0-9a-f]{12}|unknown)\+?", load_record.commit())


def test_busy_loops_end_with_the_block() -> None:
    before = set(psutil.Process().children())  # children of tests that ran earlier in this process
    with load_record.busy_loops(2):
        loops = set(psutil.Process().children()) - before
        assert len(loops) == 2
    assert not any(each.is_running() for each in loops)


def test_rendered_shows_days_runs_and_failures() -> None:
    """Days, commits, conditions, runs and failures are shown, only for runs under the last run's conditions."""
    runs = (made("timing"), made("timing", ELSEWHERE), made("all", date="2026-11-23", failed=("a::b",)))
    text = rendered(runs)
    assert "2026-11-22 to 2026-11-23, 2 commits, with 2 busy loops and 4 workers; a machine:" in text
    assert "whole suite: 1 of 2 runs without a failure, 1 failures in 19 tests, at most 1.0 min per run." in text
    assert "- the whole suite: 0 of 1 runs without a failure, 1 failures in 10 tests" in text


def test_with_record_replaces_only_its_lines() -> None:
    """Only the lines between the markers change, and a page without markers is an error."""
    page = f"before\n{BEGIN}old\n{END}after\n"
    found = load_record.with_record(page, ())
    assert found == f"before\n{BEGIN}{rendered(())}{END}after\n"
    with pytest.raises(ValueError, match="expected the lines"):
        load_record.with_record("no marks", ())


def test_development_page_has_the_record() -> None:
    assert load_record.main(["--check"]) == 0
