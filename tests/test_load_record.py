"""The record of the suite under load: it counts what pytest reports, and its page says what it holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import load_record
from tests.load_record import BEGIN, END, Record, Run

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_one"/>
<testcase classname="tests.test_a" name="test_two"><failure message="no"/></testcase>
<testcase classname="tests.test_a" name="test_three"><skipped/></testcase>
<testcase classname="tests.test_b" name="test_four"><error message="at setup"/></testcase>
</testsuite></testsuites>"""


def test_read_run_counts_what_pytest_reports(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    found = load_record.read_run("timing", report, 12.34, 1)
    assert (found.passed_count, found.skipped_count, found.took_s) == (1, 1, 12.3)
    assert found.failed == ("tests.test_a::test_two", "tests.test_b::test_four")


@pytest.mark.parametrize("is_there", [True, False])
def test_read_run_without_a_named_failure_is_not_green(tmp_path: Path, *, is_there: bool) -> None:
    report = tmp_path / "report.xml"
    if is_there:
        report.write_text("<testsuites><testsuite/></testsuites>")
    assert load_record.read_run("all", report, 1.0, 3).failed == ("pytest ended with exit code 3",)


def test_rendered_tells_runs_and_failures() -> None:
    runs = (
        Run(selection="timing", took_s=60.0, passed_count=9, skipped_count=1, failed=()),
        Run(selection="timing", took_s=90.0, passed_count=8, skipped_count=1, failed=("a::b",)),
    )
    record = Record(date="2026-11-22", machine="a machine", versions={}, loops_count=2, workers_count=4, runs=runs)
    text = load_record.rendered(record)
    assert "2026-11-22, beside 2 busy loops, 4 workers; a machine:" in text
    assert "timing-sensitive tests: 1 of 2 runs green, 1 failures among 18 tests run, 1.5 min at most." in text
    assert "whole suite" not in text


def test_with_record_replaces_only_its_lines() -> None:
    page = f"before\n{BEGIN}old\n{END}after\n"
    found = load_record.with_record(page, None)
    assert found == f"before\n{BEGIN}{load_record.rendered(None)}{END}after\n"
    with pytest.raises(ValueError, match="expected the lines"):
        load_record.with_record("no marks", None)


def test_development_page_has_the_record() -> None:
    assert load_record.main(["--check"]) == 0
