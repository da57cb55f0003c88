"""Tests of the rules about the timer."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from annotate.budget import Group, Number
from annotate.claims import Claim
from annotate.evidence import Evidence, Fact, OtherWork, Ownership, Process, Timings
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.accounts import unaccounted_time
from annotate.rules.timing import RULES, host_bound, missing_sync, short_kernel, timer_overhead, timer_tampered, wrong_stream
from gpuwatch.sources.recordings import load
from tests.annotate.builders import BEGIN_NS, OWN, evidence
from tests.annotate.occurrences.timing import every
from tests.annotate.rules.asking import ask, found

TRACES = Path(__file__).parents[2] / "traces"
NEIGHBOUR = Process(pid=77, memory_bytes=4_000_000_000, utilization_ratio=0.5, ownership=Ownership.FOREIGN)
NONSENSE: list[object] = ["x", True, float("nan"), float("inf"), -1.0, None, 10**400]


def size(answer: Answer) -> float | None:
    """Return the one bound of a timer's cost, which mean and medians share."""
    assert found(answer).severity is Severity.NOTE
    assert {(bound.number, bound.group) for bound in found(answer).bounds} == {
        (number, Group.TIMER) for number in (Number.MEAN, Number.MEDIAN, Number.MEDIAN_AT_CLOCK)
    }
    (ratio,) = {bound.ratio for bound in found(answer).bounds}
    return ratio


@cache
def recorded() -> dict[str | None, Evidence]:
    return {piece.window.label: piece for piece in load(TRACES / "scenarios.npz") if piece.timings is not None}


@pytest.mark.parametrize("claim", Claim)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_timer_rules_are_unobserved_without_times(rule: Rule, claim: Claim) -> None:
    assert isinstance(ask(rule, evidence(), claim), Unobserved)


@pytest.mark.parametrize("claim", Claim)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_well_timed_copy_has_no_hazard(rule: Rule, claim: Claim) -> None:
    declared: dict[str, Fact] = {"timer": "events", "timer_overhead_s": 3e-6, "tampered": "", "sync_s": 0.3, "busy_ratio": 0.97}
    about = evidence(declared=declared, timings=every(526e-6, took_s=510e-6))
    answer = ask(rule, about, claim)
    assert not isinstance(answer, Found) or size(answer) == pytest.approx(3 / 507)  # the timer's overhead


@pytest.mark.parametrize("nonsense", NONSENSE)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_timing_accepts_nonsense_declarations(rule: Rule, nonsense: object) -> None:
    names = ("timer", "timer_overhead_s", "sync_s", "busy_ratio", "tampered", "cuda_uuids", "call_bytes", "flush_bytes")
    for declared in (dict.fromkeys(names, nonsense), {"timer": "events", **dict.fromkeys(names[1:], nonsense)}):
        about = replace(evidence(timings=every(24e-6, took_s=5e-6)), declared=declared)  # type: ignore[arg-type]  # clients send any type
        ask(rule, about)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize(
    "timings",
    [
        Timings(np.empty(0, np.int64), np.empty(0)),
        Timings(np.array([BEGIN_NS]), np.array([np.nan])),
        Timings(np.array([BEGIN_NS]), np.array([0.0])),
        Timings(np.array([BEGIN_NS - 5]), np.array([1e-3])),
        Timings(np.array([BEGIN_NS, BEGIN_NS]), np.array([1e-3, 1e300])),
        Timings(np.array([BEGIN_NS, BEGIN_NS + 5]), np.array([5e-324, 1e-3])),
        Timings(np.array([BEGIN_NS]), np.array([1e-3]), None, 0),
    ],
)
def test_timer_rules_ignore_invalid_times(rule: Rule, timings: Timings) -> None:
    assert not isinstance(ask(rule, evidence(declared={"timer": "graph"}, timings=timings)), Found)


class TestRecordings:
    @pytest.mark.parametrize(
        "name", ["clean_gemm2k", "clean_gemm4k", "power_cap_gemm16k", "clean_copy1g", "zeros_gemm16k", "sleep100_gemm16k"]
    )
    @pytest.mark.parametrize("timer", [None, "events", "graph", "caller", "host"])
    def test_honest_loops_of_an_h200_are_not_found(self, name: str, timer: str | None) -> None:
        about = replace(recorded()[name], declared={"timer": timer})
        assert [rule.name for rule in RULES if isinstance(ask(rule, about), Found)] == []

    def test_host_bound_finds_only_the_recorded_gemv(self) -> None:
        """Among the recordings, only the gemv that waits for its launches is host-bound."""
        bound = {name for name, about in recorded().items() if isinstance(ask(host_bound, about), Found)}
        assert bound == {"warm_l2_gemv4k"}
        answer = found(ask(host_bound, recorded()["warm_l2_gemv4k"]))
        assert answer.effect_ratio == pytest.approx(0.3, abs=0.05)  # 18 µs for a kernel of 12 to 14 µs

    def test_sleeps_and_late_launches_are_left_to_other_rules(self) -> None:
        for name in ("sleep20_gemm16k", "sleep500_gemm16k", "cpu_contention_gemm4k"):
            assert isinstance(ask(host_bound, recorded()[name]), Clear)

    def test_flush_between_events_is_not_a_wrong_stream(self) -> None:
        assert isinstance(ask(wrong_stream, replace(recorded()["cold_l2_gemv4k"], declared={"timer": "events"})), Clear)

    def test_undeclared_flush_is_left_to_the_books(self) -> None:
        about = replace(recorded()["cold_l2_gemv4k"], declared={"timer": "caller", "sync_s": 30e-6})
        assert isinstance(ask(missing_sync, about), Clear)
        assert isinstance(ask(unaccounted_time, about), Found)


def end_to_end(*, took_s: float, count: int) -> Timings:
    """Return times that were declared without start times."""
    begins_ns = BEGIN_NS + 6_000_000_000 - (np.arange(count, 0, -1) * took_s * 1e9).astype(np.int64)
    return Timings(begins_ns, np.full(count, took_s))


class TestMissingSync:
    @pytest.mark.parametrize("timer", ["host", "caller"])
    def test_work_after_the_last_time_rejects(self, timer: str) -> None:
        about = evidence(declared={"timer": timer, "sync_s": 2.0}, timings=every(1e-3, took_s=0.9e-3))
        answer = found(ask(missing_sync, about))
        assert answer.severity is Severity.REJECT
        assert answer.effect_ratio is not None
        assert answer.effect_ratio < -0.3

    def test_missing_sync_in_a_short_window_is_rejected(self) -> None:
        about = evidence(
            length_s=0.02, declared={"timer": "host", "sync_s": 0.0155}, timings=every(1e-3, took_s=0.24e-3, length_s=1e-3)
        )
        assert found(ask(missing_sync, about)).severity is Severity.REJECT

    def test_synchronised_times_are_left_to_the_books(self) -> None:
        """Synchronised times far below the GPU's busy time per call are left to ``unaccounted-time``."""
        for times in (every(15e-3, took_s=0.24e-3), end_to_end(took_s=0.24e-3, count=300)):
            about = evidence(declared={"timer": "caller", "sync_s": 30e-6}, timings=times)
            assert isinstance(ask(missing_sync, about), Clear)
            assert Number.MEAN in {bound.number for bound in found(ask(unaccounted_time, about)).bounds}

    def test_missing_sync_later_work_is_only_flagged(self) -> None:
        """A long final synchronisation only flags if untimed work may have followed the last time."""
        about = evidence(declared={"timer": "caller", "sync_s": 0.2}, timings=every(1e-3, took_s=0.99e-3, length_s=2.0))
        assert found(ask(missing_sync, about)).severity is Severity.FLAG

    def test_synchronisation_without_a_wait_is_clear(self) -> None:
        about = evidence(declared={"timer": "host", "sync_s": 30e-6}, timings=every(1e-3, took_s=0.99e-3, length_s=6.0))
        assert isinstance(ask(missing_sync, about), Clear)

    def test_short_wait_in_a_tiny_window_is_clear(self) -> None:
        about = evidence(
            length_s=0.001, declared={"timer": "host", "sync_s": 50e-6}, timings=every(1e-4, took_s=9e-5, length_s=9e-4)
        )
        assert isinstance(ask(missing_sync, about), Clear)

    def test_missing_sync_of_events_is_unobserved(self) -> None:
        about = evidence(declared={"timer": "events", "sync_s": 2.0}, timings=every(1e-3, took_s=0.9e-3))
        assert isinstance(ask(missing_sync, about), Unobserved)

    def test_early_return_of_a_body_without_times_is_noted(self) -> None:
        assert found(ask(missing_sync, evidence(declared={"sync_s": 2.0}))).severity is Severity.NOTE
        assert isinstance(ask(missing_sync, evidence(declared={"sync_s": 0.01})), Unobserved)

    def test_undeclared_synchronisation_is_unobserved(self) -> None:
        about = evidence(declared={"timer": "host"}, timings=every(1e-3, took_s=0.99e-3))
        assert isinstance(ask(missing_sync, about), Unobserved)


class TestWrongStream:
    @pytest.mark.parametrize(
        ("declared", "took_s"), [({}, 3e-6), ({"timer_overhead_s": 2.5e-6}, 3e-6), ({"timer_overhead_s": 9e-6}, 12e-6)]
    )
    def test_spans_without_a_kernel_reject(self, declared: dict[str, Fact], took_s: float) -> None:
        """Spans below 10 µs, or within 1.5 times the overhead, are empty if the GPU worked a millisecond per call."""
        about = evidence(declared={"timer": "events", **declared}, timings=every(1e-3, took_s=took_s))
        answer = found(ask(wrong_stream, about))
        assert answer.severity is Severity.REJECT
        assert answer.effect_ratio == pytest.approx(-1.0, abs=0.02)

    @pytest.mark.parametrize(("flush_s", "kind"), [(0.9e-3, Unobserved), (0.1e-3, Found)])
    def test_declared_other_work_may_explain_a_busy_gpu(self, flush_s: float, kind: type) -> None:
        timings = every(1e-3, took_s=3e-6)
        flushes = OtherWork(timings.at_ns + 10_000, np.full(len(timings.at_ns), flush_s), ("flush",) * len(timings.at_ns))
        about = replace(evidence(length_s=4.0, declared={"timer": "events"}, timings=timings), other_work=flushes)
        assert isinstance(ask(wrong_stream, about), kind)

    @pytest.mark.parametrize(
        ("stamps", "kind"), [({}, Clear), ({"stamp_spread_s": 2e-6}, Found), ({"stamp_seen_ratio": 0.4}, Found)]
    )
    def test_launch_spans_are_empty_if_stamps_met_the_work(self, stamps: dict[str, Fact], kind: type) -> None:
        about = evidence(declared={"timer": "events", **stamps}, timings=every(1.7e-3, took_s=56e-6))
        answer = ask(wrong_stream, about)
        assert isinstance(answer, kind)
        assert not isinstance(answer, Found) or answer.severity is Severity.FLAG

    def test_half_timed_loop_with_other_streams_is_clear(self) -> None:
        about = evidence(declared={"timer": "events", "stamp_spread_s": 2e-6}, timings=every(400e-6, took_s=200e-6))
        assert isinstance(ask(wrong_stream, about), Clear)

    def test_wrong_stream_is_found_by_one_rule_only(self) -> None:
        about = evidence(declared={"timer": "events", "timer_overhead_s": 2.5e-6}, timings=every(1e-3, took_s=3e-6))
        assert [rule.name for rule in RULES if isinstance(ask(rule, about), Found)] == ["wrong-stream"]

    def test_work_the_harness_counted_is_not_on_another_stream(self) -> None:
        about = evidence(declared={"timer": "events", "busy_ratio": 0.95}, timings=every(1e-3, took_s=3e-6))
        assert isinstance(ask(wrong_stream, about), Unobserved)

    def test_declared_flush_of_unknown_length_is_unobserved(self) -> None:
        about = evidence(declared={"timer": "events", "cache": "cold"}, timings=every(1e-3, took_s=3e-6))
        assert isinstance(ask(wrong_stream, about), Unobserved)

    def test_neighbour_explains_a_busy_gpu(self) -> None:
        about = evidence(processes=[OWN, NEIGHBOUR], declared={"timer": "events"}, timings=every(1e-3, took_s=3e-6))
        assert isinstance(ask(wrong_stream, about), Unobserved)

    def test_short_kernels_back_to_back_are_on_their_stream(self) -> None:
        about = evidence(declared={"timer": "events"}, timings=every(6e-6, took_s=5e-6, length_s=1.5))
        assert isinstance(ask(wrong_stream, about), Clear)

    def test_wrong_stream_in_a_short_window_is_unobserved(self) -> None:
        about = evidence(length_s=0.5, declared={"timer": "events"}, timings=every(1e-3, took_s=3e-6, length_s=0.5))
        assert isinstance(ask(wrong_stream, about), Unobserved)

    def test_times_of_the_caller_are_unobserved_for_wrong_stream(self) -> None:
        assert isinstance(
            ask(wrong_stream, evidence(declared={"timer": "caller"}, timings=every(1e-3, took_s=3e-6))), Unobserved
        )


class TestShortKernel:
    @pytest.mark.parametrize(("declared", "due"), [({}, 8e-6), ({"timer_overhead_s": 1.5e-6}, 2e-6)])
    def test_short_kernel_bound_is_the_timers_cost(self, declared: dict[str, Fact], due: float) -> None:
        """The bound of a 4 µs call is a tick plus the overhead, or 8 µs without a measured overhead."""
        about = evidence(declared={"timer": "events", **declared}, timings=every(20e-6, took_s=4e-6, length_s=0.1))
        answer = found(ask(short_kernel, about))
        assert size(answer) == pytest.approx(due / 4e-6)
        assert answer.facts["batch_count"] == 50

    def test_short_kernel_ignores_unsynchronised_times(self) -> None:
        """Times taken before the GPU finished are rejected by ``missing-sync`` and not judged as short kernels."""
        asked = every(20e-6, took_s=4e-6, length_s=0.1)
        about = evidence(declared={"timer": "host", "sync_s": 4.0}, timings=asked)
        assert found(ask(missing_sync, about)).severity is Severity.REJECT
        assert isinstance(ask(short_kernel, about), Unobserved)
        waited = replace(about, declared={"timer": "host", "sync_s": 0.0})
        assert size(ask(short_kernel, waited)) == pytest.approx(2.0)

    def test_batch_or_graph_of_many_calls_is_clear(self) -> None:
        for timer in ("events", "graph"):
            about = evidence(declared={"timer": timer}, timings=every(250e-6, took_s=4e-6, length_s=0.5, calls_count=50))
            assert isinstance(ask(short_kernel, about), Clear)


class TestTimerOverhead:
    @pytest.mark.parametrize("overhead_s", [1e-6, 4e-6, 25e-6])
    def test_timer_overhead_estimate_starts_at_zero(self, overhead_s: float) -> None:
        about = evidence(declared={"timer_overhead_s": overhead_s}, timings=every(120e-6, took_s=100e-6, length_s=0.5))
        answer = ask(timer_overhead, about)
        assert size(answer) == pytest.approx(overhead_s / (100e-6 - overhead_s))
        estimate = found(answer).bounds[0].estimate
        assert estimate is not None
        assert (estimate.low_ratio, estimate.high_ratio) == (0.0, size(answer))

    def test_timer_overhead_is_divided_by_the_batch(self) -> None:
        about = evidence(declared={"timer_overhead_s": 4e-6}, timings=every(1e-3, took_s=10e-6, length_s=0.5, calls_count=50))
        assert size(ask(timer_overhead, about)) == pytest.approx(4 / 496)

    def test_times_close_to_the_overhead_have_no_size(self) -> None:
        about = evidence(declared={"timer_overhead_s": 5e-6}, timings=every(20e-6, took_s=5e-6, length_s=0.5))
        assert size(ask(timer_overhead, about)) is None
        free = evidence(declared={"timer_overhead_s": 0.0}, timings=every(20e-6, took_s=5e-6, length_s=0.5))
        assert isinstance(ask(timer_overhead, free), Clear)


class TestTimerTampered:
    def test_replaced_functions_reject_and_are_named(self) -> None:
        answer = found(ask(timer_tampered, evidence(declared={"tampered": "torch.cuda.Event.elapsed_time"})))
        assert answer.severity is Severity.REJECT
        assert answer.facts["names"] == "torch.cuda.Event.elapsed_time"

    @pytest.mark.parametrize("nothing", ["", " , "])
    def test_no_replaced_functions_are_clear(self, nothing: str) -> None:
        assert isinstance(ask(timer_tampered, evidence(declared={"tampered": nothing})), Clear)
