"""True deviations that can be computed by hand, and clean streams compared with figures of a real H200."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from annotate.evidence import Reason, Values
from tests.proof.cases import CLOCKED, design, made, run_twice, workload
from tests.proof.pairs import Deviation, deviation, runs
from tests.proof.streams import Iterations

SECOND_NS = 1_000_000_000


def test_stall_costs_its_share_of_throughput() -> None:
    """A stall of 0.4 s in 4.4 s of back-to-back work costs 9.1 % of throughput and does not change the iterations' times."""
    clean, disturbed, _ = run_twice(CLOCKED, made("host-stall", "sleep", (1.5, 1.9)), length_s=4.4)
    found = deviation(disturbed.iterations, clean.iterations)
    assert found.throughput == pytest.approx(-0.4 / 4.4, abs=1.5e-3)
    assert [found.mean, found.median, found.median_at_one_clock] == pytest.approx([0.0, 0.0, 0.0], abs=2e-4)
    gaps_s = np.diff(disturbed.iterations.begin_s) - disturbed.iterations.took_s[:-1]
    assert gaps_s.max() == pytest.approx(0.4, abs=1e-3)


def test_stall_inside_an_iteration_raises_the_mean() -> None:
    """A stall of 0.4 s inside an iteration costs 9.1 % of throughput and raises the mean by 10 %, but not the median."""
    clean, disturbed, _ = run_twice(CLOCKED, made("host-stall", "sleep", (1.5, 1.9), inside=True), length_s=4.4)
    found = deviation(disturbed.iterations, clean.iterations)
    assert found.throughput == pytest.approx(-0.4 / 4.4, abs=1.5e-3)
    assert found.mean == pytest.approx(0.1, abs=2e-3)
    assert found.median == pytest.approx(0.0, abs=2e-4)


def test_queued_work_hides_a_short_stall() -> None:
    """A queue of 30 ms leaves 20 ms of a stall of 50 ms."""
    clean, disturbed, evidence = run_twice(CLOCKED, made("host-stall", "sleep", (1.0, 1.05)), queue_s=0.03)
    found = deviation(disturbed.iterations, clean.iterations)
    assert found.throughput == pytest.approx(-0.02 / 3.0, abs=1.5e-3)
    assert evidence.host.cpu_s == pytest.approx(2.95, abs=0.01)


def test_lower_clock_slows_clock_bound_work() -> None:
    """A clock 25 % lower in the middle third costs a twelfth of the iterations and does not change the times at one clock."""
    clean, disturbed, evidence = run_twice(CLOCKED, made("sm-clock", "slowdown", (1.0, 2.0), depth=0.25))
    found = deviation(disturbed.iterations, clean.iterations)
    assert found.throughput == pytest.approx(-1.0 / 12.0, abs=2e-3)
    assert found.mean == pytest.approx(1.0 / 11.0, abs=2e-3)
    assert [found.median, found.median_at_one_clock] == pytest.approx([0.0, 0.0], abs=6e-4)
    # The driver shows the lower clock at most one refresh later.
    begin_ns = evidence.window.begin_ns
    middle = evidence.trace.within("sm_clock_mhz", begin_ns + 1_150_000_000, begin_ns + 1_950_000_000)
    assert set(middle.values) == {1485.0}
    reasons = evidence.trace.within("event_reasons_mask", begin_ns + 1_150_000_000, begin_ns + 1_950_000_000)
    assert set(reasons.values) == {float(Reason.HW_SLOWDOWN)}
    after = evidence.trace.within("sm_clock_mhz", begin_ns + 2_150_000_000, begin_ns + 2_900_000_000)
    assert set(after.values) == {1980.0}


def test_lower_memory_clock_spares_clock_bound_work() -> None:
    halved = made("mem-clock", "shown", (0.0, 3.0), depth=0.5)
    clean, disturbed, evidence = run_twice(CLOCKED, halved)
    assert deviation(disturbed.iterations, clean.iterations).throughput == pytest.approx(0.0, abs=1e-9)
    assert evidence.trace.within("mem_clock_mhz", *_middle(evidence.window.begin_ns)).values.tolist()[0] == 1600.0
    clean, disturbed, _ = run_twice(workload("copy"), halved)
    slower = (1.0 + deviation(disturbed.iterations, clean.iterations).mean) / 2.0
    assert slower == pytest.approx(1.0, abs=0.03)


def test_busy_neighbour_takes_its_time_slices() -> None:
    """A neighbour that is always busy takes 54 % of the time; a caught iteration waits 2.4 ms for each slice."""
    clean, disturbed, evidence = run_twice(workload("softmax"), made("neighbour-slices", "listed", (1.0, 2.0)))
    found = deviation(disturbed.iterations, clean.iterations)
    assert found.throughput == pytest.approx(-0.54 / 3.0, abs=0.01)
    assert found.median == pytest.approx(0.0, abs=2e-3)
    took_s = disturbed.iterations.took_s
    assert np.percentile(took_s, 99) - np.median(took_s) == pytest.approx(2.4e-3, rel=0.1)
    lists = [{process.pid for process in process_list.processes} for process_list in evidence.trace.process_lists]
    assert {len(each) for each in lists} == {1, 2}


def test_growing_work_slows_times_at_one_clock() -> None:
    """Work that takes 10 % longer for the last three quarters raises the median and the median at one clock by 10 %."""
    clean, disturbed, _ = run_twice(CLOCKED, made("work-growth", "grows", (0.75, 3.0), depth=0.1))
    found = deviation(disturbed.iterations, clean.iterations)
    assert [found.median, found.median_at_one_clock] == pytest.approx([0.1, 0.1], abs=1e-3)


def test_wrong_times_leave_throughput_alone() -> None:
    clean, disturbed, _ = run_twice(CLOCKED, made("times-wrong", "scaled", (0.0, 3.0), depth=0.3))
    found = deviation(disturbed.iterations, clean.iterations)
    assert found == Deviation(throughput=0.0, mean=found.mean, median=found.median, median_at_one_clock=found.mean)
    assert found.mean == pytest.approx(-0.3, abs=1e-12)


def test_iterations_do_not_overlap() -> None:
    """Time slices and idle stretches leave iterations in order and inside the window."""
    for disturbance in (made("neighbour-slices", "listed", (0.2, 2.7), depth=0.7), made("idle-stretch", "waits", (1.0, 2.99))):
        _, disturbed, _ = run_twice(workload("short attention"), disturbance)
        ran = disturbed.iterations
        assert (ran.begin_s[1:] - ran.begin_s[:-1] - ran.took_s[:-1] > -1e-7).all()
        assert ran.begin_s[0] > ran.window_begin_s
        assert ran.begin_s[-1] + ran.took_s[-1] < ran.window_end_s


def test_rest_before_the_window_speeds_up_its_start() -> None:
    """The first 0.3 s after a rest have 3.5 to 7.5 % shorter times for capped work, and equal times for uncapped work."""

    def first_ratio(name: str) -> float:
        _, disturbed, _ = run_twice(workload(name), made("pause-before", "rest", (-3.0, 0.0)), rest_s=3.0)
        ran = disturbed.iterations
        into_s = ran.begin_s - ran.window_begin_s
        return float(ran.took_s[into_s < 0.3].mean() / ran.took_s[into_s > 1.0].mean() - 1.0)

    assert -0.075 < first_ratio("gemm") < -0.035
    assert -0.075 < first_ratio("large gemm") < -0.035
    assert abs(first_ratio("softmax")) < 3e-3


def test_capped_clock_has_a_cycle_of_one_second() -> None:
    """The clock under the power cap correlates more at a lag of 1 s than at a lag of 0.5 s."""
    alike, unlike = [], []
    for seed in range(4):
        clean, _, _ = run_twice(workload("large gemm"), length_s=6.0, seed=seed)
        grid_s = clean.iterations.window_begin_s + np.arange(0.0, 5.9, 0.02)
        steps = np.searchsorted(clean.course.end_ns, grid_s * 1e9)
        clock = clean.course.clock_ratio[steps] - clean.course.clock_ratio[steps].mean()
        alike.append(float((clock[50:] * clock[:-50]).mean() / clock.var()))
        unlike.append(float((clock[25:] * clock[:-25]).mean() / clock.var()))
    assert np.mean(alike) > np.mean(unlike) + 0.2


def _half_range(values: Values) -> float:
    return float(np.ptp(np.percentile(values, [2.5, 97.5]))) / 2.0


def _differences(names: tuple[str, ...], count: int) -> dict[str, Values]:
    """Return the deviations between clean windows that differ in noise alone, by the name of the deviating number."""
    found: list[Deviation] = []
    for name in names:
        for seed in range(count):
            by = replace(design(workload(name)), stamped=False)
            ran: list[Iterations] = [runs(by, (), noise)[0].iterations for noise in (seed, seed + 77_777)]
            found.append(deviation(ran[1], ran[0]))
    return {name: np.array([getattr(each, name) for each in found]) for name in Deviation.__slots__}


def test_capped_windows_repeat_as_on_a_card() -> None:
    """Clean capped pairs differ by as much as pairs on H200s, and least in the median at one clock."""
    differences = _differences(("gemm", "short attention", "convolution"), 6)
    assert 0.004 < _half_range(differences["throughput"]) < 0.02
    assert 0.002 < _half_range(differences["mean"]) < 0.01
    assert 0.005 < _half_range(differences["median"]) < 0.02
    assert 0.0002 < _half_range(differences["median_at_one_clock"]) < 0.0012


def test_uncapped_windows_repeat_as_on_a_card() -> None:
    differences = _differences(("softmax", "decoding"), 4)
    assert _half_range(differences["median"]) < 0.0005
    assert _half_range(differences["mean"]) < 0.005


def _middle(begin_ns: int) -> tuple[int, int]:
    return begin_ns + SECOND_NS, begin_ns + 2 * SECOND_NS
