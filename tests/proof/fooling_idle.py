"""Windows in which the work paused or slowed for part of the time, meant to be called valid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import Times, Values
from tests.proof.chance import generator
from tests.proof.fooling_stage import WORK, Attempt, Edit, Setting, act, column, silent, sparse, without
from tests.proof.fooling_table import Entry, off


def pinpricks() -> Attempt:
    """A data loader starves the loop sixty times at random, for 4 to 9 ms: each pause is shorter than a power sample.

    Truth: throughput 7 % low in a plain window.  The 20 ms power record dips irregularly, and utilisation is lower.
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
    """The hypervisor stops the guest for 0.27 s: launches and the daemon stop, so no reading falls into the stall.

    Truth: throughput 6 % low in a plain window.  The vGPU has no power record.  Every lane lacks readings for 0.28 s.
    """
    found = act(Setting(work=WORK["attention"], stamped=False), [Edit(begin_s=1.7, end_s=1.97, level="working", value=0.0)])
    evidence = silent(without(found.evidence(), "dense_power"), [(1.69, 1.97)], gaps=True)

    def as_counted_after(at_ns: Times, values: Values) -> Values:
        return np.where((at_ns > 1_970_000_000) & (at_ns < 2_180_000_000), values * 0.97, values)

    return Attempt(evidence=column(evidence, "utilization_ratio", as_counted_after), truth=found.truth)


def short_freezes() -> Attempt:
    """All virtual CPUs and the daemon freeze 25 times for 45 ms, too short for a recorded gap.

    Truth: throughput 14 % low in a plain window.  The GPU has no power record.  The 200 ms utilisation reads 75 to 97 %.
    """
    begins_s = np.arange(25) * 0.31 + generator(3, "freezes").uniform(0.02, 0.2, 25)
    stalls = [Edit(begin_s=float(at_s), end_s=float(at_s) + 0.045, level="working", value=0.0) for at_s in begins_s]
    found = act(Setting(work=WORK["copy"], length_s=8.0, stamped=False), stalls)
    evidence = without(found.evidence(), "dense_power")
    return Attempt(evidence=silent(evidence, [(each.begin_s, each.end_s) for each in stalls], gaps=False), truth=found.truth)


def long_window_seldom_read() -> Attempt:
    """A checkpoint stops the loop for 2.6 s of 120 s; the daemon reads once a second and has no power record.

    Truth: throughput 2.2 % low in a plain window.  Two or three of 120 rows show an idle GPU.
    """
    found = act(Setting(work=WORK["decoding"], length_s=120.0), [Edit(begin_s=61.0, end_s=63.6, level="working", value=0.0)])
    return Attempt(evidence=sparse(without(found.evidence(), "dense_power"), 1.0), truth=found.truth)


def spinning_megakernel() -> Attempt:
    """A persistent kernel polls for work and spins during a host stall of 0.35 s; every meter reports a busy GPU.

    Truth: throughput 8 % low in a plain window.  Utilisation and SM activity do not change.  Power falls to about 370 W.
    """
    spinning = (
        Edit(begin_s=2.2, end_s=2.55, level="slower", value=1e6),
        Edit(begin_s=2.2, end_s=2.55, level="load", value=0.3),
    )
    found = act(Setting(work=WORK["large gemm"]), spinning)
    return Attempt(evidence=found.evidence(), truth=found.truth)


def waiting_collectives() -> Attempt:
    """Some training steps wait 20 to 40 ms for a straggling rank at full utilisation, more often in the second half.

    Truth: throughput 9 % low in a plain window.  The power record falls in the waits, and no meter shows idle time.
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
    """A logging thread holds the GIL from time to time: gaps between small launches more than double for 0.4 s each time.

    Truth: throughput 9 % low in a plain window.  The GPU is 63 % busy outside the spells, and 47 % busy at lower power inside.
    """
    rng = generator(8, "spells")
    edits: list[Edit] = []
    for at_s in (0.4 + 1.1 * np.arange(5) + rng.uniform(0.0, 0.4, 5)).tolist():
        edits += [
            Edit(begin_s=at_s, end_s=at_s + 0.4, level="working", value=0.74),
            Edit(
                begin_s=at_s, end_s=at_s + 0.4, level="slower", value=1.55
            ),  # 55 % of the kernel time: a gap of 28 µs grows by 34 µs
        ]
    found = act(Setting(work=WORK["small launches"], length_s=6.0), edits)
    return Attempt(evidence=found.evidence(), truth=found.truth)


def late_start_and_early_end() -> Attempt:
    """A parent opens the window 0.15 s before the worker starts and closes the window 0.12 s after the worker ends.

    Truth: throughput 7 % low in a plain window.  Neither pause lies between two stretches of work in the window.
    """
    setting = Setting(work=WORK["softmax"])
    edges = (
        Edit(begin_s=0.0, end_s=0.15, level="working", value=0.0),
        Edit(begin_s=3.88, end_s=4.2, level="working", value=0.0),
    )
    found = act(setting, edges)
    return Attempt(evidence=found.evidence(), truth=found.truth)


def work_elsewhere_at_the_end() -> Attempt:
    """The loop's last tenth runs on the CPU (an operator without a GPU kernel), with short GPU work in between.

    Truth: throughput 8 % low in a plain window.  The GPU is busy for 2 of every 10 ms in the last tenth.
    """
    edits = [Edit(begin_s=4.5 + 0.01 * i, end_s=4.508 + 0.01 * i, level="working", value=0.0) for i in range(50)]
    found = act(Setting(work=WORK["fp32 gemm"], length_s=5.0), edits)
    return Attempt(evidence=found.evidence(), truth=found.truth)


def no_meter_but_the_mean_of_power() -> Attempt:
    """A cloud's card reports mean power, temperature, memory and clocks only; the loop stalls three times for 0.15 s.

    Truth: throughput 10 % low in a plain window.
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
    off(dark_pause_of_the_machine, "stall of 0.27 s without readings", "throughput"),
    off(short_freezes, "25 stalls of 45 ms, daemon frozen too", "throughput"),
    off(long_window_seldom_read, "2.6 s of 120 s idle, read at 1 Hz", "throughput"),
    off(spinning_megakernel, "0.35 s of spinning at 100 % utilisation", "throughput"),
    off(waiting_collectives, "steps that wait for a straggler at full utilisation", "throughput"),
    off(spells_of_the_interpreter, "launch gaps more than double for 0.4 s at a time", "throughput"),
    off(late_start_and_early_end, "idle 0.15 s at the start and 0.12 s at the end", "throughput"),
    off(work_elsewhere_at_the_end, "GPU busy for only a fifth of the last tenth", "throughput"),
    off(no_meter_but_the_mean_of_power, "three stalls, few meters", "throughput"),
)
