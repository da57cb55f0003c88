"""More honest windows of ordinary use, off by less than 0.3 %, that a judge might flag or reject."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import Ownership, Pause, Reason
from tests.proof.fooling_stage import WORK, Attempt, Edit, Setting, act, beside, listed
from tests.proof.fooling_table import Entry, honest
from tests.proof.stored import EPOCH_NS
from tests.proof.streams import Iterations
from tests.proof.testified import Variant

_EVER_S = 1e3


def capped_product_timed() -> Attempt:
    """Products of 4096³, 6 µs apart, warm and capped, are timed by events without stamps (no cuda-bindings)."""
    found = act(Setting(work=WORK["gemm"], variant=Variant.TIMES))
    return Attempt(evidence=found.evidence(), truth=found.truth)


def capped_attention_timed() -> Attempt:
    """Attention under the cap is timed by events without stamps: the clock's own cycle of 1 s widens the times."""
    found = act(Setting(work=WORK["attention"], variant=Variant.TIMES))
    return Attempt(evidence=found.evidence(), truth=found.truth)


def capped_large_product_timed() -> Attempt:
    """Products of 13 ms under the cap are timed by events without stamps: about 300 times in 4 s."""
    found = act(Setting(work=WORK["large gemm"], variant=Variant.TIMES))
    return Attempt(evidence=found.evidence(), truth=found.truth)


def steps_of_two_phases_timed() -> Attempt:
    """A server runs steps of 0.7 s, half capped and half uncapped, timed by step: nine equal times."""
    phases = tuple(
        edit
        for i in range(-9, 13)
        for edit in (
            Edit(begin_s=0.7 * i, end_s=0.7 * i + 0.35, level="load", value=0.35),
            Edit(begin_s=0.7 * i, end_s=0.7 * i + 0.35, level="slower", value=1.3),
        )
    )
    found = act(Setting(work=WORK["attention"], length_s=6.31, variant=Variant.TIMES), (), phases)

    def by_step(ran: Iterations) -> Iterations:
        first = np.unique(np.searchsorted(ran.begin_s, ran.window_begin_s + 0.7 * np.arange(10)))
        begin_s = ran.begin_s[first[:-1]]
        ends_s = (ran.begin_s + ran.took_s)[first[1:] - 1]
        return replace(ran, begin_s=begin_s, took_s=ends_s - begin_s, clock_mhz=ran.clock_mhz[first[:-1]])

    return Attempt(evidence=found.reporting(by_step), truth=found.truth)


def neighbour_gone_before() -> Attempt:
    """Another user's process left the GPU 1.5 s before the window began."""
    found = act(Setting(work=WORK["copy"], variant=Variant.TIMES))
    return Attempt(evidence=listed(found.evidence(), beside(lambda at_s: 0.0, end_s=-1.5)), truth=found.truth)


def metronome() -> Attempt:
    """A loop repeats equal work at a constant clock: nearly all times are the same tick of the events' clock."""
    base = WORK["fp32 gemm"]
    work = replace(base, kernel=replace(base.kernel, noise_ratio=0.0), gap_noise_ratio=0.0, outliers_ratio=0.0)
    found = act(Setting(work=work, variant=Variant.STAMPED))
    return Attempt(evidence=found.evidence(), truth=found.truth)


def lock_nobody_mentions() -> Attempt:
    """A data centre locks its cards at 1410 MHz for reproducible numbers; the claim is sustained, and no lock is declared."""
    always = (
        Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="clock", value=1410.0 / 1978.0),
        Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="reasons_mask", value=float(Reason.APPLICATIONS_CLOCKS)),
    )
    found = act(Setting(work=WORK["fp32 gemm"], variant=Variant.TIMES), (), always)
    return Attempt(evidence=found.evidence(), truth=found.truth)


def short_collection() -> Attempt:
    """Python's garbage collector stops the loop for 12 ms of 6 s (0.2 %), and the collector's record names the pause."""
    setting = Setting(work=WORK["attention"], length_s=6.0, variant=Variant.STAMPED)
    found = act(setting, [Edit(begin_s=2.0, end_s=2.012, level="working", value=0.0)])
    at_ns = EPOCH_NS + round((setting.design.plan.begin_s + 2.0) * 1e9)
    pause = Pause(begin_ns=at_ns - 10_000_000, end_ns=at_ns + 12_000_000, cause="collector")
    return Attempt(evidence=replace(found.evidence(), pauses=(pause,)), truth=found.truth)


def two_minutes_capped() -> Attempt:
    """Training runs under the cap for a plain window of 120 s: heat and the power controller change the clock slightly."""
    found = act(Setting(work=WORK["training"], length_s=120.0))
    return Attempt(evidence=found.evidence(), truth=found.truth)


def idle_children() -> Attempt:
    """Eight workers of the benchmark hold a context each on the GPU and compute nothing."""
    found = act(Setting(work=WORK["fp32 gemm"], variant=Variant.TIMES))
    evidence = found.evidence()
    for pid in range(4300, 4308):
        evidence = listed(evidence, beside(lambda at_s: 0.0, ownership=Ownership.OWN, pid=pid, memory_bytes=520_000_000))
    pids = frozenset({4242, *range(4300, 4308)})
    return Attempt(evidence=replace(evidence, window=replace(evidence.window, pids=pids)), truth=found.truth)


def short_and_small() -> Attempt:
    """Kernels of 62 µs with gaps of 28 µs for each launch are timed for 1.2 s."""
    found = act(Setting(work=WORK["small launches"], length_s=1.2, variant=Variant.TIMES))
    return Attempt(evidence=found.evidence(), truth=found.truth)


ENTRIES: tuple[Entry, ...] = (
    honest(capped_product_timed, "capped 4096³ products, events, no stamps"),
    honest(capped_attention_timed, "capped attention, events, no stamps"),
    honest(capped_large_product_timed, "capped 16384³ products, events, no stamps"),
    honest(steps_of_two_phases_timed, "nine equal steps, each of two phases"),
    honest(neighbour_gone_before, "a neighbour that left before the window"),
    honest(metronome, "times nearly all equal"),
    honest(lock_nobody_mentions, "a lock at 1410 MHz, undeclared, sustained"),
    honest(short_collection, "12 ms of garbage collection in 6 s"),
    honest(two_minutes_capped, "120 s of capped training, plain"),
    honest(idle_children, "eight idle contexts of the benchmark's workers"),
    honest(
        short_and_small,
        "1.2 s of small launches",
        limit="the expectation is wrong.  If the GPU waits for a launch, the events around the kernel include part of the launch: on an H200 "
        "a kernel of 56.9 µs, launched every 91 µs, read 63.2 µs, 11 % too long (2026-11-22).  The simulated events read the kernel alone. "
        " A launch-bound time beyond the tolerance is flagged.",
    ),
)
