"""Windows of other work than is said: easier data, another GPU, results kept, meant to be called valid."""

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
    """A leaderboard entry multiplies zeros: the whole window is cooler and faster, like the warm-up before it.

    Truth: mean 16 % short of this card's record of the same label and program, made with random data.  As measured on an
    H200: 415 W, NVML near 1725 MHz, the true clock 1566, and the power cap's reason set nearly all the time.
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
    """A network whose activations die out: its data grows easier from step to step, over the whole window.

    Truth: mean 3 to 5 % short of the first data's.  Power stays at the cap while the clock rises slowly, as it does on zeros.
    """
    drift = [Edit(begin_s=0.1 * i, end_s=0.1 * (i + 1), level="load", value=1.0 - 0.0033 * i) for i in range(61)]
    found = act(Setting(work=WORK["attention"], variant=Variant.TIMES, length_s=6.0), drift)
    return Attempt(evidence=found.evidence(), truth=found.truth)


def times_of_another_gpu() -> Attempt:
    """A process with contexts on two GPUs: this one is kept busy by its other rank, the times come from the other GPU.

    What is said of this GPU is true; the number is not this GPU's.  The stamps show 1978 MHz, all the time, where NVML's
    clock of this GPU, which reads above the true one under a cap, is below 1700.
    """
    here = act(Setting(work=WORK["gemm"], variant=Variant.STAMPED))
    there = act(Setting(work=WORK["fp32 gemm"], variant=Variant.STAMPED))
    evidence = replace(here.evidence(), timings=there.evidence().timings)
    uuid = str(evidence.declared["cuda_uuids"])
    evidence = declaring(evidence, cuda_uuids=f"{uuid},GPU-00000000-0000-0000-0000-000000000002", true_clock_mhz=1978.1)
    return Attempt(evidence=evidence)


def memoised() -> Attempt:
    """Inputs repeat, and the wrapper returns early for those it has seen: 55 % of the calls do 45 % of the work.

    Truth: mean 30 % and median 55 % short of a call's.  Times, begins and busy time agree; only the times have two modes.
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

    return Attempt(evidence=found.told(change), truth={"mean": share - 1.0, "median": -0.55})


def early_exit_in_five_batches() -> Attempt:
    """A solver converges: in the last fifth each call does a fifth less; the harness times five batches of a second.

    Truth: mean 4 % short and throughput 4 % high against the calls as they are said to be.  Utilisation, clock and power do
    not change, so the fifth entry is the only witness.
    """
    setting = Setting(work=WORK["fp32 gemm"], length_s=5.0, variant=Variant.TIMES)
    found = act(setting, [Edit(begin_s=4.0, end_s=_EVER_S, level="slower", value=0.8)])
    evidence = found.evidence()
    each = found.ran.iterations.count // 5  # the few calls that are left run untimed
    return Attempt(evidence=replace(evidence, timings=batches(evidence.timings, each)), truth=found.truth)


def slow_buffers() -> Attempt:
    """Every other iteration uses buffers whose rows lie 4 KiB apart in one channel: it takes 8 % longer.

    Truth: mean 4 % above the good buffers', the number that the record of this work holds; two modes in strict turns.
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

    evidence = replace(slow.told(change), record=recorded(good, power_w=561.0, clock_mhz=1976.0))
    return Attempt(evidence=evidence, truth={"throughput": 1 / 1.04 - 1.0, "mean": 0.04})


ENTRIES: tuple[Entry, ...] = (
    off(zeros_throughout, "zeros, 15 % faster than this card's record", "mean"),
    off(activations_die, "data grows easier all along", "mean"),
    off(times_of_another_gpu, "times of another GPU"),
    off(memoised, "55 % of calls return early", "mean"),
    off(early_exit_in_five_batches, "a fifth less work in the last of five batches", "throughput", "mean"),
    off(slow_buffers, "every other call on slow buffers, 4 % above the record", "mean"),
)
