"""Evidence of simulated runs: the stored form, the refresh periods of an H200, and likeness to a recording."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from annotate.capsule.pack import pack, unpack
from annotate.evidence import COUNTERS, Column, Evidence, Lane, Ownership, Timings, Visibility, signals
from tests.proof.cases import design, made, run_twice, workload
from tests.proof.disturbances import COMBINED, FAMILIES, Disturbance, drawn, family_name
from tests.proof.pairs import Pair, length_s, observed, pair, runs
from tests.proof.testified import Variant

_RECORDED = Path(__file__).parents[1] / "traces" / "h200-windows.capsule"


@cache
def seeds() -> dict[str, int]:
    """Return each family's seed with the shortest windows among the first 300 seeds."""
    return {family_name(seed): seed for seed in sorted(range(300), key=length_s, reverse=True)}


@cache
def shortest(family: str) -> Pair:
    """Return a pair of this family with short windows."""
    return pair(seeds()[family])


@cache
def clean(name: str) -> Evidence:
    return run_twice(workload(name), seed=4)[2]


@cache
def recorded(label: str) -> Evidence:
    """Return a window recorded on an H200."""
    return next(each for each in unpack(_RECORDED.read_bytes()) if each.window.label == label)


def seen(of: Disturbance, name: str = "softmax") -> Evidence:
    return run_twice(workload(name), of, seed=4)[2]


def columns(evidence: Evidence) -> dict[str, Column]:
    return {**evidence.trace.columns, "dense": evidence.trace.dense_power}


@pytest.mark.parametrize("family", [*FAMILIES, COMBINED])
def test_evidence_survives_a_capsule(family: str) -> None:
    """Generated evidence passes the checks of stored evidence and survives a round trip through a capsule."""
    for before in (shortest(family).disturbed, shortest(family).clean):
        (after,) = unpack(pack([before]))
        assert (after.window, after.device, after.host) == (before.window, before.device, before.host)
        assert (dict(after.declared), after.trace.gaps) == (dict(before.declared), before.trace.gaps)
        assert after.trace.process_lists == before.trace.process_lists
        assert columns(after).keys() == columns(before).keys()
        for name, column in columns(before).items():
            assert np.array_equal(columns(after)[name].at_ns, column.at_ns), name
            assert np.array_equal(columns(after)[name].values, column.values, equal_nan=True), name
        assert (after.timings is None) == (before.timings is None)
        if before.timings is not None and after.timings is not None:
            assert np.array_equal(after.timings.took_s, before.timings.took_s)


@pytest.mark.parametrize("family", [*FAMILIES, COMBINED])
def test_evidence_is_in_order(family: str) -> None:
    """Times ascend, counters do not fall, lists are of one GPU, and iterations start in the window."""
    for evidence in (shortest(family).disturbed, shortest(family).clean):
        window = evidence.window
        for name, column in columns(evidence).items():
            assert (np.diff(column.at_ns) > 0).all(), name
            if name in COUNTERS:
                assert (np.diff(column.values) >= 0).all(), name
        assert {process_list.uuid for process_list in evidence.trace.process_lists} <= {
            evidence.device.uuid if evidence.device else None
        }
        if evidence.timings is not None:
            assert (evidence.timings.took_s > 0).all()
            assert (np.diff(evidence.timings.at_ns) >= 0).all()
            assert window.begin_ns <= evidence.timings.at_ns[0] <= evidence.timings.at_ns[-1] < window.end_ns


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.blind])
def test_blind_families_have_zero_deviation(family: str) -> None:
    """A disturbance of neither the work nor its times leaves the true deviation of every number exactly zero."""
    assert set(asdict(shortest(family).truth).values()) == {0.0}


def test_variants_record_their_times_and_clocks() -> None:
    by = design(workload("softmax"), 1.0)
    _, run = runs(by, (), 3)
    found: dict[Variant, Timings | None] = {}
    for variant in Variant:
        found[variant] = observed(replace(by, variant=variant), run, (), 3).timings
    assert found[Variant.PLAIN] is None
    stamped, times, durations = (found[each] for each in (Variant.STAMPED, Variant.TIMES, Variant.DURATIONS))
    assert stamped is not None
    assert times is not None
    assert durations is not None
    assert stamped.sm_clock_mhz is not None
    assert np.median(stamped.sm_clock_mhz) == pytest.approx(1976.0, rel=1e-3)
    assert times.sm_clock_mhz is None
    assert durations.sm_clock_mhz is None
    assert np.array_equal(times.took_s, durations.took_s)
    # Without start times the durations are laid back to back before the window's end.
    assert np.abs(np.diff(durations.at_ns) - durations.took_s[:-1] * 1e9).max() <= 1.0


def test_clocks_change_once_a_refresh() -> None:
    """Changes are over 0.4 refreshes (100 ms, utilisation 200 ms) apart, although the pulse lane reads every 10 ms."""
    evidence = clean("gemm")
    for name, period_s in (("sm_clock_mhz", 0.1), ("power_w", 0.1), ("utilization_ratio", 0.2)):
        column = evidence.trace.column(name)
        changes_ns = column.at_ns[1:][np.diff(column.values) != 0]
        assert np.diff(changes_ns).min() > 0.4 * period_s * 1e9, name
    counter = evidence.trace.column("power_cap_ns")
    inside = (counter.at_ns >= evidence.window.begin_ns) & (counter.at_ns < evidence.window.end_ns)
    assert set(np.diff(counter.values[inside])) == {0.0, 100_000_000.0}


def test_repeated_rows_are_not_stored() -> None:
    """A constant value repeats once per heartbeat: fewer than 100 rows in 3 s of reads every 10 ms."""
    lone = clean("copy").trace.column("event_reasons_mask")
    inside = (lone.at_ns >= clean("copy").window.begin_ns) & (lone.at_ns < clean("copy").window.end_ns)
    assert inside.sum() < 100


def test_dense_power_has_a_sample_every_20_ms() -> None:
    power = clean("gemm").trace.dense_power
    assert set(np.diff(power.at_ns)) == {20_000_000}
    window = clean("gemm").window
    assert power.at_ns[0] < window.begin_ns - 3_000_000_000
    assert window.end_ns - power.at_ns[-1] < 1_000_000_000


def test_gap_removes_rows_and_is_recorded() -> None:
    """A stop of sampling for 0.6 s leaves no rows and one gap; a stop of 0.1 s leaves no gap."""
    evidence = seen(made("evidence-gap", "all", (1.0, 1.6)))
    begin_ns = evidence.window.begin_ns + 1_000_000_000
    for column in evidence.trace.columns.values():
        assert not ((column.at_ns > begin_ns + 20_000_000) & (column.at_ns < begin_ns + 600_000_000)).any()
    (gap,) = evidence.trace.gaps
    assert (gap.end_ns - gap.begin_ns) / 1e9 == pytest.approx(0.62, abs=0.05)
    assert seen(made("evidence-gap", "all", (1.0, 1.1))).trace.gaps == ()


def test_hidden_neighbour_is_on_no_list() -> None:
    """A process of another namespace is on no list, but raises the used memory like a listed process."""
    busy = ((0.5, 2.9),)
    listed, hidden = (seen(made("neighbour-slices", kind, *busy)) for kind in ("listed", "hidden"))
    foreign = [
        p for process_list in listed.trace.process_lists for p in process_list.processes if p.ownership is Ownership.FOREIGN
    ]
    assert foreign
    assert all(process.listed for process in foreign)
    unseen = [
        p for process_list in hidden.trace.process_lists for p in process_list.processes if p.ownership is Ownership.FOREIGN
    ]
    assert not any(process.listed for process in unseen)
    assert {process_list.visibility for process_list in hidden.trace.process_lists} == {Visibility.NAMESPACE}
    for evidence in (listed, hidden):
        used = evidence.trace.column("memory_used_bytes").values
        assert used.max() - used.min() > 1e9


def test_idle_looking_neighbour_is_rarely_named() -> None:
    """The utilisation record, which names one process per 200 ms, rarely names a neighbour with 10 % of the time slices."""
    busy, rare = (seen(made("neighbour-slices", "listed", (0.0, 3.0), depth=depth)) for depth in (1.0, 0.1))

    def named(evidence: Evidence) -> float:
        ratios = [p.utilization_ratio or 0.0 for c in evidence.trace.process_lists for p in c.processes if p.pid != 4242]
        return sum(ratios)

    assert named(busy) > 1.0
    assert named(rare) <= 0.4


def test_host_stalls_show_in_host_facts() -> None:
    """A sleep lowers CPU time, preemption raises run-queue wait, and a garbage collection leaves CPU time unchanged."""
    sleep, preempted = (seen(made("host-stall", kind, (1.0, 1.5))).host for kind in ("sleep", "preempted"))
    collected = seen(made("garbage-pauses", "collector", (1.0, 1.5))).host
    assert sleep.cpu_s == pytest.approx(2.5, abs=0.02)
    assert sleep.run_wait_s == pytest.approx(0.0, abs=0.01)
    assert preempted.run_wait_s == pytest.approx(0.5, abs=0.01)
    assert collected.cpu_s == pytest.approx(3.0, abs=0.02)


def test_stall_shows_in_utilisation_and_power() -> None:
    evidence = seen(made("idle-stretch", "waits", (1.0, 2.0)))
    begin_ns = evidence.window.begin_ns
    use = evidence.trace.within("utilization_ratio", begin_ns + 1_450_000_000, begin_ns + 1_950_000_000).values
    assert use.max() == 0.0
    power = evidence.trace.dense_power
    idle = power.values[(power.at_ns > begin_ns + 1_030_000_000) & (power.at_ns < begin_ns + 2_000_000_000)]
    assert idle.max() < 160.0


def test_power_limit_shows_in_the_slow_lane() -> None:
    evidence = seen(made("power-cap", "lowered", (0.0, 3.0), depth=0.4), "gemm")
    assert evidence.trace.column("power_limit_w").values.min() == 420.0
    power = evidence.trace.dense_power
    lowered = power.at_ns > evidence.window.begin_ns + 1_500_000_000
    assert power.values[lowered & (power.at_ns < evidence.window.end_ns)].mean() == pytest.approx(420.0, rel=0.05)


def test_missing_signals_are_absent() -> None:
    evidence = seen(made("records-missing", "signals", (0.0, 3.0), depth=0.5))
    assert 10 < len(evidence.trace.columns) < 25
    dense = seen(made("records-missing", "dense-power", (0.0, 3.0), depth=0.5))
    assert len(dense.trace.dense_power) == 0
    assert dense.trace.observes("power_w")


@pytest.mark.parametrize(("name", "label"), [("gemm", "steady-gemm-4096"), ("copy", "clean-copy-1g")])
def test_clean_evidence_is_like_a_recording(name: str, label: str) -> None:
    """A clean window has the event reasons and fast-lane signals of a window on an H200, and similar medians and power spread."""
    made_up, real = clean(name), recorded(label)
    masks = [set(each.within("event_reasons_mask").values) for each in (made_up, real)]
    assert masks[0] == masks[1]
    for signal, tolerance in (("sm_clock_mhz", 0.06), ("utilization_ratio", 0.05), ("power_average_w", 0.15)):
        simulated, measured = (float(np.nanmedian(each.within(signal).values)) for each in (made_up, real))
        assert simulated == pytest.approx(measured, rel=tolerance), signal
    spreads = []
    for each in (made_up, real):
        power = each.trace.dense_power
        spreads.append(power.values[(power.at_ns > each.window.begin_ns) & (power.at_ns < each.window.end_ns)].std())
    assert 0.3 < spreads[0] / spreads[1] < 3.0
    lanes = [set(each.trace.columns) & set(signals(Lane.FAST)) for each in (made_up, real)]
    assert lanes[0] == lanes[1]


def test_capped_clock_is_shown_too_high() -> None:
    """Under the power cap, the driver reports a clock 8 to 12 % above the true clock."""
    evidence = clean("gemm")
    assert evidence.timings is not None
    assert evidence.timings.sm_clock_mhz is not None
    shown = float(np.mean(evidence.within("sm_clock_mhz").values))
    assert 1.08 < shown / float(np.mean(evidence.timings.sm_clock_mhz)) < 1.12
    busy = float(evidence.timings.took_s.sum()) / evidence.window.length_s
    assert 0.92 < busy < 0.98  # gaps between iterations take the rest


def test_words_name_the_family_of_each_disturbance() -> None:
    two = drawn(COMBINED, 5, 3.0)
    assert all(each.family in each.words and math.isfinite(each.depth) for each in two)
