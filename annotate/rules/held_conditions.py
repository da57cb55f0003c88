"""Rules about constant conditions: clock levels, an unproven clock lock, dark time, this work's record, work levels."""

from collections.abc import Iterable
from typing import Annotated

from annotate.budget import Bound, Number
from annotate.case import Case
from annotate.claims import Claim
from annotate.derived.clock_answer import answer_clock_shift
from annotate.derived.dark_bounds import dark_bounds, dark_clock, dark_lists, dark_power
from annotate.derived.dark_time import DarkInterval
from annotate.derived.named_clock import named_clock
from annotate.derived.record_shift import clock_record_bounds, compared, record_bounds
from annotate.derived.work_levels import CLOCK_POWER, capped_dips, farthest, no_levels, power_levels, traffic_levels
from annotate.evidence import Evidence, Fact
from annotate.evidence.circumstances import RECORD_COUNT
from annotate.ranges import Duration, Share
from annotate.rule import Answer, Clear, Found, Rule, RuleKind, Unobserved, rule

_FREE_A_CORE = ", with a free CPU core for the daemon, or a higher CPU limit"


@rule(
    "clock-levels",
    kind=RuleKind.BIAS,
    says="{what}",
    remedy="Find what changes the clock (a cap, heat, another controller), or quote the number at one clock.",
)
def clock_levels(case: Case) -> Answer:
    """Finds an SM clock that did not keep one level over the window.

    Why it matters:
        A mean over two clocks describes neither.  With 1500 and 1980 MHz in turns, a kernel that follows the clock is 16 %
        slower than at one level and 12 % faster than at the other.

    Limits of detection:
        A change inside a block of 100 ms or 3 entries: a block shows only its mean.  Under a power cap, levels that differ
        by less than about 3 % in 3 s: the controller's swing hides them.  The swing itself is in every window of capped
        work and counts as repeatability, not as a disturbance.  A clock that was wrong throughout.

    Remedy:
        Find the cause of the levels: other rules report heat, the power cap and locks.  With stamps, quote the number at one
        clock.

    Source:
        The stamped clock of the entries, else NVML's while the GPU worked, in blocks of a refresh and 3 stamped entries.
        Change points by least squares with a penalty from the variance of the controller's swing, merged to levels.  The
        bound is the largest deviation from a level that holds a fifth of the window.  ``docs/RULE_TABLE.md``, section 4.3,
        has the figures.
    """
    return answer_clock_shift(case.blocks, case.clock_shift, clock_levels.name, case.evidence.absence)


@rule(
    "lock-unproven",
    kind=RuleKind.LABEL,
    says="fixed clock unproven: {what}",
    remedy="Declare locked_mhz=, time the iterations with stamps, or drop the claim.",
)
def lock_unproven(case: Case) -> Answer:
    """Finds a ``fixed-clock`` claim without a named clock, or without stamps that prove it.

    Why it matters:
        A number at a fixed clock must be reproducible at that clock.  A steady clock without a name may be chance.  NVML's
        reading proves no clock: under a cap it is 8 to 12 % above the true clock.

    Limits of detection:
        A clock locked with ``nvidia-smi --lock-gpu-clocks``, unless the caller declares it: the driver does not report it.
        The lock behind a declared clock: stamps show only that the clock was kept.

    Remedy:
        Lock one clock, not a range, and declare it: ``window(claim="fixed-clock", locked_mhz=1500)``.

    Source:
        NVML's application clock if it differs from the default (``read``), else ``locked_mhz`` (``declared``), and the
        stamped clock of the entries.
    """
    if case.claim is not Claim.FIXED_CLOCK:
        return Clear()
    named = named_clock(case.evidence)
    facts: dict[str, Fact] = {"named_mhz": named.mhz if named else None, "by": named.by if named else None}
    lacking = [] if named else ["its clock is neither set nor declared"]
    lacking += [] if case.is_stamped else ["no stamps show the true clock"]
    return Found(facts=facts | {"what": " and ".join(lacking)}) if lacking else Clear(facts)


@rule(
    "dark-time",
    kind=RuleKind.BIAS,
    says="{what}",
    remedy="Measure again{advice}.",
)
def dark_time(
    case: Case,
    *,
    clock_s: Annotated[Duration, "two refreshes of the driver's clock and a margin"] = 0.25,
    lists_s: Annotated[Duration, "a neighbour fits into a longer silence of a list read five times a second"] = 0.5,
) -> Answer:
    """Finds parts of the window without evidence, and bounds the disturbance that they can hide.

    Why it matters:
        A disturbance can hide in time without readings.  In ten hours, 0.3 s are negligible; in one second they can hide a
        third of the work.

    Limits of detection:
        Gaps shorter than the rule's limits.  A proof without evidence for half of the window: it is unproven, and its gaps
        do not count here.

    Remedy:
        Leave a CPU core to the daemon: stop other CPU work, or raise the daemon's CPU limit.  After a stop in a debugger, or
        if only the driver's power record has a gap, measure again.  A longer window reduces the share of a gap.

    Source:
        Rows of the clock, the driver's 20 ms power record, process lists.  Counters of capped and thermal time bridge a
        silence of the clock.  The energy counter bridges a silence of the power record, and utilisation a short one.  Times
        with known gaps replace the power record, and stamps replace the driver's clock.
    """
    evidence, length_ns = case.evidence, case.evidence.window.length_ns
    if length_ns <= 0:
        return Unobserved("the window has no length")
    has_gaps = case.gaps is not None
    clock = dark_clock(evidence, case.blocks, longest_s=clock_s)
    power = () if has_gaps else dark_power(evidence, case.idle_w)
    lists = dark_lists(evidence, longest_s=lists_s)
    blind = {"the clock": clock, "the power record": power, "the process lists": lists}
    dark_s = {name: sum(each.length_ns for each in found) / 1e9 for name, found in blind.items() if found}
    bounds = dark_bounds(length_ns, clock=clock, power=power, lists=lists, has_gaps=has_gaps)
    longest_dark_s, window_s = max(dark_s.values(), default=0.0), evidence.window.length_s
    facts: dict[str, Fact] = {
        "dark_s": longest_dark_s,
        "window_s": window_s,
        "unread": ", ".join(dark_s),
        "bound_ratio": max((bound.size_ratio for bound in bounds), default=0.0),
    }
    if not bounds:
        return Unobserved(f"half of the window or more has no reading of {facts['unread']}") if dark_s else Clear(facts)
    longest = max((*clock, *power, *lists), key=lambda each: each.length_ns, default=None)
    if longest is None:
        what, advice = "the times show the idle time that the power record lacks", ""
        return Found(facts=facts | {"what": what, "advice": advice}, bounds=bounds)
    facts["what"] = f"{longest_dark_s:.2f} of {window_s:.2f} s have no reading of {facts['unread']}"
    facts["advice"] = _advice(evidence, longest, clock) if longest in power else _FREE_A_CORE
    return Found(facts=facts, span_ns=(longest.begin_ns, longest.end_ns), bounds=bounds)


def _advice(evidence: Evidence, silent: DarkInterval, clock: Iterable[DarkInterval]) -> str:
    """Return what to do about a silence of the power record: while the daemon read the clock, the daemon was not the cause."""
    if any(each.begin_ns < silent.end_ns and each.end_ns > silent.begin_ns for each in clock):
        return _FREE_A_CORE
    if silent.end_ns >= evidence.window.end_ns and not (evidence.trace.dense_power.at_ns > silent.end_ns).any():
        return ": an earlier gpuwatch did not read the power record after a window"
    return ", or longer: the driver's power record lacks this part"


@rule(
    "record-shift",
    kind=RuleKind.BIAS,
    says="{what} this card's record of {windows_count} windows",
    remedy="Find the change since those windows (a setting, the data, a neighbour, a version), or use another label.",
)
def record_shift(
    case: Case,
    *,
    least_ratio: Annotated[Share, "a tenth of the default tolerance: smaller causes are not printed"] = 0.001,
) -> Answer:
    """Finds numbers that differ from this card's record of the same work by more than the repeatability of both.

    Why it matters:
        A constant condition leaves no trace inside a window: easier data, a neighbour that takes a share of every call, a
        lower clock limit.  On an H200 a GEMM of zeros steadily took 17.7 % less time than one of random numbers.

    Limits of detection:
        Any shift without a record of five windows, and a condition that all of these share.  A shift below the natural
        difference of windows minutes apart: 1.4 % for a raw number, 0.15 % for the median at one clock.  Without times, a
        slow-down at an equal clock: the throughput is unknown, so only the steady clocks are compared.  The disturbed side:
        window or record.

    Remedy:
        Find the change.  If the work changed on purpose, give it a new label, which starts a new record.

    Source:
        The medians of throughput, mean, median and median at one clock over the VALID windows of equal label, program, card,
        driver, power limit, policy and stated claim.  The error is the 95 % range of their spread plus this window's own
        interval.  Without times, the mean true clock after 3 s of load; without stamps, the driver's clock with its error.
    """
    evidence, name = case.evidence, record_shift.name
    if evidence.record is None or len(evidence.record.windows) < RECORD_COUNT:
        return Unobserved("this card has no record of this work")
    shifts = compared(case.numbers.budgets, evidence.record)
    bounds: tuple[Bound, ...] | None = record_bounds(name, shifts) if shifts else None
    if not case.has_times and case.claim is Claim.SUSTAINED:
        bounds = clock_record_bounds(name, evidence, case.blocks, case.load, case.clock_swing_ratio)
    if bounds is None:
        return Unobserved("the record holds none of this window's numbers")
    facts: dict[str, Fact] = {"windows_count": len(evidence.record.windows)}
    facts |= {f"{number.value}_ratio": found.ratio for number, found in shifts.items()}
    worst = max(bounds, key=lambda bound: bound.size_ratio, default=None)
    if worst is None or worst.size_ratio <= least_ratio:
        return Clear(facts)
    ratio = worst.estimate.value_ratio if worst.estimate is not None else worst.size_ratio
    what = worst.number.value.replace("_", " ") if case.has_times else "clock"
    facts["what"] = f"the {what} is {abs(ratio):.1%} {'above' if ratio > 0.0 else 'below'}"
    return Found(facts=facts, bounds=bounds)


@rule(
    "work-levels",
    kind=RuleKind.BIAS,
    says="{by} has levels up to {apart_ratio:.1%} apart",
    remedy="Time the iterations, or find the change between the levels: a clock, the data, hot memory, a phase of the work.",
)
def work_levels(
    case: Case,
    *,
    power_ratio: Annotated[Share, "power in clean uncapped windows of an H200 varies by up to 0.9 %"] = 0.01,
    traffic_ratio: Annotated[
        Share, "traffic in clean loops on an H200 varies by up to 0.5 %, in simulated loops with rests by up to 1.7 %"
    ] = 0.02,
) -> Answer:
    """Finds a change of the work's rate in windows without times, by power and by memory traffic.

    Why it matters:
        A clock can fall without a trace in the driver's gauges: between two refreshes, or stretched during a voltage droop.
        Memory beyond 95 °C is refreshed twice as often, at the same clock.  A kernel that spins is busy without work.  In
        all these cases power above rest, or bytes per second, fall with the calls.

    Limits of detection:
        Levels shorter than two blocks of 100 ms, and changes in a rhythm of a second or less, which may belong to the work.
        Levels of power under a cap, except dips below it.  Levels within 1 % of the rest's power, for work that draws less
        than half of it above rest.  A first mean of traffic that a rest before it explains.  A slower rate looks like easier
        data, so the rule only flags.

    Remedy:
        Time the iterations: times that the books confirm replace this bound.

    Source:
        The driver's 20 ms power record above rest in blocks of 100 ms, including unbroken load before the window, with
        change points as for the clock.  GPM's memory traffic, a mean since the reading before.  On an H200 without a
        disturbance, power varies by up to 0.9 % and traffic by up to 0.5 %.
    """
    evidence = case.evidence
    moved = case.clock_shift.shifts[Number.THROUGHPUT].bound_ratio if case.clock_shift is not None else 0.0
    began_ns = int(case.load.began_ns[0])
    power, fallen = power_levels(evidence, began_ns, case.dips, case.idle_w), capped_dips(evidence, case.dips, case.idle_w)
    traffic = traffic_levels(evidence, began_ns)
    if power is None and fallen is None and traffic is None:
        return Unobserved(evidence.absence or "neither the power of uncapped work nor memory traffic was observed throughout")
    limits = ((power, max(power_ratio, CLOCK_POWER * moved)), (fallen, power_ratio), (traffic, traffic_ratio))
    counted = [each for each, limit in limits if each is not None and each.bound_ratio > limit]
    shown = farthest(counted)
    if shown is None:
        return Clear({"bound_ratio": 0.0})
    facts: dict[str, Fact] = {
        "by": shown.by,
        "levels_count": shown.levels_count,
        "apart_ratio": shown.apart_ratio,
        "bound_ratio": shown.bound_ratio,
    }
    if case.has_times and case.times_agree:
        return Found(facts=facts, bounds=no_levels(work_levels.name))
    is_claimed = case.fact("varies") is True  # the work changes by design
    return Found(facts=facts, span_ns=shown.span_ns, bounds=() if is_claimed else shown.bounds(work_levels.name))


RULES: tuple[Rule, ...] = (clock_levels, lock_unproven, dark_time, record_shift, work_levels)
