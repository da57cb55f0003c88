"""Tests of bench() on a scripted GPU."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from annotate.evidence import Values
from annotate.verdict import Status
from gpuwatch.errors import RejectedError
from gpuwatch.measuring import Stopped, bench
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.measuring.scripted import ScriptedTimer, World, capped, constant, nothing, run


class TestDuration:
    def test_uncapped_work_is_measured_for_one_second(self) -> None:
        """Uncapped work is warmed up for 1 s and measured for 1 s."""
        measured, _ = run(constant(1e-3))
        assert measured.warmup.steady
        assert measured.warmup.took_s == pytest.approx(1.0, abs=0.25)
        assert measured.attempt.took_s == pytest.approx(1.0, abs=0.25)
        assert measured.attempt.stopped is Stopped.TARGET
        assert measured.attempt.power_limited is False

    def test_capped_work_is_measured_for_three_seconds(self) -> None:
        measured, _ = run(capped)
        assert measured.attempt.power_limited is True
        assert measured.warmup.took_s >= 3.0
        assert measured.attempt.took_s >= 3.0

    def test_unstamped_gpu_gets_the_time_of_a_capped_gpu(self) -> None:
        measured, _ = run(constant(1e-3, mhz=None))
        assert measured.attempt.power_limited is None
        assert measured.warmup.took_s >= 3.0
        assert measured.attempt.took_s >= 3.0

    def test_host_work_is_measured_for_less_than_two_seconds(self) -> None:
        world = World(ScriptedTimer(constant(1e-3, mhz=None), name="host", issue_s=None), gpu=None)
        measured, _ = run(constant(1e-3), world)
        assert measured.attempt.took_s < 2.0

    def test_min_s_may_shorten_the_measurement(self) -> None:
        measured, _ = run(capped, min_s=0.5, target_ratio=0.5)
        assert measured.attempt.took_s < 3.0

    def test_noisy_work_is_measured_until_its_interval_is_narrow(self) -> None:
        measured, _ = run(constant(1e-3, noise_ratio=0.1), target_ratio=0.005)
        assert measured.attempt.stopped is Stopped.TARGET
        assert measured.attempt.took_s > 1.5
        assert measured.ci_s is not None
        low, high = measured.ci_s
        assert (high - low) / 2 / measured.median_s <= 0.005

    def test_time_limit_ends_a_noisy_measurement(self) -> None:
        measured, _ = run(constant(1e-3, noise_ratio=0.5), target_ratio=1e-5, max_s=4.0)
        assert measured.attempt.stopped is Stopped.LIMIT
        assert measured.attempt.took_s == pytest.approx(4.0, abs=0.3)

    def test_call_longer_than_the_limit_is_measured_once(self) -> None:
        measured, world = run(constant(20.0), max_s=10.0)
        assert measured.count == 1
        assert sum(world.timer.takes) <= 5
        assert measured.ci_s is None
        assert "width unknown" in str(measured)


class TestLaunches:
    def test_bench_prints_the_gpu_share(self) -> None:
        world = World(ScriptedTimer(constant(13.5e-6), overhead=0.4e-6, issue_s=23.6e-6, gap_s=5e-6))
        measured, _ = run(constant(13.5e-6), world)
        assert "GPU's share 97 %: 400 ns of 13.5 µs is launch" in str(measured)
        assert "the host needs 23.6 µs to launch one; 5 µs between readings" in str(measured)
        data = measured.to_dict()
        check(data, "urn:gpuwatch:measurement:1")
        assert data["launch_share"]["gpu_ratio"] == pytest.approx(1 - 0.4 / 13.5, abs=1e-3)
        assert data["launch_share"]["launches_count"] == measured.count
        assert (world.windows[0].declared["issue_s"], world.windows[0].declared["starved_ratio"]) == (23.6e-6, 0.0)

    def test_starved_entries_leave_little_to_the_gpu(self) -> None:
        world = World(ScriptedTimer(constant(20e-6), issue_s=18e-6, is_starved=True))
        measured, _ = run(constant(20e-6), world)
        assert "GPU's share at least 10 %: 18 µs of 20 µs is launch" in str(measured)
        assert world.windows[0].declared["starved_ratio"] == 1.0

    def test_host_times_have_no_gpu_share(self) -> None:
        world = World(ScriptedTimer(constant(1e-3, mhz=None), name="host", issue_s=None), gpu=None)
        measured, _ = run(constant(1e-3), world)
        assert measured.to_dict()["launch_share"] is None
        assert "GPU's share" not in str(measured)
        assert "issue_s" not in world.windows[0].declared


class TestCollector:
    def test_bench_restores_the_collector(self) -> None:
        """The collector is disabled while timing, and enabled again afterwards."""
        seen: list[bool] = []

        def model(at_s: Values, calls: int) -> tuple[Values, Values]:
            seen.append(gc.isenabled())
            return np.full(len(at_s), 1e-3), np.full(len(at_s), 1980.0)

        measured, _ = run(model)
        assert not any(seen[-5:])
        assert gc.isenabled()
        assert measured.to_dict()["collector"] == "off"
        assert "garbage collector off" in str(measured)

    def test_bench_leaves_a_disabled_collector_off(self) -> None:
        gc.disable()
        try:
            run(constant(1e-3))
            assert not gc.isenabled()
        finally:
            gc.enable()


class TestWarmup:
    def test_drifting_work_is_reported_as_not_steady(self) -> None:
        def drifting(at_s: Values, calls: int) -> tuple[Values, Values]:
            return 1e-3 * (1.0 + 0.02 * at_s), np.full(len(at_s), 1980.0)

        measured, world = run(drifting, warmup_max_s=5.0)
        assert not measured.warmup.steady
        assert measured.warmup.took_s == pytest.approx(5.0, abs=0.2)
        assert world.windows[0].declared["warmup_steady"] is False
        assert "not steady after 5" in str(measured)

    def test_warm_up_waits_for_late_settling(self) -> None:
        def settling(at_s: Values, calls: int) -> tuple[Values, Values]:
            return 1e-3 * (1.0 + 0.5 * np.exp(-at_s / 0.5)), np.full(len(at_s), 1980.0)

        measured, _ = run(settling)
        assert measured.warmup.steady
        assert 1.5 < measured.warmup.took_s < 5.0
        assert measured.median_s == pytest.approx(1e-3, rel=0.01)

    def test_falling_clock_is_not_steady(self) -> None:
        """A falling clock is not steady, even with constant times."""

        def cooling(at_s: Values, calls: int) -> tuple[Values, Values]:
            return np.full(len(at_s), 1e-3), 1980.0 - 20.0 * at_s

        measured, _ = run(cooling, warmup_max_s=4.0)
        assert not measured.warmup.steady

    def test_work_without_warm_up_is_not_steady(self) -> None:
        measured, _ = run(constant(1e-3), warmup_max_s=0.0)
        assert not measured.warmup.steady
        assert measured.warmup.count == 0

    def test_warm_up_times_are_not_measured(self) -> None:
        measured, world = run(capped)
        assert measured.timings.took_s.min() > 0.9e-3
        assert world.windows[0].recorded == [measured.timings]


class TestRetries:
    def test_bench_makes_one_attempt_without_retries(self) -> None:
        measured, _ = run(constant(1e-3), World(ScriptedTimer(constant(1e-3)), statuses=(Status.FLAGGED,)))
        assert len(measured.attempts) == 1

    def test_retries_end_with_the_first_valid_attempt(self) -> None:
        world = World(ScriptedTimer(constant(1e-3)), statuses=(Status.REJECTED, Status.FLAGGED, Status.VALID))
        measured, _ = run(constant(1.0), world, retries=5)
        assert [one.verdict.status.value for one in measured.attempts] == ["rejected", "flagged", "valid"]
        assert measured.attempt is measured.attempts[2]
        assert measured.run == "run-2"
        assert "attempt 3 of 3" in str(measured)

    def test_last_attempt_counts_if_no_attempt_is_valid(self) -> None:
        def slower(at_s: Values, calls: int) -> tuple[Values, Values]:
            return np.where(at_s < 2.2, 1e-3, 1.2e-3), np.full(len(at_s), 1980.0)

        world = World(ScriptedTimer(slower), statuses=(Status.FLAGGED,))
        measured, _ = run(slower, world, retries=2)
        medians = [float(np.median(one.timings.took_s)) for one in measured.attempts]
        assert len(medians) == 3
        assert medians[0] < medians[-1]
        assert measured.median_s == medians[-1]
        assert "attempt 3 of 3, none of them valid" in str(measured)
        measured.raise_for_verdict()  # flagged is not rejected

    def test_missing_telemetry_is_not_retried(self) -> None:
        world = World(ScriptedTimer(constant(1e-3)), statuses=(Status.UNPROVEN,), uuid=None)
        measured, _ = run(constant(1e-3), world, retries=3)
        assert len(measured.attempts) == 1

    def test_rejected_measurement_can_raise(self) -> None:
        measured, _ = run(constant(1e-3), World(ScriptedTimer(constant(1e-3)), statuses=(Status.REJECTED,)))
        with pytest.raises(RejectedError):
            measured.raise_for_verdict()


def test_gpuwatch_bench_is_callable_after_package_import() -> None:
    """After importing the package, `gpuwatch.bench` is the function."""
    import gpuwatch.measuring

    world = World(ScriptedTimer(constant(1e-3)))
    assert gpuwatch.bench(nothing, timer=world.timer, seams=world.environment(), min_s=0.1).count > 10


def test_first_call_is_timed_without_a_reference_only() -> None:
    """The first call is timed separately, unless the check against a reference already called the function."""
    assert run(constant(1e-3), min_s=0.1)[0].first_call_s is not None
    world = World(ScriptedTimer(constant(1e-3)))
    checked = bench(lambda: 1.0, reference=1.0, timer=world.timer, seams=world.environment(), min_s=0.1)
    assert checked.first_call_s is None
