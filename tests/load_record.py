"""Runs of the suite beside busy loops, kept in ``load_record.json`` and told in DEVELOPMENT.md: ``make timing-record``."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tests.bench.saved import machine, versions

PATH = Path(__file__).with_name("load_record.json")
PAGE = Path(__file__).parents[1] / "DEVELOPMENT.md"
BEGIN, END = "<!-- load record: python -m tests.load_record --render -->\n", "<!-- end of load record -->\n"
SELECTIONS = {"timing": "timing and not gpu and not slow", "all": "not gpu and not slow"}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a selection: what became of its tests."""

    selection: str
    took_s: float
    passed_count: int
    skipped_count: int
    failed: tuple[str, ...]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one day on one machine."""

    date: str
    machine: str
    versions: dict[str, str]
    loops_count: int
    workers_count: int
    runs: tuple[Run, ...] = ()


def read_run(selection: str, report: Path, took_s: float, exit_code: int) -> Run:
    """Count a run's tests by pytest's own report; a run that ended with an error and names no test is a failure as well."""
    cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
    skipped = [case for case in cases if case.find("skipped") is not None]
    broken = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    failed = sorted({f"{case.get('classname')}::{case.get('name')}" for case in broken})
    if exit_code and not failed:
        failed = [f"pytest ended with exit code {exit_code}"]
    return Run(
        selection=selection, took_s=round(took_s, 1), passed_count=len(cases) - len(skipped) - len(broken),
        skipped_count=len(skipped), failed=tuple(failed),
    )  # fmt: skip


def run(selection: str, workers_count: int) -> Run:
    """Run a selection of the suite once."""
    with tempfile.TemporaryDirectory(prefix="gpuwatch-load-") as folder:
        report, begun_s = Path(folder) / "report.xml", time.monotonic()
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", str(workers_count), "--dist", "worksteal"]
        command += ["-m", SELECTIONS[selection], f"--junitxml={report}"]
        exit_code = subprocess.run(command, check=False).returncode
        return read_run(selection, report, time.monotonic() - begun_s, exit_code)


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep so many processors busy meanwhile."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def load() -> Record | None:
    return msgspec.json.decode(PATH.read_bytes(), type=Record) if PATH.exists() else None


def rendered(record: Record | None) -> str:
    """The lines of DEVELOPMENT.md."""
    if record is None:
        return "The suite beside busy loops is not recorded yet: `make timing-record`.\n"
    lines = [f"{record.date}, beside {record.loops_count} busy loops, {record.workers_count} workers; {record.machine}:"]
    for selection, words in (("timing", "the timing-sensitive tests"), ("all", "the whole suite")):
        runs = [each for each in record.runs if each.selection == selection]
        if not runs:
            continue
        green_count = sum(not each.failed for each in runs)
        longest_s = max(each.took_s for each in runs)
        failures_count = sum(len(each.failed) for each in runs)
        lines.append(
            f"- {words}: {green_count} of {len(runs)} runs green, {failures_count} failures among"
            f" {sum(each.passed_count for each in runs) + failures_count} tests run, {longest_s / 60:.1f} min at most."
        )
    return "\n".join(lines) + "\n"


def with_record(page: str, record: Record | None) -> str:
    """The page with the record's lines between their two marks.  Raises ValueError: when the page has no marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name}: expected the lines {BEGIN.strip()!r} and {END.strip()!r}")
    return before + begin + rendered(record) + end + after


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timing-runs", type=int, default=10)
    parser.add_argument("--all-runs", type=int, default=3)
    parser.add_argument("--loops", type=int, default=2)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--render", action="store_true", help="write the record's lines into DEVELOPMENT.md and run nothing")
    parser.add_argument("--check", action="store_true", help="fail if DEVELOPMENT.md does not have the record's lines")
    asked = parser.parse_args(arguments)
    page = PAGE.read_text(encoding="utf-8")
    if asked.check:
        if page == with_record(page, load()):
            return 0
        sys.stderr.write(f"{PAGE.name} is older than {PATH.name}: run python -m tests.load_record --render\n")
        return 1
    record = load()
    if not asked.render:
        record = _recorded(asked.timing_runs, asked.all_runs, asked.loops, asked.workers)
    PAGE.write_text(with_record(page, record), encoding="utf-8")
    return int(record is not None and any(each.failed for each in record.runs))


def _recorded(timing_count: int, all_count: int, loops_count: int, workers_count: int) -> Record:
    """Run everything and keep the record after each run, so that one that is stopped says how far it came."""
    day = dt.datetime.now(dt.UTC).date().isoformat()
    record = Record(date=day, machine=machine(), versions=versions(), loops_count=loops_count, workers_count=workers_count)
    with busy_loops(loops_count):
        for selection in ["timing"] * timing_count + ["all"] * all_count:
            found = run(selection, workers_count)
            record = msgspec.structs.replace(record, runs=(*record.runs, found))
            PATH.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
            print(
                f"{selection}: {found.passed_count} passed, {len(found.failed)} failed, {found.took_s:.0f} s",
                *found.failed,
                sep="\n  ",
            )
    return record


if __name__ == "__main__":
    sys.exit(main())
