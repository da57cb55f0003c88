"""The cost of curves: the layout of up to four panels and the strips, by size and range, and the CPU share of live drawing."""

from __future__ import annotations

import asyncio
import timeit
from dataclasses import replace

import numpy as np
import psutil

from annotate.evidence import Trace
from gpuwatch.tui.data_interfaces import ScreenContent
from gpuwatch.tui.text import gpu_chart
from gpuwatch.tui.text.gpu_chart import ChartView
from tests.gpuwatch.tui.detail import Host, Still, format_time, lived
from tests.gpuwatch.tui.frozen import EIGHT, NOW_NS, S, gpu, window

WINDOWS = tuple(window(str(number), "valid", ago_s=20.0 * number, pids=[7]) for number in range(32))


def layout_ms(trace: Trace, range_s: int, width: int, height: int) -> float:
    """Return the milliseconds to lay out all lines without a cache, the best of five rounds of twenty."""
    view = ChartView(
        trace=trace, device=gpu(0).device, begin_ns=NOW_NS - range_s * S, end_ns=NOW_NS, zero_ns=NOW_NS, format_time=format_time,
        cursor_ns=NOW_NS - range_s * S // 3, windows=WINDOWS,
    )  # fmt: skip
    return min(timeit.repeat(lambda: gpu_chart.lines(view, width, height), number=20, repeat=5)) / 20 * 1e3


async def screen_ratio(trace: Trace, range_keys: tuple[str, ...], size: tuple[int, int], seconds: int = 10) -> float:
    """Return the screen's share of a core at four updates a second, from its process's CPU time."""
    host = Host(
        ScreenContent(live=replace(EIGHT, windows=WINDOWS), format_time=format_time), Still(trace, span=(0, NOW_NS + 3600 * S))
    )
    async with host.run_test(size=size) as pilot:
        await pilot.pause(0.2)
        await pilot.press(*range_keys)
        await pilot.pause(0.5)
        program = psutil.Process()
        before = program.cpu_times()
        rng = np.random.default_rng(1)
        for step in range(1, 4 * seconds + 1):
            now_ns = NOW_NS + step * S // 4
            first = gpu(
                0, age_s=-step / 4, pids=[7], sm_clock_mhz=int(rng.integers(1400, 1600)), power_w=float(rng.uniform(680, 705))
            )
            host.show_content(
                ScreenContent(
                    live=replace(EIGHT, at_ns=now_ns, gpus=(first, *EIGHT.gpus[1:]), windows=WINDOWS), format_time=format_time
                )
            )
            await pilot.pause()
        after = program.cpu_times()
    return (after.user + after.system - before.user - before.system) / seconds


def main() -> None:
    trace = lived(3600)
    print(f"curves of an hour: {len(trace.column('power_w'))} rows a signal, {len(trace.dense_power)} samples of dense power")
    for width, height in ((80, 18), (120, 33), (200, 52)):
        times = [f"{range_s} s: {layout_ms(trace, range_s, width, height):.1f} ms" for range_s in (30, 120, 600, 3600)]
        print(f"all lines at {width} × {height}: {', '.join(times)}")
    for size in ((80, 24), (120, 40), (200, 60)):
        ratio = asyncio.run(screen_ratio(trace, (), size))
        print(f"the screen of one GPU, updated at 4 Hz on {size[0]} × {size[1]}, terminal not counted: {ratio:.1%} of a core")


if __name__ == "__main__":
    main()
