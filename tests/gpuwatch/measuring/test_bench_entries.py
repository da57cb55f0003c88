"""Tests of bench()'s entries."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gpuwatch.errors import UsageError
from gpuwatch.measuring import bench
from gpuwatch.measuring.environment import TorchDevice
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.measuring.scripted import H200, L2_BYTES, ScriptedTimer, World, constant, run


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
        array = np.ones(1 << 20)  # 8 MiB: twenty copies exceed three times the cache
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


@pytest.mark.parametrize("mhz", [None, 0.0, float("inf"), float("nan"), 1980.0])
@pytest.mark.parametrize("call_s", [0.0, 1e-3])
def test_bench_accepts_any_timer_reading(call_s: float, mhz: float | None) -> None:
    world = World(ScriptedTimer(constant(call_s, mhz=mhz, noise_ratio=0.0), gap_s=1e-3))
    measured, _ = run(constant(1.0), world, min_s=0.1, max_s=0.3, warmup_max_s=2.5, flops=1e9, bytes=1e9)
    assert measured.median_s == call_s
    assert "inf" not in str(measured)
    check(json.loads(json.dumps(measured.to_dict(), allow_nan=False)), "urn:gpuwatch:measurement:1")


def test_unknown_cache_size_prevents_the_flush() -> None:
    world = World(ScriptedTimer(constant(1e-3)), gpu=TorchDevice(H200, None))
    from gpuwatch.measuring.cache import make_flush

    with pytest.raises(UsageError, match="expected the size of the L2 cache from torch"):
        make_flush(world.gpu.l2_bytes if world.gpu else None)
