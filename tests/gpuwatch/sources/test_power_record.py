"""Tests of the driver's record of power."""

from __future__ import annotations

import pytest

from gpuwatch.sources.nvml.power_record import DensePower
from tests.gpuwatch.sources.nvml_double import BOARD, UUID, Library, binding, nvml


class Clocks:
    """A monotonic time, and the offsets of the wall clock and the boot clock from it."""

    def __init__(self) -> None:
        self.now_ns, self.wall_ns, self.boot_ns = 50_000_000_000, 1_700_000_000_000_000_000, 3_600_000_000_000

    def power(self, library: Library) -> DensePower:
        api = binding(library)
        handle = api.c_nvmlDevice_t(api.struct_c_nvmlDevice_t.from_address(BOARD))
        return DensePower(
            api,
            UUID,
            handle,
            now_ns=lambda: self.now_ns,
            wall_offset_ns=lambda: self.wall_ns,
            boot_offset_ns=lambda: self.boot_ns,
        )

    def stamp_us(self, ago_s: float, offset_ns: int) -> int:
        return (self.now_ns - round(ago_s * 1e9) + offset_ns) // 1000


@pytest.mark.parametrize("by", ["wall", "boot"])
def test_power_stamps_of_either_clock_become_monotonic(by: str) -> None:
    clocks = Clocks()
    offset_ns = clocks.wall_ns if by == "wall" else clocks.boot_ns
    library = Library(samples=[(clocks.stamp_us(0.04, offset_ns), 100_000), (clocks.stamp_us(0.02, offset_ns), 700_000)])
    power = clocks.power(library)
    times, watts = power.gained()
    assert [clocks.now_ns - at_ns for at_ns in times] == pytest.approx([40_000_000, 20_000_000], abs=1000)
    assert watts == (100.0, 700.0)
    assert power.stamped_by == by
    assert power.gained() == ((), ())  # the cursor: nothing newer
    clocks.now_ns += 20_000_000
    library.samples.append((clocks.stamp_us(0.0, offset_ns), 710_000))
    assert power.gained()[1] == (710.0,)


def test_empty_power_record_is_not_an_error() -> None:
    assert nvml()[0].power_record(UUID).sample_at_ns == ()


@pytest.mark.parametrize("step_s", [-3600.0, -0.5, 0.5, 3600.0])
def test_wall_clock_step_drops_one_interval_of_power(step_s: float) -> None:
    """A step of the wall clock drops one interval; the next intervals are complete."""
    clocks = Clocks()
    library = Library(samples=[(clocks.stamp_us(0.02, clocks.wall_ns), 1000)])
    power = clocks.power(library)
    assert power.gained()[1] == (1.0,)
    clocks.now_ns += 1_000_000_000
    library.samples.append((clocks.stamp_us(0.5, clocks.wall_ns), 2000))  # stamped before the step
    clocks.wall_ns += round(step_s * 1e9)
    library.samples.append((clocks.stamp_us(0.1, clocks.wall_ns), 3000))  # stamped after the step
    assert power.gained() == ((), ())
    for second in range(5):
        clocks.now_ns += 1_000_000_000
        library.samples.append((clocks.stamp_us(0.1, clocks.wall_ns), 4000 + second))
        times, watts = power.gained()
        assert watts == (4.0 + second / 1000,)
        assert abs(clocks.now_ns - times[0] - 100_000_000) <= 1000


def test_power_stamps_of_an_unknown_clock_are_dropped() -> None:
    library = Library(samples=[(12345, 1000)])
    assert Clocks().power(library).gained() == ((), ())
