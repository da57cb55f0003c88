"""Evidence of every shape for property tests: quiet, hazardous, thin, declared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from annotate.declared import FACTS
from annotate.evidence import Event, Evidence, Fact, Gap, Host, Lane, Ownership, Process, Timings, Visibility
from tests.annotate.builders import BEGIN_NS, DEVICE, OWN, UUID, Signal, capped_ns, evidence

SIGNALS: dict[str, list[Signal]] = {
    "sm_clock_mhz": [1980, 1400, None, lambda t: 1980 - max(0, int(40 * t)), lambda t: 1980 if t < 1 else 1455],
    "mem_clock_mhz": [3201, None, lambda t: 3201 if t < 1 else 2201],
    "power_w": [566.0, None, lambda t: 700.0 if int(t * 5) % 2 else 120.0],
    "temperature_c": [50, 88, None],
    "event_reasons_mask": [0, 0x4, 0x8, 0x40, None, lambda t: 0x4 if t > 1 else 0],
    "utilization_ratio": [0.97, 0.1, 0.0, None, lambda t: float(int(t * 4) % 2)],
    "memory_used_bytes": [3_000_000_000, 9_000_000_000, None],
    "power_cap_ns": [5_000_000_000, None, capped_ns(), capped_ns(1.0), capped_ns(share=0.4), lambda t: 0 if t > 1 else 9],
    "sync_boost_ns": [0, None, capped_ns(0.5)],
    "sw_thermal_ns": [0, None, capped_ns(0.5, 0.3)],
    "hw_thermal_ns": [0, None, capped_ns(0.5)],
    "power_brake_ns": [0, None, capped_ns(0.5)],
    "ecc_uncorrected_count": [0, None, lambda t: int(t > 1)],
    "ecc_corrected_count": [0, None, lambda t: int(t > 1)],
    "pcie_replay_count": [0, None, lambda t: int(max(0, t) * 50)],
    "remap_pending_count": [0, 1, None],
    "power_limit_w": [700.0, None, lambda t: 700.0 if t < 1 else 500.0],
    "persistence_mode": [True, False, None],
}
FOREIGN = Process(pid=77, name="{0}", user="bob", memory_bytes=4 * 10**9, utilization_ratio=0.5, ownership=Ownership.FOREIGN)
HIDDEN = Process(pid=99, utilization_ratio=0.54, listed=False)
PROCESSES = (OWN, replace(OWN, utilization_ratio=None), FOREIGN, replace(FOREIGN, utilization_ratio=0.0), HIDDEN)

signals = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in SIGNALS.items()})
shares = st.none() | st.floats(0, 1)
hosts = st.builds(
    Host,
    span_s=st.none() | st.just(4.0),
    cpu_s=st.none() | st.floats(0, 60),
    run_wait_s=st.none() | st.floats(0, 10),
    cgroup_throttled_s=st.none() | st.floats(0, 4),
    steal_ratio=shares,
    cpu_pressure_ratio=shares,
)
WORDS = (
    "events",
    "graph",
    "host",
    "caller",
    "cold",
    "warm",
    "bfloat16",
    "torch.float32",
    "sequential",
    UUID,
    "GPU-2,GPU-3",
    "A=1",
)
AMOUNTS = (
    0,
    1,
    20,
    1e-308,
    1e-6,
    1e-3,
    0.97,
    5.0,
    1500.0,
    6e7,
    1e12,
    1e15,
    1e308,
    10**400,
    -(10**400),
    float("nan"),
    float("inf"),
)
facts: st.SearchStrategy[Fact] = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.floats(0, 1)
    | st.sampled_from(WORDS) | st.sampled_from(AMOUNTS)
)  # fmt: skip
declarations = st.dictionaries(
    st.sampled_from(["visible", "profiler", "simulated", "status", "sustained", *FACTS]) | st.text(max_size=4),
    facts,
    max_size=9,
)


ODD_S = (float("nan"), float("inf"), -1.0, 0.0, 1e-308, 2e-9, 1e-3, 1e5, 999_999.0, 1e308)


@st.composite
def timings(draw: st.DrawFn) -> Timings:
    """Draw times as any program may hand them over: of a regular loop, scattered, simultaneous or invalid."""
    count = draw(st.sampled_from([0, 1, 2, 3, 5, 6, 7, 8, 12, 13, 40, 100, 1000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    match draw(st.sampled_from(["loop", "scattered", "odd", "at once"])):
        case "loop":
            at_ns, took_s = BEGIN_NS + np.arange(count) * 4_000_000, rng.lognormal(-6.9, rng.choice([0.0, 0.01, 1.0]), count)
        case "scattered":
            at_ns, took_s = BEGIN_NS + rng.integers(-(10**9), 5 * 10**9, count), rng.lognormal(-6.9, 0.1, count)
        case "odd":
            at_ns, took_s = rng.choice([-(2**63), 2**63 - 1, 0, BEGIN_NS], count), rng.choice(ODD_S, count)
        case _:
            at_ns, took_s = np.full(count, BEGIN_NS), np.full(count, rng.choice(ODD_S))
    clock = rng.choice([1500.0, 1505.0, np.nan, np.inf, -1.0, 0.0, 1e-308, 1e308], count) if draw(st.booleans()) else None
    calls_count = draw(st.sampled_from([1, 1, 10, 0, -1, 10**9, 10**30, 10**400]))
    return Timings(at_ns.astype(np.int64), took_s.astype(np.float64), clock, calls_count)


spans = st.tuples(st.floats(-1, 5), st.floats(0, 4))
gaps = st.builds(
    lambda span, lane: Gap(begin_ns=BEGIN_NS + int(span[0] * 1e9), end_ns=BEGIN_NS + int(sum(span) * 1e9), lane=lane),
    spans,
    st.sampled_from(Lane),
)
events = st.builds(
    lambda t, kind: Event(uuid=UUID, at_ns=BEGIN_NS + int(t * 1e9), kind=kind, value=13),
    st.floats(-2, 6),
    st.sampled_from(["xid", "clock", "ecc", "lost", "back", "unheard-of"]),
)


@st.composite
def evidences(draw: st.DrawFn) -> Evidence:
    """Draw a window without declared facts, on a GPU with any hazards."""
    dark = draw(st.none() | spans)
    about = evidence(
        length_s=draw(st.sampled_from([-0.5, 0.0, 0.05, 0.3, 1.0, 2.0, 4.0])),
        signals=draw(signals),
        processes=draw(st.none() | st.lists(st.sampled_from(PROCESSES), max_size=3)),
        visibility=draw(st.sampled_from(Visibility)),
        gaps=draw(st.lists(gaps, max_size=2)),
        events=draw(st.lists(events, max_size=2)),
        device=draw(st.sampled_from([DEVICE, None, replace(DEVICE, memory_reserved_bytes=None, sm_clock_max_mhz=None,
                                                          power_limit_w=None, temperature_slowdown_c=None)])),
        host=draw(hosts),
        skip=lambda t: dark is not None and dark[0] < t < sum(dark),
    )  # fmt: skip
    return replace(about, absence=draw(st.sampled_from([None, None, None, "the daemon was restarted"])))
