"""Tests of the rule ``host-bound``: loops that wait for the CPU's launches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import Number
from annotate.claims import Claim
from annotate.evidence import Evidence, Fact, Host, OtherWork, Timings
from annotate.judge import judge
from annotate.rule import Clear, Found, Severity, Unobserved
from annotate.rules.timing import host_bound
from tests.annotate.builders import BEGIN_NS, evidence
from tests.annotate.occurrences.timing import every
from tests.annotate.rules.asking import ask, found
from tests.examples import share_of

EVENTS: dict[str, Fact] = {"timer": "events"}


class TestHostBound:
    @staticmethod
    def about(declared: dict[str, Fact] | None = None, *, busy: float = 0.58, host: Host | None = None) -> Evidence:
        return evidence(
            signals={"utilization_ratio": busy}, declared=declared, timings=every(24e-6, took_s=20e-6, length_s=2.0), host=host
        )

    @pytest.mark.parametrize("claim", Claim)
    def test_host_bound_idle_without_pause_is_a_label(self, claim: Claim) -> None:
        """A loop without pauses that leaves the GPU idle gets a label with the GPU's busy share."""
        works: list[dict[str, Fact] | None] = [None, {"call_bytes": 33_000_000}]
        for declared in works:
            answer = found(ask(host_bound, self.about(declared), claim))
            assert (answer.severity, answer.bounds) == (Severity.NOTE, ())
            assert answer.facts["idle_s"] == pytest.approx(10e-6, rel=0.05)
            assert host_bound.says.format(**answer.facts) == "launch latency: the GPU worked 58% of the loop"

    @pytest.mark.parametrize("timer", ["events", "graph"])
    def test_host_bound_kernel_time_is_bounded(self, timer: str) -> None:
        """The launch in a GPU time of 20 µs is bounded by 8 µs, or by the part that utilisation shows as idle if larger."""
        for busy, kernel_s in ((0.58, 12e-6), (0.4, 0.4 * 24e-6)):
            answer = found(ask(host_bound, self.about({"timer": timer}, busy=busy)))
            assert {bound.number for bound in answer.bounds} == {Number.MEAN, Number.MEDIAN, Number.MEDIAN_AT_CLOCK}
            assert answer.bounds[0].ratio == pytest.approx(20e-6 / kernel_s - 1, rel=0.05)

    @pytest.mark.parametrize(
        ("kernel_us", "call_us", "round_us", "busy"),
        [(11.5, 17.1, 29.7, 0.61), (26.6, 31.8, 42.0, 0.775), (26.6, 32.1, 60.9, 0.53), (56.9, 63.2, 91.2, 0.70)],
    )
    def test_host_bound_covers_measured_events(self, kernel_us: float, call_us: float, round_us: float, busy: float) -> None:
        """For kernels of known length on an H200, the bound covers the excess that events read."""
        times = every(round_us * 1e-6, took_s=call_us * 1e-6, length_s=2.2)
        answer = found(ask(host_bound, evidence(signals={"utilization_ratio": busy}, declared=EVENTS, timings=times)))
        ratio = answer.bounds[0].ratio
        assert ratio is not None
        assert call_us / kernel_us - 1 < ratio < 3 * (call_us / kernel_us - 1)

    @pytest.mark.parametrize(("call_us", "round_us", "busy"), [(29.7, 35.7, 0.954), (59.9, 68.3, 0.937), (57.6, 62.3, 0.965)])
    def test_host_bound_measured_queue_is_clear(self, call_us: float, round_us: float, busy: float) -> None:
        """Loops on an H200 that never emptied the launch queue are clear."""
        times = every(round_us * 1e-6, took_s=call_us * 1e-6, length_s=2.2)
        assert isinstance(ask(host_bound, evidence(signals={"utilization_ratio": busy}, declared=EVENTS, timings=times)), Clear)

    @pytest.mark.parametrize(("timer", "severity"), [("events", "flag"), ("host", "note")])
    def test_host_bound_flags_only_claimed_kernel_times(self, timer: str, severity: str) -> None:
        """GPU times are flagged by tolerance, host times get a label, and neither is rejected."""
        for busy in (0.2, 0.65):
            finding = judge(self.about({"timer": timer}, busy=busy)).finding("host-bound")
            assert (finding.severity, finding.is_label) == (severity, severity == "note")

    @pytest.mark.parametrize(("starved", "kind"), [(0.0, Clear), (0.4, Clear), (1.0, Found)])
    def test_host_bound_counts_starved_readings_with_flushes(self, starved: float, kind: type) -> None:
        """The declared share of starved readings counts if flushes keep the GPU busy."""
        declared: dict[str, Fact] = {
            "timer": "events", "timer_overhead_s": 1e-6, "flush_bytes": 10**8, "issue_s": 15e-6, "starved_ratio": starved,
        }  # fmt: skip
        answer = ask(host_bound, self.about(declared, busy=0.95))
        assert isinstance(answer, kind)
        assert isinstance(answer, Clear | Found)
        assert answer.facts["gpu_ratio"] == pytest.approx(1 - max(1e-6, starved * 15e-6) / 20e-6, rel=1e-3)
        if isinstance(answer, Found):
            assert answer.bounds[0].ratio == pytest.approx(3.0, rel=1e-3)

    def test_host_bound_launch_longer_than_the_call_has_no_bound(self) -> None:
        """If launches take as long as the reading, the GPU's part is unknown and so is the bound."""
        declared: dict[str, Fact] = {"timer": "events", "flush_bytes": 10**8, "issue_s": 40e-6, "starved_ratio": 1.0}
        answer = found(ask(host_bound, self.about(declared | {"timer_overhead_s": 1e-6}, busy=0.95)))
        assert [bound.ratio for bound in answer.bounds] == [None] * 3
        # Without a harness, each call may wait for the GPU itself, for example by reading a result.
        assert isinstance(ask(host_bound, self.about(declared, busy=0.95)), Clear)

    def test_host_bound_limits_a_declared_share_by_utilisation(self) -> None:
        """Utilisation limits the GPU's share to 13.9 of 20 µs, although the process declares short launches."""
        declared: dict[str, Fact] = {"timer": "events", "timer_overhead_s": 1e-7, "issue_s": 1e-7, "starved_ratio": 0.0}
        answer = found(ask(host_bound, self.about(declared)))
        assert answer.facts["gpu_ratio"] == pytest.approx(13.9 / 20, rel=0.02)

    @pytest.mark.parametrize(("busy", "kind"), [(0.97, Clear), (0.6, Found)])
    def test_host_bound_subtracts_declared_flushes(self, busy: float, kind: type) -> None:
        """Declared flushes of 4 µs per round of 24 µs are subtracted from the GPU's busy time."""
        declared: dict[str, Fact] = {"timer": "events", "timer_overhead_s": 1e-6, "issue_s": 40e-6, "starved_ratio": 1.0}
        about = self.about(declared, busy=busy)
        assert about.timings is not None
        count = len(about.timings.at_ns)
        other = OtherWork(about.timings.at_ns + 20_000, np.full(count, 4e-6), ("flush",) * count)
        answer = ask(host_bound, replace(about, other_work=other))
        assert isinstance(answer, kind)
        if isinstance(answer, Found):
            assert answer.bounds[0].ratio == pytest.approx(20 / (0.6 * 24 - 4) - 1, rel=0.05)

    def test_many_small_kernels_in_a_long_call_are_found_too(self) -> None:
        about = evidence(signals={"utilization_ratio": 0.3}, timings=every(520e-6, took_s=500e-6, length_s=2.0))
        assert isinstance(ask(host_bound, about), Found)

    @pytest.mark.parametrize(("busy", "kind"), [(0.2, Found), (0.6, Clear)])
    def test_host_bound_ignores_few_late_launches(self, busy: float, kind: type) -> None:
        """With a few late launches, a loop is found at a utilisation of 20 %, and clear at 60 %."""
        # Calls of 16 µs with gaps of 14 µs, and 400 µs more before every fiftieth.
        at_ns = np.cumsum(np.where(np.arange(50_000) % 50 == 49, 430_000, 30_000)).astype(np.int64)
        timings = Timings(BEGIN_NS + at_ns, np.full(len(at_ns), 16e-6))
        assert isinstance(ask(host_bound, evidence(signals={"utilization_ratio": busy}, timings=timings)), kind)

    def test_batch_that_keeps_the_gpu_busy_is_clear(self) -> None:
        about = evidence(timings=every(420e-6, took_s=20e-6, length_s=2.0, calls_count=20))
        assert isinstance(ask(host_bound, about), Clear)

    def test_loop_with_pauses_is_not_host_bound(self) -> None:
        about = evidence(signals={"utilization_ratio": 0.1}, timings=every(1e-3, took_s=100e-6, length_s=2.0))
        assert isinstance(ask(host_bound, about), Clear)

    def test_benchmark_short_of_cpu_cores_is_unobserved(self) -> None:
        starved = Host(span_s=6.0, cpu_s=3.0, run_wait_s=3.0)
        assert isinstance(ask(host_bound, self.about(host=starved)), Unobserved)

    def test_host_bound_needs_a_second_of_utilisation(self) -> None:
        about = evidence(length_s=0.4, signals={"utilization_ratio": 0.5}, timings=every(24e-6, took_s=18e-6, length_s=0.4))
        assert isinstance(ask(host_bound, about), Unobserved)

    def test_gpu_without_any_work_is_unobserved(self) -> None:
        assert isinstance(ask(host_bound, self.about(busy=0.0)), Unobserved)

    @given(st.floats(0.03, 1.0))
    @settings(max_examples=share_of(20))
    def test_host_bound_finds_only_an_idling_gpu(self, busy: float) -> None:
        """The rule finds the loop below 70 % utilisation, or if over 5 µs per round are idle beyond the gauge's error."""
        sure = 24e-6 * (1.0 - busy - 0.03) > 5e-6
        assert isinstance(ask(host_bound, self.about(busy=busy)), Found) == (busy < 0.7 or sure)


def test_times_laid_end_to_end_hide_the_waits() -> None:
    took_s = np.linspace(9e-3, 11e-3, 300)
    at_ns = BEGIN_NS + np.concatenate([[0], np.cumsum(took_s)[:-1] * 1e9]).astype(np.int64)
    sleepy = evidence(signals={"utilization_ratio": 0.1}, declared={"timer": "caller"}, timings=Timings(at_ns, took_s))
    assert isinstance(ask(host_bound, sleepy), Unobserved)
