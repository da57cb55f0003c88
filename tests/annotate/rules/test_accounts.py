"""Tests of the rule about the books: unaccounted busy time, and accounts that exceed the busy time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from annotate.budget import Bound, Group, Number
from annotate.claims import Claim
from annotate.evidence import Evidence, OtherWork, Process, Timings, Values, Visibility
from annotate.rule import Answer, Clear, Found, Severity, Unobserved
from annotate.rules.accounts import RULES, unaccounted_time
from gpuwatch.wire.timings import recorded
from tests.annotate.builders import BEGIN_NS, OWN, evidence
from tests.annotate.occurrences.timing import every

UNKNOWN = Process(pid=99, utilization_ratio=0.97, listed=False)


def ask(about: Evidence) -> Answer:
    return unaccounted_time.ask(about, Claim.SUSTAINED)


def bounds(about: Evidence) -> dict[Number, Bound]:
    answer = ask(about)
    assert isinstance(answer, Found), answer
    assert answer.severity is Severity.NOTE
    assert {bound.group for bound in answer.bounds} == {Group.BOOKS}
    return {bound.number: bound for bound in answer.bounds}


def test_accounts_family_has_one_rule() -> None:
    assert (unaccounted_time,) == RULES


def test_accounts_of_times_that_fill_the_busy_time_are_clear() -> None:
    assert isinstance(ask(evidence(timings=every(1e-3, took_s=0.97e-3, length_s=6.0))), Clear)


def after_each_call(gaps_s: Values, *, took_s: float = 36e-3) -> Timings:
    at_s = np.concatenate([[0.0], np.cumsum(took_s + gaps_s[:-1])])
    return Timings((at_s * 1e9).astype(np.int64) + BEGIN_NS, np.full(len(at_s), took_s))


def after_calls(gaps_s: Values, busy_ratio: float, *, took_s: float = 36e-3) -> Evidence:
    return evidence(signals={"utilization_ratio": busy_ratio}, timings=after_each_call(gaps_s, took_s=took_s))


def test_accounts_of_equal_gaps_count_as_untimed_work() -> None:
    """Times stated 1.2 % too short leave equal gaps: a finding at a utilisation of 100 %, and idle time at 98 %."""
    found = bounds(after_calls(np.full(164, 0.45e-3), 1.0))
    assert found[Number.MEDIAN].estimate is None  # equal gaps can be idle, so they never reject
    assert 0.012 < (found[Number.MEDIAN].ratio or 0.0) < 0.06
    assert isinstance(ask(after_calls(np.full(164, 0.45e-3), 0.98)), Clear)
    assert isinstance(ask(after_calls(np.full(20, 6e-3), 1.0, took_s=0.294)), Found)  # beyond the books' own error
    assert isinstance(ask(after_calls(np.full(20, 3e-3), 1.0, took_s=0.297)), Clear)  # too few gaps for a percentile


def test_accounts_allow_varying_host_pauses_only() -> None:
    """Pauses of 0.7 ms that vary by a third are the host's if utilisation is full; other gaps get no allowance."""
    rng = np.random.default_rng(1)
    pauses_s = rng.normal(0.72e-3, 0.22e-3, 163).clip(0.1e-3)
    assert isinstance(ask(after_calls(pauses_s, 1.0)), Clear)
    few = evidence(length_s=1.03, signals={"utilization_ratio": 1.0}, timings=after_each_call(pauses_s[:28]))
    assert isinstance(ask(few), Clear)
    jittered_s = 0.84e-3 * rng.lognormal(0.0, 0.15, 163)  # times too short by 2.3 %, with a jitter of 15 %
    assert isinstance(ask(after_calls(jittered_s, 1.0)), Found)
    sparse_s = np.where(np.arange(163) % 10 == 0, 0.0, 0.93e-3)  # every tenth gap is empty
    assert isinstance(ask(after_calls(sparse_s, 1.0)), Found)


@pytest.mark.parametrize(("took_s", "kind"), [(4.9e-3, Clear), (4.83e-3, Found)])
def test_accounts_without_start_times_at_the_edges(took_s: float, kind: type) -> None:
    """A low reading at an edge describes the time outside if power shows no rest inside: times 3.4 % too short are found."""

    def busy(t: float) -> float:
        return 0.0 if t < 0.25 else 0.99

    about = evidence(signals={"utilization_ratio": busy, "power_w": lambda t: 90.0 if t < -4.0 else 566.0})
    told = replace(about, timings=recorded([took_s] * 1200, None, about.window.begin_ns, about.window.end_ns))
    assert isinstance(ask(told), kind)
    dense = told.trace.dense_power
    unseen = replace(told, trace=replace(told.trace, dense_power=dense.where(np.arange(len(dense.at_ns)) < 400)))
    assert isinstance(ask(unseen), Clear)  # half of the power record is missing


def test_accounts_of_gaps_that_grow_with_their_calls() -> None:
    """At 97 % utilisation equal gaps of 2 % are idle, unless they grow with their calls: then the times are too short."""
    rng = np.random.default_rng(2)
    whole_s = 1e-3 * (1.0 + 0.01 * rng.standard_normal(6000))
    for short_s, kind in ((0.98 * whole_s, Found), (whole_s - 20e-6, Clear)):
        at_ns = BEGIN_NS + np.round((np.cumsum(whole_s + 6e-6) - whole_s) * 1e9).astype(np.int64)
        about = evidence(signals={"utilization_ratio": 0.97}, timings=Timings(at_ns, short_s))
        assert isinstance(ask(about), kind)


def test_accounts_of_sleeps_that_utilisation_shows_are_clear() -> None:
    """Sleeps of 20 ms after calls of 36 ms are equal gaps, and utilisation of 64 % shows them."""
    about = evidence(signals={"utilization_ratio": 0.64}, timings=after_each_call(np.full(107, 20e-3)))
    assert isinstance(ask(about), Clear)


def test_accounts_of_times_that_are_too_short() -> None:
    """Times of 30 % at a busy share of 97 % are too short by 69 % if all busy time is the timed work."""
    found = bounds(evidence(timings=every(10e-3, took_s=3e-3, length_s=6.0)))
    assert 0.67 < (found[Number.THROUGHPUT].ratio or 0.0) < 0.73
    for number in (Number.MEAN, Number.MEDIAN, Number.MEDIAN_AT_CLOCK):
        estimate = found[number].estimate
        assert estimate is not None
        assert estimate.value_ratio == pytest.approx(-0.69, abs=0.01)
        assert estimate.low_ratio < -0.69 < estimate.high_ratio < -0.6


def test_accounts_take_declared_other_work() -> None:
    """A declared flush of 6.7 ms after each entry of 3 ms accounts for the rest."""
    timings = every(10e-3, took_s=3e-3, length_s=6.0)
    count = len(timings.at_ns)
    flushes = OtherWork(timings.at_ns + 3_000_000, np.full(count, 6.7e-3), ("flush",) * count)
    assert isinstance(ask(replace(evidence(timings=timings), other_work=flushes)), Clear)


@pytest.mark.parametrize(("flush_s", "kind"), [(41e-6, Clear), (36e-6, Found)])
def test_accounts_allow_the_timer_at_the_edges_of_flushes(flush_s: float, kind: type) -> None:
    """After flushes and stamps, equal gaps of 1.3 % are the timer's events, and equal gaps of 3.3 % can hide work."""
    timings = every(240e-6, took_s=190e-6, length_s=6.0)
    count = len(timings.at_ns)
    flushes = OtherWork(timings.at_ns + 193_000, np.full(count, flush_s), ("flush",) * count)
    stamped = replace(timings, sm_clock_mhz=np.full(count, 1980.0))
    assert isinstance(ask(replace(evidence(signals={"utilization_ratio": 1.0}, timings=stamped), other_work=flushes)), kind)


@pytest.mark.parametrize(("after_ns", "took_s"), [(225_000, 0.0), (-(10**10), 2e-6), (1000, 2e-6)])
def test_accounts_allow_nothing_for_pieces_outside_the_gaps(after_ns: int, took_s: float) -> None:
    """Pieces without length, before the window or inside the entries explain no part of equal gaps of 1.3 %."""
    timings = every(240e-6, took_s=230.9e-6, length_s=6.0)
    count = len(timings.at_ns)
    pieces = OtherWork(timings.at_ns + after_ns, np.full(count, took_s), ("flush",) * count)
    stamped = replace(timings, sm_clock_mhz=np.full(count, 1980.0))
    assert isinstance(ask(replace(evidence(signals={"utilization_ratio": 1.0}, timings=stamped), other_work=pieces)), Found)


def test_accounts_of_times_beyond_the_busy_time() -> None:
    """Times of 97 % of a window in which the GPU was busy for half are 75 to 94 % too long."""
    found = bounds(evidence(signals={"utilization_ratio": 0.5}, timings=every(1e-3, took_s=0.97e-3, length_s=6.0)))
    estimate = found[Number.MEAN].estimate
    assert estimate is not None
    assert 0.75 < estimate.low_ratio < estimate.value_ratio < estimate.high_ratio == pytest.approx(0.94, abs=0.02)


def test_accounts_do_not_count_stamps_as_claimed_time() -> None:
    """Stamps of 6 µs around calls of 60 µs explain busy time but do not count as claimed time."""
    stamped = replace(every(90e-6, took_s=60e-6, length_s=6.0), sm_clock_mhz=np.full(66_666, 1980.0))
    assert isinstance(ask(evidence(signals={"utilization_ratio": 0.62}, timings=stamped)), Clear)


@pytest.mark.parametrize("clock_mhz", [None, 1980.0])
def test_accounts_of_batches_take_the_timer_of_each_call(clock_mhz: float | None) -> None:
    """The stamps or events of ten merged calls of 200 µs explain the gap of the batch, 3 % of the window."""
    whole = every(2.06e-3, took_s=200e-6, length_s=6.0)
    clocks = None if clock_mhz is None else np.full(len(whole.at_ns), clock_mhz)
    batches = replace(whole, calls_count=10, sm_clock_mhz=clocks)
    assert isinstance(ask(evidence(signals={"utilization_ratio": 1.0}, timings=batches)), Clear)


@pytest.mark.parametrize(("took_s", "kind"), [(50e-6, Found), (55e-6, Clear), (62e-6, Clear)])
@pytest.mark.parametrize("has_starts", [True, False])
def test_accounts_of_small_launches_without_stamps(took_s: float, kind: type, *, has_starts: bool) -> None:
    """If the GPU works 57 of 90 µs, events explain times of 55 µs but not of 50, and a launch explains times of 62 µs."""
    timings = every(90e-6, took_s=took_s, length_s=6.0)
    about = evidence(signals={"utilization_ratio": 0.63}, timings=timings)
    told = recorded([took_s] * len(timings.at_ns), None, about.window.begin_ns, about.window.end_ns)
    assert isinstance(ask(about if has_starts else replace(about, timings=told)), kind)


def test_accounts_need_a_second_of_utilisation() -> None:
    assert isinstance(ask(evidence(length_s=0.8, timings=every(1e-3, took_s=0.9e-3, length_s=0.8))), Unobserved)
    assert isinstance(ask(evidence(signals={"utilization_ratio": None})), Unobserved)


def test_accounts_without_times_in_a_container() -> None:
    """The record of the own process, or of one unknown PID, accounts for the busy time; without both, the books are unobserved."""
    inside = Visibility.NAMESPACE
    for seen in (OWN, UNKNOWN):
        assert isinstance(ask(evidence(processes=[seen], visibility=inside)), Clear)
        half = bounds(evidence(processes=[replace(seen, utilization_ratio=0.5)], visibility=inside))
        assert 0.47 <= (half[Number.THROUGHPUT].ratio or 0.0) < 0.52
    assert isinstance(ask(evidence(processes=[], visibility=inside)), Unobserved)


def beside(period_s: float, took_s: float, *, calls_count: int = 1, busy: float = 0.97) -> Evidence:
    timings = every(period_s, took_s=took_s, length_s=6.0, calls_count=calls_count)
    return evidence(signals={"utilization_ratio": busy}, timings=timings)


@pytest.mark.parametrize(
    ("about", "most"),
    [
        (beside(1e-3, 1.5e-3), 1.5 / 0.97 - 1),  # each entry holds half of the next
        (beside(1e-3, 0.999e-3, calls_count=2), 2 / 0.97 - 1),  # the time of two calls was declared for each
        (beside(1e-3, 1.06e-3, busy=0.95), 1.06 / 0.95 - 1),
    ],
)
def test_accounts_of_times_that_overlap_bound_each_number(about: Evidence, most: float) -> None:
    """Overlapping times bound rate and times by the part that does not fit, without an estimate."""
    found = bounds(about)
    assert set(found) == set(Number) - {Number.RATIO}
    assert all(bound.estimate is None for bound in found.values())
    assert most <= (found[Number.THROUGHPUT].ratio or 0.0) < most + 0.07


def test_accounts_of_overlapping_times_need_no_utilisation() -> None:
    """Times that add up to more than a window of 0.5 s are found without utilisation."""
    timings = every(1e-3, took_s=1.2e-3, length_s=0.5)
    found = bounds(evidence(length_s=0.5, signals={"utilization_ratio": None}, timings=timings))
    assert found[Number.MEAN].ratio == pytest.approx(0.2, abs=0.01)


def test_accounts_of_early_start_times_are_clear() -> None:
    """Calls with start times 20 calls too early only seem to overlap, because they fit one after the other."""
    timings = every(1e-3, took_s=0.96e-3, length_s=6.0)
    early_ns = np.minimum(timings.at_ns, np.roll(timings.at_ns, 20))
    early_ns[:20] = timings.at_ns[0] + 10_000 * np.arange(20)
    assert isinstance(ask(evidence(timings=replace(timings, at_ns=early_ns))), Clear)


def test_accounts_of_one_more_entry_at_the_end_are_clear() -> None:
    timings = every(0.75, took_s=0.749, length_s=6.75)
    assert isinstance(ask(evidence(signals={"utilization_ratio": 1.0}, timings=timings)), Clear)


def test_accounts_with_contradicting_witnesses_are_unobserved() -> None:
    """Idle utilisation with the power of work leaves the books unobserved: utilisation may exclude copies."""
    signals = {"utilization_ratio": 0.01, "energy_j": lambda t: 1000.0 + 185.0 * (t + 100)}
    about = evidence(signals=signals, timings=every(1e-3, took_s=0.97e-3, length_s=6.0))
    assert isinstance(ask(about), Unobserved)
    idle = {**signals, "energy_j": lambda t: 1000.0 + 118.0 * (t + 100)}
    assert bounds(replace(evidence(signals=idle), timings=about.timings))[Number.MEAN].size_ratio > 1.0
