"""Windows of other work than stated (easier data, another GPU, cached results), meant to be called valid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from annotate.evidence import Reason, Times, Values
from tests.proof.chance import generator
from tests.proof.fooling_stage import WORK, Attempt, Edit, Setting, act, batches, column, declaring, recorded
from tests.proof.fooling_table import Entry, off
from tests.proof.streams import Iterations
from tests.proof.testified import Variant

_EVER_S = 1e3


def zeros_throughout() -> Attempt:
    """A leaderboard entry multiplies zeros: the window and the warm-up are cooler and faster.

    Truth: mean 16 % short of this card's record of the same label and program, made with random data.  Power is about 410 W.
    NVML shows 1725 MHz at a true clock of 1564 MHz, with the power cap's reason set during the work.
    """
    setting = Setting(work=WORK["large gemm"], variant=Variant.TIMES)
    found = act(setting, [Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="load", value=0.353)])
    evidence = found.evidence()
    at_work = -(setting.warm_s - 0.1) * 1e9, (setting.length_s + 0.02) * 1e9

    def capped(at_ns: Times, values: Values) -> Values:
        return np.clip(at_ns.astype(np.float64), *at_work) + 6e9

    def while_working(value: float) -> Callable[[Times, Values], Values]:
        return lambda at_ns, values: np.where((at_ns > at_work[0]) & (at_ns < at_work[1]), value, values)

    evidence = column(evidence, "sm_clock_mhz", while_working(1725.0))
    evidence = column(evidence, "event_reasons_mask", while_working(float(Reason.SW_POWER_CAP)))
    evidence = column(column(evidence, "power_cap_ns", capped), "power_violation_ns", capped)
    return Attempt(evidence=replace(evidence, record=recorded(found, power_w=690.0, clock_mhz=1302.0)), truth=found.truth)


def activations_die() -> Attempt:
    """The activations of a network die out: the data becomes easier from step to step, over the whole window.

    Truth: mean 3 to 5 % short of the mean with the first data.  The clock rises for the first 4 s.  The driver reports the power cap throughout.
    """
    drift = [Edit(begin_s=0.1 * i, end_s=0.1 * (i + 1), level="load", value=1.0 - 0.0033 * i) for i in range(61)]
    found = act(Setting(work=WORK["attention"], variant=Variant.TIMES, length_s=6.0), drift)
    return Attempt(evidence=found.evidence(), truth=found.truth)


def times_of_another_gpu() -> Attempt:
    """A process has contexts on two GPUs: another rank keeps this GPU busy, and the times come from the other GPU.

    The readings of this GPU are true, and the number belongs to the other GPU.  The stamps always show 1978 MHz.  NVML's clock of this
    GPU is below 1700 MHz, although NVML reads above the true clock under a cap.
    """
    here = act(Setting(work=WORK["gemm"], variant=Variant.STAMPED))
    there = act(Setting(work=WORK["fp32 gemm"], variant=Variant.STAMPED))
    evidence = replace(here.evidence(), timings=there.evidence().timings)
    uuid = str(evidence.declared["cuda_uuids"])
    evidence = declaring(evidence, cuda_uuids=f"{uuid},GPU-00000000-0000-0000-0000-000000000002", true_clock_mhz=1978.1)
    return Attempt(evidence=evidence)


def memoised() -> Attempt:
    """Inputs repeat, and a wrapper returns early for known inputs: 55 % of the calls do 45 % of a full call's work.

    Truth: mean 30 % and median 55 % short of a full call.  Times, start times and busy time agree; the times have two modes.
    """
    work = WORK["softmax"]
    share = 0.55 * 0.45 + 0.45
    quick = replace(work, kernel=replace(work.kernel, time_s=work.kernel.time_s * share))
    found = act(Setting(work=quick, variant=Variant.TIMES))

    def change(ran: Iterations) -> Iterations:
        seen = generator(2, "memoised").random(ran.count) < 0.55
        took_s = ran.took_s / share * np.where(seen, 0.45, 1.0)
        gaps_s = np.diff(ran.begin_s) - ran.took_s[:-1]
        begin_s = ran.begin_s[0] + np.concatenate([[0.0], np.cumsum(took_s[:-1] + gaps_s)])
        kept = begin_s + took_s < ran.window_end_s - 1e-4
        return replace(ran, begin_s=begin_s[kept], took_s=took_s[kept], clock_mhz=ran.clock_mhz[kept])

    return Attempt(evidence=found.reporting(change), truth={"mean": share - 1.0, "median": -0.55})


def early_exit_in_five_batches() -> Attempt:
    """A solver converges, so each call of the last fifth does 20 % less work; the harness times five batches of about 1 s.

    Truth: mean 5 % short and throughput 5 % high, compared with full calls.  Utilisation, clock and power do not change, so the
    last two entries are the only witnesses.
    """
    setting = Setting(work=WORK["fp32 gemm"], length_s=5.0, variant=Variant.TIMES)
    found = act(setting, [Edit(begin_s=4.0, end_s=_EVER_S, level="slower", value=0.8)])
    evidence = found.evidence()
    each = found.ran.iterations.count // 5  # the few remaining calls are untimed
    return Attempt(evidence=replace(evidence, timings=batches(evidence.timings, each)), truth=found.truth)


def slow_buffers() -> Attempt:
    """Every other iteration uses buffers with rows 4 KiB apart in one channel and takes 8 % longer.

    Truth: mean 4 % above the mean with good buffers, which is in the record of this work.  The two modes strictly alternate.
    """
    work = WORK["copy"]
    setting = Setting(work=work, variant=Variant.TIMES)
    good = act(setting)
    slow = act(replace(setting, work=replace(work, kernel=replace(work.kernel, time_s=work.kernel.time_s * 1.04))))

    def change(ran: Iterations) -> Iterations:
        factor = np.where(np.arange(ran.count) % 2 == 0, 1.0 / 1.04, 1.08 / 1.04)
        took_s = ran.took_s * factor
        gaps_s = np.diff(ran.begin_s) - ran.took_s[:-1]
        begin_s = ran.begin_s[0] + np.concatenate([[0.0], np.cumsum(took_s[:-1] + gaps_s)])
        return replace(ran, begin_s=begin_s, took_s=took_s)

    evidence = replace(slow.reporting(change), record=recorded(good, power_w=561.0, clock_mhz=1976.0))
    return Attempt(evidence=evidence, truth={"throughput": 1 / 1.04 - 1.0, "mean": 0.04})


ENTRIES: tuple[Entry, ...] = (
    off(zeros_throughout, "zeros, mean 16 % below this card's record", "mean"),
    off(activations_die, "data becomes easier throughout", "mean"),
    off(times_of_another_gpu, "times of another GPU"),
    off(memoised, "55 % of calls return early", "mean"),
    off(early_exit_in_five_batches, "a fifth less work in the last of five batches", "throughput", "mean"),
    off(slow_buffers, "every other call on slow buffers, 4 % above the record", "mean"),
)
