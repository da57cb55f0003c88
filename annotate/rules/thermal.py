"""Rules about slow-downs by faults: heat, the hardware's protection, an external power brake."""

from collections.abc import Mapping

from annotate.budget import Bound
from annotate.case import Case
from annotate.derived.held import Held, by_bits, by_counter, by_violation, longest, reasons, reports
from annotate.derived.held_bounds import clocks_beside, hw_slowdown_bounds, power_brake_bounds, thermal_bounds
from annotate.evidence import Evidence, Fact, Reason
from annotate.rule import Answer, Clear, Found, Rule, RuleKind, Unobserved, rule

_HEAT = Reason.SW_THERMAL | Reason.HW_THERMAL
_NOT_HELD: Mapping[str, Fact] = {"slowed_s": 0.0}


@rule(
    "throttle-thermal",
    kind=RuleKind.BIAS,
    says="slowed by heat for {slowed_s:.2f} of {window_s:.1f} s{at}",
    remedy="Check the airflow, wait until the GPU has cooled, or report the number as thermally limited.",
)
def throttle_thermal(case: Case) -> Answer:
    """Finds clocks lowered by the driver or the hardware because GPU or memory was too hot.

    Why it matters:
        A hot GPU loses 15 to 22 % of its clock, several times a minute.  The number then measures the cooling of this
        machine on this day.

    Limits of detection:
        Heat that lowers the clock within the power limit (a hot chip leaks more): ``clock-drift`` reports that.  Slow memory
        next to a cool core.  Without the counters, a slow-down between two refreshes of the sampled reasons.

    Remedy:
        Check fans and inlet temperature, leave the GPU idle until it has cooled, or report the number as thermally limited.

    Source:
        Fields 269 and 270 of NVML, thermal violation time at the window's edges, else the sampled reasons 0x20 and 0x40.  A
        driver 575 to 589 may have the fields as 251 and 252.  The bound is the longest time for which the reason can have
        held, times the slow-down by the clocks with and without it.  A reason that held throughout is compared with the
        board's highest clock.  Without an observed clock, a slow-down of 22 % is assumed.  An H200 at 33 to 60 °C never
        throttled, so the rule is tested by simulation only.
    """
    evidence = case.evidence
    software = [by_violation(evidence, "thermal_violation_ns"), by_counter(evidence, "sw_thermal_ns")]
    slowed = longest(software) or by_bits(evidence, _HEAT)
    hardware = by_counter(evidence, "hw_thermal_ns") or by_bits(evidence, Reason.HW_THERMAL)
    held = longest([slowed, hardware])
    if held is not None and held.ratio > 0.0:
        facts = _facts(evidence, held, _HEAT)
        is_hardware = hardware is not None and hardware.ratio > 0.0
        return _found({**facts, "hardware": is_hardware, **_temperature(evidence, facts)}, thermal_bounds(evidence, case.beta))
    if slowed is None or hardware is None:
        which = "software" if slowed is None else "hardware"
        return Unobserved(evidence.absence or f"{which} slow-downs by heat were not observed for long enough")
    return Clear(_NOT_HELD)


@rule(
    "throttle-hw-slowdown",
    kind=RuleKind.BIAS,
    says="the hardware forced a slow-down for {slowed_s:.2f} of {window_s:.1f} s{at}",
    remedy="Check power supply, cables, baseboard and temperature before you measure again.",
)
def throttle_hw_slowdown(case: Case) -> Answer:
    """Finds a slow-down by the hardware's protection, which divides the clock by two or more.

    Why it matters:
        Numbers measured during such a slow-down are not comparable, whatever triggered it: heat, an external brake or a fast
        power trigger.

    Limits of detection:
        A fast power trigger shorter than a refresh: only the sampled bit covers it, so counters alone do not clear the rule.
        The cause of a bit of one refresh: a trigger, or a change of clocks.  The clock during the bit decides its effect.

    Remedy:
        Check power supply, cables, baseboard and temperature, and read the driver's log.

    Source:
        NVML's fields 270 and 271 (hardware thermal, power brake), else the sampled reason 0x8 plus one refresh.  The bound is
        that time, times the slow-down by the clocks with and without the reason.  A reason that held throughout is compared
        with the board's highest clock.  Without an observed clock, a halved clock is assumed.  An H200 never showed the
        reason, so the rule is tested by simulation only.
    """
    evidence = case.evidence
    counted = longest([by_counter(evidence, name) for name in ("hw_thermal_ns", "power_brake_ns")])
    held = counted if counted is not None and counted.ratio > 0.0 else by_bits(evidence, Reason.HW_SLOWDOWN)
    if held is not None and held.ratio > 0.0:
        return _found(_facts(evidence, held, Reason.HW_SLOWDOWN), hw_slowdown_bounds(evidence, case.beta))
    if len(reasons(evidence)[0]) and reports(evidence, Reason.HW_SLOWDOWN):
        return Clear(_NOT_HELD)
    return Unobserved(evidence.absence or "the event reason of hardware slow-downs was not observed for long enough")


@rule(
    "throttle-power-brake",
    kind=RuleKind.BIAS,
    says="an external power brake slowed the GPU for {slowed_s:.2f} of {window_s:.1f} s{at}",
    remedy="Check power supply, cables and the rack's power budget before you measure again.",
)
def throttle_power_brake(case: Case) -> Answer:
    """Finds the signal with which a power supply or a baseboard slows a GPU at once.

    Why it matters:
        The clock is halved or worse, for a reason outside the GPU that the benchmark cannot observe.

    Limits of detection:
        The source of the signal.  Without the counter, a brake between two refreshes of the sampled reasons.

    Remedy:
        Check power supplies, cables and the rack's power budget.

    Source:
        NVML's field 271 (253 if a driver 575 to 589 lacks it), else the sampled reason 0x80.  The bound is the longest time
        for which the brake can have held, times the slow-down by the clocks with and without the brake.  A brake that held
        throughout is compared with the board's highest clock.  Without an observed clock, a halved clock is assumed.  An H200
        never showed a brake, so the rule is tested by simulation only.
    """
    evidence = case.evidence
    held = by_counter(evidence, "power_brake_ns") or by_bits(evidence, Reason.HW_POWER_BRAKE)
    if held is None:
        return Unobserved(evidence.absence or "neither power brake time nor event reasons were observed for long enough")
    if not held.ratio:
        return Clear(_NOT_HELD)
    return _found(_facts(evidence, held, Reason.HW_POWER_BRAKE), power_brake_bounds(evidence, case.beta))


def _found(facts: Mapping[str, Fact], bounds: tuple[Bound, ...]) -> Found:
    return Found(facts={**facts, "bound_ratio": max((bound.size_ratio for bound in bounds), default=0.0)}, bounds=bounds)


def _facts(evidence: Evidence, held: Held, bits: Reason) -> dict[str, Fact]:
    """Return the time for which a reason held, the clocks with and without it, and both clocks in words."""
    inside_mhz, outside_mhz = clocks_beside(evidence, bits)
    at = f", at {inside_mhz:.0f} MHz" if inside_mhz is not None else ""
    return {
        "slowed_s": held.ratio * evidence.window.length_s,
        "window_s": evidence.window.length_s,
        "by": held.by,
        "inside_mhz": inside_mhz,
        "outside_mhz": outside_mhz,
        "at": f"{at} instead of {outside_mhz:.0f} MHz" if at and outside_mhz is not None else at,
    }


def _temperature(evidence: Evidence, facts: Mapping[str, Fact]) -> dict[str, Fact]:
    known = evidence.trace.within("temperature_c", evidence.window.begin_ns, evidence.window.end_ns).observed.values
    if not len(known):
        return {}
    return {"hottest_c": int(known.max()), "at": f"{facts['at']}, at up to {known.max():.0f} °C"}


RULES: tuple[Rule, ...] = (throttle_thermal, throttle_hw_slowdown, throttle_power_brake)
RETIRED_LIMITS: Mapping[str, tuple[str, ...]] = {
    throttle_thermal.name: ("flag_ratio", "reject_ratio"),
    throttle_hw_slowdown.name: ("refreshes_count", "counted_s"),
}
