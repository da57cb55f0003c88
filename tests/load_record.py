"""Runs of the suite beside busy loops, stored in ``load_record.json`` and shown in DEVELOPMENT.md: ``make timing-record``."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from gpuwatch.atomic_write import replace
from tests.bench.saved import machine

PATH = Path(__file__).with_name("load_record.json")
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "DEVELOPMENT.md"
BEGIN, END = "<!-- load record: python -m tests.load_record --render -->\n", "<!-- end of load record -->\n"
SELECTIONS = {"timing": "timing and not gpu and not slow", "all": "not gpu and not slow"}


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a run.  Runs under different conditions are counted separately."""

    machine: str
    loops_count: int
    workers_count: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a selection: its date, its commit, and the results of its tests."""

    date: str
    commit: str
    python: str
    under: Circumstances
    selection: str
    took_s: float
    passed_count: int
    skipped_count: int
    failed: tuple[str, ...]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a run's passed and skipped tests, and the names of the failed tests."""

    passed_count: int
    skipped_count: int
    failed: tuple[str, ...]


def read_outcome(report: Path, exit_code: int) -> Outcome:
    """Count a run's tests in pytest's report; an exit code other than 0 without a failed test counts as a failure."""
    cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
    skipped = [case for case in cases if case.find("skipped") is not None]
    broken = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    failed = sorted({f"{case.get('classname')}::{case.get('name')}" for case in broken})
    if exit_code and not failed:
        failed = [f"pytest ended with exit code {exit_code}"]
    passed_count = len(cases) - len(skipped) - len(broken)
    return Outcome(passed_count=passed_count, skipped_count=len(skipped), failed=tuple(failed))


def run(selection: str, under: Circumstances) -> Run:
    """Run a selection of the suite once, in parallel with the busy loops."""
    date, found_commit = dt.datetime.now(dt.UTC).date().isoformat(), commit()
    with tempfile.TemporaryDirectory(prefix="gpuwatch-load-") as folder:
        report, begun_s = Path(folder) / "report.xml", time.monotonic()
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-n",
            str(under.workers_count),
            "--dist",
            "worksteal",
        ]
        command += ["-m", SELECTIONS[selection], f"--junitxml={report}"]
        with busy_loops(under.loops_count):
            exit_code = subprocess.run(command, check=False).returncode
        outcome = read_outcome(report, exit_code)
        return Run(
            date=date, commit=found_commit, python=platform.python_version(), under=under, selection=selection,
            took_s=round(time.monotonic() - begun_s, 1), passed_count=outcome.passed_count, skipped_count=outcome.skipped_count, failed=outcome.failed,
        )  # fmt: skip


def commit() -> str:
    """Return the tested commit, with a plus if files other than this program's output differ from the commit."""
    outputs = [f":!{path.relative_to(ROOT).as_posix()}" for path in (PATH, PAGE)]
    replies = [
        subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
        for arguments in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--", ".", *outputs])
    ]
    return (replies[0] or "unknown") + ("+" if replies[1] else "")


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep this number of CPUs busy during the block."""
    # Each loop checks its parent, because a loop must not outlive a killed run.
    loop = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    loops = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(count)]
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()


def load(path: Path = PATH) -> tuple[Run, ...]:
    """Return the recorded runs, oldest first."""
    return msgspec.json.decode(path.read_bytes(), type=tuple[Run, ...]) if path.exists() else ()


def due(runs: Sequence[Run], under: Circumstances, timing_count: int, all_count: int) -> list[str]:
    """Return the missing selections; a run of the whole suite also counts as a run of the timing-sensitive tests."""
    had = [each.selection for each in runs if each.under == under]
    whole_due = max(0, all_count - had.count("all"))
    timing_due = max(0, timing_count - len(had) - whole_due)
    return ["timing"] * timing_due + ["all"] * whole_due


def go_on(
    path: Path, under: Circumstances, timing_count: int, all_count: int, run: Callable[[str, Circumstances], Run]
) -> list[Run]:
    """Make the missing runs and store each run at its end, so that an interruption loses only the current run."""
    made: list[Run] = []
    for selection in due(load(path), under, timing_count, all_count):
        found = run(selection, under)
        made.append(found)
        replace(path, msgspec.json.format(msgspec.json.encode((*load(path), found)), indent=1) + b"\n")
        print(
            f"{selection}: {found.passed_count} passed, {len(found.failed)} failed, {found.took_s:.0f} s",
            *found.failed,
            sep="\n  ",
        )
    return made


def rendered(runs: Sequence[Run]) -> str:
    """Return the record's lines for DEVELOPMENT.md."""
    if not runs:
        return "The suite under load is not recorded yet: `make timing-record`.\n"
    under = runs[-1].under  # runs under different conditions stay in the file
    same = [each for each in runs if each.under == under]
    dates, commits = sorted({each.date for each in same}), {each.commit for each in same}
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    lines = [
        f"{days}, {len(commits)} commit{'s' if len(commits) != 1 else ''}, with {under.loops_count} busy loops and {under.workers_count} workers; {under.machine}:"
    ]
    for words, some in (
        ("the timing-sensitive tests, including runs of the whole suite", same),
        ("the whole suite", [each for each in same if each.selection == "all"]),
    ):
        if not some:
            continue
        green_count = sum(not each.failed for each in some)
        failures_count = sum(len(each.failed) for each in some)
        run_count = sum(each.passed_count for each in some) + failures_count
        lines.append(
            f"- {words}: {green_count} of {len(some)} runs without a failure, {failures_count} failures in {run_count} tests,"
            f" at most {max(each.took_s for each in some) / 60:.1f} min per run."
        )
    return "\n".join(lines) + "\n"


def with_record(page: str, runs: Sequence[Run]) -> str:
    """Return the page with the record's lines between its two marker lines.

    Raises ValueError: when the page has no marker lines.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name}: expected the lines {BEGIN.strip()!r} and {END.strip()!r}; restore them")
    return before + begin + rendered(runs) + end + after


def write_page() -> None:
    PAGE.write_text(with_record(PAGE.read_text(encoding="utf-8"), load()), encoding="utf-8")


def run_beside_page(selection: str, under: Circumstances) -> Run:
    """Write the page, because a test of the suite compares the page with the record, and run the selection."""
    write_page()
    return run(selection, under)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timing-runs", type=int, default=10, help="total number of runs, including recorded ones")
    parser.add_argument("--all-runs", type=int, default=3, help="number of whole-suite runs; each counts for --timing-runs")
    parser.add_argument("--loops", type=int, default=2)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--render", action="store_true", help="write the record's lines into DEVELOPMENT.md and run nothing")
    parser.add_argument("--check", action="store_true", help="fail if DEVELOPMENT.md does not have the record's lines")
    asked = parser.parse_args(arguments)
    if asked.check:
        page = PAGE.read_text(encoding="utf-8")
        if page == with_record(page, load()):
            return 0
        sys.stderr.write(f"{PAGE.name} does not show {PATH.name}: run python -m tests.load_record --render\n")
        return 1
    made: list[Run] = []
    try:
        if not asked.render:
            under = Circumstances(machine=machine(), loops_count=asked.loops, workers_count=asked.workers)
            made = go_on(PATH, under, asked.timing_runs, asked.all_runs, run_beside_page)
    finally:  # after an interruption the page shows the finished runs
        write_page()
    return int(any(each.failed for each in made))


if __name__ == "__main__":
    sys.exit(main())
