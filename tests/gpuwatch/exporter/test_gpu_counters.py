"""Tests of a GPU's tally: each sample counts once, in any order of delivery, and earlier Xids are recalled."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from annotate.evidence import Device, Event, Lane
from gpuwatch.exporter.counters import OTHER_XID, XIDS_COUNT, GpuTally, Tallies
from gpuwatch.interfaces import Sweep
from tests.gpuwatch.store.streams import BEGIN_NS, UUID, fast, pulse

MS = 1_000_000
DEVICE = Device(uuid=UUID, name="x", sm_clock_max_mhz=1980, mem_clock_max_mhz=3201, power_limit_w=700.0)


def test_pulse_counts_only_for_the_clock_and_its_reasons() -> None:
    tally = GpuTally(DEVICE)
    for ms in range(0, 100, 10):
        make = fast if ms % 50 == 0 else pulse
        said: dict[str, Any] = {"mem_clock_mhz": 3201, "power_w": 600.0} if make is fast else {}
        tally.take(make(BEGIN_NS + ms * MS, sm_clock_mhz=1980, event_reasons_mask=4, **said))
    assert sum(tally.sm[0].counts) == 10
    assert sum(tally.mem[0].counts) == sum(tally.power.counts) == 2
    assert tally.held_ns == {4: 90 * MS}
    assert (tally.lanes[Lane.FAST].count, tally.lanes[Lane.PULSE].count) == (2, 8)
    assert tally.fast is not None
    assert tally.fast.at_ns == BEGIN_NS + 50 * MS


@given(st.lists(st.integers(0, 900), min_size=2, max_size=40))
def test_tally_counts_no_time_twice_with_late_samples(at_ms: list[int]) -> None:
    """The seconds under a reason equal the span from the first delivered sample to the latest sample."""
    tally = GpuTally(DEVICE)
    for ms in at_ms:
        tally.take(pulse(BEGIN_NS + ms * MS, sm_clock_mhz=1980, event_reasons_mask=4))
    assert sum(tally.held_ns.values()) == (max(at_ms) - at_ms[0]) * MS


def test_tally_ignores_rows_older_than_the_last() -> None:
    """An older row counts, but the tally keeps the newer row, because Prometheus counts a decrease as a reset."""
    tally = GpuTally(DEVICE)
    tally.take(fast(BEGIN_NS + 50 * MS, power_cap_ns=7_000))
    tally.take(fast(BEGIN_NS, power_cap_ns=6_000))
    assert tally.fast is not None
    assert (tally.fast.at_ns, tally.fast.power_cap_ns) == (BEGIN_NS + 50 * MS, 7_000)
    assert tally.lanes[Lane.FAST].at_ns == BEGIN_NS + 50 * MS
    assert tally.lanes[Lane.FAST].count == 2


def test_xids_of_an_earlier_daemon_are_recalled() -> None:
    """The tally has the time of an earlier daemon's Xid, with a count of 0."""
    tallies = Tallies({UUID: DEVICE}.get)
    tallies.recall([(UUID, 79, 1000.0), (UUID, 31, 2000.0), ("GPU-gone", 48, 3000.0)])
    assert tallies.fresh(DEVICE).xids["79"] == (0, 1000.0)
    tallies.take(Sweep(UUID, Lane.FAST, 0, 0, 0, Event(uuid=UUID, at_ns=BEGIN_NS, kind="xid", value=31)))
    tally = tallies.of(UUID)
    assert tally is not None
    assert tally.copy().xids["79"] == (0, 1000.0)
    assert tally.xids["31"][0] == 1
    assert tally.xids["31"][1] != 2000.0
    assert tally.xids["48"] == (0, None)


def test_recalled_xids_are_bounded() -> None:
    tallies = Tallies({UUID: DEVICE}.get)
    tallies.recall([(UUID, number, float(number)) for number in range(1000, 1200)])
    xids = tallies.fresh(DEVICE).xids
    assert len(xids) == XIDS_COUNT + 1
    assert xids[OTHER_XID] == (0, 1199.0)
