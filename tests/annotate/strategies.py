"""Evidence of every shape for property tests: quiet, hazardous, thin, told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

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
facts: st.SearchStrategy[Fact] = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.floats(0, 1)
tolds = st.dictionaries(
    st.sampled_from(["busy_ratio", "visible", "profiler", "simulated", "status", "sustained"]) | st.text(max_size=4),
    facts,
    max_size=4,
)


@st.composite
def timings(draw: st.DrawFn) -> Timings:
    count = draw(st.integers(0, 40))
    at_s = sorted(draw(st.lists(st.floats(0, 4), min_size=count, max_size=count)))
    took_s = draw(st.lists(st.floats(0, 1) | st.just(float("nan")), min_size=count, max_size=count))
    return Timings(BEGIN_NS + np.array([int(t * 1e9) for t in at_s], np.int64), np.array(took_s, np.float64))


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
    """One window, untold, on a GPU to which anything may have happened."""
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
