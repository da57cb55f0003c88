"""Tests of grids, guard zones and the correctness check, on a mock GPU."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from gpuwatch.diff.correctness import check_names, check_pair, match_outputs
from gpuwatch.diff.cubin import Threads
from gpuwatch.diff.kernel_arguments import SizePlan, Slot, plan_sizes
from gpuwatch.diff.kernel_device import KernelFault
from gpuwatch.diff.kernel_side import KernelSideRun, footprint, untouched_count
from gpuwatch.diff.trial import Trial, TrialTerms, check_aliases
from gpuwatch.errors import UsageError
from tests.gpuwatch.diff.host_device import HostDevice, HostKernel, HostLaunch, kernel_job, saxpy, scan, transpose
from tests.gpuwatch.diff.test_kernel_arguments import SAXPY, slots

SCAN = slots("float const* in", "float* out", "int n")
PLANE = slots("float const* in", "float* out", "int rows", "int cols")


def reason(
    a: HostKernel, b: HostKernel, arguments: tuple[Slot, ...], *, rtol: float | None = None, strides: bool = False
) -> str:
    """Return the reason of ``check_pair`` for two kernels with blocks of 256."""
    device = HostDevice(a=a, b=b)
    plans = [plan_sizes(arguments, {}, count, is_plane=False, extra_count=extra) for count, extra in ((8192, 0), (4096, 16))]
    sides = tuple(KernelSideRun(device, kernel_job(name, strides=strides)) for name in "ab")

    def make(plan: SizePlan, fill: str, seed: int) -> Trial:
        return Trial(device, arguments, plan, TrialTerms(fill=fill, seed=seed))

    found = check_pair((sides[0], sides[1]), plans, make, rtol, lambda _words: None)
    assert not device.held
    return found


def geometry(kernel: HostKernel, arguments: tuple[Slot, ...], block: Threads, **sizes: int) -> Threads:
    device = HostDevice(k=kernel)
    plan = plan_sizes(arguments, sizes, 1 << 16, is_plane=block[1] > 1)
    with Trial(device, arguments, plan, TrialTerms()) as trial:
        return KernelSideRun(device, kernel_job("k", block)).geometry(trial)[0]


def test_equal_kernels_pass_the_gate() -> None:
    assert reason(saxpy, saxpy, SAXPY) == ""


def test_write_behind_a_buffer_is_found() -> None:
    """With a size that is not a multiple of a block, a thread can write one element too far."""
    found = reason(saxpy, partial(saxpy, extra=1), SAXPY)
    assert "B writes outside of y: 4 bytes after its 4112 elements, the nearest at byte 0 (n=4112, seed 1)" in found


def test_write_before_a_buffer_is_found() -> None:
    def before(launch: HostLaunch) -> None:
        saxpy(launch)
        launch.at(1, 1, begin=-1)[:] = 0

    assert "A writes outside of y: 4 bytes before" in reason(before, saxpy, SAXPY)


def test_wrong_result_names_buffer_and_error() -> None:
    def wrong(launch: HostLaunch) -> None:
        saxpy(launch)
        launch.at(1, 1)[:] += 5

    found = reason(saxpy, wrong, SAXPY)
    assert found.startswith("B computes something else: y differs by up to")
    assert found.endswith("(n=8192, seed 0)")


def test_rtol_replaces_the_limit_of_the_type() -> None:
    def rough(launch: HostLaunch) -> None:
        n = min(launch.number(3), len(launch.threads))
        launch.at(1, n)[:] += launch.number(2, "f4") * launch.at(0, n) * np.float32(1.001)

    assert "0.0001 allowed" in reason(saxpy, rough, SAXPY)
    assert reason(saxpy, rough, SAXPY, rtol=0.01) == ""


def test_shifted_scans_get_a_hint() -> None:
    found = reason(partial(scan, exclusive=False), partial(scan, exclusive=True), SCAN)
    assert "equal when shifted by one: B is A one place later" in found


def test_equal_sums_get_a_hint() -> None:
    def partial_sums(launch: HostLaunch, step: int) -> None:
        values = launch.at(0, launch.number(2))
        launch.at(1, 16)[:] = [values[part::16].sum() if step else values.reshape(16, -1)[part].sum() for part in range(16)]

    found = reason(partial(partial_sums, step=0), partial(partial_sums, step=1), SCAN)
    assert "the sums of both agree, as when each block adds up other elements: --no-check times the pair anyway" in found


def test_element_unchanged_by_chance_is_not_a_hole() -> None:
    def mostly(launch: HostLaunch) -> None:
        n = min(launch.number(3), len(launch.threads))
        launch.at(1, n)[[place for place in range(n) if place != 30000]] = 1

    assert geometry(mostly, SAXPY, (256, 1, 1), n=1 << 16) == (256, 1, 1)


def test_race_is_found_between_two_runs() -> None:
    runs = iter(range(1000))

    def racing(launch: HostLaunch) -> None:
        saxpy(launch)
        launch.at(1, 10)[:] += next(runs)

    assert "A is not deterministic: y differs between two runs" in reason(racing, saxpy, SAXPY)


def test_dropped_nan_is_a_difference() -> None:
    def without_nan(launch: HostLaunch) -> None:
        n = min(launch.number(3), len(launch.threads))
        launch.at(1, n)[:] += launch.number(2, "f4") * np.nan_to_num(launch.at(0, n))

    assert reason(saxpy, without_nan, SAXPY).endswith("inputs with NaN)")


def test_kernel_fault_is_the_reason() -> None:
    def failing(_launch: HostLaunch) -> None:
        raise KernelFault("fails with CUDA_ERROR_ILLEGAL_ADDRESS")

    assert reason(saxpy, failing, SAXPY).startswith("B fails with CUDA_ERROR_ILLEGAL_ADDRESS")


def test_grid_follows_from_one_block() -> None:
    assert geometry(saxpy, SAXPY, (256, 1, 1), n=1000) == (4, 1, 1)


@pytest.mark.parametrize(("tile", "grid"), [((32, 8), (4, 32, 1)), ((32, 32), (4, 8, 1)), ((64, 16), (2, 16, 1))])
def test_grid_of_transposed_tiles_is_found(tile: tuple[int, int], grid: Threads) -> None:
    """Grid x runs across the rows of the output, and a tile may be larger than the block."""
    assert geometry(partial(transpose, tile=tile), PLANE, (32, 8, 1), rows=256, cols=128) == grid


def test_row_grid_has_one_block_per_row() -> None:
    def softmax(launch: HostLaunch) -> None:
        launch.at(1, 512 * launch.grid[0])[:] = 0.5

    assert geometry(softmax, slots("float const* in", "float* out", "int cols"), (32, 1, 1), cols=512) == (128, 1, 1)


def test_loop_over_the_grid_fills_the_gpu() -> None:
    device = HostDevice(k=saxpy)
    with Trial(device, SAXPY, plan_sizes(SAXPY, {}, 1 << 16, is_plane=False), TrialTerms()) as trial:
        assert KernelSideRun(device, kernel_job("k", strides=True)).geometry(trial)[0] == (8, 1, 1)


def test_smaller_fixed_block_fills_the_gpu_too() -> None:
    """A smaller block gets as many threads in all: 4 SMs with 2 blocks of 256 hold 16 blocks of 128."""

    def strided(launch: HostLaunch) -> None:
        count = launch.number(3) if launch.block[0] == 128 else 1
        launch.at(1, count)[:] += launch.at(0, count)

    device = HostDevice(k=strided)
    job = kernel_job("k", strides=True, fixed_blocks=((128, 1, 1),))
    with Trial(device, SAXPY, plan_sizes(SAXPY, {}, 1 << 16, is_plane=False), TrialTerms()) as trial:
        assert KernelSideRun(device, job).geometry(trial) == ((16, 1, 1), (128, 1, 1))


def test_buffers_beyond_memory_are_refused() -> None:
    """Sizes beyond this machine's memory are refused before any data is made."""
    device = HostDevice(k=saxpy)
    with pytest.raises(KernelFault, match=r"too little memory for buffers of \d+ MiB; use a smaller --shape"):
        Trial(device, SAXPY, plan_sizes(SAXPY, {"n": 1 << 60}, 1, is_plane=False), TrialTerms())
    assert not device.held


def test_launch_with_holes_is_refused() -> None:
    def holes(launch: HostLaunch) -> None:
        launch.at(1, 4096)[::2] = 1

    with pytest.raises(UsageError, match=r"k: expected a launch that covers its outputs.*give it as --launch 'grid=X block=Y'"):
        geometry(holes, SAXPY, (256, 1, 1), n=4096)
    device = HostDevice(k=holes)
    with Trial(device, SAXPY, plan_sizes(SAXPY, {"n": 4096}, 1, is_plane=False), TrialTerms()) as trial:
        side = KernelSideRun(device, kernel_job("k", grid=(3, 1, 1)))
        assert side.describe() == ""
        side(trial)
        assert side.describe() == "grid=3x1x1 block=256x1x1 smem=0"


@pytest.mark.parametrize("written_for", [32, 128])
def test_fixed_block_size_is_the_smallest_that_covers(written_for: int) -> None:
    """The search finds the block size that a kernel is written for, and the grid of such blocks."""

    def fixed(launch: HostLaunch) -> None:
        for block in range(launch.grid[0]):
            count = max(0, min(launch.number(3) - block * written_for, launch.block[0], written_for))
            launch.at(1, count, begin=block * written_for)[:] += launch.at(0, count, begin=block * written_for)

    device = HostDevice(k=fixed)
    job = kernel_job("k", fixed_blocks=((32, 1, 1), (64, 1, 1), (128, 1, 1), (256, 1, 1)))
    with Trial(device, SAXPY, plan_sizes(SAXPY, {"n": 4096}, 1, is_plane=False), TrialTerms()) as trial:
        assert KernelSideRun(device, job).geometry(trial) == ((4096 // written_for, 1, 1), (written_for, 1, 1))


def test_reduction_keeps_the_usual_block_size() -> None:
    """An output shorter than its buffer does not change the block size."""

    def sums(launch: HostLaunch) -> None:
        launch.at(1, launch.grid[0])[:] = 1

    device = HostDevice(k=sums)
    with Trial(device, SAXPY, plan_sizes(SAXPY, {"n": 4096}, 1, is_plane=False), TrialTerms()) as trial:
        found = KernelSideRun(device, kernel_job("k", fixed_blocks=((32, 1, 1),))).geometry(trial)
    assert found == ((16, 1, 1), (256, 1, 1))


def test_footprint_counts_runs_and_holes() -> None:
    mark = np.zeros(100, np.bool_)
    assert footprint([mark]) is None
    mark[0:4] = mark[20:24] = True
    found = footprint([mark])
    assert found is not None
    assert (found.count, found.run_count, found.pitch_count) == (8, 4, 20)
    assert untouched_count([mark]) == 16


def test_traffic_counts_a_read_output() -> None:
    device = HostDevice(k=saxpy)
    with Trial(device, SAXPY, plan_sizes(SAXPY, {"n": 1024}, 1, is_plane=False), TrialTerms()) as trial:
        assert trial.traffic(KernelSideRun(device, kernel_job("k"))(trial)) == (8192, 4096)


def test_traffic_counts_the_used_part_of_an_input() -> None:
    """The weight of one row counts as one row, because the rest of the weight's buffer does not affect the result."""

    def weighted(launch: HostLaunch) -> None:
        launch.at(2, 64 * launch.grid[0]).reshape(-1, 64)[:] = launch.at(0, 64 * launch.grid[0]).reshape(-1, 64) * launch.at(
            1, 64
        )

    arguments = slots("float const* in", "float const* weight", "float* out", "int cols")
    device = HostDevice(k=weighted)
    with Trial(device, arguments, plan_sizes(arguments, {"cols": 64}, 1024, is_plane=False), TrialTerms()) as trial:
        assert trial.traffic(KernelSideRun(device, kernel_job("k", (32, 1, 1)))(trial)) == (4096 + 256, 4096)


def test_trial_uses_given_arrays_and_aliases() -> None:
    device = HostDevice(k=saxpy)
    terms = TrialTerms(scalars={"a": 2.0}, arrays={"y": np.ones((2, 2))}, aliases={"x": "y"})
    with Trial(device, SAXPY, SizePlan({"n": 4}, 4), terms) as trial:
        (out,) = trial.run(KernelSideRun(device, kernel_job("k"))(trial))
        assert out.view("f4").tolist() == [3.0] * 4
        assert trial.shape_of("y") == (2, 2)


def test_unknown_buffer_names_are_refused() -> None:
    with pytest.raises(UsageError, match="--out: expected the name of a buffer, found 'z'; there are x, y"):
        check_names(("z",), SAXPY)
    assert [each.is_input for each in check_names(("y",), SAXPY)[:2]] == [True, False]
    with pytest.raises(UsageError, match="--call: expected the name of a buffer"):
        check_aliases(SAXPY, {"x": "z"})


def test_buffers_larger_than_the_memory_are_refused() -> None:
    device = HostDevice(memory_bytes=200_000)
    with pytest.raises(KernelFault, match=r"too little memory for buffers of \d+ MiB"):
        Trial(device, SAXPY, SizePlan({}, 1 << 14), TrialTerms(fill="zeros"))
    assert not device.held


def test_tolerance_follows_the_type() -> None:
    half = Slot("x", "f2", is_pointer=True)
    a, b = (np.array([1.0, each], "f2").view(np.uint8) for each in (2.0, 2.01))
    assert match_outputs(half, a, b, None).holds
    assert not match_outputs(half, a, b, 1e-6).holds
