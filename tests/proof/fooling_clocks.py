"""Windows with a hidden change of clock, power limit or memory, meant to be called valid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import Evidence, Lane, Reason, Times, Values, signals
from tests.proof.chance import generator
from tests.proof.fooling_stage import WORK, Attempt, Edit, Setting, act, column, declaring, device, recorded, traced, without
from tests.proof.fooling_table import Entry, off
from tests.proof.testified import Variant

_EVER_S = 1e3


def switch_early() -> Attempt:
    """A cron job runs ``nvidia-smi -lgc 1822`` 0.3 s after the start: 92 % of the window has the lower clock.

    Truth: throughput 7 % low.  NVML shows 1980 MHz, then 1815 MHz, without a reason bit.  Power falls with the clock.
    """
    found = act(Setting(work=WORK["fp32 gemm"]), [Edit(begin_s=0.3, end_s=_EVER_S, level="clock", value=0.92)])
    return Attempt(evidence=found.evidence(), truth=found.truth)


def staircase() -> Attempt:
    """A rack controller lowers the clock by 1 % every 0.8 s, so no level holds a fifth of the window.

    Truth: throughput 4 to 5 % low.  NVML shows each step, rounded to 15 MHz, without a reason bit.  Power follows.
    """
    steps = [Edit(begin_s=0.8 * i, end_s=0.8 * (i + 1), level="clock", value=1.0 - 0.01 * i) for i in range(1, 10)]
    found = act(Setting(work=WORK["fp32 gemm"], length_s=8.0), steps)
    return Attempt(evidence=found.evidence(), truth=found.truth)


def dips_between_refreshes() -> Attempt:
    """A regulator lowers the clock to three quarters for 30 ms, ten times a second, in step with the refresh of NVML's page.

    Truth: throughput 9 % low, because the clock takes 50 ms more to recover.  Every refresh falls in the high phase, so NVML shows
    1980 MHz.  The 20 ms power record shows dips.  The window has no stamps.
    """
    dips = [Edit(begin_s=0.7 + 0.1 * i, end_s=0.73 + 0.1 * i, level="clock", value=0.75) for i in range(34)]
    found = act(Setting(work=WORK["fp32 gemm"], stamped=False), dips)
    evidence = column(found.evidence(), "sm_clock_mhz", lambda at_ns, mhz: np.full_like(mhz, 1980.0))
    return Attempt(evidence=evidence, truth=found.truth)


def stretched_clock() -> Attempt:
    """The adaptive clock stretches cycles against voltage droop for 40 % of the window; NVML shows the programmed clock.

    Truth: throughput 4 % low, without a cap.  Power falls with the true clock.  The two stamps at the edges give the mean clock, 4 %
    below the 1980 MHz that NVML shows throughout.
    """
    found = act(Setting(work=WORK["fp32 gemm"]), [Edit(begin_s=1.5, end_s=3.1, level="clock", value=0.9)])
    evidence = column(found.evidence(), "sm_clock_mhz", lambda at_ns, mhz: np.full_like(mhz, 1980.0))
    return Attempt(evidence=evidence, truth=found.truth)


def creeping_limit() -> Attempt:
    """A room's power manager lowers the limit from 700 to 600 W over a window of 50 s, in steps of 2 W.

    Truth: throughput 3 to 5 % low.  Power falls by 2 W per second.  The power limit is not readable in this VM.
    """
    steps = [Edit(begin_s=1.0 * i, end_s=1.0 * (i + 1), level="power_limit_w", value=700.0 - 2.0 * i) for i in range(1, 52)]
    found = act(Setting(work=WORK["large gemm"], length_s=50.0), steps)
    return Attempt(evidence=without(found.evidence(), "power_limit_w"), truth=found.truth)


def limit_cut_between_polls() -> Attempt:
    """A rack's emergency cut sets the limit to 480 W for 0.85 s, between two readings of the limit once a second.

    Truth: throughput 4 % low.  Power falls to about 375 W.  Both readings of the limit around the cut show 700 W.
    """
    found = act(
        Setting(work=WORK["attention"], length_s=6.0), [Edit(begin_s=2.1, end_s=2.95, level="power_limit_w", value=480.0)]
    )
    evidence = column(found.evidence(), "power_limit_w", lambda at_ns, watts: np.full_like(watts, 700.0))
    return Attempt(evidence=evidence, truth=found.truth)


def lock_lost_after_stamps() -> Attempt:
    """The claim is a fixed clock of 1500 MHz; stamps end after 33 % of the iterations, and the lock is then removed.

    Truth: mean 15 % short of the time at 1500 MHz.  Stamps prove 1500 MHz for the first part, NVML shows 1980 MHz for the rest.
    """
    low = 1500.0 / 1980.0
    always = (
        Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="clock", value=low),
        Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="reasons_mask", value=float(Reason.APPLICATIONS_CLOCKS)),
    )
    lost = (
        Edit(begin_s=1.6, end_s=_EVER_S, level="clock", value=1.0 / low),
        Edit(begin_s=1.6, end_s=_EVER_S, level="reasons_mask", value=0.0),
    )
    found = act(Setting(work=WORK["fp32 gemm"], variant=Variant.STAMPED), lost, always)
    evidence = declaring(found.evidence(), locked_mhz=1500.0, true_clock_mhz=None, stamped_s=None)
    timings = evidence.timings
    assert timings is not None
    assert timings.sm_clock_mhz is not None
    clock = np.where(np.arange(len(timings.took_s)) < 0.33 * len(timings.took_s), timings.sm_clock_mhz, np.nan)
    return Attempt(
        evidence=replace(evidence, timings=replace(timings, sm_clock_mhz=clock)), truth=found.truth, claim="fixed-clock"
    )


def heat_that_varies() -> Attempt:
    """Software thermal slowdown lowers the clock by 10 % for 45 % of the window; the loop declares ``varies=True``.

    Truth: mean 4 to 5 % long.  The driver (before R575) lacks thermal counters, and this VM hides the reasons.  The GPU is at 80 °C.
    """
    slow = (
        Edit(begin_s=1.4, end_s=3.2, level="clock", value=0.9),
        Edit(begin_s=1.4, end_s=3.2, level="air_c", value=30.0),
    )
    setting = Setting(work=WORK["fp32 gemm"], variant=Variant.TIMES)
    found = act(setting, slow, [Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="air_c", value=28.0)])
    hidden = ("sw_thermal_ns", "hw_thermal_ns", "event_reasons_mask", "thermal_violation_ns", "temperature_margin_c")
    return Attempt(evidence=declaring(without(found.evidence(), *hidden), varies=True), truth=found.truth)


def hot_memory() -> Attempt:
    """The memory passes 95 °C at half time and doubles its refresh rate: bandwidth falls by 6 % at the same memory clock.

    Truth: throughput 3 % low in a plain window.  The witnesses are GPM's memory activity, which falls from 90 to 84 %, the memory
    temperature and a slightly lower power.
    """
    found = act(
        Setting(work=WORK["copy"], length_s=6.0),
        [
            Edit(begin_s=3.0, end_s=_EVER_S, level="slower", value=1.065),
            Edit(begin_s=3.0, end_s=_EVER_S, level="load", value=0.97),
        ],
    )
    evidence = column(
        found.evidence(), "memory_temperature_c", lambda at_ns, hot: np.clip(np.round(92.0 + at_ns / 1e9), 88.0, 98.0)
    )
    evidence = column(
        evidence, "dram_activity_ratio", lambda at_ns, share: np.where((at_ns > 3.1e9) & (share > 0.5), share / 1.065, share)
    )
    return Attempt(evidence=evidence, truth=found.truth)


def frozen_page() -> Attempt:
    """The driver's page of cheap readings hangs (busy firmware): every fast-lane signal is constant to the milliwatt.

    Truth: the clock falls by 12 % in the second half, and throughput is 5 to 6 % low.  The energy counter still grows.  The driver
    has no power record.
    """
    found = act(Setting(work=WORK["fp32 gemm"]), [Edit(begin_s=2.0, end_s=_EVER_S, level="clock", value=0.88)])
    evidence = without(found.evidence(), "dense_power")

    def frozen(at_ns: Times, values: Values) -> Values:
        last = values[max(0, int(np.searchsorted(at_ns, -100_000_000)) - 1)]
        return np.where(at_ns < -100_000_000, values, last)

    for name in signals(Lane.FAST):
        if name in evidence.trace.columns:
            evidence = column(evidence, name, frozen)
    return Attempt(evidence=evidence, truth=found.truth)


def slowdown_spikes() -> Attempt:
    """The over-current protection halves the clock for 60 ms about once a second, on a driver without reasons.

    Truth: throughput 4 % low.  The 100 ms page shows some of the dips.  The driver lacks slow-down counters and the power record.
    """
    rng = generator(5, "spikes")
    begins_s = np.cumsum(rng.uniform(0.7, 1.3, 9))
    dips = [Edit(begin_s=float(at_s), end_s=float(at_s) + 0.06, level="clock", value=0.5) for at_s in begins_s if at_s < 7.8]
    found = act(Setting(work=WORK["fp32 gemm"], length_s=8.0, stamped=False), dips)
    hidden = ("event_reasons_mask", "sync_boost_ns", "sw_thermal_ns", "hw_thermal_ns", "power_brake_ns", "dense_power")
    return Attempt(evidence=without(found.evidence(), *hidden), truth=found.truth)


def ramp_of_another_model() -> Attempt:
    """An L4 keeps the idle clock for the first 0.12 s of a window of 1.5 s; the daemon starts with the window.

    Truth: throughput 6 % low.  L4s idle at a few hundred MHz, unlike the H200.  No reading precedes the window by more than 1 ms.
    Clocks, power and limit are scaled to an L4's 2040 MHz and 72 W.
    """
    found = act(
        Setting(work=WORK["fp32 gemm"], length_s=1.5, stamped=False),
        [Edit(begin_s=0.0, end_s=0.12, level="clock", value=0.3), Edit(begin_s=-4.0, end_s=0.0, level="working", value=0.0)],
    )
    limits = dict.fromkeys(("power_limit_w", "power_limit_default_w", "power_limit_max_w"), 72.0)
    evidence = device(
        without(found.evidence(), "dense_power"), name="NVIDIA L4", sm_clock_max_mhz=2040, mem_clock_max_mhz=6251,
        power_limit_min_w=40.0, **limits,
    )  # fmt: skip
    evidence = _from_window_start(evidence)
    for name in ("power_w", "power_average_w", "energy_j", "power_limit_w"):
        evidence = column(evidence, name, lambda at_ns, watts: watts * 72.0 / 700.0)
    evidence = column(evidence, "sm_clock_mhz", lambda at_ns, mhz: 15.0 * np.round(mhz * 2040.0 / 1980.0 / 15.0))
    evidence = column(evidence, "mem_clock_mhz", lambda at_ns, mhz: np.full_like(mhz, 6251.0))
    return Attempt(evidence=evidence, truth=found.truth)


def _from_window_start(evidence: Evidence) -> Evidence:
    """Return the evidence of a daemon that started with the window."""
    first_ns = evidence.window.begin_ns - 1_000_000
    columns = {name: each.where(each.at_ns >= first_ns) for name, each in evidence.trace.columns.items()}
    lists = tuple(each for each in evidence.trace.process_lists if each.at_ns >= first_ns)
    return traced(evidence, lambda trace: replace(trace, columns=columns, process_lists=lists))


def cold_burst() -> Attempt:
    """Capped products run for 1.2 s right after a rest, under a daemon that starts with the window and has no power record.

    Truth: throughput is 1.3 % above the claimed sustained rate, and the median deviates more.
    """
    found = act(Setting(work=WORK["large gemm"], length_s=1.2), [Edit(begin_s=-4.0, end_s=-0.005, level="working", value=0.0)])
    return Attempt(evidence=_from_window_start(without(found.evidence(), "dense_power")), truth=found.truth)


def switched_before() -> Attempt:
    """A lock lowered the clock long before the window; the record of this work has this card's usual numbers.

    Truth: throughput 8 to 9 % below the record of six windows.  NVML shows 1800 MHz throughout, without a reason bit.
    """
    found = act(Setting(work=WORK["fp32 gemm"]), [Edit(begin_s=-_EVER_S, end_s=_EVER_S, level="clock", value=0.91)])
    evidence = replace(found.evidence(), record=recorded(found, power_w=571.0, clock_mhz=1978.0))
    return Attempt(evidence=evidence, truth=found.truth)


ENTRIES: tuple[Entry, ...] = (
    off(switch_early, "clock 8 % low for all but the first 0.3 s", "throughput"),
    off(staircase, "ten clock levels, each a tenth of the window, up to 9 % low", "throughput"),
    off(dips_between_refreshes, "30 ms clock dips in step with NVML's refresh", "throughput"),
    off(stretched_clock, "true clock low for 40 % of the window, NVML's clock constant", "throughput"),
    off(
        creeping_limit,
        "power limit falls slowly from 700 to 600 W, unread",
        "throughput",
        limit="the bound of the flagged verdict is 0.2 percentage points too small.  The bound's reference is a level that holds a fifth "
        "of the window, here the first, in which the limit falls by 20 W.",
    ),
    off(limit_cut_between_polls, "limit 480 W for 0.85 s, unread", "throughput"),
    off(lock_lost_after_stamps, "fixed clock lost after the last stamp, mean 15 % short", "mean"),
    off(heat_that_varies, "clock 10 % low for 45 % of the window, under varies=True", "mean"),
    off(hot_memory, "memory bandwidth 6 % low in the second half", "throughput"),
    off(frozen_page, "clock 12 % low behind a hung page", "throughput"),
    off(slowdown_spikes, "half the clock for 60 ms about once a second", "throughput"),
    off(ramp_of_another_model, "0.12 s of 1.5 s at the idle clock", "throughput"),
    off(cold_burst, "1.2 s right after a rest, claimed as sustained", "throughput"),
    off(switched_before, "8.5 % below this card's record", "throughput"),
)
