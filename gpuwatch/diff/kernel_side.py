"""A kernel of a cubin as one side of a timed pair, with a launch found for each plan of sizes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gpuwatch.diff.cubin import Threads
from gpuwatch.diff.kernel_arguments import SizePlan
from gpuwatch.diff.kernel_device import KernelDevice, Launch
from gpuwatch.diff.timing_job import KernelJob
from gpuwatch.diff.trial import Touched, Trial
from gpuwatch.errors import UsageError

_ROWS = ("rows", "height", "m", "n_rows")
TryGrid = Callable[[Threads], list[Touched]]
# A random input is 0 very rarely and then leaves a sum unchanged.  A wrong launch leaves far more outputs unchanged.
_CHANCE_RATIO = 1e-4


@dataclass(frozen=True, slots=True)
class Footprint:
    """The elements that a launch writes: their number, the length of a run, and the distance between starts of runs."""

    count: int
    run_count: int
    pitch_count: int | None  # None for a single run


def footprint(marks: Sequence[Touched]) -> Footprint | None:
    """Return the footprint in the output with the most written elements; None if nothing was written."""
    touched = max(marks, key=np.count_nonzero, default=np.zeros(0, np.bool_))
    at = np.flatnonzero(touched)
    if not len(at):
        return None
    gaps = np.flatnonzero(np.diff(at) > 1)
    if not len(gaps):
        return Footprint(len(at), len(at), None)
    return Footprint(len(at), int(gaps[0]) + 1, int(at[gaps[0] + 1] - at[0]))


def find_grid(plan: SizePlan, block: Threads, resident_count: int | None, try_grid: TryGrid) -> Threads | None:
    """Return the smallest grid that covers all elements; None if one block writes nothing.

    A kernel that reads gridDim gets at most ``resident_count`` blocks, the number that the GPU runs at once.
    In a grid larger than the result, a kernel without bounds checks would write far beyond its buffers.
    """
    threads, volume = math.prod(block), plan.elements_count
    if resident_count is not None:
        return max(1, min(-(-volume // threads), resident_count)), 1, 1
    one = footprint(try_grid((1, 1, 1)))
    if one is None:
        return None
    if block[1] > 1:
        return _plane(volume, one, footprint(try_grid((2, 1, 1))), footprint(try_grid((1, 2, 1))))
    if one.count >= threads:
        return -(-volume // one.count), 1, 1
    rows = next((size for name, size in plan.sizes.items() if name.lower() in _ROWS), None)
    return rows or -(-volume // threads), 1, 1


def untouched_count(marks: Sequence[Touched]) -> int:
    """Return the number of holes: unwritten elements before the last written one, a sign of a wrong launch."""
    return sum(int(at[-1]) + 1 - len(at) for at in map(np.flatnonzero, marks) if len(at))


def _plane(volume: int, one: Footprint, across: Footprint | None, down: Footprint | None) -> Threads:
    """Return the grid of a kernel whose blocks write tiles; grid x may run along the output's rows or across them."""
    width, height = one.run_count, max(1, one.count // one.run_count)
    seen = [each for each in (one, across, down) if each is not None]
    pitch = next((each.pitch_count for each in seen if each.pitch_count), None) or volume
    rows = -(-volume // pitch)
    along, lines = -(-pitch // width), -(-rows // height)
    is_x_along = across is None or across.run_count > width
    return (along, lines, 1) if is_x_along else (lines, along, 1)


class KernelSideRun:
    """Launches of one kernel, with a block and a grid for each plan of sizes."""

    def __init__(self, device: KernelDevice, job: KernelJob) -> None:
        """Load the kernel.

        Raises KernelFault: when the driver rejects the kernel.
        """
        self._device, self._job = device, job
        self._kernel = device.load(job.cubin, job.symbol, job.shared_bytes)
        self._found: dict[tuple[object, ...], tuple[Threads, Threads]] = {}  # grid and block by sizes
        self._latest: tuple[Threads, Threads] | None = None

    def __call__(self, trial: Trial) -> Launch:
        """Return the launch for a trial.

        Raises KernelFault: when a tried launch fails.
        Raises UsageError: when no launch covers the outputs, and for a whole number beyond its type.
        """
        self._latest = grid, block = self.geometry(trial)
        return self._bind(trial, grid, block)

    def geometry(self, trial: Trial) -> tuple[Threads, Threads]:
        """Return grid and block for a trial's sizes.

        Raises KernelFault, UsageError: as a call.
        """
        key = (*sorted(trial.plan.sizes.items()), trial.plan.elements_count)
        if key not in self._found:
            self._found[key] = self._search(trial)
        return self._found[key]

    def describe(self) -> str:
        """Return the latest launch in the form of --launch; empty before the first launch."""
        if self._latest is None:
            return ""
        grid, block = ("x".join(map(str, each)) for each in self._latest)
        return f"grid={grid} block={block} smem={self._job.shared_bytes}"

    def _search(self, trial: Trial) -> tuple[Threads, Threads]:
        if self._job.grid is not None:
            return self._job.grid, self._job.blocks[0]
        for block in self._job.fixed_blocks:
            # Two blocks expose a wrong block size before a whole grid of such blocks writes beyond the buffers.
            if _are_dense(self._touch(trial, block, (2, 1, 1))):
                grid, marks = self._cover(trial, block)
                if _are_dense(marks) and max(map(np.mean, marks)) > 1 - _CHANCE_RATIO:
                    return grid, block
        holes = 0
        for block in self._job.blocks:
            grid, marks = self._cover(trial, block)
            if _are_dense(marks):
                return grid, block
            holes = untouched_count(marks)
        found = f"{holes} outputs between others stay unwritten" if holes else "nothing is written"
        raise UsageError(
            f"{self._job.name}: expected a launch that covers its outputs, found none: {found} ({trial.plan}); "
            "give it as --launch 'grid=X block=Y'"
        )

    def _cover(self, trial: Trial, block: Threads) -> tuple[Threads, list[Touched]]:
        # The job counts resident blocks of its first size.  Blocks of another size hold as many threads in all.
        threads = self._job.resident_blocks_count * self._device.sms_count * math.prod(self._job.blocks[0])
        resident_count = threads // math.prod(block) if self._job.strides else None
        grid = find_grid(trial.plan, block, resident_count, partial(self._touch, trial, block))
        return (grid, self._touch(trial, block, grid)) if grid is not None else ((1, 1, 1), [])

    def _touch(self, trial: Trial, block: Threads, grid: Threads) -> list[Touched]:
        return trial.touched(self._bind(trial, grid, block))

    def _bind(self, trial: Trial, grid: Threads, block: Threads) -> Launch:
        arguments = [*trial.arguments(), *(bytes(count) for count in self._job.padding_bytes)]
        return self._device.bind(self._kernel, grid, block, self._job.shared_bytes, arguments)


def _are_dense(marks: Sequence[Touched]) -> bool:
    count = sum(int(mark.sum()) for mark in marks)
    return count > 0 and untouched_count(marks) <= _CHANCE_RATIO * count
