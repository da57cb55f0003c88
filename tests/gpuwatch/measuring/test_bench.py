"""Tests of bench() before, during and after the timed part, on a scripted GPU."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from io import StringIO
from typing import Any

import numpy as np
import pytest

from annotate.evidence import Values
from annotate.user_policy import Policy
from annotate.verdict import Status
from gpuwatch.errors import GpuwatchError, RejectedError, UsageError, WrongResultError
from gpuwatch.measuring import Measurement, Stopped, bench
from gpuwatch.measuring.environment import TorchDevice
from gpuwatch.measuring.progress import Progress
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.measuring.scripted import H200, L2_BYTES, Model, ScriptedTimer, World, constant, nothing


def run(model: Model, world: World | None = None, **options: object) -> tuple[Measurement, World]:
    world = world or World(ScriptedTimer(model))
    options = {"timer": world.timer, "seams": world.environment(), **options}
    return bench(nothing, **options), world  # type: ignore[arg-type]  # options are bench's own


def capped(at_s: Values, calls: int) -> tuple[Values, Values]:
    """Return times and clocks: 1980 MHz until the cap engages at 75 ms, then 1400 MHz with a swing of ±1 %."""
    mhz = np.where(at_s < 0.075, 1980.0, 1400.0 * (1.0 + 0.01 * np.sin(2 * np.pi * at_s)))
    return 1e-3 * 1400.0 / mhz, mhz


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
        """A GPU without stamps gets the time that a power cap needs."""
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
        """The text, the JSON and the declared facts show the launches, the host's time and the gaps."""
        world = World(ScriptedTimer(constant(13.5e-6), overhead=0.4e-6, issue_s=23.6e-6, gap_s=5e-6))
        measured, _ = run(constant(13.5e-6), world)
        assert "GPU's share 97 %: 0.4 µs of 13.5 µs is launch" in str(measured)
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


class TestEntries:
    def test_short_calls_are_batched_when_the_cache_is_warm(self) -> None:
        measured, world = run(constant(5e-6), cache="warm")
        assert measured.calls_count == 60
        assert measured.median_s == pytest.approx(5e-6, rel=0.01)
        assert world.windows[0].declared["cache"] == "warm"

    def test_long_calls_are_not_batched(self) -> None:
        measured, _ = run(constant(1e-3), cache="warm")
        assert measured.calls_count == 1

    def test_cold_cache_is_flushed_before_each_entry(self) -> None:
        measured, world = run(constant(5e-6))
        assert measured.calls_count == 1
        assert world.flushes > 10
        told = world.windows[0].declared
        assert (told["cache"], told["flush_bytes"], told["flush_timed"]) == ("cold", 2 * L2_BYTES, False)
        assert "pass args=" in str(measured)

    def test_short_calls_rotate_copies_of_their_arguments(self) -> None:
        array = np.ones(1 << 20)  # 8 MiB: twenty of them exceed the cache three times
        seen: set[int] = set()
        world = World(ScriptedTimer(constant(5e-6)))
        measured = bench(
            lambda one: seen.add(id(one)), args=(array,), timer=world.timer, seams=world.environment(), max_s=1.0
        )  # fmt: skip
        assert len(seen) == 20
        assert measured.calls_count % 20 == 0
        told = world.windows[0].declared
        assert told["cache"] == "cold"
        assert told["working_set_bytes"] == array.nbytes
        assert told["flush_bytes"] == 19 * array.nbytes

    def test_rotate_takes_the_given_arguments_in_turn(self) -> None:
        seen: list[int] = []
        world = World(ScriptedTimer(constant(30e-6)))
        bench(seen.append, rotate=[(1,), (2,), (3,)], timer=world.timer, seams=world.environment(), max_s=1.0)
        assert world.timer.plans[-1].calls_count == 12
        assert seen[-6:] == [1, 2, 3, 1, 2, 3]

    def test_timer_overhead_is_declared_and_noted_if_large(self) -> None:
        world = World(ScriptedTimer(constant(20e-6), overhead=2e-6))
        measured, _ = run(constant(1.0), world)
        assert measured.timer_overhead_s == 2e-6
        assert world.windows[0].declared["timer_overhead_s"] == 2e-6
        assert "2 µs around no work, 10 % of an entry" in str(measured)

    def test_host_slower_than_the_gpu_is_noted(self) -> None:
        world = World(ScriptedTimer(constant(10e-6), issue_s=25e-6))
        measured, _ = run(constant(1.0), world, cache="warm")
        assert measured.host_bound
        assert "the host needs 25 µs" in str(measured)

    def test_busy_ratio_is_declared(self) -> None:
        _, world = run(constant(1e-3))
        assert world.windows[0].declared["busy_ratio"] == pytest.approx(1.0, abs=0.01)


class TestRight:
    def test_wrong_result_raises_before_timing(self) -> None:
        world = World(ScriptedTimer(constant(1e-3)))
        with pytest.raises(WrongResultError, match=r"at most 0\.0001 against the reference") as caught:
            bench(
                lambda: np.array([1.0, 2.0], np.float32), reference=np.array([1.0, 2.1], np.float32), timer=world.timer, seams=world.environment()
            )  # fmt: skip
        assert caught.value.error_ratio == pytest.approx(0.1 / (2.1 + 1.55), rel=1e-3)
        assert world.timer.takes == []
        assert isinstance(caught.value, GpuwatchError)

    def test_result_of_another_shape_is_reported(self) -> None:
        world = World(ScriptedTimer(constant(1e-3)))
        with pytest.raises(WrongResultError, match="found another shape, NaN or infinity"):
            bench(lambda: np.ones((2, 2)), reference=np.ones(2), timer=world.timer, seams=world.environment())

    def test_matching_result_is_reported_with_its_error(self) -> None:
        world = World(ScriptedTimer(constant(1e-3)))
        measured = bench(
            np.cos, args=(np.array([1.0, 2.0], np.float32),), reference=lambda x: np.cos(x.astype(np.float64)), timer=world.timer,
            seams=world.environment(),
        )  # fmt: skip
        assert measured.match is not None
        assert 0 < measured.match.error_ratio < 1e-6
        assert world.windows[0].declared["reference_limit_ratio"] == 1e-4
        assert "right: largest relative error" in str(measured)

    def test_in_place_function_does_not_spoil_reference(self) -> None:
        """A function that works in place does not change the inputs of the reference."""

        def double(x: Values) -> Values:
            x *= 2
            return x

        world = World(ScriptedTimer(constant(1e-3)))
        data = np.ones(4)
        bench(
            double,
            args=(data,),
            reference=lambda x: 2 * x,
            timer=world.timer,
            seams=world.environment(),
            min_s=0.1,
            cache="warm",
        )

    def test_cached_result_is_detected_and_inputs_restored(self) -> None:
        """A cached result is detected, and the inputs get their values back."""
        cached: list[Values] = []

        def memoised(x: Values) -> Values:
            cached.append(cached[0] if cached else np.sin(x))
            return cached[0]

        data = np.linspace(0.0, 1.0, 10)
        kept = data.copy()
        world = World(ScriptedTimer(constant(1e-3)))
        measured = bench(memoised, args=(data,), check_inputs=True, timer=world.timer, seams=world.environment(), min_s=0.1)
        assert measured.output_unchanged is True
        assert world.windows[0].declared["output_unchanged"] is True
        assert "may be cached" in str(measured)
        np.testing.assert_array_equal(data, kept)

    def test_computed_result_is_not_called_cached(self) -> None:
        world = World(ScriptedTimer(constant(1e-3)))
        data = np.linspace(0.0, 1.0, 10)
        measured = bench(np.sin, args=(data,), check_inputs=True, timer=world.timer, seams=world.environment(), min_s=0.1)
        assert measured.output_unchanged is False

    def test_exception_of_the_benchmarked_function_propagates(self) -> None:
        world = World(ScriptedTimer(constant(1e-3)))
        with pytest.raises(ZeroDivisionError):
            bench(lambda: 1 / 0, timer=world.timer, seams=world.environment())


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


class TestRates:
    def test_rates_have_a_share_of_the_peak_at_the_true_clock(self) -> None:
        flops = 2 * 4096**3
        measured, world = run(constant(0.2e-3, mhz=1400.0), flops=flops, bytes=100e6, dtype="bfloat16")
        assert measured.flops_per_s == pytest.approx(flops / 0.2e-3, rel=0.01)
        assert measured.flops_peak_ratio == pytest.approx(flops / 0.2e-3 / (132 * 4096 * 1400e6), rel=0.01)
        assert measured.bytes_peak_ratio == pytest.approx(100e6 / 0.2e-3 / 4.917e12, rel=0.01)
        told = world.windows[0].declared
        assert (told["call_flops_count"], told["call_bytes"], told["dtype"]) == (flops, 100e6, "bfloat16")
        assert "of the bfloat16 peak at this clock" in str(measured)

    def test_rates_have_no_peak_share_without_a_gpu(self) -> None:
        world = World(ScriptedTimer(constant(1e-3, mhz=None), name="host", issue_s=None), gpu=None)
        measured, _ = run(constant(1e-3), world, flops=1e9)
        assert measured.flops_per_s == pytest.approx(1e12, rel=0.01)
        assert measured.flops_peak_ratio is None

    def test_sensitivity_needs_a_swinging_clock(self) -> None:
        """Sensitivity is found with a swinging clock, and refused with a reason otherwise."""
        rng = np.random.default_rng(2)

        def swinging(at_s: Values, calls: int) -> tuple[Values, Values]:
            mhz = 1400.0 * (1.0 + 0.03 * np.sin(2 * np.pi * at_s / 0.7)) + rng.normal(0, 5, len(at_s))
            return 1e-3 * (1400.0 / mhz) * (1 + 0.001 * rng.standard_normal(len(at_s))), mhz

        measured, _ = run(swinging)
        found = measured.clock_sensitivity
        assert getattr(found, "beta", None) == pytest.approx(1.0, abs=0.05), found
        assert getattr(measured.at_clock(1410.0), "time_s", None) == pytest.approx(1e-3 * 1400 / 1410, rel=0.005)
        still, _ = run(constant(1e-3))
        assert hasattr(still.clock_sensitivity, "reason")
        assert hasattr(still.at_clock(1500.0), "reason")
        unstamped, _ = run(constant(1e-3, mhz=None))
        assert "stamped" in getattr(unstamped.clock_sensitivity, "reason", "")


class TestShown:
    def test_measurement_survives_a_json_round_trip(self) -> None:
        measured, _ = run(constant(1e-3), flops=1e9, label="a")
        data = measured.to_dict()
        check(data, "urn:gpuwatch:measurement:1")
        assert json.loads(json.dumps(data, allow_nan=False)) == data
        assert data["schema"] == 1
        assert data["status"] == "valid"
        assert data["median_s"] == measured.median_s
        assert data["attempts"][0]["warmup"]["steady"] is True

    def test_measurements_match_the_schema(self) -> None:
        bare = World(ScriptedTimer(constant(1e-3, mhz=None)), statuses=(Status.REJECTED, Status.UNPROVEN), gpu=None)
        told: dict[str, Any] = {"flops": 1e9, "bytes": 1e6, "dtype": "bfloat16"}
        for measured, _ in (
            run(capped, **told, retries=1),
            run(constant(1e-3), bare, retries=2, cache="warm", min_s=0.1, **told),
            run(constant(5.0), max_s=1.0),
        ):
            check(json.loads(json.dumps(measured.to_dict(), allow_nan=False)), "urn:gpuwatch:measurement:1")

    def test_measurement_html_escapes_the_label(self) -> None:
        measured, _ = run(constant(1e-3), label="<script>alert(1)</script>")
        assert "<script>" not in measured._repr_html_()
        assert "&lt;script&gt;" in measured._repr_html_()

    def test_escapes_in_a_label_are_not_printed(self) -> None:
        measured, _ = run(constant(1e-3), label="\x1b[2Jgone")
        assert "\x1b" not in str(measured)

    def test_progress_is_one_line_that_is_removed(self) -> None:
        _, world = run(constant(1e-3), label="gemm", progress=True)
        shown = world.shown.getvalue()
        assert "gemm  warming up [" in shown
        assert "measuring [" in shown
        assert shown.endswith(" \r")
        assert "\n" not in shown

    def test_progress_needs_a_terminal(self) -> None:
        _, world = run(constant(1e-3))
        assert world.shown.getvalue() == ""

    def test_progress_line_is_removed_after_an_exception(self) -> None:
        calls = []

        def tired() -> None:
            calls.append(1)
            if len(calls) > 10:
                raise RuntimeError("tired")

        world = World(ScriptedTimer(constant(1e-3)))
        with pytest.raises(RuntimeError, match="tired"):
            bench(tired, timer=world.timer, seams=world.environment(), progress=True)
        assert world.shown.getvalue().endswith("\r")


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


async def _promised() -> None: ...


def _numbers() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"fn": 3}, "bench: expected a function, found 3"),
        ({"fn": _promised}, "bench: expected a function that does its work when it is called"),
        ({"fn": _numbers}, "found a coroutine or generator function"),
        ({"args": 3}, "args: expected a tuple"),
        ({"rotate": []}, "rotate: expected a list of tuples"),
        ({"rotate": [(1,)], "args": (1,)}, "expected either args or rotate"),
        ({"timer": "sundial"}, "timer: expected one of events, graph, host, found 'sundial'"),
        ({"timer": 3}, "timer: expected a name or a timer"),
        ({"timer": "host", "cache": "cold"}, "cache='cold': expected a GPU"),
        ({"cache": "tepid"}, "cache: expected 'cold' or 'warm'"),
        ({"flops": -1}, "flops: expected a number above 0, found -1"),
        ({"bytes": float("nan")}, "bytes: expected a number above 0, found nan"),
        ({"min_s": True}, "min_s: expected a number above 0, found True"),
        ({"max_s": 0}, "max_s: expected a number above 0"),
        ({"min_s": 20.0}, "min_s: expected at most max_s"),
        ({"target_ratio": "narrow"}, "target_ratio: expected a number"),
        ({"target_ratio": 5}, "target_ratio: expected a share between 0 and 1"),
        ({"warmup_max_s": -1}, "warmup_max_s: expected a number of at least 0"),
        ({"rtol": -1e-3}, "rtol: expected a number of at least 0"),
        ({"rtol": "1"}, "rtol: expected a number of at least 0, found '1'"),
        ({"max_s": None}, "max_s: expected a number above 0, found None"),
        ({"warmup_max_s": None}, "warmup_max_s: expected a number of at least 0, found None"),
        ({"target_ratio": None}, "target_ratio: expected a number above 0, found None"),
        ({"flops": 10**400}, "flops: expected a number above 0"),
        ({"flops": 1j}, "flops: expected a number above 0, found 1j"),
        ({"dtype": 5}, "dtype: expected a data type as 'bfloat16', found 5"),
        ({"dtype": "a b"}, "dtype: expected a data type"),
        ({"args": "abc"}, "args: expected a tuple of arguments, found str"),
        ({"rotate": [1, 2]}, "rotate: expected a list of tuples"),
        ({"policy": "strict"}, "policy: expected a gpuwatch.Policy"),
        ({"settings": {}}, "settings: expected gpuwatch.config.settings.Settings"),
        ({"label": "x" * 300}, "label: expected at most 256 characters"),
        ({"check_inputs": True, "args": (np.broadcast_to(np.ones(1), (5,)),), "fn": np.sum}, "can be changed in place"),
        ({"retries": -1}, "retries: expected a count"),
        ({"label": 3}, "label: expected text"),
        ({"claim": "fast"}, "claim"),
        ({"claim": "burst", "policy": Policy()}, "contradicts"),
        ({"check_inputs": True}, "check_inputs: expected floating-point tensors"),
        ({"reference": 1.0}, "found one that returns nothing to compare"),
    ],
)
def test_invalid_bench_argument_is_one_line(options: dict[str, object], complaint: str) -> None:
    fn = options.pop("fn", nothing)
    with pytest.raises(UsageError, match=complaint) as caught:
        bench(fn, **options)  # type: ignore[arg-type]  # wrong on purpose
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", [np.float64(5), np.float32(5), np.int64(5), 5, Fraction(5)])
def test_bench_takes_numbers_of_any_library(number: float) -> None:
    measured, world = run(constant(1e-3), flops=number, bytes=number, min_s=0.1)
    assert world.windows[0].declared["call_flops_count"] == measured.call_bytes == 5.0
    assert type(world.windows[0].declared["call_bytes"]) is float


@pytest.mark.parametrize("dtype", ["float16", "torch.float16", np.float16, np.dtype("float16")])
def test_data_type_has_one_name_for_all_libraries(dtype: object) -> None:
    measured, world = run(constant(1e-3), dtype=dtype, min_s=0.1)
    assert world.windows[0].declared["dtype"] == measured.dtype == "float16"


@pytest.mark.parametrize("mhz", [None, 0.0, float("inf"), float("nan"), 1980.0])
@pytest.mark.parametrize("call_s", [0.0, 1e-3])
def test_bench_accepts_any_timer_reading(call_s: float, mhz: float | None) -> None:
    world = World(ScriptedTimer(constant(call_s, mhz=mhz, noise_ratio=0.0), gap_s=1e-3))
    measured, _ = run(constant(1.0), world, min_s=0.1, max_s=0.3, warmup_max_s=2.5, flops=1e9, bytes=1e9)
    assert measured.median_s == call_s
    assert "inf" not in str(measured)
    check(json.loads(json.dumps(measured.to_dict(), allow_nan=False)), "urn:gpuwatch:measurement:1")


class _Sly(np.ndarray[Any, Any]):
    @property
    def flags(self) -> Any:
        raise KeyError("not today")


def test_unreadable_argument_is_measured_anyway() -> None:
    """A call with an uninspectable argument is still measured."""
    world = World(ScriptedTimer(constant(1e-3)), gpu=None)
    assert (
        bench(
            nothing, args=(np.ones(3).view(_Sly),), timer=world.timer, seams=world.environment(), cache="warm", min_s=0.1
        ).count
        > 10
    )


class _Unwilling(StringIO):
    """A terminal that closes after a while."""

    def write(self, text: str) -> int:
        if self.tell() > 100:
            raise BrokenPipeError
        return super().write(text)


def test_failing_progress_does_not_lose_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing progress line does not lose the benchmark."""
    world = World(ScriptedTimer(constant(1e-3)), shown=_Unwilling())
    assert bench(nothing, timer=world.timer, seams=world.environment(), min_s=0.1, progress=True, label="\x1b[2Jx").count > 10
    assert "\x1b" not in world.shown.getvalue()
    closed = World(ScriptedTimer(constant(1e-3)))
    closed.shown.close()
    assert bench(nothing, timer=closed.timer, seams=closed.environment(), min_s=0.1).count > 10
    monkeypatch.setattr("sys.stderr", None)
    with closing(Progress("x", shown=True)) as shown:
        shown.show("measuring", 0.5)


def test_long_function_name_is_cut_for_label() -> None:
    """A function with a long name is measured under a truncated label."""

    def named() -> None:
        pass

    named.__name__ = "x" * 300
    world = World(ScriptedTimer(constant(1e-3)))
    assert bench(named, timer=world.timer, seams=world.environment(), min_s=0.1).label == "x" * 256


@pytest.mark.parametrize("timer", ["events", "graph"])
def test_gpu_timer_without_torch_is_refused(timer: str) -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        with pytest.raises(UsageError, match="needs torch, which is not installed"):
            bench(nothing, timer=timer)  # type: ignore[arg-type]  # a name that is allowed


def test_unknown_cache_size_prevents_the_flush() -> None:
    world = World(ScriptedTimer(constant(1e-3)), gpu=TorchDevice(H200, None))
    from gpuwatch.measuring.cache import make_flush

    with pytest.raises(UsageError, match="expected the size of the L2 cache from torch"):
        make_flush(world.gpu.l2_bytes if world.gpu else None)
