"""Rules about heat and the hardware's protection: only these judge slow-downs that are plain faults."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from annotate.claims import Claim
from annotate.derived.held import Held, by_bits, by_counter, by_violation, reasons, reports
from annotate.evidence import Evidence, Fact, Reason
from annotate.ranges import Duration, Refreshes, Share
from annotate.rule import Answer, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule


@rule(
    "throttle-thermal",
    kind=RuleKind.BIAS,
    says="slowed by heat for {slowed_s:.2f} of {window_s:.1f} s{at}",
    remedy="Check the airflow, wait until the GPU has cooled, or call the number thermally limited.",
)
def throttle_thermal(
    evidence: Evidence,
    claim: Claim,
    *,
    flag_ratio: Annotated[Share, "a thousandth of the time: 2 ms in 2 s, at a fifth less clock"] = 0.001,
    reject_ratio: Annotated[Share, "a hundredth of the time"] = 0.01,
) -> Answer:
    """Finds clocks lowered because GPU or memory was too hot, by the driver or by the hardware itself.

    Why it matters:
        A hot GPU loses 15 to 22 % of its clock, in and out of it several times a minute, and what it then measures is the
        cooling of this machine on this day.

    What it cannot see:
        Heat that lowers the clock within the power limit (a hot chip leaks more): that shows as ``clock-drift``.  Slow memory
        under a cool core.  Without the counters, a slow-down between two refreshes of the sampled reasons.

    Remedy:
        Check fans and inlet temperature, leave the GPU idle until its margin is back, or report the number as thermally
        limited.

    Source:
        Fields 269 and 270 of NVML (251 and 252 before driver 575), thermal violation time at the window's edges, else the
        sampled reasons 0x20 and 0x40.  All claims: hardware slow-downs reject, software ones from a hundredth of the time.
        An H200 at 33 to 60 °C never showed it; tested by simulation only.
    """
    software = [by_violation(evidence, "thermal_violation_ns"), by_counter(evidence, "sw_thermal_ns")]
    slowed = _worst(software, or_else=by_bits(evidence, Reason.SW_THERMAL | Reason.HW_THERMAL))
    hardware = _worst([by_counter(evidence, "hw_thermal_ns")], or_else=by_bits(evidence, Reason.HW_THERMAL))
    window_s = evidence.window.length_s
    worst = _worst([slowed, hardware])
    facts: dict[str, Fact] = {
        "slowed_s": worst.ratio * window_s if worst else None,
        "window_s": window_s,
        "by": worst.by if worst else None,
        **_temperature(evidence),
    }
    effect_ratio = _effect_ratio(evidence, Reason.SW_THERMAL | Reason.HW_THERMAL)
    if hardware and hardware.ratio > 0:
        # A counter that moved only around an edge may have moved outside the window.
        severity = Severity.REJECT if hardware.least_ratio or hardware.by == "samples" else Severity.FLAG
        return Found(severity, {**facts, "hardware": True}, effect_ratio=effect_ratio)
    if slowed and slowed.ratio > flag_ratio:
        severity = Severity.REJECT if slowed.ratio > reject_ratio and slowed.least_ratio > 0 else Severity.FLAG
        return Found(severity, {**facts, "hardware": False}, effect_ratio=effect_ratio)
    if slowed is None or hardware is None:
        which = "software" if slowed is None else "hardware"
        return Unobserved(evidence.absence or f"{which} slow-downs for heat were not observed for long enough")
    return Clear(facts)


@rule(
    "throttle-hw-slowdown",
    kind=RuleKind.BIAS,
    says="the hardware forced a slow-down for {slowed_s:.2f} of {window_s:.1f} s, which may halve the clock",
    remedy="Check power supply, cables, baseboard and temperature before you measure again.",
)
def throttle_hw_slowdown(
    evidence: Evidence,
    claim: Claim,
    *,
    refreshes_count: Annotated[Refreshes, "the bit may blip for one refresh when clocks change"] = 2.0,
    counted_s: Annotated[Duration, "shorter counts come with a change of clocks"] = 0.001,
) -> Answer:
    """Finds the hardware's own protection at work, which divides the clock by two or more.

    Why it matters:
        Whatever set it off (heat, an external brake, a fast power trigger), nothing measured meanwhile is comparable.

    What it cannot see:
        A fast power trigger shorter than a refresh: no counter covers it, only the sampled bit; so counters alone clear
        nothing.

    Remedy:
        Look at power supply, cables, baseboard and temperature; see the driver's log.

    Source:
        The sampled reason 0x8 in at least two refreshes, or NVML's fields 270 and 271 (hardware thermal, power brake) by more
        than a millisecond.  All claims reject.  An H200 never showed it; tested by simulation only.
    """
    window = evidence.window
    facts: dict[str, Fact] = {"window_s": window.length_s}
    counted = _worst([by_counter(evidence, name) for name in ("hw_thermal_ns", "power_brake_ns")])
    if counted and counted.least_ratio * window.length_s > counted_s:
        return Found(Severity.REJECT, {**facts, "slowed_s": counted.ratio * window.length_s, "by": counted.by})
    at_ns, masks = reasons(evidence)
    hit = at_ns[(masks & int(Reason.HW_SLOWDOWN)) != 0]
    refresh_ns = evidence.trace.refresh_of_ns("event_reasons_mask")
    seen_count = len(np.unique((hit - window.begin_ns) // refresh_ns))
    # A blip that straddles the border of two refreshes lasts one: count by how long it was seen, too.
    seen_s = len(hit) / len(at_ns) * window.length_s if len(at_ns) else 0.0
    if seen_count >= refreshes_count and seen_s >= (refreshes_count - 0.5) * refresh_ns / 1e9:
        span_ns = (max(window.begin_ns, int(hit[0]) - refresh_ns), int(hit[-1]))
        found: dict[str, Fact] = {**facts, "slowed_s": seen_s, "by": "samples"}
        return Found(Severity.REJECT, found, effect_ratio=_effect_ratio(evidence, Reason.HW_SLOWDOWN), span_ns=span_ns)
    if len(at_ns) and (seen_count or reports(evidence, Reason.HW_SLOWDOWN)):
        return Clear({**facts, "blips_count": seen_count})
    return Unobserved(evidence.absence or "the event reason of hardware slow-downs was not observed for long enough")


@rule(
    "throttle-power-brake",
    kind=RuleKind.BIAS,
    says="an external power brake slowed the GPU for {slowed_s:.2f} of {window_s:.1f} s",
    remedy="Check power supply, cables and the rack's power budget before you measure again.",
)
def throttle_power_brake(evidence: Evidence, claim: Claim) -> Answer:
    """Finds the signal by which a power supply or a baseboard makes a GPU slow down at once.

    Why it matters:
        The clock is halved or worse, for reasons outside the GPU that the benchmark cannot know.

    What it cannot see:
        Who pulled the brake.  Without the counter, a brake between two refreshes of the sampled reasons.

    Remedy:
        Look at power supplies, cables and the rack's power budget.

    Source:
        NVML's field 271 (253 before driver 575), else the sampled reason 0x80.  All claims reject.  An H200 never showed it;
        tested by simulation only.
    """
    held = by_counter(evidence, "power_brake_ns") or by_bits(evidence, Reason.HW_POWER_BRAKE)
    if held is None:
        return Unobserved(evidence.absence or "neither power brake time nor event reasons were observed for long enough")
    facts: dict[str, Fact] = {
        "slowed_s": held.ratio * evidence.window.length_s,
        "window_s": evidence.window.length_s,
        "by": held.by,
    }
    if not held.ratio:
        return Clear(facts)
    # A counter that moved only around an edge may have moved outside the window.
    severity = Severity.REJECT if held.least_ratio or held.by == "samples" else Severity.FLAG
    return Found(severity, facts, effect_ratio=_effect_ratio(evidence, Reason.HW_POWER_BRAKE))


def _worst(witnesses: Sequence[Held | None], *, or_else: Held | None = None) -> Held | None:
    """The witness of the longest time; ``or_else`` counts only where no other speaks."""
    known = [held for held in witnesses if held is not None]
    return max(known, key=lambda held: (held.ratio, held.least_ratio)) if known else or_else


def _temperature(evidence: Evidence) -> dict[str, Fact]:
    known = evidence.trace.within("temperature_c", evidence.window.begin_ns, evidence.window.end_ns).observed.values
    return {"hottest_c": int(known.max()), "at": f", at up to {known.max():.0f} °C"} if len(known) else {"at": ""}


def _effect_ratio(evidence: Evidence, bits: Reason) -> float | None:
    """Return how much longer a clock-bound time reads, by the clocks with and without the reason; None if one is missing."""
    at_ns, masks = reasons(evidence)
    clocks = evidence.trace.at("sm_clock_mhz", at_ns)
    slowed = (masks & int(bits)) != 0
    inside, outside = (clocks[during & ~np.isnan(clocks)] for during in (slowed, ~slowed))
    if not len(inside) or not len(outside) or not inside.mean() > 0:
        return None
    return max(0.0, float(np.median(outside) / np.concatenate([inside, outside]).mean()) - 1.0)


RULES: tuple[Rule, ...] = (throttle_thermal, throttle_hw_slowdown, throttle_power_brake)
