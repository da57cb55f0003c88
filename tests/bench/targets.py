"""The performance targets with their measured values, from committed data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.bench.saved import Saved
from tests.faults import results as campaigns
from tests.hardware.merged import FIGURES, TRACES, VERDICTS, caught, rows

Row = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """A measured value; ``met`` is None without a measurement or comparison, and if the interval includes the target."""

    text: str
    met: bool | None = None


@dataclass(frozen=True)
class Data:
    """The data behind the targets."""

    benches: Mapping[str, Saved]
    effect: Mapping[str, Row]  # by watcher: the latest row from a real GPU
    verdicts: list[Row]
    figures: list[Row]
    campaigns: Mapping[str, Any]
    windows: Mapping[str, float]  # figures of an empty window on a real GPU

    def figure(self, bench: str, name: str) -> float | None:
        found = self.benches.get(bench)
        return None if found is None else found.figures.get(name)


def data(benches: Mapping[str, Saved]) -> Data:
    figures = rows(TRACES / FIGURES)
    windows = json.loads((TRACES / "h200-windows.json").read_text())["figures"]["window"]
    effect = {row["watcher"]: row for row in figures if row["table"] == "effect"}
    return Data(benches, effect, rows(TRACES / VERDICTS), figures, campaigns.kept(), windows)


@dataclass(frozen=True)
class Target:
    what: str
    target: str
    measure: Callable[[Data], Measured]
    where: str  # the table or page of the figures
    why_not: str = ""  # note for a missed target


def _library(name: str, most: float, unit: str) -> Callable[[Data], Measured]:
    """Compare the upper end of the median's 95 % interval with the target."""
    return lambda found: _below(
        found.figure("library", name), most, lambda value: f"{value:.1f} {unit}, upper end of 95 % (simulated GPU)"
    )


def _below(found: float | None, most: float, text: Callable[[float], str]) -> Measured:
    return Measured("not measured yet") if found is None else Measured(text(found), found <= most)


def _all(parts: Iterable[Measured]) -> Measured:
    """Join parts into one value, met if every compared part is met; the text also holds the other parts.

    Without a compared part, the value is not measured yet.
    """
    parts = list(parts)
    known, open_ = ([part for part in parts if (part.met is None) is unknown] for unknown in (False, True))
    if not known:
        return Measured("not measured yet")
    return Measured("; ".join(part.text for part in (*known, *open_)), all(part.met for part in known))


def _percent(ratio: float) -> str:
    return f"{ratio:.2%}"


def _watching(hz: int, most: float) -> Callable[[Data], Measured]:
    """Compare the daemon's CPU share per GPU.  At 100 Hz the share excludes expensive calls, which have a separate target."""

    def measure(found: Data) -> Measured:
        parts = []
        for count in (1, 8):
            whole, expensive = (found.figure("peers", f"{hz}hz_scraped_{count}_{kind}_ratio") for kind in ("cpu", "dear"))
            if whole is None or expensive is None:
                continue
            apart = (whole - (expensive if hz > 20 else 0.0)) / count
            gpus = "1 GPU" if count == 1 else f"each of {count}"
            parts.append(_below(apart, most, lambda ratio, gpus=gpus: f"{_percent(ratio)} ({gpus}, mock driver)"))  # type: ignore[misc]
        watcher = found.effect.get("gpuwatch, 20 Hz" if hz == 20 else "the same, scraped each second")
        if watcher is not None:
            count = watcher["gpus_count"] or 1
            share = watcher["cpu_ratio"] / count
            if hz == 20:
                parts.append(_below(share, most, lambda ratio: f"{_percent(ratio)} (each of {count}, H200, not scraped)"))
            else:  # on the H200 the benchmark measures only the wall time of the expensive calls, not their CPU time
                parts.append(Measured(f"{_percent(share)} with expensive calls (each of {count}, H200)"))
        return _all(parts)

    return measure


def _expensive_calls(found: Data) -> Measured:
    each = [found.figure("peers", f"100hz_scraped_{count}_dear_ratio") for count in (1, 8)]
    counted = [ratio / count for ratio, count in zip(each, (1, 8), strict=True) if ratio is not None]
    parts = [_below(max(counted, default=None), 0.01, lambda ratio: f"{_percent(ratio)} (mock driver)")]
    watcher = found.effect.get("the same, scraped each second")
    if watcher is not None:
        count = watcher["gpus_count"] or 1
        spent = sum(ratio for name, ratio in watcher["cost_ratios"].items() if name != "fast") / count
        context = f"of wall time in these calls, including the first seconds (each of {count}, H200)"
        parts.append(_below(spent, 0.01, lambda ratio: f"{_percent(ratio)} {context}"))
    return _all(parts)


def _ours(found: Data) -> list[Row]:
    return [row for name, row in found.effect.items() if name.startswith(("gpuwatch", "the same"))]


def _gemm(found: Data) -> Measured:
    """Compare the median change of a GEMM's time, in the worst way to watch, with the target."""
    worst = max((row["gemm_change_ratio"][0] for row in _ours(found)), default=None)
    return _below(worst, 0.0005, lambda ratio: f"{ratio:+.3%} (H200, worst of {len(_ours(found))} ways to watch)")


def _launch(found: Data) -> Measured:
    """Compare the whole interval with the target, because the median of a p99.9 is uncertain."""
    changes = [row["launch_change_s"][2] for row in _ours(found)]
    middle, low, high = max(changes, default=(None, 0.0, 0.0))
    if middle is None:
        return Measured("not measured yet")
    interval = f"{low * 1e6:+.2f} to {high * 1e6:+.2f}" + ("" if low > 0 else ": not distinguishable from zero")
    interval += " nor from the target" if low < 1e-6 < high else ""
    text = f"{middle * 1e6:+.2f} µs ({interval}; H200, worst of {len(changes)} ways to watch)"
    return Measured(text, True if high < 1e-6 else False if low > 1e-6 else None)


def _window(edge: str) -> Callable[[Data], Measured]:
    def measure(found: Data) -> Measured:
        real = found.windows.get(f"{edge}_p50_ms")
        parts = [_below(real, 2.0, lambda ms: f"{ms:.2f} ms (1 GPU, H200, before stamps)")]
        for row in [row for row in found.figures if row["table"] == "window"][-2:]:
            against = f"; Zeus {row[f'zeus_{edge}_p50_ms']:.2f}" if f"zeus_{edge}_p50_ms" in row else ""
            stamped = f"{row['gpus_count']} GPU{'s' if row['gpus_count'] > 1 else ''}, H200, 20 ms apart, stamped{against}"
            parts.append(_below(row[f"{edge}_p50_ms"], 2.0, lambda ms, stamped=stamped: f"{ms:.2f} ms ({stamped})"))  # type: ignore[misc]
        for count in (1, 8):
            ours, zeus = (found.figure("peers", f"{who}_{count}_{edge}_ms") for who in ("gpuwatch", "zeus"))
            against = "" if zeus is None else f"; Zeus {zeus:.2f}"
            gpus = f"{count} GPU{'s' if count > 1 else ''}, mock driver"
            parts.append(_below(ours, 2.0, lambda ms, gpus=gpus, against=against: f"{ms:.2f} ms ({gpus}{against})"))  # type: ignore[misc]
        return _all(parts)

    return measure


def _start(name: str, most: float, unit: str) -> Callable[[Data], Measured]:
    return lambda found: _below(found.figure("start", name), most, lambda value: f"{value:.2f} {unit} (simulated GPU)")


def _entering(found: Data) -> Measured:
    """Compare the shortest round, because other work on the machine can only lengthen a round."""
    median, cpu = (found.figure("start", f"enter_{name}_s") for name in ("median", "cpu"))
    beside = "" if median is None or cpu is None else f", median {median:.2f} s, {cpu:.2f} s of CPU"
    return _below(found.figure("start", "enter_s"), 0.5, lambda least: f"least {least:.2f} s{beside} (simulated GPU)")


def _latest(found: Data, table: str, how: str) -> list[Row]:
    """Return the rows of one method from its last day on a real GPU, by the latest versions."""
    rows_there = [row for row in found.figures if row["table"] == table and row.get("how", row.get("who")) == how]
    return [row for row in rows_there if all(row[name] == rows_there[-1][name] for name in ("versions", "date"))]


def _first_window(found: Data) -> Measured:
    took_s = [row["enter_s"] for how in ("plain", "torch") for row in _latest(found, "first-window", how)]
    return _below(
        max(took_s, default=None), 0.35, lambda most: f"{min(took_s):.2f} to {most:.2f} s ({len(took_s)} starts, H200)"
    )


def _closing(found: Data) -> Measured:
    """Compare the slowest close on a real GPU, and the quickest close on a shared machine."""
    parts = [_below(found.figure("window", "close_timed_ms"), 10.0, lambda ms: f"{ms:.1f} ms (host's clock)")]
    for how, what in (("host", "host's clock"), ("stamped", "15 000 stamped, read in a separate thread")):
        took_ms = [row["close_s"] * 1e3 for row in _latest(found, "closing", how)]
        parts.append(_below(max(took_ms, default=None), 10.0, lambda ms, what=what: f"at most {ms:.1f} ms ({what}, H200)"))  # type: ignore[misc]
    return _all(parts)


def _whole_daemon(who: str, most: float) -> Callable[[Data], Measured]:
    """Compare the CPU share of the whole daemon on one H200 with the target.

    The text also shows the share of its readings and of nvidia-smi, if measured with the same versions.
    """

    def measure(found: Data) -> Measured:
        ours = _latest(found, "watching", who)
        if not ours:
            return Measured("not measured yet")
        beside = ""
        for table, name, what in (
            ("floor", who, "its readings alone"),
            ("watching", "nvidia-smi -lms 10, idle GPU", "`nvidia-smi -lms 10`"),
        ):
            if (rows := _latest(found, table, name)) and rows[-1]["versions"] == ours[-1]["versions"]:
                beside += f"; {what} {_percent(rows[-1]['cpu_ratio'])}"
        return _below(ours[-1]["cpu_ratio"], most, lambda ratio: f"{_percent(ratio)} (H200{beside})")

    return measure


def _page(found: Data) -> Measured:
    return _below(found.figure("scrape", "page_ms"), 3.0, lambda ms: f"{ms:.2f} ms of CPU")


def _judging(found: Data) -> Measured:
    """Compare windows at the speed of a machine whose fixed loop takes ``_LOOP_MS``, and show the measured times."""
    loop_ms = found.figure("judge", "floor, ms")
    parts = []
    for case, most_ms in (("6 s at 100 Hz", 10.0), ("6 s, disturbed", 10.0), ("30 000 timed, disturbed", 40.0)):
        took_ms = found.figure("judge", f"{case}, ms")
        if took_ms is not None and loop_ms is not None:
            text = f"{took_ms * _LOOP_MS / loop_ms:.1f} ms ({case}; {took_ms:.1f} ms measured)"
            parts.append(Measured(text, took_ms * _LOOP_MS / loop_ms <= most_ms))
    return _all([*parts, Measured(f"the loop took {loop_ms or 0.0:.1f} ms")] if parts else [])


def _scatter(found: Data) -> Measured:
    """Compare the largest per-kernel median of the corrected scatter; skip refused fits and times below 50 µs."""
    by_kernel: dict[str, list[float]] = {}
    for row in found.figures:
        if row["table"] == "corrections" and "refused" not in row["fit"] and row["time_s"] >= 50e-6:
            by_kernel.setdefault(row["kernel"], []).append(row["scatters"][0]["corrected_ratio"])
    worst = max((float(np.median(each)) for each in by_kernel.values()), default=None)
    return _below(worst, 0.002, lambda ratio: f"at most {_percent(ratio)} of {len(by_kernel)} kernels (H200)")


def _comparing(found: Data) -> Measured:
    trials = [row for row in found.figures if row["table"] == "comparisons"]
    parts = []
    for differ in (True, False):
        of = [row for row in trials if row["differ"] is differ]
        called = sum(row["decision"] in ("faster", "slower") for row in of)
        if of:
            met = called >= 0.95 * len(of) if differ else called <= 0.05 * len(of)
            parts.append(Measured(f"{'0.5 % found' if differ else 'A/A called'} {called} of {len(of)} (H200)", met))
    hit, own, invented = (found.figure("compare", f"{name}_ratio") for name in ("found", "found_on_own_buffers", "invented"))
    if hit is not None and own is not None and invented is not None:
        text = f"worst of simulated cards and recordings: {hit:.1%} found ({own:.1%} with separate buffers per arm), {invented:.1%} false"
        parts.append(Measured(text, min(hit, own) >= 0.95 and invented <= 0.05))
    return _all(parts)


def _verdicts(found: Data) -> Measured:
    clean = [row for row in found.verdicts if row["kind"] == "clean"]
    injected = [row for row in found.verdicts if row["kind"] == "injected"]
    wrong, missed = sum(row["status"] != "valid" for row in clean), sum(not caught(row) for row in injected)
    met = wrong <= 0.01 * len(clean) and missed <= 0.01 * len(injected)
    return Measured(f"{wrong} of {len(clean)} clean not valid, {missed} of {len(injected)} injected yet valid (H200)", met)


def _storing(case: str, most_mb: float) -> Callable[[Data], Measured]:
    return lambda found: _below(found.figure("store", f"{case}, MB/day"), most_mb, lambda mb: f"{mb:.1f} MB")


def _fleet_refresh(found: Data) -> Measured:
    took_s, cpu_s = (found.figure("fleet_dashboard", name) for name in ("refresh_s", "refresh_cpu_s"))
    return _below(took_s, 1.0, lambda s: f"{s:.1f} s, {cpu_s or 0.0:.2f} s of CPU in Prometheus")


def _rejudging(found: Data) -> Measured:
    return _below(found.figure("rejudge", "whole_s"), 60.0, lambda took_s: f"{took_s:.0f} s")


def _listing(found: Data) -> Measured:
    return _below(found.figure("growth", "windows_1000000_audit_s"), 1.0, lambda took_s: f"{took_s:.2f} s, whole command")


def _crashes(found: Data) -> Measured:
    kills = found.campaigns.get("kills")
    if kills is None:
        return Measured("not measured yet")
    return Measured(f"{kills['rounds_count']} kills: {kills['lost_max_s']:.2f} s lost at most", kills["lost_max_s"] <= 1.0)


def _day(found: Data) -> Measured:
    """Compare the memory growth of the simulated day; the campaign itself checks threads, descriptors and segments."""
    day = found.campaigns.get("day")
    if day is None:
        return Measured("not measured yet")
    grown = max(day[f"{which}_growth_ratio"] for which in ("memory_bytes", "judge_memory_bytes"))
    dropped = f"{day['dropped_segments_count']} segments dropped, {day['segments_max_bytes'] / 1e6:.1f} MB at most of {day['budget_bytes'] / 1e6:.1f}"
    return Measured(f"+{grown:.2%} of memory after its first hour; {dropped}", grown <= 0.05)


# The first judge took 5.9 ms for 6 s when the target was set, and 12.8 ms where the loop took 2.5 ms.
_LOOP_MS = 1.2
_PEERS, _VALIDATION = "[peers](#peers)", "[VALIDATION](VALIDATION.md)"
_SHARE = (
    "there the kernel's wake-up alone costs 57 µs a pass (17 µs on an H200's machine), and caches are cold after each pause:"
    " a page of 0.4 ms takes 4 ms, a commit of 20 rows 0.7 ms"
)
TARGETS = (
    Target("watching at 20 Hz, whole daemon, stored and scraped", "≤ 0.5 % of a core per GPU", _watching(20, 0.005), _PEERS, f"{_SHARE}; on an H200 the causes are process lists, power record, energy and GPM, each read as rarely as the evidence allows"),
    Target("… at 100 Hz while a window is open, without expensive calls", "≤ 1 % of a core per GPU", _watching(100, 0.01), _PEERS, _SHARE),
    Target("… the expensive calls alone", "≤ 1 % of a core per GPU", _expensive_calls, _PEERS, "the driver sets the cost of energy, GPM and utilisation"),
    Target("an idle GPU without clients, whole daemon", "≤ 0.1 % of a core", _whole_daemon("gpuwatch, idle GPU, nobody connected", 0.001), "`tests/hardware/costs.py`", "the fast thread uses 0.05 %, the store and the event loop 0.01 to 0.02 % each; a slow row every 5 min, 0.006 %, is not included"),
    Target("a busy GPU at 20 Hz, stored, scraped each second, whole daemon", "≤ 0.5 % of a core", _whole_daemon("gpuwatch, busy GPU, scraped", 0.005), "`tests/hardware/costs.py`", "the readings alone exceed the target; the fast thread's 20 rows use 0.51 %, the page 0.24 to 0.28 %, the slow thread 0.15 to 0.27 %, the store 0.17 to 0.18 %"),
    Target("a busy GPU with a window open, whole daemon", "≤ 1.5 % of a core", _whole_daemon("gpuwatch, busy GPU, a window open", 0.015), "`tests/hardware/costs.py`", "the readings alone exceed the target, because a young window's rows hold energy and GPM each second; the fast thread uses 1.09 to 1.15 %, the slow thread 0.98 to 1.02 %, the event loop 0.36 %, the store 0.2 %, the queries to the window's process 0.16 %"),
    Target("a page of metrics of 8 GPUs", "≤ 3 ms of CPU", _page, "[scrape](#scrape)"),
    Target("all queries of one refresh of the fleet dashboard, 2 000 GPUs", "≤ 1 s in sequence", _fleet_refresh, "[fleet_dashboard](#fleet_dashboard)"),
    Target("effect on a GEMM", "< 0.05 %", _gemm, "[effect](#effect-on-the-watched-work)"),
    Target("effect on the p99.9 of kernel launches", "< 1 µs", _launch, "[effect](#effect-on-the-watched-work)"),
    Target("`window()`, enter", "≤ 2 ms, median", _window("enter"), _PEERS, "the benchmark waits for the daemon's answers"),
    Target("`window()`, exit", "≤ 2 ms, median", _window("exit"), _PEERS, "the benchmark waits for the daemon's answers"),
    Target("first `window()` of a machine, daemon not running, enter", "≤ 0.5 s on two cores", _entering, "[start](#start)"),
    Target("… on an H200's machine", "≤ 0.35 s", _first_window, "`tests/hardware/costs.py`", "the daemon's imports take the largest part"),
    Target("daemon and judge at rest", "≤ 90 MB together", _start("rest_mb", 90.0, "MB"), "[start](#start)"),
    Target("a verdict when the judge process had exited", "≤ 1.5 s", _start("cold_verdict_s", 1.5, "s"), "[start](#start)"),
    Target("exit of a window with 10 000 timed iterations", "≤ 10 ms in which the GPU idles", _closing, "[window](#window), `tests/hardware/costs.py`", "other work shared the machine"),
    Target("an NVTX range that no pattern fits, in the C library", "≤ 50 ns", _library("range_ns", 50.0, "ns"), "[library](#library)"),
    Target("`gw_begin`, daemon running", "≤ 1 ms", _library("open_us", 1000.0, "µs"), "[library](#library)", "eight other jobs shared the machine; H200s' machines take 0.44 to 0.72 ms, upper end 0.76 ms (LIBGPUWATCH.md)"),
    Target("`gw_end`", "≤ 1 ms", _library("end_us", 1000.0, "µs"), "[library](#library)"),
    Target("judging a window, warm, where a loop of 20 000 calls takes 1.2 ms", "≤ 10 ms for 6 s, ≤ 40 ms for 30 000 iterations", _judging, "[judge](#judge)", "a disturbed window of 6 s with 1087 iterations asks more rules than an undisturbed one without times"),
    Target("scatter of corrected 100 ms estimates, capped GPU", "≤ 0.2 %", _scatter, _VALIDATION),
    Target("comparison", "0.5 % found ≥ 95 %, A/A called ≤ 5 %", _comparing, f"{_VALIDATION}, [compare](#compare)", "the comparison cannot separate a difference between buffers (0.13 % on an H200) from one of the work"),
    Target("verdicts on real GPUs", "≤ 1 % of clean windows not valid, ≥ 99 % of injected faults found", _verdicts, _VALIDATION),
    Target("storing a GPU under load", "≤ 60 MB a day", _storing("loaded, 20 Hz", 60.0), "[store](#store)", "every signal changes at each refresh"),
    Target("storing an idle GPU", "≤ 10 MB a day", _storing("idle, 20 Hz", 10.0), "[store](#store)"),
    Target("rejudging 10 000 windows", "≤ 60 s", _rejudging, "[rejudge](#rejudge)"),
    Target("`gpuwatch audit` with a million windows stored", "≤ 1 s", _listing, "[growth](#growth)"),
    Target("killed at any moment (`make soak`)", "≤ 1 s of readings lost, no corruption", _crashes, "`tests/faults/results.json`"),
    Target("24 simulated hours of 8 GPUs (`make soak`)", "memory +5 % at most, readings within their budget", _day, "`tests/faults/results.json`"),
)  # fmt: skip


def as_rows(found: Data) -> list[str]:
    """Render a Markdown table of the targets, their measured values, and their state with a reason for a miss."""
    lines = ["| what | target | measured | | where |", "|---|---|---|---|---|"]
    for each in TARGETS:
        measured = each.measure(found)
        taken = [bench for name in re.findall(r"\(#(\w+)\)", each.where) if (bench := found.benches.get(name)) is not None]
        of_double = "mock driver" in measured.text and any(bench.is_shared for bench in taken)
        shared = "the mock driver ran on two virtual processors" if of_double else ""
        why = "; ".join(part for part in (shared, each.why_not) if part)
        state = {None: "–", True: "met", False: f"**not met**{': ' if why else ''}{why}"}[measured.met]
        lines.append(f"| {each.what} | {each.target} | {measured.text} | {state} | {each.where} |")
    return lines
