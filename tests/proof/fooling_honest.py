"""Honest windows, off by less than 0.3 %, that a judge might flag or reject."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import OtherWork, ProcessList, Reason
from tests.proof.chance import generator
from tests.proof.fooling_stage import (
    WORK,
    Attempt,
    Edit,
    Setting,
    act,
    beside,
    column,
    declaring,
    device,
    inside_namespace,
    listed,
    recorded,
    silent,
    sparse,
    without,
)
from tests.proof.fooling_table import NOT_ACCUSED, Entry, honest
from tests.proof.stored import EPOCH_NS
from tests.proof.streams import Iterations, times_ns
from tests.proof.testified import Variant

_EVER_S = 1e3


def copies_from_the_host() -> Attempt:
    """A benchmark copies pinned memory: the copy engines always work, and no kernel runs.

    Power is 182 W (123 W when idle), utilisation reads 2 %, and SM activity 0.
    """
    always = (
        Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="copies", value=1.0),
        Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="working", value=1.0),
        Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="load", value=0.0),
    )
    base = WORK["copy"]
    # 64 MiB at 55 GB/s; the meters count kernels, and no kernel runs.
    kernel = replace(
        base.kernel, name="copy from the host", time_s=1.22e-3, sm_activity_ratio=0.0, occupancy_ratio=0.0, noise_ratio=0.0008,
        utilization_ratio=0.0, mem_utilization_ratio=0.02, dram_activity_ratio=0.01, tensor_activity_ratio=0.0,
    )  # fmt: skip
    found = act(Setting(work=replace(base, kernel=kernel), variant=Variant.TIMES), (), always)

    def unused(at_s: float, seen: ProcessList) -> ProcessList:
        used = tuple(replace(p, utilization_ratio=None if p.utilization_ratio is None else 0.0) for p in seen.processes)
        return replace(seen, processes=used)

    return Attempt(evidence=listed(found.evidence(), unused), truth=found.truth)


def prefill_and_decode() -> Attempt:
    """A server runs eight steps of 0.7 s, half capped (prefill) and half uncapped (decoding), in a plain window.

    Clock and power change by design, equally in every step.
    """
    phases = tuple(
        edit
        for i in range(-9, 13)
        for edit in (
            Edit(begin_s=0.7 * i, end_s=0.7 * i + 0.35, level="load", value=0.35),
            Edit(begin_s=0.7 * i, end_s=0.7 * i + 0.35, level="slower", value=1.3),
        )
    )
    found = act(Setting(work=WORK["attention"], length_s=5.6), (), phases)
    return Attempt(evidence=found.evidence(), truth=found.truth)


def three_long_calls() -> Attempt:
    """A solver makes three calls of 1.9 s: warm, uncapped, back to back, timed by events."""
    base = WORK["fp32 gemm"]
    work = replace(base, kernel=replace(base.kernel, time_s=1.9))
    found = act(Setting(work=work, variant=Variant.TIMES, length_s=5.0))
    return Attempt(evidence=found.evidence(), truth=found.truth)


def bucketed_lengths() -> Attempt:
    """Training steps have four batch lengths in random order, with factors from 0.8 to 1.2, under ``varies=True``."""
    found = act(Setting(work=WORK["decoding"], variant=Variant.TIMES, length_s=8.0))

    def change(ran: Iterations) -> Iterations:
        factor = generator(6, "buckets").permutation(np.resize([0.8, 0.95, 1.05, 1.2], ran.count))
        gaps_s = np.diff(ran.begin_s) - ran.took_s[:-1]
        took_s = ran.took_s * factor
        begin_s = ran.begin_s[0] + np.concatenate([[0.0], np.cumsum(took_s[:-1] + gaps_s)])
        kept = begin_s + took_s < ran.window_end_s
        return replace(ran, begin_s=begin_s[kept], took_s=took_s[kept], clock_mhz=ran.clock_mhz[kept])

    return Attempt(evidence=declaring(found.reporting(change), varies=True), truth=found.truth)


def neighbour_that_holds_memory() -> Attempt:
    """Another user's idle notebook holds 40 GB; the number agrees with this card's record of the work."""
    found = act(Setting(work=WORK["softmax"], variant=Variant.STAMPED))
    evidence = listed(found.evidence(), beside(lambda at_s: 0.0, name="jupyter", memory_bytes=40_000_000_000))
    evidence = column(evidence, "memory_used_bytes", lambda at_ns, used: used + 40e9)
    return Attempt(evidence=replace(evidence, record=recorded(found, power_w=528.0, clock_mhz=1976.0)), truth=found.truth)


def alone_in_a_container() -> Attempt:
    """A container has no process list; the utilisation record names one PID, the host's PID of the window's own process."""
    found = act(Setting(work=WORK["gemm"], variant=Variant.STAMPED))
    return Attempt(evidence=listed(found.evidence(), inside_namespace), truth=found.truth)


def first_window_of_a_daemon() -> Attempt:
    """The daemon starts 0.2 s before the window and the work long before; the power record reaches 2.36 s further back."""
    found = act(Setting(work=WORK["copy"], length_s=6.0))
    evidence = found.evidence()
    first_ns = evidence.window.begin_ns - 200_000_000
    columns = {name: each.where(each.at_ns >= first_ns) for name, each in evidence.trace.columns.items()}
    trace = evidence.trace
    lists = tuple(each for each in trace.process_lists if each.at_ns >= first_ns)
    power = trace.dense_power.where(trace.dense_power.at_ns >= first_ns - 2_360_000_000)
    trace = replace(trace, columns=columns, process_lists=lists, dense_power=power)
    return Attempt(evidence=replace(evidence, trace=trace), truth=found.truth)


def just_below_the_limit() -> Attempt:
    """A kernel draws 650 W of 700 W without a cap, right after a rest of 1 s; the clock reaches its level at once."""
    base = WORK["copy"]
    work = replace(base, kernel=replace(base.kernel, dynamic_w=528.0))
    found = act(Setting(work=work), (), [Edit(begin_s=-1.0, end_s=-0.01, level="working", value=0.0)])
    return Attempt(evidence=found.evidence(), truth=found.truth)


def thirty_frames_a_second() -> Attempt:
    """Inference for a camera works 11 ms and waits for the next frame, with ``every=`` declared and burst claimed."""
    found = act(Setting(work=WORK["sleeps between"], variant=Variant.TIMES, length_s=6.0))
    period_s = float(np.median(np.diff(found.ran.iterations.begin_s)))
    return Attempt(evidence=declaring(found.evidence(), every_s=round(period_s, 4)), truth=found.truth, claim="burst")


def flushes_declared() -> Attempt:
    """A harness writes 120 MiB between calls to empty the cache and declares each flush: a fifth of the busy time."""
    base = WORK["softmax"]
    whole = replace(base, kernel=replace(base.kernel, time_s=base.kernel.time_s * 1.25))
    found = act(Setting(work=whole, variant=Variant.TIMES))
    ran = found.ran.iterations
    flush_s = ran.took_s * 0.2
    other = OtherWork(times_ns(ran.begin_s, EPOCH_NS), flush_s - 3e-6, ("flush",) * ran.count)
    evidence = found.reporting(lambda each: replace(each, begin_s=each.begin_s + flush_s, took_s=each.took_s - flush_s))
    return Attempt(
        evidence=declaring(replace(evidence, other_work=other), cache="cold", flush_bytes=125_829_120), truth=found.truth
    )


def routed_experts() -> Attempt:
    """The step times of a mixture of experts are lognormal with 15 %, by the tokens' routes, without a disturbance."""
    found = act(Setting(work=WORK["decoding"], variant=Variant.TIMES, length_s=20.0))

    def change(ran: Iterations) -> Iterations:
        factor = np.exp(0.15 * generator(9, "routes").standard_normal(ran.count) - 0.01125)
        took_s = ran.took_s * factor
        gaps_s = np.diff(ran.begin_s) - ran.took_s[:-1]
        begin_s = ran.begin_s[0] + np.concatenate([[0.0], np.cumsum(took_s[:-1] + gaps_s)])
        kept = begin_s + took_s < ran.window_end_s
        return replace(ran, begin_s=begin_s[kept], took_s=took_s[kept], clock_mhz=ran.clock_mhz[kept])

    return Attempt(evidence=found.reporting(change), truth=found.truth)


def two_minutes_seldom_read() -> Attempt:
    """A daemon reads 120 s of steady decoding once a second and misses 0.25 s."""
    found = act(Setting(work=WORK["decoding"], length_s=120.0))
    return Attempt(evidence=silent(sparse(found.evidence(), 1.0), [(70.0, 70.25)], gaps=True), truth=found.truth)


def old_card() -> Attempt:
    """A T4-like card, without GPM, dense power, reason counters and energy, runs steady fp32 work alone."""
    found = act(Setting(work=WORK["fp32 gemm"], stamped=False))
    hidden = (
        "sm_activity_ratio", "sm_occupancy_ratio", "tensor_activity_ratio", "dram_activity_ratio", "dense_power", "power_cap_ns",
        "sync_boost_ns", "sw_thermal_ns", "hw_thermal_ns", "power_brake_ns", "energy_j", "power_violation_ns", "power_w",
        "thermal_violation_ns", "memory_temperature_c", "temperature_margin_c",
    )  # fmt: skip
    evidence = without(device(found.evidence(), name="Tesla T4", architecture="turing"), *hidden)
    return Attempt(evidence=evidence, truth=found.truth)


def locked_and_held() -> Attempt:
    """A declared and claimed clock lock at 1500 MHz holds: every stamp confirms it, and power is far below the limit."""
    always = (
        Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="clock", value=1500.0 / 1978.0),
        Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="reasons_mask", value=float(Reason.APPLICATIONS_CLOCKS)),
    )
    found = act(Setting(work=WORK["fp32 gemm"], variant=Variant.STAMPED), (), always)
    return Attempt(evidence=declaring(found.evidence(), locked_mhz=1500.0), truth=found.truth, claim="fixed-clock")


def hot_but_not_throttled() -> Attempt:
    """A card in a warm aisle runs at 80 °C, below every thermal limit: no counted thermal time, clock at the maximum."""
    found = act(
        Setting(work=WORK["fp32 gemm"], variant=Variant.STAMPED, warm_s=12.0), (), [Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="air_c", value=27.0)]
    )  # fmt: skip
    return Attempt(evidence=found.evidence(), truth=found.truth)


def lower_limit_by_choice() -> Attempt:
    """A data centre always runs its cards at 500 W: a stamped, capped, warm window that agrees with this card's record."""
    found = act(
        Setting(work=WORK["attention"], variant=Variant.STAMPED), (), [Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="power_limit_w", value=500.0)]
    )  # fmt: skip
    mhz = float(np.mean(found.ran.iterations.clock_mhz))
    evidence = device(found.evidence(), power_limit_w=500.0)
    return Attempt(evidence=replace(evidence, record=recorded(found, power_w=491.0, clock_mhz=mhz)), truth=found.truth)


def briefly_dark_but_timed() -> Attempt:
    """The watcher loses 0.12 s of 4 s; the power record, fetched later, and stamped iterations cover the gap."""
    found = act(Setting(work=WORK["fp32 gemm"], variant=Variant.STAMPED))
    return Attempt(evidence=silent(found.evidence(), [(2.0, 2.12)], gaps=True), truth=found.truth)


def short_window_of_copies() -> Attempt:
    """An uncapped, warm, memory-bound loop is timed for 1.2 s."""
    found = act(Setting(work=WORK["softmax"], variant=Variant.TIMES, length_s=1.2))
    return Attempt(evidence=found.evidence(), truth=found.truth)


def alone_on_an_instance() -> Attempt:
    """A MIG instance has empty siblings; MIG reports no utilisation, and the list names the own process."""
    found = act(Setting(work=WORK["fp32 gemm"], variant=Variant.TIMES))
    evidence = device(found.evidence(), name="NVIDIA H200 MIG 3g.71gb", mig_mode=True, parent_uuid="GPU-parent")
    evidence = column(evidence, "mig_mode", lambda at_ns, mode: np.ones_like(mode))
    return Attempt(evidence=without(evidence, "utilization_ratio", "mem_utilization_ratio"), truth=found.truth)


ENTRIES: tuple[Entry, ...] = (
    honest(copies_from_the_host, "copy engines only, no kernel", fair=NOT_ACCUSED),
    honest(prefill_and_decode, "two phases of 0.35 s by design"),
    honest(three_long_calls, "three calls of 1.9 s", fair=NOT_ACCUSED),
    honest(bucketed_lengths, "four lengths in random order, varies=True"),
    honest(neighbour_that_holds_memory, "a neighbour that only holds memory, with a record"),
    honest(alone_in_a_container, "no list, one unknown PID, which is the measured process"),
    honest(first_window_of_a_daemon, "readings start 0.2 s before the window, power earlier"),
    honest(just_below_the_limit, "93 % of the limit, never capped"),
    honest(thirty_frames_a_second, "regular waits, declared, burst"),
    honest(flushes_declared, "declared flushes for a fifth of the busy time"),
    honest(routed_experts, "15 % of natural noise, 20 s"),
    honest(two_minutes_seldom_read, "120 s read at 1 Hz, 0.25 s unobserved"),
    honest(old_card, "an old card with few counters", fair=NOT_ACCUSED),
    honest(locked_and_held, "a lock that held"),
    honest(hot_but_not_throttled, "80 °C, nothing throttled"),
    honest(lower_limit_by_choice, "500 W limit, as in the record"),
    honest(briefly_dark_but_timed, "0.12 s unobserved, power and stamps continuous"),
    honest(short_window_of_copies, "1.2 s, uncapped, warm"),
    # Invisible siblings may share the board's power, so a flag for sharing is also fair.
    honest(alone_on_an_instance, "MIG, siblings empty", fair=("valid", "unproven", "flagged")),
)
