"""A table of the cost of stamps, their coverage of the SMs, and their distance from events and the host's clock.

python -m tests.hardware.stamps OUT_FOLDER
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from gpuwatch.cuda.stamp import Stamped, Stamps
from tests.hardware.workloads import copy, gemm, loop


def median_us(call: Callable[[], object], count: int = 2000) -> float:
    took = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        call()
        took.append(time.perf_counter_ns() - begin)
        if len(took) % 100 == 0:
            torch.cuda.synchronize()
    return statistics.median(took) / 1e3


def event_pair_us(between: Callable[[], object], count: int = 300) -> float:
    pairs = []
    for _ in range(count):
        first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        between()
        second.record()
        pairs.append((first, second))
    torch.cuda.synchronize()
    return float(statistics.median(first.elapsed_time(second) * 1e3 for first, second in pairs))


def behind_work_us(stamps: Stamps, call: Callable[[], object], count: int, *, stamped: bool) -> float:
    """Return the time of a call in a full queue, with or without a stamp after each call."""
    torch.cuda.synchronize()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    first.record()
    for _ in range(count):
        call()
        if stamped:
            stamps.put()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) * 1e3 / count


def _spread_ratio(stamped: Stamped, first: int, second: int) -> float | None:
    """Return the range of the SMs' clocks as a ratio of their median, near zero on one clock, or None without stamped SMs."""
    seen = (stamped.at_ns[first] > 0) & (stamped.at_ns[second] > stamped.at_ns[first])
    if not seen.any():
        return None
    passed_ns = (stamped.at_ns[second] - stamped.at_ns[first])[seen]
    mhz = (stamped.cycles[second] - stamped.cycles[first])[seen] * 1e3 / passed_ns
    return float((mhz.max() - mhz.min()) / np.median(mhz))


def main(out: Path) -> None:
    torch.zeros(1, device="cuda")
    figures: dict[str, object] = {
        "table": "stamps", "date": time.strftime("%Y-%m-%d"), "card": torch.cuda.get_device_name(), "torch": torch.__version__,
    }  # fmt: skip
    for name in ("first_here_ms", "second_here_ms"):
        begin = time.perf_counter()
        stamps = Stamps.allocate(30_000)
        figures[name] = (time.perf_counter() - begin) * 1e3
    assert stamps is not None
    figures["room_count"] = stamps.count
    put_us = median_us(stamps.put)
    figures["put_us"] = put_us
    stamped = stamps.read()
    seen = (stamped.at_ns > 0).sum(axis=1)
    figures["sms_seen_min_of"] = [int(seen.min()), stamped.at_ns.shape[1]]
    steps = np.diff(np.unique(stamped.at_ns.ravel()))
    figures["timer_step_ns"] = int(steps[steps > 0].min())
    figures["events_empty_us"] = event_pair_us(lambda: None)
    stamps.clear()
    figures["events_around_stamp_us"] = event_pair_us(stamps.put)
    stamps.clear()
    for _ in range(1000):
        stamps.put()
    torch.cuda.synchronize()
    each = stamps.read()
    numbers = np.arange(999)
    figures["stamp_to_stamp_us"] = float(np.median(each.first_ns(numbers + 1) - each.last_ns(numbers)) / 1e3)
    figures["stamp_spread_us"] = float(np.median(each.last_ns(numbers) - each.first_ns(numbers)) / 1e3)
    for name, call, count in (("gemm4k", gemm(4096), 1500), ("gemm1k", gemm(1024), 3000), ("copy", copy(), 300)):
        loop(call, 2.0)
        rounds = []
        for _ in range(5):
            stamps.clear()
            plain = behind_work_us(stamps, call, count, stamped=False)
            rounds.append(behind_work_us(stamps, call, count, stamped=True) - plain)
        figures[f"stamp_behind_{name}_us"] = [round(plain, 2), [round(each, 2) for each in rounds]]
    call = gemm(4096)
    loop(call, 3.0)
    stamps.clear()
    pairs, marks = [], []
    host = []
    for _ in range(2000):
        first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin = stamps.put()
        first.record()
        call()
        second.record()
        marks.append((begin, stamps.put()))
        pairs.append((first, second))
    torch.cuda.synchronize()
    host.append(time.monotonic_ns())
    each = stamps.read()
    begins, ends = np.array(marks).T
    by_stamps = (each.first_ns(ends) - each.last_ns(begins)) / 1e6
    by_events = np.array([first.elapsed_time(second) for first, second in pairs])
    mhz = each.clocks_mhz(begins, ends)
    figures["gemm4k_ms_by_events_stamps"] = [float(np.median(by_events)), float(np.median(by_stamps))]
    figures["difference_us_5_50_95"] = [float(v) for v in np.percentile((by_stamps - by_events) * 1e3, [5, 50, 95])]
    figures["mhz_5_50_95"] = [float(v) for v in np.percentile(mhz, [5, 50, 95])]
    figures["correlation_log"] = float(np.corrcoef(np.log(mhz), np.log(by_events))[0, 1])
    figures["correlation_log_stamps"] = float(np.corrcoef(np.log(mhz), np.log(by_stamps))[0, 1])
    figures["end_before_host_us"] = float((host[0] - each.last_ns(ends[-1:])[0]) / 1e3)
    figures["spread_of_sms_ratio"] = _spread_ratio(each, int(begins[0]), int(ends[-1]))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
        figures["during_capture"] = [stamps.put(), Stamps.allocate(10) is None]
    graph.replay()
    torch.cuda.synchronize()
    print(json.dumps(figures, indent=1))
    out.mkdir(parents=True, exist_ok=True)
    (out / "stamps.json").write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
