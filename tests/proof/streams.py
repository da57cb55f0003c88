"""A stream of kernels on the simulated board: start time, duration and true clock of each iteration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from annotate.evidence import Times, Values
from tests.proof.board import Course
from tests.proof.chance import generator
from tests.proof.disturbances import Disturbance, is_inside
from tests.proof.timeline import FOREIGN_SHARE_RATIO, Flags, Plan, Timeline
from tests.proof.workloads import Workload

SLICE_S = 2.4e-3  # length of another process's time slice on an H200: the wait of a caught kernel
TICK_S = 32e-9  # resolution of the events' clock
_HALTED = 1e-9  # rate of progress while halted: above zero, so that progress has an inverse
_LATE_CALL_S = 80e-6  # extra time of a window's first call
_END_S = 0.3e-3  # from the last iteration's end to the window's
_EVERY = {"every-second": 2, "every-third": 3, "every-eighth": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterations:
    """The iterations of one window with their reported times; start times are seconds since the simulation's epoch."""

    begin_s: Values
    took_s: Values
    clock_mhz: Values
    window_begin_s: float
    window_end_s: float
    beta: float

    @property
    def count(self) -> int:
        return len(self.begin_s)

    @property
    def rate_hz(self) -> float:
        """Return the iterations per second over the whole window."""
        return self.count / (self.window_end_s - self.window_begin_s)

    @property
    def at_one_clock_s(self) -> Values:
        """Return the times converted to 1980 MHz with the kernel's own sensitivity to the clock."""
        return np.asarray(self.took_s * (self.clock_mhz / 1980.0) ** self.beta)


@dataclass(frozen=True, slots=True)
class _Progress:
    """The kernel seconds at the reference clock done by each time; strictly growing, linear between knots."""

    at_s: Values
    done_s: Values

    def by(self, at_s: Values) -> Values:
        return np.interp(at_s, self.at_s, self.done_s)

    def when(self, done_s: Values) -> Values:
        return np.interp(done_s, self.done_s, self.at_s)


def iterations(
    timeline: Timeline, course: Course, plan: Plan, disturbances: tuple[Disturbance, ...], noise_seed: int
) -> Iterations:
    """Run the loop through the window; the last iteration starts before the planned end and runs to completion.

    Two runs with one seed have the same noise in each iteration.
    """
    workload = timeline.workload
    finishing = course.interval >= timeline.index(plan.end_s + workload.kernel.time_s)
    clock_ratio = _clocks(timeline, course)
    speed = _speeds(timeline, course, clock_ratio, finishing)
    whole = _progress(timeline, course, speed, finishing)
    slices = _slices(timeline, noise_seed)
    progress = _halted(whole, slices)
    first_s = plan.begin_s + plan.enter_s
    window_done_s = float(progress.by(np.array([course.end_ns[-1] / 1e9]))[0] - progress.by(np.array([first_s]))[0])
    noise = _Noise.drawn(workload, noise_seed, int(window_done_s / (0.9 * workload.kernel.time_s + 0.4 * workload.gap_s)) + 16)
    works_s = workload.kernel.time_s * noise.work * _modes(disturbances, len(noise.work), noise_seed)
    works_s[0] += _LATE_CALL_S
    begin_s, end_s = _laid_out(progress, course, speed, first_s, works_s, noise.gap_s)
    count = int(np.searchsorted(begin_s, plan.end_s))
    begin_s, end_s = begin_s[:count].copy(), end_s[:count]
    _move_between(begin_s, end_s, slices[noise.between[: len(slices)]])
    _move_between(begin_s, end_s, _stalls(timeline, disturbances, plan))
    clock_mhz = _mean_clocks(course, clock_ratio, begin_s, end_s)
    took_s = np.maximum(1.0, np.round((end_s - begin_s) / TICK_S)) * TICK_S
    return Iterations(
        begin_s=begin_s,
        took_s=took_s * _wrong_times(disturbances),
        clock_mhz=clock_mhz,
        window_begin_s=plan.begin_s,
        window_end_s=float(end_s[-1]) + _END_S,
        beta=workload.kernel.beta,
    )


@dataclass(frozen=True, slots=True)
class _Noise:
    """The noise of one run: in each iteration's work, in the gaps, and in the position of time slices."""

    work: Values
    gap_s: Values
    between: Flags

    @staticmethod
    def drawn(workload: Workload, seed: int, count: int) -> _Noise:
        run = generator(seed, "noise of the run")
        # The position of the buffers changes the work, more under a cap.
        placement = 1.0 + (1.8e-4 if workload.capped else 5e-5) * float(run.standard_normal())
        outliers_ratio = workload.outliers_ratio * float(np.exp(0.4 * run.standard_normal()))
        long_gaps_ratio = 0.015 * float(np.exp(0.65 * run.standard_normal()))
        gap_factor = float(np.exp(0.2 * workload.gap_noise_ratio * run.standard_normal()))
        work = placement * (1.0 + workload.kernel.noise_ratio * generator(seed, "work").standard_normal(count))
        late = generator(seed, "late iterations")
        is_late = late.random(count) < outliers_ratio
        delay_s = generator(seed, "delays").exponential(60e-6, count)
        work += is_late * np.minimum(delay_s / workload.kernel.time_s, 0.5)
        gap_s = workload.gap_s * gap_factor * (1.0 + workload.gap_noise_ratio * generator(seed, "gaps").standard_normal(count))
        rare = generator(seed, "rare gaps")
        gap_s += (rare.random(count) < long_gaps_ratio) * generator(seed, "long gaps").exponential(80e-6, count)
        between = generator(seed, "slices between").random(8192) < workload.between_ratio
        return _Noise(np.maximum(work, 0.2), np.maximum(gap_s, 1e-7), between)


def _clocks(timeline: Timeline, course: Course) -> Values:
    """Return the clock ratio in each step.  A step in which the loop sleeps has the ratio of the last step before the sleep."""
    resting = timeline.levels.resting[course.interval]
    return course.clock_ratio[np.maximum.accumulate(np.where(resting, 0, np.arange(len(resting))))]


def _speeds(timeline: Timeline, course: Course, clock_ratio: Values, finishing: Flags) -> Values:
    """Return the kernel seconds done per second in each step of the board if the loop has the GPU alone.

    The steps after the run's planned stop keep the last speed before the stop, so that the last iteration completes.
    """
    kernel, levels = timeline.workload.kernel, timeline.levels
    clock = (clock_ratio / kernel.reference_ratio) ** kernel.beta
    memory = levels.mem_clock[course.interval] ** (1.0 - kernel.beta)
    speed = np.asarray(clock * memory / levels.slower[course.interval])
    speed[finishing] = speed[max(0, int(np.argmax(finishing)) - 1)]
    return speed


def _progress(timeline: Timeline, course: Course, speed: Values, finishing: Flags) -> _Progress:
    rate = np.where((timeline.levels.working[course.interval] > 0.0) | finishing, speed, _HALTED)
    steps_s = np.diff(np.concatenate([[0], course.end_ns])) / 1e9
    return _Progress(
        np.concatenate([[0.0], course.end_ns / 1e9]), np.concatenate([[0.0], np.cumsum(steps_s * np.maximum(rate, _HALTED))])
    )


def _slices(timeline: Timeline, seed: int) -> Values:
    """Return the start and end times of another process's time slices, in order."""
    edges_s, wanted = timeline.edges_s, timeline.levels.slices
    if not wanted.any():
        return np.empty((0, 2))
    counts = np.concatenate([[0.0], np.cumsum(np.diff(edges_s) * wanted * FOREIGN_SHARE_RATIO / SLICE_S)])
    jitter = generator(seed, "slices")
    numbers = np.arange(int(counts[-1]) + 1) + float(jitter.random())
    numbers += jitter.uniform(-0.2, 0.2, len(numbers))
    numbers = numbers[(numbers > 0.0) & (numbers < counts[-1])]
    begins_s = np.interp(numbers, counts, edges_s)
    ends_s = begins_s + SLICE_S * jitter.uniform(0.96, 1.04, len(begins_s))
    if len(begins_s):
        ends_s[:-1] = np.minimum(ends_s[:-1], begins_s[1:] - 1e-6)
    kept = ends_s - begins_s > 1e-5
    return np.column_stack([begins_s[kept], ends_s[kept]])


def _halted(progress: _Progress, halts: Values) -> _Progress:
    """Return the progress with a halt during each of these stretches."""
    if not len(halts):
        return progress
    knots_s = np.union1d(progress.at_s, halts.ravel())
    done_s = progress.by(knots_s)
    middle_s = (knots_s[1:] + knots_s[:-1]) / 2
    number = np.searchsorted(halts[:, 0], middle_s, side="right") - 1
    halted = (number >= 0) & (middle_s < halts[np.maximum(number, 0), 1])
    steps_s = np.where(halted, _HALTED * np.diff(knots_s), np.diff(done_s))
    return _Progress(knots_s, np.concatenate([[0.0], np.cumsum(steps_s)]))


def _laid_out(
    progress: _Progress, course: Course, speed: Values, first_s: float, works_s: Values, gaps_s: Values
) -> tuple[Values, Values]:
    """Return the start and end times of consecutive iterations.

    A gap lasts equally long at any clock.  Two rounds convert each gap into work at the speed of the gap's own time.
    """
    start_s = float(progress.by(np.array([first_s]))[0])
    at_speed = np.full(len(works_s), float(np.median(speed)))
    for _ in range(2):
        ends = start_s + np.cumsum(works_s + gaps_s * at_speed)
        step = np.minimum(np.searchsorted(course.end_ns, progress.when(ends) * 1e9), len(speed) - 1)
        at_speed = speed[step]
    begins = np.concatenate([[start_s], (start_s + np.cumsum(works_s + gaps_s * at_speed))[:-1]])
    return progress.when(begins), progress.when(begins + works_s)


def _modes(disturbances: tuple[Disturbance, ...], count: int, seed: int) -> Values:
    """Return the work factor of each iteration: every second, third or eighth iteration takes longer."""
    factor = np.ones(count)
    for each in disturbances:
        if each.family == "work-modes" and each.kind in _EVERY:
            every = _EVERY[each.kind]
            factor[int(generator(seed, "modes").integers(every)) :: every] *= 1.0 + each.depth
    return factor


def _stalls(timeline: Timeline, disturbances: tuple[Disturbance, ...], plan: Plan) -> Values:
    """Return the stretches without launches in the window, or none if a stall lies inside an iteration."""
    if any(map(is_inside, disturbances)):
        return np.empty((0, 2))
    edges_s, working = timeline.edges_s, timeline.levels.working > 0.0
    idle = ~working & (edges_s[:-1] >= plan.begin_s + plan.enter_s - 1e-9) & (edges_s[:-1] < plan.end_s - 1e-9)
    return np.column_stack([edges_s[:-1][idle], edges_s[1:][idle]])


def _move_between(begin_s: Values, end_s: Values, halts: Values) -> None:
    """Delay in place the start of each iteration that contains a halt, by the length of the halt."""
    number = np.searchsorted(begin_s, halts[:, 0], side="right") - 1
    split = (number >= 0) & (halts[:, 1] <= end_s[np.maximum(number, 0)])
    np.add.at(begin_s, number[split], (halts[:, 1] - halts[:, 0])[split])


def _mean_clocks(course: Course, clock_ratio: Values, begin_s: Values, end_s: Values) -> Values:
    at_s = np.concatenate([[0.0], course.end_ns / 1e9])
    cycles = np.concatenate([[0.0], np.cumsum(np.diff(at_s) * clock_ratio * 1980.0)])
    spans_s = np.maximum(end_s - begin_s, 1e-12)
    return np.asarray((np.interp(end_s, at_s, cycles) - np.interp(begin_s, at_s, cycles)) / spans_s)


def _wrong_times(disturbances: tuple[Disturbance, ...]) -> float:
    """Return the ratio of reported to true times: any ratio, or the ratio of a wrong count of calls."""
    ratio = 1.0
    for each in disturbances:
        if each.family == "times-wrong" and each.kind == "scaled":
            ratio *= 1.0 - each.depth
        elif each.family == "times-wrong":
            # Either one call too many is counted per batch, or several calls for each real one.
            few = each.depth > 0.5
            ratio *= 1.0 / round(1.0 / (1.0 - each.depth)) if few else 1.0 - 1.0 / round(1.0 / each.depth)
    return ratio


def times_ns(seconds: Values, epoch_ns: int) -> Times:
    """Return times as whole nanoseconds of the machine's clock."""
    return np.round(seconds * 1e9).astype(np.int64) + epoch_ns
