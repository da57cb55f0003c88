"""Rules about control of the clock: locks, other controllers, hidden slow states, and a driver that reports another clock."""

from typing import Annotated

from annotate.claims import Claim
from annotate.declared import amount
from annotate.derived.busy import utilization_ratio
from annotate.derived.held import Held, by_bits, by_counter, by_violation, power_cap
from annotate.derived.settings_throughout import has_same_settings, power_limit_w, standing_value, target_clock_mhz
from annotate.derived.sm_clock import driver_clock_mhz, measured, working
from annotate.evidence import Evidence, Fact, Reason
from annotate.ranges import Count, Duration, Share, Watts
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule

# Clocks are set in steps of 15 MHz, so a lock may be rounded by as much.
_STEP_MHZ = 15.0
# Below the mean that the SMs kept under the cap a lock holds; the driver's clock reads 8-12 % above that mean.
_HOLDS_RATIO, _HOLDS_BY_DRIVER_RATIO = 0.95, 0.85
# Slow-downs that other rules reject: a canary that ran slowly under one of them is no riddle.
_FAULTS = Reason.HW_SLOWDOWN | Reason.SYNC_BOOST | Reason.SW_THERMAL | Reason.HW_THERMAL | Reason.HW_POWER_BRAKE


@rule(
    "locked-clock-missed",
    kind=RuleKind.BIAS,
    says="the SM clock asked for is {target_mhz:.0f} MHz, but the GPU ran {ran}",
    remedy="Lock a clock that holds under this load, {advice}, or drop the lock.",
)
def locked_clock_missed(
    evidence: Evidence,
    claim: Claim,
    *,
    off_ratio: Annotated[Share, "a lock that holds stays within a step or two of 15 MHz: 2 % of 1980 is two and a half"] = 0.02,
    capped_ratio: Annotated[Share, "the cap takes the clock off its lock; a hundredth of the time is beyond its noise"] = 0.01,
) -> Answer:
    """Finds a clock lock that did not hold under the load.

    Why it matters:
        A number at a locked clock claims to be free of the power controller.  1980 MHz asked for under 700 W is a clock
        that a bf16 matrix product leaves by 30 %, and swings about.

    What it cannot see:
        A range set with ``nvidia-smi --lock-gpu-clocks``: driver 580 does not tell it, so no lock on record is no proof
        that there is none.  Without stamps the driver's own clock stands for the true one, which under a cap is 8-12 %
        lower.

    Remedy:
        Lock a clock some 5 % below the mean that this work keeps under the cap, and verify it under load.

    Source:
        NVML's application clock where it differs from the default; the true clock of timed iterations, else NVML's; time
        under the power cap.
    """
    target_mhz = target_clock_mhz(evidence)
    if target_mhz is None:
        return Unobserved(evidence.absence or "no lock is on record, and a locked range cannot be read back from the driver")
    true = measured(evidence)
    clock_mhz = true.clock_mhz if true else working(evidence).mean()
    held = power_cap(evidence)
    if clock_mhz is None and held is None:
        return Unobserved("neither the clock of a working GPU nor time under the power cap was observed")
    capped = held is not None and held.least_ratio > 0.0 and held.ratio > capped_ratio
    facts: dict[str, Fact] = {
        "target_mhz": target_mhz,
        "clock_mhz": clock_mhz,
        "capped_ratio": held.ratio if held else None,
        "by": true.by if true else "the driver's clock",
    }
    off = clock_mhz is not None and abs(clock_mhz - target_mhz) > max(off_ratio * target_mhz, _STEP_MHZ)
    if clock_mhz is None and not capped:
        return Unobserved(
            "the clock of a working GPU was not observed, and something else than the cap may take it off its lock"
        )
    if not (off or capped):
        return Clear(facts)
    facts["ran"] = _ran(clock_mhz, held if capped else None)
    facts["advice"] = "some 30 % lower"
    if clock_mhz is not None:
        holds_mhz = clock_mhz * (_HOLDS_RATIO if true or not capped else _HOLDS_BY_DRIVER_RATIO)
        facts["advice"] = f"{min(holds_mhz, target_mhz) // _STEP_MHZ * _STEP_MHZ:.0f} MHz or less"
    effect_ratio = target_mhz / clock_mhz - 1.0 if clock_mhz else None
    if claim is Claim.FIXED_CLOCK:
        return Found(Severity.REJECT, facts, effect_ratio=effect_ratio)
    # Elsewhere the cap is a label of its own; a clock that is off without it has no other.
    return Found(Severity.NOTE if capped else Severity.FLAG, facts, effect_ratio=effect_ratio)


@rule(
    "clock-controller-present",
    kind=RuleKind.LABEL,
    says="{setting}",
    remedy="State the setting beside the number, or set the GPU back to its maker's default and measure again.",
)
def clock_controller_present(
    evidence: Evidence,
    claim: Claim,
    *,
    power_tolerance_w: Annotated[Watts, "limits are set in whole watts and read back exactly; half a watt is rounding"] = 0.5,
    held_ratio: Annotated[Share, "the driver's reason must hold for more than a refresh or two of a long window"] = 0.02,
) -> Answer:
    """Finds a GPU whose power limit or clock somebody set away from what its maker ships.

    Why it matters:
        Another limit is another machine: 500 W on a board of 1400 W took more than half of the throughput.  The number is
        good, but belongs to the setting, and nobody sees the setting in the number.

    What it cannot see:
        Who set it.  A range set with ``nvidia-smi --lock-gpu-clocks``, where the driver gives no reason for it; power
        profiles and power smoothing.  A change inside the window is ``setting-changed``.

    Remedy:
        A site's policy is legitimate: quote the limit with the number, and compare only with numbers under the same one.

    Source:
        NVML's enforced against its default power limit, the application clock against the highest clock, and the clock
        event reason of application clocks.  Under a fixed-clock claim a lock is what is asked for, so it is a note; so is
        any setting under which the baseline was measured too.
    """
    device = evidence.device
    limit_w, default_w = power_limit_w(evidence), device.power_limit_default_w if device else None
    target_mhz, most_mhz = standing_value(evidence, "sm_clock_lock_mhz"), device.sm_clock_max_mhz if device else None
    asked = by_bits(evidence, Reason.APPLICATIONS_CLOCKS)
    facts: dict[str, Fact] = {"power_limit_w": limit_w, "power_limit_default_w": default_w, "target_mhz": target_mhz}
    settings: list[str] = []
    limited = limit_w is not None and default_w is not None and abs(limit_w - default_w) > power_tolerance_w
    if limited:
        settings.append(f"the power limit is {limit_w:.0f} W instead of {default_w:.0f} W")
    if target_mhz is not None and most_mhz is not None and target_mhz < most_mhz - _STEP_MHZ:
        settings.append(f"the SM clock asked for is {target_mhz:.0f} of {most_mhz:.0f} MHz")
    elif asked is not None and asked.ratio > held_ratio:
        settings.append(f"a clock that somebody asked for held the GPU back for {asked.ratio:.0%} of the window")
    if settings:
        facts["setting"] = ", and ".join(settings)
        meant = (claim is Claim.FIXED_CLOCK and not limited) or has_same_settings(evidence, held_ratio)
        return Found(Severity.NOTE if meant else Severity.FLAG, facts)
    if limit_w is None or default_w is None:
        return Unobserved(evidence.absence or "the enforced power limit and its default were not both observed")
    if asked is None and (target_mhz is None or most_mhz is None):
        return Unobserved("whether somebody asked for a clock was not observed")
    return Clear(facts)


@rule(
    "clock-low-no-reason",
    kind=RuleKind.BIAS,
    needs=("declared.canary_clock_mhz",),
    basis=Basis.DECLARED,
    says="a fixed amount of work ran {low_ratio:.1%} slower than {than}, and no slow-down was reported",
    remedy="Reset the GPU or boot the machine, check power profiles and who else sets clocks, and measure again.",
)
def clock_low_no_reason(
    evidence: Evidence,
    claim: Claim,
    *,
    flag_ratio: Annotated[Share, "an uncapped clock is told true to 0.2 % on an H200; 2 % is ten times that"] = 0.02,
    reject_ratio: Annotated[Share, "5 % moves every kernel by more than a change worth reporting"] = 0.05,
    record_count: Annotated[Count, "the median of five runs survives two bad ones"] = 5.0,
    capped_ratio: Annotated[Share, "capped for less than this, the window's own load cannot linger in the canary"] = 0.02,
) -> Answer:
    """Finds a GPU that is slow without any sign in its telemetry.

    Why it matters:
        After some faults a GPU runs on at a lower clock and reports no reason: 12.8 % of the clock and 9.7 % of a kernel's
        speed between two boots of one machine, 94 instead of 63 ms on another.  Nothing but known work can show it.

    What it cannot see:
        A slow state of all the runs on record.  Without five runs on record only what the driver's own clock contradicts
        is flagged; a clock below the board's maximum is a note then, because many boards never reach their maximum.  Slow
        memory, where the canary did not copy or no copy is on record.

    Remedy:
        Reset the GPU or boot the machine.  If it stays slow, look for power profiles, other tools that hold clocks, and
        cooling, before blaming the kernel.

    Source:
        The canary of ``bench()``: the true clock of a spin and the rate of a copy, against their medians
        over this GPU's healthy runs.  The clock is not weighed while thermal or hardware slow-downs were at work, which
        have rules of their own, and not rejected where the power cap was, or was not observed.
    """
    clock_mhz = amount(evidence.declared, "canary_clock_mhz")
    if not clock_mhz:
        return Unobserved("the canary's clock is no amount")
    target_mhz = target_clock_mhz(evidence)
    # A clock asked for is a reason too; where it can be read it is what the canary must reach.
    faulty = by_bits(evidence, _FAULTS if target_mhz else _FAULTS | Reason.APPLICATIONS_CLOCKS)
    if faulty is not None and faulty.ratio > 0.0:
        return Unobserved("a slow-down with a reason was at work, so the canary's clock has one")
    known = (amount(evidence.declared, "canary_record_count") or 0.0) >= record_count
    facts: dict[str, Fact] = {"canary_mhz": clock_mhz}
    if known and (recorded_mhz := amount(evidence.declared, "canary_record_clock_mhz")):
        goal_mhz = min(recorded_mhz, target_mhz or recorded_mhz)
        lows = {"its own record for the clock": 1.0 - clock_mhz / goal_mhz}
        facts["record_mhz"] = goal_mhz
        copied = amount(evidence.declared, "canary_copy_bytes_count")
        recorded = amount(evidence.declared, "canary_record_copy_bytes_count")
        if copied and recorded:
            lows["its own record for a copy"] = 1.0 - copied / recorded
        facts["than"], facts["low_ratio"] = max(lows.items(), key=lambda low: low[1])
        low_ratio = lows[str(facts["than"])]
        if low_ratio <= flag_ratio:
            return Clear(facts)
        capped = power_cap(evidence)
        uncapped = capped is not None and capped.ratio <= capped_ratio
        sure = uncapped or lows.get("its own record for a copy", 0.0) > reject_ratio
        severity = Severity.REJECT if low_ratio > reject_ratio and sure else Severity.FLAG
        return Found(severity, facts, effect_ratio=_slower_ratio(low_ratio))
    return _without_record(evidence, clock_mhz, facts, reject_ratio)


@rule(
    "nvml-clock-untrue",
    kind=RuleKind.LABEL,
    basis=Basis.TIMINGS,
    says="the driver's clock read {driver_mhz:.0f} MHz where the SMs ran at {true_mhz:.0f} MHz ({off_ratio:+.1%})",
    remedy="Quote the true clock, and compare by it.",
)
def nvml_clock_untrue(
    evidence: Evidence,
    claim: Claim,
    *,
    limit_ratio: Annotated[Share, "uncapped they agree to 0.2 %, under a cap they part by 8-12 %"] = 0.03,
    shortest_s: Annotated[Duration, "with fewer than ten values of the driver's clock its mean hangs on where they fell"] = 1.0,
    fed_ratio: Annotated[Share, "both clocks speak of idling too where the GPU idled: the driver's page is a snapshot"] = 0.9,
) -> Answer:
    """Finds windows in which NVML's SM clock is not the clock the SMs ran at.

    Why it matters:
        Whoever divides by the driver's clock, or compares by it, is off by as much: 1762 instead of 1575 MHz in a bf16
        matrix product of 2048, 8-12 % in every kernel under the power cap.

    What it cannot see:
        Anything without stamps, in less than a second, or while the GPU idled for more than a tenth of the time.

    Remedy:
        Use the true clock for every statement about clocks; gpuwatch does.

    Source:
        Cycle counter over global timer on every SM, against NVML's clock three quarters of a refresh later (75 ms of 100 on
        an H200), which is how far its page lags.  Driver 580.159.04.
    """
    true = measured(evidence)
    if true is None:
        return Unobserved("the true clock was not measured")
    if true.span_s < shortest_s:
        return Unobserved(f"the true clock was measured for {true.span_s:.2f} s, too short to compare with the driver's")
    if max(true.fed_ratio, utilization_ratio(evidence) or 0.0) < fed_ratio:
        return Unobserved("the GPU idled in between, and the driver's clock of idling cannot be told from that of working")
    driver_mhz = driver_clock_mhz(evidence, true)
    if driver_mhz is None:
        return Unobserved("the driver's clock was not observed for most of the time")
    off_ratio = driver_mhz / true.clock_mhz - 1.0
    facts: dict[str, Fact] = {"driver_mhz": driver_mhz, "true_mhz": true.clock_mhz, "off_ratio": off_ratio, "by": true.by}
    return Found(Severity.NOTE, facts) if abs(off_ratio) > limit_ratio else Clear(facts)


def _ran(clock_mhz: float | None, capped: Held | None) -> str:
    at = f"at {clock_mhz:.0f} MHz" if clock_mhz is not None else ""
    under = f"under the power cap for {capped.ratio:.0%} of the window" if capped else ""
    return ", ".join(part for part in (at, under) if part)


def _slower_ratio(low_ratio: float) -> float | None:
    """Return by how much longer work takes at a speed that is so much lower; None where it hardly moves at all."""
    return low_ratio / (1.0 - low_ratio) if low_ratio < 0.99 else None


def _without_record(evidence: Evidence, clock_mhz: float, facts: dict[str, Fact], limit_ratio: float) -> Answer:
    """A canary without a record: against what the driver says it ran at, then against what the board may reach."""
    capped = by_violation(evidence, "power_violation_ns") or by_counter(evidence, "power_cap_ns")
    driver_mhz = evidence.trace.column("sm_clock_mhz").observed.values
    if len(driver_mhz) and capped is not None and capped.ratio == 0.0:
        seen_mhz = float(driver_mhz.max())
        if (low_ratio := 1.0 - clock_mhz / seen_mhz) > limit_ratio:
            facts |= {"low_ratio": low_ratio, "than": f"the driver's clock of {seen_mhz:.0f} MHz would have it"}
            return Found(Severity.FLAG, facts, effect_ratio=_slower_ratio(low_ratio))
    goal_mhz = target_clock_mhz(evidence) or (evidence.device.sm_clock_max_mhz if evidence.device else None)
    if goal_mhz is None:
        return Unobserved("neither a record of this GPU's canary nor its highest clock is known")
    facts |= {"low_ratio": 1.0 - clock_mhz / goal_mhz, "than": f"{goal_mhz:.0f} MHz would have it"}
    return Found(Severity.NOTE, facts) if clock_mhz < (1.0 - limit_ratio) * goal_mhz else Clear(facts)


RULES: tuple[Rule, ...] = (locked_clock_missed, clock_controller_present, clock_low_no_reason, nvml_clock_untrue)
