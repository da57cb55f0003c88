"""Tests that a window after a GPU's rest gets the status and hazards of a window after sampling at the full rate."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from annotate.evidence import Event, Evidence, Lane, Ownership, PowerRecord, ProcessList, Reading, Trace, WindowRecord
from annotate.judge import judge
from gpuwatch.clock import VirtualClock
from gpuwatch.interfaces import Sweep
from gpuwatch.sampling.plan import unmeasured
from gpuwatch.sampling.rest import REST_AFTER_NS
from gpuwatch.sampling.sampler import Sampler, SamplerTiming
from gpuwatch.sources.simulated import Simulated
from gpuwatch.sources.simulated.kernels import COPY, GEMM, Kernel
from gpuwatch.sources.simulated.scenes import Phase, Scene
from gpuwatch.sources.simulated.simulated_gpu import OWN_PID
from tests.gpuwatch.scripted import Kept

S = 1_000_000_000
IDLE_S, WINDOW_S, LEAD_S, TAIL_S = 25.0, 4.0, 5.0, 0.5
NEVER_NS = 10_000 * S


def watched(kernel: Kernel, warmup_s: float, rest_after_ns: int) -> tuple[Evidence, bool]:
    """Return the evidence of a window after this warm-up, and True if the GPU rested."""
    begin_s = IDLE_S + warmup_s
    bench = (begin_s, begin_s + WINDOW_S)
    scene = Scene(
        name="rested",
        says="work after idleness, by a new process",
        phases=(Phase(begin_s=IDLE_S, kernel=kernel),),
        context_s=IDLE_S,
        bench=bench,
    )
    clock, kept = VirtualClock(), Kept()
    source = Simulated((scene,), clock)
    (device,) = source.devices()
    timing = SamplerTiming(rest_after_ns=rest_after_ns)
    sampler = Sampler(source, unmeasured(device), (kept,), clock, threading.Event(), timing=timing)
    sampler.rest.set_attended(False)
    passes = sampler.sweeps()
    has_rested = False
    begin_ns, end_ns = (source.epoch_ns + round(at_s * S) for at_s in bench)

    def until(time_ns: int) -> None:
        nonlocal has_rested
        while clock.now_ns() < time_ns:
            kept.take(next(passes))
            has_rested = has_rested or sampler.rest.is_resting

    until(begin_ns)
    sampler.set_active(True)
    sampler.edge()
    until(end_ns)
    sampler.edge()
    sampler.set_active(False)
    until(end_ns + round(TAIL_S * S))
    window = WindowRecord(begin_ns=begin_ns, end_ns=end_ns, label="rested", pids=frozenset({OWN_PID}))
    trace = trace_of(kept.sweeps, begin_ns - round(LEAD_S * S))
    return Evidence(window=window, device=device, trace=trace), has_rested


def trace_of(sweeps: list[Sweep], since_ns: int) -> Trace:
    observed = [sweep.observed for sweep in sweeps if sweep.observed.at_ns >= since_ns]
    lists = [each for each in observed if isinstance(each, ProcessList)]
    return Trace.of(
        [each for each in observed if isinstance(each, Reading)],
        process_lists=[
            replace(each, processes=tuple(replace(one, ownership=Ownership.OWN) for one in each.processes)) for each in lists
        ],
        power=[each for each in observed if isinstance(each, PowerRecord)],
        events=[each for each in observed if isinstance(each, Event)],
    )


def outcome(evidence: Evidence) -> tuple[str, frozenset[tuple[str, str | None]]]:
    """Return status and hazards without ``dark-time`` notes, which depend on the phase of the window's end."""
    verdict = judge(evidence)
    found = {(finding.rule, finding.severity) for finding in verdict.hazards}
    return verdict.status.value, frozenset(found - {("dark-time", "note")})


@pytest.mark.parametrize("warmup_s", [0.0, 0.3, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("kernel", [GEMM, COPY], ids=["capped", "copy"])
def test_rest_before_a_window_changes_no_verdict(kernel: Kernel, warmup_s: float) -> None:
    rested, has_rested = watched(kernel, warmup_s, REST_AFTER_NS)
    full, never_rested = watched(kernel, warmup_s, NEVER_NS)
    assert (has_rested, never_rested) == (True, False)
    assert outcome(rested) == outcome(full)
    rows = [trace.trace.column("power_w").at_ns for trace in (rested, full)]
    before = [int((at_ns < evidence.window.begin_ns).sum()) for at_ns, evidence in zip(rows, (rested, full), strict=True)]
    assert before[0] < before[1], "the resting GPU has fewer rows"
    assert Lane.FAST not in {gap.lane for gap in rested.trace.gaps}
