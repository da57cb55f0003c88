"""Bounds of conditions other than the SM clock: the memory clock, the PCIe link, and a canary against this card's record."""

from collections.abc import Mapping
from typing import Annotated

import numpy as np

from annotate.budget import Bound, Estimate, Group, Number
from annotate.declared import amount
from annotate.derived.busy import busy_at, idle_at, memory_use_ratio
from annotate.derived.held import by_bits, power_cap
from annotate.derived.settings_throughout import target_clock_mhz
from annotate.evidence import Evidence, Reason
from annotate.evidence.asked import kept

_TIMED = (Number.THROUGHPUT, Number.MEAN, Number.MEDIAN)
_ALL = (*_TIMED, Number.MEDIAN_AT_CLOCK)
_LANE_RATE = {1: 2.0, 2: 4.0, 3: 7.88, 4: 15.75, 5: 31.5, 6: 60.5}  # Gbit/s per lane after coding, by generation
# Slow-downs that other rules report: they explain a slow canary.
_FAULTS = Reason.HW_SLOWDOWN | Reason.SYNC_BOOST | Reason.SW_THERMAL | Reason.HW_THERMAL | Reason.HW_POWER_BRAKE


@kept
def memory_clock_bounds(
    evidence: Evidence,
    *,
    top_ratio: Annotated[float, "readings of one memory clock of 3201 MHz differ by a few MHz"] = 0.999,
) -> tuple[Bound, ...]:
    """Return the bounds of ``mem-clock-change``; none for a top clock throughout work, or a mostly unobserved clock.

    The bound assumes a kernel that uses all of the bandwidth; the estimate takes the share in use.
    """
    clock = evidence.within("mem_clock_mhz")
    known = clock.values > 0
    if 2 * known.sum() < len(clock) or not known.any():
        return ()
    most_mhz = evidence.device.mem_clock_max_mhz if evidence.device else None
    top_mhz = float(most_mhz or np.nanmax(evidence.trace.column("mem_clock_mhz").values))
    low = known & (clock.values < top_ratio * top_mhz)
    working = known & ~idle_at(evidence, clock.at_ns) if low.any() else known  # a clock that was never low needs no load
    low &= working
    if not low.any():
        return ()
    slower = np.where(low, top_mhz / np.where(known, clock.values, top_mhz) - 1.0, 0.0)[working]
    ratio, use_ratio = float(slower.mean()), memory_use_ratio(evidence)
    span_ns = (int(clock.at_ns[low][0]), int(clock.at_ns[low][-1]))
    share = min(1.0, use_ratio) if evidence.observes("dram_activity_ratio") and use_ratio is not None else None
    median_ratio = float(slower.max()) if float((slower > 0.0).mean()) >= 0.4 else ratio
    return tuple(
        _bound("mem-clock-change", Group.MEMORY, number, most, share, span_ns)
        for number, most in zip(_ALL, (ratio, ratio, median_ratio, median_ratio), strict=True)
    )


@kept
def link_bounds(evidence: Evidence) -> tuple[Bound, ...]:
    """Return the bounds of ``numa-pcie-affinity`` for a link that was at times slower than its best while the GPU worked.

    A link that was slow throughout has no bound: this window does not show the speed of a better link.
    """
    generation = evidence.trace.column("pcie_generation_count").observed
    at_ns = generation.at_ns[(generation.at_ns >= evidence.window.begin_ns) & (generation.at_ns <= evidence.window.end_ns)]
    # Utilisation lags by up to two refreshes: a GPU at rest may still look busy.
    late_ns = 2 * evidence.trace.refresh_of_ns("utilization_ratio")
    generations, widths = (evidence.trace.at(name, at_ns) for name in ("pcie_generation_count", "pcie_width_count"))
    rates = np.array([_LANE_RATE.get(int(each), 0.0) for each in np.nan_to_num(generations)]) * np.nan_to_num(widths)
    if len(rates) and rates.max() > rates.min():  # the load counts only if the link changed
        rates = rates[(rates > 0.0) & busy_at(evidence, at_ns) & busy_at(evidence, at_ns + late_ns)]
    if len(rates) < 2 or rates.max() == rates.min():
        return ()
    ratio = float((rates.max() / rates - 1.0).mean())
    return tuple(_bound("numa-pcie-affinity", Group.LINK, number, ratio, None, None) for number in _TIMED)


@kept
def best_while_busy(evidence: Evidence, name: str) -> float | None:
    """Return the best state of the link while the GPU worked, or None if it was not read during work."""
    window, column = evidence.window, evidence.trace.column(name).observed
    inside = column.where((column.at_ns >= window.begin_ns) & (column.at_ns <= window.end_ns))
    busy = inside.values[busy_at(evidence, inside.at_ns)]
    return float(busy.max()) if len(busy) else None


def canary_lows(
    evidence: Evidence,
    *,
    record_count: Annotated[float, "the median of five runs survives two bad ones"] = 5.0,
    capped_ratio: Annotated[float, "a cap for less time cannot affect the canary"] = 0.02,
) -> Mapping[str, float] | None:
    """Return the canary's relative shortfall from its record, for clock and copy; None without canary or enough recorded runs.

    If the power cap held or was not observed, the clock of a canary is not comparable and is left out.
    """
    declared, clock_mhz = evidence.declared, amount(evidence.declared, "canary_clock_mhz")
    recorded_mhz = amount(declared, "canary_record_clock_mhz")
    if not clock_mhz or not recorded_mhz or (amount(declared, "canary_record_count") or 0.0) < record_count:
        return None
    capped, target_mhz = power_cap(evidence), target_clock_mhz(evidence)
    lows: dict[str, float] = {}
    if capped is not None and capped.ratio <= capped_ratio:
        lows["clock"] = 1.0 - clock_mhz / min(recorded_mhz, target_mhz or recorded_mhz)
    copied, before = (amount(declared, f"canary_{name}copy_bytes_count") for name in ("", "record_"))
    if copied and before:
        lows["copy"] = 1.0 - copied / before
    return lows


@kept
def has_slow_reason(evidence: Evidence) -> bool:
    """Return whether a slow-down with a known reason held; an application clock counts if its value was not read."""
    faulty = by_bits(evidence, _FAULTS if target_clock_mhz(evidence) else _FAULTS | Reason.APPLICATIONS_CLOCKS)
    return faulty is not None and faulty.ratio > 0.0


def canary_bounds(
    evidence: Evidence,
    *,
    record_count: Annotated[float, "the median of five runs survives two bad ones"] = 5.0,
    error_ratio: Annotated[float, "the driver reports an uncapped clock to 0.2 % on an H200"] = 0.002,
    capped_ratio: Annotated[float, "a cap for less time cannot affect the canary"] = 0.02,
) -> tuple[Bound, ...]:
    """Return the bounds of ``clock-low-no-reason`` by this card's record.

    Return none without a canary, for a fast one, or if a slow-down with a known reason held.

    Without a record, an uncapped canary over 5 % below the driver's highest reported clock gives bounds of unknown size.
    """
    clock_mhz = amount(evidence.declared, "canary_clock_mhz")
    if not clock_mhz or has_slow_reason(evidence):
        return ()
    lows = canary_lows(evidence, record_count=record_count, capped_ratio=capped_ratio)
    if lows is None:
        capped, shown = power_cap(evidence), evidence.trace.column("sm_clock_mhz").observed.values
        uncapped = capped is not None and capped.ratio <= capped_ratio
        if not uncapped or not len(shown) or clock_mhz >= (1.0 - 25 * error_ratio) * float(shown.max()):
            return ()
        return tuple(Bound(number=number, rule="clock-low-no-reason", group=Group.RECORD, ratio=None) for number in _TIMED)
    low = min(0.99, max(lows.values(), default=0.0))
    if low <= error_ratio:
        return ()
    ratio = low / (1.0 - low)
    estimates = dict.fromkeys(_TIMED, Estimate(ratio - error_ratio, ratio, ratio + error_ratio))
    estimates[Number.THROUGHPUT] = Estimate(-low - error_ratio, -low, -low + error_ratio)
    return tuple(
        Bound(number=number, rule="clock-low-no-reason", group=Group.RECORD, ratio=ratio + error_ratio, estimate=estimate)
        for number, estimate in estimates.items()
    )


def _bound(
    rule: str, group: Group, number: Number, most_ratio: float, share: float | None, span_ns: tuple[int, int] | None
) -> Bound:
    """Return the bound of a slow-down by at most ``most_ratio``; ``share`` is the part that affects the work, if known."""
    estimate = None
    if share is not None:
        # If memory is used for less than half of the time, the work may never wait for it.
        ends = (max(0.0, 2.0 * share - 1.0) * most_ratio, share * most_ratio, most_ratio)
        rates = tuple(-each / (1.0 + each) for each in reversed(ends))
        estimate = Estimate(*(rates if number is Number.THROUGHPUT else ends))
    return Bound(number=number, rule=rule, group=group, ratio=most_ratio, estimate=estimate, span_ns=span_ns)
