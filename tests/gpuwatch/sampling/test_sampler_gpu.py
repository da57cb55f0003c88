"""Tests of a sampler on a real GPU."""

from __future__ import annotations

import threading

import pytest

from annotate.evidence import Lane
from gpuwatch.clock import MonotonicClock
from gpuwatch.interfaces import Lost
from gpuwatch.sampling.measure import measure
from gpuwatch.sampling.sampler import Sampler
from gpuwatch.sampling.sampler_thread import EventWatch
from gpuwatch.sources.nvml import Nvml
from tests.gpuwatch.scripted import Kept

MS = 1_000_000
S = 1_000_000_000


@pytest.mark.gpu
def test_gpu_is_watched_at_both_rates() -> None:
    """A real GPU is sampled without a loss, and in a window at more than 50 Hz; the test prints the costs."""
    clock, kept, stop, pause = MonotonicClock(), Kept(), threading.Event(), threading.Event()
    source = Nvml()
    device = source.devices()[0]
    begin_ns = clock.now_ns()
    plan = measure(source, device, clock)
    print(f"\nmeasured in {(clock.now_ns() - begin_ns) / S:.2f} s")
    for lane, names in plan.names.items():
        row_us = plan.row_cost_ns[lane] / 1000
        print(f"{lane}: {len(names)} signals, row {row_us:.1f} us, {plan.least_period_ns.get(lane, 0) / MS:.1f} ms at least")
    for name, cost_ns in sorted(plan.cost_ns.items(), key=lambda item: -item[1]):
        print(f"  {name:24} {cost_ns / 1000:9.1f} us  {plan.reasons.get(name, '')}")
    print("refresh:", {name: f"{period / MS:.0f} ms" for name, period in plan.refresh_ns.items()}, "reasons:", plan.reasons)
    EventWatch(source, (kept,), clock, stop).start()
    for active in (False, True):
        sampler = Sampler(source, plan, (kept,), clock, stop if active else threading.Event())
        sampler.set_active(active)
        sampler.start()
        pause.wait(6.0)
        status = sampler.status()
        print("active" if active else "idle", f"cpu {(status['cpu_ratio'] or 0) * 100:.2f} % of a core")
        for what, question in status["questions"].items():
            print(
                f"  {what:12} {question['rate_hz']:6.1f} Hz, missed {question['missed_count']}, calls"
                f" {question['cost_ratio'] * 100:.3f} %, late p50 {question['late_p50_ns'] / 1000:.0f}"
                f" p99 {question['late_p99_ns'] / 1000:.0f} max {question['late_max_ns'] / 1000:.0f} us"
            )
        if not active:
            assert sampler.stop(3.0)
    took_ms = []
    for _ in range(20):
        begin_ns = clock.now_ns()
        sampler.edge()
        took_ms.append((clock.now_ns() - begin_ns) / MS)
        pause.wait(0.15)
    print(f"edges: {sorted(took_ms)[10]:.2f} ms median, {max(took_ms):.2f} ms at most")
    fast = sampler.status()["questions"]["fast"]
    stopped = sampler.stop(3.0)
    source.close()
    lost = [sweep for sweep in kept.sweeps if isinstance(sweep.observed, Lost)]
    print({lane: len(kept.of(lane)) for lane in Lane}, "lost:", lost)
    assert stopped
    assert lost == []
    assert fast["rate_hz"] > 50
    assert {Lane.FAST, Lane.SLOW, Lane.EDGE, Lane.PROCESSES, Lane.POWER} <= {sweep.lane for sweep in kept.sweeps}
