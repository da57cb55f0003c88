"""A thousand windows at once, or a hundred thousand in sequence: ``python -m tests.faults.crowd at-once|in-sequence N``."""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import gpuwatch
from gpuwatch import clock
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings
from gpuwatch.store import Reader
from tests.faults import results, stores
from tests.gpuwatch.live import Live, running
from tests.waiting import let_pass

_MISSED_S = 1.0
MOST_GROWN_RATIO = 0.05


def at_once(live: Live, count: int) -> dict[str, Any]:
    """Open all windows, close all, and request all verdicts; return costs, the daemon's use, and missing verdicts."""
    pid, settings = live.process.pid, live.settings
    _more_files()
    before = _taken(pid)
    windows = [gpuwatch.window(f"crowd {i}", settings=settings) for i in range(count)]
    entered_s = [_took_s(w.__enter__) for w in windows]
    most = _taken(pid)
    exited_s = [_took_s(lambda w=w: w.__exit__(None, None, None)) for w in windows]
    closed_ns = clock.now_ns()
    verdicts = Counter(str(w.verdict.status) for w in windows)
    judged_s = (clock.now_ns() - closed_ns) / 1e9
    unanswered = [w.verdict.why.partition(";")[0] for w in windows if not w.verdict.findings]
    after = _taken(pid)
    return {
        "windows_count": count, "verdicts": dict(verdicts), "without_findings_count": len(unanswered),
        "why": dict(Counter(unanswered)), "open_p50_s": _rounded(statistics.median(entered_s)), "open_max_s": _rounded(max(entered_s)),
        "close_p50_s": _rounded(statistics.median(exited_s)), "close_max_s": _rounded(max(exited_s)), "all_judged_s": _rounded(judged_s),
        "before": before, "with_all_open": most, "after": after,
    }  # fmt: skip


def in_sequence(live: Live, count: int, *, asked_every: int = 100, progress: bool = False) -> dict[str, Any]:
    """Open windows in sequence at full speed, and request a verdict at intervals, like a benchmark suite."""
    pid, settings = live.process.pid, live.settings
    taken: list[dict[str, int]] = []
    verdicts: Counter[str] = Counter()
    begun_ns = clock.now_ns()
    for number in range(count):
        with gpuwatch.window(f"one of many {number % 100}", settings=settings) as w:
            pass
        verdicts["opened" if w.run_id else w.verdict.why] += 1
        if not w.run_id:  # the machine is busy with other work
            let_pass(_MISSED_S, "a suite would do other work meanwhile")
        if number % asked_every == asked_every - 1:
            verdict = w.verdict
            verdicts[f"asked: {verdict.status if verdict.findings else verdict.why.partition(';')[0]}"] += 1
        if number % max(1, count // 20) == 0 or number == count - 1:
            taken.append(_taken(pid))
            if progress:
                print(number, round((clock.now_ns() - begun_ns) / 1e9), taken[-1], dict(verdicts), flush=True)
    opened_s = (clock.now_ns() - begun_ns) / 1e9
    assert w.verdict.findings, w.verdict.why
    with Reader(settings.state) as reader:
        newest_s = min(_took_s(lambda: reader.runs(limit=50)) for _ in range(5))
        worst_s = min(_took_s(lambda: reader.runs(limit=50, worst_first=True)) for _ in range(5))
        kept_count = len(reader.ended())
    return {
        "windows_count": count, "took_s": round(opened_s), "verdicts": dict(verdicts), "kept_count": kept_count,
        "list_newest_50_s": _rounded(newest_s), "list_worst_50_s": _rounded(worst_s), "taken": taken,
        "ledger_bytes_a_window": round(stores.databases(settings.state)[0].stat().st_size / count),
    }  # fmt: skip


def check_sequence(figures: dict[str, Any]) -> None:
    """Check a sequence.  Raises AssertionError: for refused or lost windows, growth in the second half, or a slow list.

    Memory rises in steps to a maximum within the first thousand windows; a leak would grow further.
    """
    assert figures["verdicts"]["opened"] == figures["windows_count"] <= figures["kept_count"]
    half, last = figures["taken"][len(figures["taken"]) // 2], figures["taken"][-1]
    for of in ("memory_bytes", "judge_memory_bytes"):
        assert last[of] <= (1 + MOST_GROWN_RATIO) * half[of], (of, half, last)
    assert last["threads_count"] <= half["threads_count"]
    assert last["descriptors_count"] <= half["descriptors_count"] + 2
    assert figures["list_newest_50_s"] < 1.0


def _taken(pid: int) -> dict[str, int]:
    """Return memory, descriptors and threads of the daemon, and the judge's memory."""
    workers = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return {
        "memory_bytes": stores.memory_bytes(pid), "judge_memory_bytes": sum(map(stores.memory_bytes, workers)),
        "descriptors_count": stores.descriptors(pid), "threads_count": stores.threads(pid),
    }  # fmt: skip


def _took_s(work: Any) -> float:
    begun_ns = clock.now_ns()
    work()
    return (clock.now_ns() - begun_ns) / 1e9


def _rounded(seconds: float) -> float:
    return round(seconds, 4)


def _more_files() -> None:
    """Set this process's limit of open files to 8192, or to the hard limit if that is lower."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))


def busy_count(settings: Settings) -> int:
    with connect(settings, start=False) as client:
        return int(client.status()["windows_count"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", choices=("at-once", "in-sequence"))
    parser.add_argument("count", type=int)
    parser.add_argument("--keep", action="store_true", help="put the figures into results.json")
    asked = parser.parse_args()
    with running(Path(tempfile.mkdtemp(prefix="gw-crowd-"))) as live:
        with gpuwatch.window("first", settings=live.settings) as w:  # the first window loads further modules
            pass
        assert w.verdict.findings
        figures = at_once(live, asked.count) if asked.how == "at-once" else in_sequence(live, asked.count, progress=True)
    if asked.keep:
        results.keep(f"windows {asked.how}", figures)
    else:
        print(figures, file=sys.stderr)


if __name__ == "__main__":
    main()
