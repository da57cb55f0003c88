"""The figures of one benchmark: the attempts, the times of the attempt that counts, and the derived clock and rates."""

from dataclasses import dataclass

import numpy as np

from annotate.derived import roofline
from annotate.derived.launch_share import GPU_TIMERS, LaunchShare, launch_share
from annotate.evidence import Device, Timings
from annotate.times.clock_sensitivity import Corrected, NoFit, Sensitivity, sensitivity
from annotate.times.durations import usual_s, worth_count
from annotate.verdict import Status, Verdict
from gpuwatch.measuring.attempt import Attempt, Warmup
from gpuwatch.measuring.reference import Match


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # eq=False: comparing arrays gives no single truth value
class TimeFigures:
    """The attempts of one benchmark and the facts around them.

    The attempt that counts is the last valid one, else the last, never the fastest.  Times are of one call.  If entries
    are batches, percentiles and spread are of the batches' means.

    Attributes:
        label: Name of the benchmark.
        timer: Timer that took the times: events, graph, host, or the name of the caller's timer.
        cache: State of the L2 cache before each call, cold or warm; None if the host's timer leaves the cache alone.
        attempts: Every attempt, in the order they ran.
        timer_overhead_s: Time that the timer reads around no work, in seconds per entry; not subtracted.
        issue_s: Host's time to launch one call, in seconds; None for the host's timer.
        first_call_s: Time of the very first call, in seconds; None if an earlier call checked the result or the inputs.
        call_flops_count: Floating-point operations of one call; None if not given.
        call_bytes: Bytes that one call must move; None if not given.
        dtype: Data type of the arithmetic; None if unknown.
        device: GPU of this process, as ``annotate.evidence.Device``; None without one.
        match: Error against the reference and its limit, as ratios; None without a reference.
        output_unchanged: True if the result stayed the same when inputs changed; None if that was not checked.
    """

    label: str
    timer: str
    cache: str | None
    attempts: tuple[Attempt, ...]
    timer_overhead_s: float
    issue_s: float | None = None
    first_call_s: float | None = None
    call_flops_count: float | None = None
    call_bytes: float | None = None
    dtype: str | None = None
    device: Device | None = None
    match: Match | None = None
    output_unchanged: bool | None = None

    @property
    def attempt(self) -> Attempt:
        """Return the attempt that counts."""
        valid = [one for one in self.attempts if one.verdict.status is Status.VALID]
        return (valid or self.attempts)[-1]

    @property
    def timings(self) -> Timings:
        """Return times, start times and clocks of the attempt that counts: arrays of shape (count,)."""
        return self.attempt.timings

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Return one verdict per GPU, worst first."""
        return self.attempt.verdicts

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of the worst GPU."""
        return self.attempt.verdict

    @property
    def run(self) -> str | None:
        """Return the run of the window, for ``gpuwatch show``; None without a daemon."""
        return self.attempt.run

    @property
    def warmup(self) -> Warmup:
        """Return calls, seconds and steadiness of the warm-up."""
        return self.attempt.warmup

    @property
    def calls_count(self) -> int:
        """Return the number of calls in one entry."""
        return self.timings.calls_count

    @property
    def count(self) -> int:
        """Return the number of entries."""
        return len(self.timings.took_s)

    @property
    def mean_s(self) -> float:
        """Return the mean time of a call, in seconds."""
        return float(self.timings.took_s.mean())

    @property
    def median_s(self) -> float:
        """Return the median time of a call, in seconds."""
        return float(np.median(self.timings.took_s))

    @property
    def trimmed_mean_s(self) -> float:
        """Return the mean without the fastest and the slowest tenth, in seconds."""
        cut = int(0.1 * self.count)
        return float(np.sort(self.timings.took_s)[cut : self.count - cut].mean())

    @property
    def min_s(self) -> float:
        """Return the shortest time of a call, in seconds."""
        return float(self.timings.took_s.min())

    @property
    def p95_s(self) -> float:
        """Return the 95th percentile of the times, in seconds."""
        return float(np.quantile(self.timings.took_s, 0.95))

    @property
    def p99_s(self) -> float:
        """Return the 99th percentile of the times, in seconds."""
        return float(np.quantile(self.timings.took_s, 0.99))

    @property
    def sd_s(self) -> float:
        """Return the standard deviation of the times, in seconds; 0 for one entry."""
        return float(self.timings.took_s.std(ddof=1)) if self.count > 1 else 0.0

    @property
    def cv_ratio(self) -> float:
        """Return the standard deviation as a ratio of the mean."""
        return self.sd_s / self.mean_s if self.mean_s else 0.0

    @property
    def iqr_s(self) -> float:
        """Return the interquartile range of the times, in seconds."""
        low, high = np.quantile(self.timings.took_s, [0.25, 0.75])
        return float(high - low)

    @property
    def effective_count(self) -> float:
        """Return the equivalent number of independent entries."""
        middle_s, noise_s = usual_s(self.timings.took_s)
        return worth_count(np.clip(self.timings.took_s, middle_s - 5.0 * noise_s, middle_s + 5.0 * noise_s))

    @property
    def ci_s(self) -> tuple[float, float] | None:
        """Return low and high end of the median's 95 % interval in seconds, autocorrelation included; None if unknown."""
        interval = self.attempt.interval
        return None if interval is None else (interval.low, interval.high)

    @property
    def host_bound(self) -> bool:
        """Return True if the host takes longer to launch a call than the GPU to execute it."""
        return self.issue_s is not None and self.issue_s > self.median_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RateFigures(TimeFigures):
    """The GPU's share, the true clock, the time at another clock, and rates with their share of this GPU's peaks."""

    @property
    def launch_share(self) -> LaunchShare | None:
        """Return the GPU's part of the median; None unless a GPU timer took the times."""
        timings, attempt = self.timings, self.attempt
        if self.timer not in GPU_TIMERS or attempt.issue_s is None:
            return None
        gaps_s = np.diff(timings.at_ns) / 1e9 - timings.took_s[:-1] * self.calls_count
        return launch_share(
            self.median_s,
            self.timer_overhead_s / self.calls_count,
            self.count * self.calls_count,
            starved_ratio=attempt.starved_ratio,
            issue_s=attempt.issue_s,
            gap_s=float(np.median(gaps_s)) if len(gaps_s) else None,
        )

    @property
    def clock_mhz(self) -> float | None:
        """Return the true mean SM clock while the calls ran, in MHz; None without stamps."""
        mhz, took_s = self.timings.sm_clock_mhz, self.timings.took_s
        if mhz is None:
            return None
        seen = np.isfinite(mhz) & (took_s > 0)  # an entry without length has no weight in the mean
        return float(np.average(mhz[seen], weights=took_s[seen])) if seen.any() else None

    @property
    def clock_sensitivity(self) -> Sensitivity | NoFit:
        """Return the dependence of the time on the true clock, or a ``NoFit`` with the reason for its absence."""
        if self.timings.sm_clock_mhz is None:
            return NoFit("no true clock was stamped")
        return sensitivity(self.timings)

    def at_clock(self, mhz: float) -> Corrected | NoFit:
        """Return the time at a stated clock with the measured time.

        Args:
            mhz: SM clock in MHz.

        Returns:
            A ``Corrected`` with both times in seconds, or a ``NoFit`` with the reason why a correction would mislead.

        Raises nothing.

        Example:
            >>> measured.at_clock(1500).reason
            'no true clock was stamped'
        """
        found = self.clock_sensitivity
        return found if isinstance(found, NoFit) else found.at_clock(self.timings, mhz)

    @property
    def flops_per_s(self) -> float | None:
        """Return floating-point operations per second at the median; None if ``flops`` was not given or the median is 0."""
        return self.call_flops_count / self.median_s if self.call_flops_count and self.median_s else None

    @property
    def bytes_per_s(self) -> float | None:
        """Return bytes per second at the median; None if ``bytes`` was not given or the median is 0."""
        return self.call_bytes / self.median_s if self.call_bytes and self.median_s else None

    @property
    def flops_peak_ratio(self) -> float | None:
        """Return the ratio of the rate to this GPU's peak in this data type at the true clock; None if one is unknown."""
        rate, clock = self.flops_per_s, self.clock_mhz
        if rate is None or clock is None or self.device is None or self.dtype is None:
            return None
        peak = roofline.peak_flops(self.device, self.dtype, clock)
        return rate / peak if peak else None

    @property
    def bytes_peak_ratio(self) -> float | None:
        """Return the ratio of the rate to the peak of this GPU's memory; None if one is unknown."""
        rate = self.bytes_per_s
        peak = roofline.peak_bytes_a_second(self.device) if self.device else None
        return rate / peak if rate and peak else None
