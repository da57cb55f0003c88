"""Rules about control of the clock: locks, other controllers, hidden slow states, and a driver that reports another clock."""

from collections.abc import Mapping
from typing import Annotated

from annotate.budget import Bound
from annotate.case import Case
from annotate.claims import Claim
from annotate.declared import amount
from annotate.derived.busy import utilization_ratio
from annotate.derived.condition_bounds import canary_bounds, canary_lows, has_slow_reason
from annotate.derived.held import Held, by_bits, power_cap
from annotate.derived.named_clock import named_clock, named_clock_bounds, off_blocks_ratio
from annotate.derived.settings_throughout import power_limit_w, standing_value, target_clock_mhz
from annotate.derived.sm_clock import driver_clock_mhz, measured, working
from annotate.evidence import Evidence, Fact, Reason
from annotate.ranges import Count, Duration, Share, Watts
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Unobserved, rule

# Clocks are set in steps of 15 MHz, so a lock may be rounded by one step.
_STEP_MHZ = 15.0
# A lock holds at this share of the SMs' mean clock under the cap; the driver's clock reads 8-12 % above that mean.
_HOLDS_RATIO, _HOLDS_BY_DRIVER_RATIO = 0.95, 0.85
_STEADY_RATIO = 1e-4  # the least noise of a clock: a lock kept this well is not missed
# A canary without a record is a finding only this far below the board's highest clock: many boards stay slightly below it.
_LOW_RATIO = 0.05


@rule(
    "locked-clock-missed",
    kind=RuleKind.BIAS,
    says="the requested SM clock is {target_mhz:.0f} MHz, but the GPU ran {ran}",
    remedy="Lock a clock that holds under this load, {advice}, or drop the lock.",
)
def locked_clock_missed(
    case: Case,
    *,
    off_ratio: Annotated[Share, "a lock that holds stays within a step or two of 15 MHz: 2 % of 1980 is two and a half"] = 0.02,
    capped_ratio: Annotated[Share, "a cap takes the clock off its lock; 1 % of the time is above the noise"] = 0.01,
) -> Answer:
    """Finds a clock lock that did not hold under the load.

    Why it matters:
        A number at a locked clock claims to be free of the power controller.  At 700 W a bf16 matrix product runs 30 %
        below a lock of 1980 MHz, and its clock swings.

    Limits of detection:
        A lock set with ``nvidia-smi --lock-gpu-clocks``, unless a ``fixed-clock`` claim declares it: driver 580 does not
        report such locks.  Without stamps the rule uses the driver's clock, which reads 8-12 % above the true one under a
        cap.

    Remedy:
        Lock a clock about 5 % below the mean of this work under the cap, and verify it under load.

    Source:
        The requested clock is NVML's application clock if it differs from the default, else, under ``fixed-clock``,
        ``locked_mhz``.  The actual clock is the true clock by stamps, else NVML's.  Time under the power cap also counts.
        Under ``fixed-clock`` the bias is the deviation from the named clock in every block.  Under other claims a missed
        lock is a label.
    """
    if case.claim is Claim.FIXED_CLOCK:
        return _missed_named_clock(case)
    evidence = case.evidence
    target_mhz = target_clock_mhz(evidence)
    if target_mhz is None:
        return Unobserved(evidence.absence or "no lock is on record, and a locked range cannot be read back from the driver")
    true = measured(evidence)
    clock_mhz = true.clock_mhz if true else working(evidence).mean()
    held = power_cap(evidence)
    if clock_mhz is None and held is None:
        return Unobserved("neither the clock of a working GPU nor time under the power cap was observed")
    capped = held is not None and held.least_ratio > 0.0 and held.ratio > capped_ratio
    if clock_mhz is None and not capped:
        return Unobserved("the clock of a working GPU was not observed, and causes other than the cap may take it off its lock")
    facts = _lock_facts(target_mhz, clock_mhz, held if capped else None, by=true.by if true else None)
    off = clock_mhz is not None and abs(clock_mhz - target_mhz) > max(off_ratio * target_mhz, _STEP_MHZ)
    return Found(facts=facts) if off or capped else Clear(facts)


def _missed_named_clock(case: Case) -> Answer:
    """Return the answer under ``fixed-clock``, against the named clock."""
    evidence, named, blocks = case.evidence, named_clock(case.evidence), case.blocks
    if named is None:
        return Unobserved(evidence.absence or "no lock is on record, and locked_mhz was not declared")
    if blocks is None:
        return Unobserved(evidence.absence or "the clock of a working GPU was not observed")
    held = power_cap(evidence)
    capped = held if held is not None and held.ratio > 0.0 else None
    clock_mhz = float(blocks.mhz[blocks.known].mean())
    by = "the stamped iterations" if case.is_stamped else None
    facts = _lock_facts(named.mhz, clock_mhz, capped, by=by)
    facts |= {"named_by": named.by, "off_blocks_ratio": off_blocks_ratio(blocks, named.mhz)}
    bounds = named_clock_bounds(blocks, named.mhz, case.beta, quoted_mhz=case.one_clock.clock_mhz)
    is_missed = capped is not None or any(bound.size_ratio > _STEADY_RATIO for bound in bounds)
    return Found(facts=facts, bounds=bounds) if is_missed else Clear(facts)


def _lock_facts(target_mhz: float, clock_mhz: float | None, capped: Held | None, *, by: str | None) -> dict[str, Fact]:
    """Return the requested and the actual clock, in figures and in words, and the advice."""
    facts: dict[str, Fact] = {
        "target_mhz": target_mhz,
        "clock_mhz": clock_mhz,
        "capped_ratio": capped.ratio if capped else None,
        "by": by or "the driver's clock",
        "ran": _ran(clock_mhz, capped),
        "advice": "some 30 % lower",
    }
    if clock_mhz is not None and clock_mhz > target_mhz:
        facts["advice"] = "and check that it is in force"
    elif clock_mhz is not None:
        holds_mhz = clock_mhz * (_HOLDS_RATIO if by or not capped else _HOLDS_BY_DRIVER_RATIO)
        facts["advice"] = f"{holds_mhz // _STEP_MHZ * _STEP_MHZ:.0f} MHz or less"
    return facts


@rule(
    "clock-controller-present",
    kind=RuleKind.LABEL,
    says="{setting}",
    remedy="State the setting with the number, or restore the vendor's default and measure again.",
)
def clock_controller_present(
    evidence: Evidence,
    claim: Claim,
    *,
    power_tolerance_w: Annotated[Watts, "limits are set in whole watts and read back exactly; half a watt is rounding"] = 0.5,
    held_ratio: Annotated[Share, "the driver's reason must hold for more than a refresh or two of a long window"] = 0.02,
) -> Answer:
    """Finds a GPU whose power limit or clock differs from the vendor's default.

    Why it matters:
        A power limit of 500 W on a board of 1400 W took more than half of the throughput.  The number is valid only for that
        setting, which the number alone does not show.

    Limits of detection:
        The user or tool that changed the setting.  A range set with ``nvidia-smi --lock-gpu-clocks``, if the driver shows no
        event reason for it; power profiles and power smoothing.  A change inside the window: ``setting-changed`` finds it.

    Remedy:
        A site's policy is legitimate: quote the limit with the number, and compare only numbers under the same limit.

    Source:
        NVML's enforced against its default power limit, the application clock against the highest clock, and the clock
        event reason of application clocks.
    """
    device = evidence.device
    limit_w, default_w = power_limit_w(evidence), device.power_limit_default_w if device else None
    target_mhz, most_mhz = standing_value(evidence, "sm_clock_lock_mhz"), device.sm_clock_max_mhz if device else None
    asked = by_bits(evidence, Reason.APPLICATIONS_CLOCKS)
    facts: dict[str, Fact] = {"power_limit_w": limit_w, "power_limit_default_w": default_w, "target_mhz": target_mhz}
    settings: list[str] = []
    if limit_w is not None and default_w is not None and abs(limit_w - default_w) > power_tolerance_w:
        settings.append(f"power limit {limit_w:.0f} of {default_w:.0f} W")
    if target_mhz is not None and most_mhz is not None and target_mhz < most_mhz - _STEP_MHZ:
        settings.append(f"SM clock set to {target_mhz:.0f} of {most_mhz:.0f} MHz")
    elif asked is not None and asked.ratio > held_ratio:
        settings.append(f"a clock setting held for {asked.ratio:.0%} of the time")
    if settings:
        return Found(facts=facts | {"setting": ", ".join(settings)})
    if limit_w is None or default_w is None:
        return Unobserved(evidence.absence or "the enforced power limit and its default were not both observed")
    if asked is None and (target_mhz is None or most_mhz is None):
        return Unobserved("requests for a clock were not observed")
    return Clear(facts)


@rule(
    "clock-low-no-reason",
    kind=RuleKind.BIAS,
    needs=("declared.canary_clock_mhz",),
    basis=Basis.DECLARED,
    says="a fixed amount of work ran {low_ratio:.1%} slower than {than}, and no slow-down was reported",
    remedy="Reset the GPU or boot the machine, check power profiles and tools that set clocks, and measure again.",
)
def clock_low_no_reason(
    case: Case,
    *,
    record_count: Annotated[Count, "the median of five runs survives two bad ones"] = 5.0,
    capped_ratio: Annotated[Share, "a cap for less time cannot affect the canary"] = 0.02,
) -> Answer:
    """Finds a GPU that is slow without any sign in its telemetry.

    Why it matters:
        After some faults a GPU runs at a lower clock and reports no reason.  Two boots of one machine differed by 12.8 % in
        the clock and 9.7 % in a kernel's speed; another machine took 94 ms instead of 63 ms.  Only known work shows such a
        state.

    Limits of detection:
        A slow state that all recorded runs share.  Without five recorded runs, the size of the slow-down: the rule then
        compares the canary only with the driver's clock.  A clock below the board's maximum is a label in that case, because
        many boards never reach it.  Slow memory, if the canary did not copy or no copy is on record.

    Remedy:
        Reset the GPU or boot the machine.  If it stays slow, check power profiles, tools that set clocks, and cooling.

    Source:
        The canary of ``bench()``: the true clock of a spin and the rate of a copy, against their medians over this GPU's
        valid runs.  Both repeat to 0.2 %.  The canary does not count during slow-downs by heat, hardware, brake or sync
        boost, which have their own rules.  Nor does it count under an application clock of unknown value.  The canary's clock
        does not count if the power cap held or was not observed.
    """
    evidence = case.evidence
    clock_mhz = amount(evidence.declared, "canary_clock_mhz")
    if not clock_mhz:
        return Unobserved("the declared canary_clock_mhz is invalid: expected a positive number in MHz")
    if has_slow_reason(evidence):
        return Unobserved("a slow-down with a known reason held, which explains the canary's clock")
    facts: dict[str, Fact] = {"canary_mhz": clock_mhz}
    lows = canary_lows(evidence, record_count=record_count, capped_ratio=capped_ratio)
    bounds = canary_bounds(evidence, record_count=record_count, capped_ratio=capped_ratio)
    if lows is None:
        return _without_record(evidence, clock_mhz, facts, bounds)
    if not lows:
        return Unobserved("the power cap held or was not observed, and no copy is on record")
    what = max(lows, key=lows.__getitem__)
    facts |= {"low_ratio": lows[what], "than": f"its own record for {'the clock' if what == 'clock' else 'a copy'}"}
    facts["record_mhz"] = amount(evidence.declared, "canary_record_clock_mhz")
    return Found(facts=facts, bounds=bounds) if bounds else Clear(facts)


@rule(
    "nvml-clock-untrue",
    kind=RuleKind.LABEL,
    basis=Basis.TIMINGS,
    says="true clock {apart_ratio:.0%} {side} NVML's",
    remedy="Quote the true clock, and compare by it.",
)
def nvml_clock_untrue(
    evidence: Evidence,
    claim: Claim,
    *,
    limit_ratio: Annotated[Share, "uncapped both clocks agree to 0.2 %, under a cap they differ by 8-12 %"] = 0.03,
    shortest_s: Annotated[Duration, "the mean of fewer than ten values of the driver's clock depends on their times"] = 1.0,
    fed_ratio: Annotated[Share, "in a window with more idle time, both clocks include idling"] = 0.9,
) -> Answer:
    """Finds windows in which NVML's SM clock differs from the true clock of the SMs.

    Why it matters:
        A figure derived from the driver's clock is off by the same ratio.  NVML showed 1762 MHz while a bf16 matrix product
        of 2048 ran at 1575 MHz, and 8-12 % too much for every kernel under the power cap.

    Limits of detection:
        Differences without stamps, in less than a second, or in a window with more than 10 % idle time.

    Remedy:
        Use the true clock for every statement about clocks, as gpuwatch does.

    Source:
        Cycle counter over global timer of several SMs, against NVML's clock three quarters of a refresh later.  On an H200
        the driver's clock lags by 75 ms with a refresh of 100 ms.  Driver 580.159.04.
    """
    true = measured(evidence)
    if true is None:
        return Unobserved("the true clock was not measured")
    if true.span_s < shortest_s:
        return Unobserved(f"the true clock was measured for {true.span_s:.2f} s, too short to compare with the driver's")
    if max(true.fed_ratio, utilization_ratio(evidence) or 0.0) < fed_ratio:
        return Unobserved("the GPU idled in between, and the driver's clock does not separate idling from work")
    driver_mhz = driver_clock_mhz(evidence, true)
    if driver_mhz is None:
        return Unobserved("the driver's clock was not observed for most of the time")
    off_ratio = driver_mhz / true.clock_mhz - 1.0
    apart_ratio = true.clock_mhz / driver_mhz - 1.0
    facts: dict[str, Fact] = {
        "driver_mhz": driver_mhz,
        "true_mhz": true.clock_mhz,
        "off_ratio": off_ratio,
        "apart_ratio": abs(apart_ratio),
        "side": "below" if apart_ratio < 0.0 else "above",
        "by": true.by,
    }
    return Found(facts=facts) if abs(off_ratio) > limit_ratio else Clear(facts)


def _ran(clock_mhz: float | None, capped: Held | None) -> str:
    at = f"at {clock_mhz:.0f} MHz" if clock_mhz is not None else ""
    under = f"under the power cap for {capped.ratio:.0%} of the window" if capped else ""
    return ", ".join(part for part in (at, under) if part)


def _without_record(evidence: Evidence, clock_mhz: float, facts: dict[str, Fact], bounds: tuple[Bound, ...]) -> Answer:
    """Return the answer for a canary without a record: against the driver's clock, else a label against the highest clock."""
    shown_mhz = evidence.trace.column("sm_clock_mhz").observed.values
    if bounds and len(shown_mhz):
        seen_mhz = float(shown_mhz.max())
        contradicted: dict[str, Fact] = {
            "low_ratio": 1.0 - clock_mhz / seen_mhz,
            "than": f"at the driver's clock of {seen_mhz:.0f} MHz",
        }
        return Found(facts=facts | contradicted, bounds=bounds)
    goal_mhz = target_clock_mhz(evidence) or (evidence.device.sm_clock_max_mhz if evidence.device else None)
    if goal_mhz is None:
        return Unobserved("neither a record of this GPU's canary nor its highest clock is known")
    facts |= {"low_ratio": 1.0 - clock_mhz / goal_mhz, "than": f"at {goal_mhz:.0f} MHz"}
    return Found(facts=facts) if clock_mhz < (1.0 - _LOW_RATIO) * goal_mhz else Clear(facts)


RULES: tuple[Rule, ...] = (locked_clock_missed, clock_controller_present, clock_low_no_reason, nvml_clock_untrue)
RETIRED_LIMITS: Mapping[str, tuple[str, ...]] = {clock_low_no_reason.name: ("flag_ratio", "reject_ratio")}
