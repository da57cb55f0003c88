"""Tests of the clock during each request of a serving benchmark."""

from __future__ import annotations

import numpy as np
import pytest

from annotate.evidence import Column, Trace
from gpuwatch.results.request_phases import clocks_of_requests, phases
from gpuwatch.results.result_file import ServedRequests

SECOND = 1_000_000_000


def falling_clock() -> Trace:
    """Return a clock of 2000 MHz for ten seconds, then of 1000 MHz for ten seconds."""
    at_ns = np.arange(0, 20 * SECOND, SECOND // 10)
    return Trace(columns={"sm_clock_mhz": Column(at_ns, np.where(at_ns < 10 * SECOND, 2000.0, 1000.0))})


def requests(*begins_s: float, ttft_s: float = 0.1, latency_s: float = 1.0) -> ServedRequests:
    count = len(begins_s)
    at_ns = np.array([round(each * SECOND) for each in begins_s], np.int64)
    return ServedRequests(ttft_s=np.full(count, ttft_s), latency_s=np.full(count, latency_s), at_ns=at_ns)


def test_request_has_the_mean_clock_of_its_duration() -> None:
    """A request has its mean clock before, across and after the fall, and NaN outside the observed time."""
    clocks = clocks_of_requests(requests(2.0, 9.5, 12.0, 60.0), falling_clock())
    assert clocks[:3].tolist() == pytest.approx([2000.0, 1500.0, 1000.0], abs=15)
    assert np.isnan(clocks[3])


def test_phases_separate_slowest_and_first_requests() -> None:
    """The slowest 1 % ran at the low clock, and the requests of the first ten seconds at the high clock."""
    served = requests(*(0.1 * count for count in range(180)), latency_s=0.05)
    served.ttft_s[150:152] = 0.5
    found = {each.name: each for each in phases(served, clocks_of_requests(served, falling_clock()))}
    assert list(found) == ["all", "slowest 1 %", "first 10 s", "later"]
    assert (found["slowest 1 %"].count, found["slowest 1 %"].clock_mhz) == (2, 1000.0)
    assert found["first 10 s"].count == 100
    assert found["first 10 s"].clock_mhz == pytest.approx(2000.0, rel=1e-2)


def test_requests_without_start_times_have_no_clock() -> None:
    served = ServedRequests(ttft_s=np.array([0.1, 0.2]), latency_s=np.array([0.1, 0.2]))
    clocks = clocks_of_requests(served, falling_clock())
    assert np.isnan(clocks).all()
    assert [(each.name, each.clock_mhz) for each in phases(served, clocks)] == [("all", None), ("slowest 1 %", None)]
    assert phases(ServedRequests(ttft_s=np.empty(0), latency_s=np.empty(0)), np.empty(0)) == ()
