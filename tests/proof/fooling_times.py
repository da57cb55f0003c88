"""Windows with wrong times, from a cheat or a mistake, meant to be called valid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import OtherWork, Values
from tests.proof.chance import generator
from tests.proof.fooling_stage import WORK, Attempt, Edit, Setting, act, batches, declaring
from tests.proof.fooling_table import Entry, off
from tests.proof.stored import EPOCH_NS
from tests.proof.streams import Iterations, times_ns
from tests.proof.testified import Variant
from tests.proof.workloads import Workload

_EVER_S = 1e3


def untimed_tail() -> Attempt:
    """The last 3 % of each call, a reduction, runs on a second stream after the event that ends the time.

    Truth: mean 3 % short.  The GPU is busy during the reduction.  The events are right for the first stream.
    """
    found = act(Setting(work=WORK["large gemm"], variant=Variant.STAMPED))
    evidence = found.reporting(lambda ran: replace(ran, took_s=ran.took_s * 0.97))
    return Attempt(evidence=evidence, truth={"mean": -0.03, "median": -0.03})


def stall_declared_as_check() -> Attempt:
    """The loop waits 0.3 s for a lock and declares the wait as a check of the results: ``w.other_work("check")``.

    Truth: throughput 7 % low.  The board idles at 123 W during the wait, so no check ran.
    """
    setting = Setting(work=WORK["gemm"], variant=Variant.STAMPED)
    found = act(setting, [Edit(begin_s=1.5, end_s=1.8, level="working", value=0.0)])
    at_s = setting.design.plan.begin_s + 1.5
    check = OtherWork(times_ns(np.array([at_s]), EPOCH_NS), np.array([0.2995]), ("check",))
    return Attempt(evidence=replace(found.evidence(), other_work=check), truth=found.truth)


def untimed_autotuning() -> Attempt:
    """A library tries algorithms for 0.35 s between two calls; the algorithms' kernels keep the GPU equally busy.

    Truth: throughput 9 % low.  The gap lies between two times, and power and utilisation hardly change.
    """
    found = act(
        Setting(work=WORK["attention"], variant=Variant.TIMES), [Edit(begin_s=2.0, end_s=2.35, level="slower", value=1e6)]
    )

    def change(ran: Iterations) -> Iterations:
        longest = int(np.argmax(ran.took_s))
        begin_s, took_s = ran.begin_s.copy(), ran.took_s.copy()
        begin_s[longest] += took_s[longest] - took_s[longest - 1]
        took_s[longest] = took_s[longest - 1]
        return replace(ran, begin_s=begin_s, took_s=took_s)

    return Attempt(evidence=found.reporting(change), truth={"throughput": found.truth["throughput"]})


def deep_queue() -> Attempt:
    """The host's clock times launches without synchronisation; launches wait only while the queue of 1000 is full.

    Truth: a twentieth of the counted calls had not run when the window ended, so throughput is 5 % high and the mean 5 % short.  The
    GPU works for 0.2 s after the end.  Only the first entry of 1000 calls looks wrong.
    """
    setting = Setting(work=WORK["gemm"], variant=Variant.TIMES, stamped=False)
    found = act(setting, (), [Edit(begin_s=0.0, end_s=4.2, level="working", value=1.0)])
    ahead = 1000

    def change(ran: Iterations) -> Iterations:
        first_s = ran.begin_s[0] + 5e-6 * np.arange(ahead)
        rest_s = np.maximum(ran.begin_s, first_s[-1] + 5e-6)
        begin_s = np.concatenate([first_s, rest_s])
        took_s = np.diff(np.concatenate([begin_s, [ran.window_end_s - 1e-5]]))
        clock_mhz = np.concatenate([ran.clock_mhz[:ahead], ran.clock_mhz])
        return replace(ran, begin_s=begin_s, took_s=np.maximum(took_s, 4e-6), clock_mhz=clock_mhz)

    evidence = found.reporting(change)
    share = ahead / found.ran.iterations.count
    evidence = replace(evidence, timings=batches(evidence.timings, ahead))
    evidence = declaring(evidence, timer="caller", sync_s=None)
    return Attempt(evidence=evidence, truth={"throughput": share, "mean": -share / (1.0 + share)})


def forged_stamps() -> Attempt:
    """The claim is a fixed clock of 1500 MHz, and the process reports forged stamps of 1500 MHz; the GPU runs at 1978 MHz.

    Truth: mean about 23 % short of the time at 1500 MHz.  NVML's clock reads 1980 MHz.
    """
    found = act(Setting(work=WORK["fp32 gemm"], variant=Variant.STAMPED))

    def change(ran: Iterations) -> Iterations:
        return replace(ran, clock_mhz=1500.0 + 0.4 * generator(1, "forged").standard_normal(ran.count))

    evidence = declaring(found.reporting(change), locked_mhz=1500.0, true_clock_mhz=1500.2)
    short = 1.0 - (1500.0 / 1978.0) ** 0.94
    return Attempt(evidence=evidence, truth={"mean": -short, "median": -short}, claim="fixed-clock")


def period_not_kept() -> Attempt:
    """The loop declares a call every 31 ms but makes one every 45 ms, because its sleep ignores the time of the work.

    Truth: throughput 31 % below the declared rate.
    """
    work = replace(WORK["sleeps between"], gap_s=34e-3)
    found = act(Setting(work=work, variant=Variant.TIMES))
    return Attempt(evidence=declaring(found.evidence(), every_s=0.031), truth={"throughput": -0.31})


def stalls_called_a_period() -> Attempt:
    """The loop stalls forty times at random, for 5 to 20 ms, and declares ``every=0.02`` as an excuse.

    Truth: throughput 12 % low.  Outside the stalls, calls of 0.5 ms follow each other, about 6 µs apart and without a period.
    """
    rng = generator(13, "excused")
    begins_s = np.sort(rng.uniform(0.05, 3.9, 40))
    stalls = [
        Edit(begin_s=float(at_s), end_s=float(at_s + rng.uniform(0.005, 0.02)), level="working", value=0.0) for at_s in begins_s
    ]
    found = act(Setting(work=WORK["copy"], variant=Variant.TIMES), stalls)
    return Attempt(evidence=declaring(found.evidence(), every_s=0.02), truth=found.truth)


def slow_steps_left_out() -> Attempt:
    """A harness drops durations that are 15 % longer than the median before it reports the others.

    Truth: the mean of all steps is 3 % longer.  The sixteen slow spells take 12 % of the time and are missing from the report.
    """
    rng = generator(31, "slow steps")
    begins_s = 0.1 + 0.24 * np.arange(16) + rng.uniform(0.0, 0.2, 16)
    slow = [Edit(begin_s=float(at_s), end_s=float(at_s) + 0.03, level="slower", value=1.4) for at_s in begins_s]
    found = act(Setting(work=WORK["decoding"], variant=Variant.DURATIONS), slow)

    def change(ran: Iterations) -> Iterations:
        kept = ran.took_s < 1.15 * np.median(ran.took_s)
        return replace(ran, begin_s=ran.begin_s[kept], took_s=ran.took_s[kept], clock_mhz=ran.clock_mhz[kept])

    true_s = float(found.ran.iterations.took_s.mean())
    reported = change(found.ran.iterations)
    truth = {
        "mean": float(reported.took_s.mean()) / true_s - 1.0,
        "throughput": reported.count / found.ran.iterations.count - 1.0,
    }
    return Attempt(evidence=found.reporting(change), truth=truth)


def counted_twice() -> Attempt:
    """A retry reports a tenth of the durations twice.

    Truth: throughput 10 % high.  The list has more calls than ran, and its durations add up to 110 % of the window.
    """
    found = act(Setting(work=WORK["fp32 gemm"], variant=Variant.DURATIONS))

    def change(ran: Iterations) -> Iterations:
        again = np.sort(np.concatenate([np.arange(ran.count), np.arange(0, ran.count, 10)]))
        return replace(ran, begin_s=ran.begin_s[again], took_s=ran.took_s[again], clock_mhz=ran.clock_mhz[again])

    return Attempt(evidence=found.reporting(change), truth={"throughput": 0.1})


def overlapping_calls() -> Attempt:
    """Two streams take turns, and each call's events include 90 % of the next call: times overlap.

    Truth: the reported mean is 90 % above the mean time of a call.
    """
    found = act(Setting(work=WORK["convolution"], variant=Variant.TIMES))
    evidence = found.reporting(lambda ran: replace(ran, took_s=ran.took_s * 1.9))
    return Attempt(evidence=evidence, truth={"mean": 0.9, "median": 0.9})


def coarse_tick() -> Attempt:
    """A virtual machine's clock ticks every 15.6 ms: calls of 20 ms read one tick or two.

    Truth: the reported median is 22 % short, and the mean is right.  The claim is burst.
    """
    base = WORK["decoding"]
    work = replace(base, kernel=replace(base.kernel, time_s=20.0e-3))
    found = act(Setting(work=work, variant=Variant.TIMES, length_s=6.0, stamped=False))
    tick_s = 15.6e-3

    def change(ran: Iterations) -> Iterations:
        ends_s = np.floor((ran.begin_s + ran.took_s) / tick_s) * tick_s
        begin_s = np.floor(ran.begin_s / tick_s) * tick_s
        begin_s[0] = max(begin_s[0], ran.window_begin_s)
        return replace(ran, begin_s=begin_s, took_s=np.maximum(ends_s - begin_s, 1e-6))

    evidence = declaring(found.reporting(change), timer="host")
    return Attempt(evidence=evidence, truth={"median": 15.6 / 20.0 - 1.0, "mean": 0.0}, claim="burst")


def _tiny() -> Workload:
    base = WORK["small launches"]
    return replace(base, kernel=replace(base.kernel, time_s=12.0e-6, noise_ratio=0.01), gap_s=9.0e-6)


def tiny_kernel_between_events() -> Attempt:
    """Events around a kernel of 12 µs read 3 µs too long, and the overhead of empty events was not measured.

    Truth: mean 25 % long.  The utilisation of 51 % covers the kernel alone.
    """
    found = act(Setting(work=_tiny(), variant=Variant.TIMES, length_s=2.0, stamped=False))

    def change(ran: Iterations) -> Iterations:
        return replace(ran, begin_s=ran.begin_s - 1.5e-6, took_s=ran.took_s + 3.0e-6)

    return Attempt(evidence=found.reporting(change), truth={"mean": 0.25, "median": 0.25})


def flush_that_was_the_work() -> Attempt:
    """The loop declares the first sixth of each call as a flush: ``w.other_work("flush")``.

    Truth: mean 17 % short.  The books balance.  The declared flush takes the missing time, and the declared cache is warm.
    """
    found = act(Setting(work=WORK["attention"], variant=Variant.TIMES))
    ran = found.ran.iterations
    first_s: Values = ran.took_s / 6
    flush = OtherWork(times_ns(ran.begin_s, EPOCH_NS), first_s - 2e-6, ("flush",) * ran.count)
    evidence = found.reporting(lambda each: replace(each, begin_s=each.begin_s + first_s, took_s=each.took_s - first_s))
    evidence = declaring(replace(evidence, other_work=flush), cache="warm")
    return Attempt(evidence=evidence, truth={"mean": -1 / 6, "median": -1 / 6})


def forged_regular_times() -> Attempt:
    """The process reports invented durations, equal to 0.01 %, that add up to the busy time of the window.

    Truth: the clock was 12 % lower for a third of the window.  The reported mean is that of the disturbed run, and the reported
    median is 3 to 4 % long.
    """
    found = act(
        Setting(work=WORK["fp32 gemm"], variant=Variant.DURATIONS), [Edit(begin_s=1.3, end_s=2.6, level="clock", value=0.88)]
    )

    def change(ran: Iterations) -> Iterations:
        noise = 1.0 + 1e-4 * generator(4, "invented").standard_normal(ran.count)
        return replace(ran, took_s=float(ran.took_s.mean()) * noise)

    return Attempt(
        evidence=found.reporting(change), truth={"mean": found.truth["mean"], "throughput": found.truth["throughput"]}
    )


ENTRIES: tuple[Entry, ...] = (
    off(untimed_tail, "3 % of each call after the last event", "mean"),
    off(stall_declared_as_check, "0.3 s of idleness declared as a check", "throughput"),
    off(untimed_autotuning, "0.35 s of busy autotuning between two timed calls", "throughput"),
    off(deep_queue, "a thousand launches counted before they ran"),
    off(forged_stamps, "forged stamps of 1500 MHz"),
    off(period_not_kept, "every=31 ms declared, 45 ms kept"),
    off(stalls_called_a_period, "forty random stalls under every=0.02", "throughput"),
    off(slow_steps_left_out, "slow steps dropped from the durations", "mean", "throughput"),
    off(counted_twice, "a tenth of the durations reported twice", "throughput"),
    off(overlapping_calls, "overlapping times, each 90 % too long"),
    off(coarse_tick, "clock ticks of 15.6 ms around calls of 20 ms, median 22 % short"),
    off(tiny_kernel_between_events, "events add 3 µs to 12 µs"),
    off(forged_regular_times, "invented durations over a slower third", "throughput"),
    # The evidence cannot expose a forged declaration, so valid is fair by the specification.
    off(flush_that_was_the_work, "a sixth of the work declared as a flush", fair=("valid", "flagged", "rejected", "unproven")),
)
