"""Windows in which the GPU did not work all the time, meant to be called valid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import Times, Values
from tests.proof.chance import generator
from tests.proof.fooling_stage import WORK, Attempt, Edit, Setting, act, column, silent, sparse, without
from tests.proof.fooling_table import Entry, off


def pinpricks() -> Attempt:
    """Return a loop that a data loader starves sixty times at random, for less than a bin of power each.

    Effect: throughput 5 to 9 % low, without times.  The 20 ms record dips irregularly, and utilisation is slightly lower.
    """
    rng = generator(11, "pinpricks")
    begins_s = np.sort(rng.uniform(0.05, 3.9, 60))
    stalls = [
        Edit(begin_s=float(at_s), end_s=float(at_s + rng.uniform(0.004, 0.009)), level="working", value=0.0)
        for at_s in begins_s
    ]
    found = act(Setting(work=WORK["gemm"]), stalls)
    return Attempt(evidence=found.evidence(), truth=found.truth)


def dark_pause_of_the_machine() -> Attempt:
    """Return a window in which the hypervisor stops the guest for 0.28 s, launches and watcher together.

    Effect: throughput 6 % low, without times.  The vGPU has no power record.  Every lane has a recorded gap.
    """
    found = act(Setting(work=WORK["attention"], stamped=False), [Edit(begin_s=1.7, end_s=1.97, level="working", value=0.0)])
    evidence = silent(without(found.evidence(), "dense_power"), [(1.69, 1.97)], gaps=True)

    def as_counted_after(at_ns: Times, values: Values) -> Values:
        return np.where((at_ns > 1_970_000_000) & (at_ns < 2_180_000_000), values * 0.97, values)

    return Attempt(evidence=column(evidence, "utilization_ratio", as_counted_after), truth=found.truth)


def short_freezes() -> Attempt:
    """Return a window in which all virtual CPUs and the watcher freeze 25 times for 45 ms, too short for a gap.

    Effect: throughput 11 to 14 % low, without times.  There is no power record; the 200 ms utilisation reads 78 to 100 %.
    """
    begins_s = np.arange(25) * 0.31 + generator(3, "freezes").uniform(0.02, 0.2, 25)
    stalls = [Edit(begin_s=float(at_s), end_s=float(at_s) + 0.045, level="working", value=0.0) for at_s in begins_s]
    found = act(Setting(work=WORK["copy"], length_s=8.0, stamped=False), stalls)
    evidence = without(found.evidence(), "dense_power")
    return Attempt(evidence=silent(evidence, [(each.begin_s, each.end_s) for each in stalls], gaps=False), truth=found.truth)


def long_window_seldom_read() -> Attempt:
    """Return a loop that a checkpoint stops for 2.6 s of 120 s, under a daemon that reads once a second.

    Effect: throughput 2.2 % low, without times.  Two or three rows of 120 show an idle GPU; there is no power record.
    """
    found = act(Setting(work=WORK["decoding"], length_s=120.0), [Edit(begin_s=61.0, end_s=63.6, level="working", value=0.0)])
    return Attempt(evidence=sparse(without(found.evidence(), "dense_power"), 1.0), truth=found.truth)


def spinning_megakernel() -> Attempt:
    """Return a persistent kernel that spins while the host stalls for 0.35 s, busy by every meter.

    Effect: throughput 8 % low, without times.  Utilisation and SM activity stay; power falls to about 350 W in between.
    """
    spinning = (
        Edit(begin_s=2.2, end_s=2.55, level="slower", value=1e6),
        Edit(begin_s=2.2, end_s=2.55, level="load", value=0.3),
    )
    found = act(Setting(work=WORK["large gemm"]), spinning)
    return Attempt(evidence=found.evidence(), truth=found.truth)


def waiting_collectives() -> Attempt:
    """Return training steps whose collective waits for a straggler for 20 to 40 ms at full utilisation.

    Effect: throughput 9 % low, without times.  The power record shows lower power in the waits; no meter shows idle time.
    """
    rng = generator(21, "straggler")
    begins_s = np.concatenate([np.sort(rng.uniform(0.2, 3.0, 5)), np.sort(rng.uniform(3.0, 5.8, 13))])
    edits: list[Edit] = []
    for at_s in begins_s.tolist():
        end_s = at_s + float(rng.uniform(0.02, 0.04))
        edits += [
            Edit(begin_s=at_s, end_s=end_s, level="slower", value=1e6),
            Edit(begin_s=at_s, end_s=end_s, level="load", value=0.35),
        ]
    found = act(Setting(work=WORK["training"], length_s=6.0), edits)
    return Attempt(evidence=found.evidence(), truth=found.truth)


def spells_of_the_interpreter() -> Attempt:
    """Return small launches whose gaps double for 0.4 s at a time, while a logging thread holds Python's lock.

    Effect: throughput 10 % low, without times.  The GPU is 63 % busy; during the locks it is 47 % busy and draws less.
    """
    rng = generator(8, "spells")
    edits: list[Edit] = []
    for at_s in (0.4 + 1.1 * np.arange(5) + rng.uniform(0.0, 0.4, 5)).tolist():
        edits += [
            Edit(begin_s=at_s, end_s=at_s + 0.4, level="working", value=0.74),
            Edit(begin_s=at_s, end_s=at_s + 0.4, level="slower", value=1.55),  # in kernel time: a gap of 28 grows by 34 µs
        ]
    found = act(Setting(work=WORK["small launches"], length_s=6.0), edits)
    return Attempt(evidence=found.evidence(), truth=found.truth)


def late_start_and_early_end() -> Attempt:
    """Return a window that a parent process opens 0.15 s before the work and closes 0.12 s after the work.

    Effect: throughput 6 % low, without times.  Neither pause lies between two stretches of work.
    """
    setting = Setting(work=WORK["softmax"])
    edges = (
        Edit(begin_s=0.0, end_s=0.15, level="working", value=0.0),
        Edit(begin_s=3.88, end_s=4.2, level="working", value=0.0),
    )
    found = act(setting, edges)
    return Attempt(evidence=found.evidence(), truth=found.truth)


def work_elsewhere_at_the_end() -> Attempt:
    """Return a loop whose last tenth runs mostly on the CPU, as a fallback of an operator without a kernel.

    Effect: throughput 8 % low, without times.  The GPU is busy for 2 of every 10 ms in that tenth.
    """
    edits = [Edit(begin_s=4.5 + 0.01 * i, end_s=4.508 + 0.01 * i, level="working", value=0.0) for i in range(50)]
    found = act(Setting(work=WORK["fp32 gemm"], length_s=5.0), edits)
    return Attempt(evidence=found.evidence(), truth=found.truth)


def no_meter_but_the_mean_of_power() -> Attempt:
    """Return a loop that stalls three times for 0.15 s on a card that reports mean power, temperature, memory and clocks.

    Effect: throughput 10 % low, without times.
    """
    stalls = [Edit(begin_s=at_s, end_s=at_s + 0.15, level="working", value=0.0) for at_s in (0.8, 1.9, 3.3)]
    found = act(Setting(work=WORK["convolution"], stamped=False), stalls)
    evidence = found.evidence()
    kept = ("power_average_w", "temperature_c", "memory_used_bytes", "sm_clock_mhz", "mem_clock_mhz")
    hidden = [name for name in evidence.trace.columns if name not in kept]
    evidence = without(evidence, *hidden, "dense_power")
    lists = tuple(each for each in evidence.trace.process_lists if all(p.utilization_ratio is None for p in each.processes))
    return Attempt(evidence=replace(evidence, trace=replace(evidence.trace, process_lists=lists)), truth=found.truth)


ENTRIES: tuple[Entry, ...] = (
    off(pinpricks, "sixty stalls of 4 to 9 ms", "throughput"),
    off(dark_pause_of_the_machine, "stall of 0.28 s while the watcher stalled too", "throughput"),
    off(short_freezes, "25 stalls of 45 ms, watcher frozen too", "throughput"),
    off(long_window_seldom_read, "2.6 s of 120 s idle, read at 1 Hz", "throughput"),
    off(spinning_megakernel, "0.35 s of spinning at 100 % utilisation", "throughput"),
    off(waiting_collectives, "steps that wait for a straggler at full utilisation", "throughput"),
    off(spells_of_the_interpreter, "launch gaps double in spells", "throughput"),
    off(late_start_and_early_end, "idle 0.15 s at the start and 0.12 s at the end", "throughput"),
    off(work_elsewhere_at_the_end, "last tenth busy for a fifth", "throughput"),
    off(no_meter_but_the_mean_of_power, "three stalls, few meters", "throughput"),
)
