"""The comparison of two recorded runs: first their conditions, then their times.

Runs of two machines are compared by their numbers at one clock.  Other times are compared at a common clock if the stamps of
both runs allow it, or as measured if both true clocks were constant and equal.  Else the times are compared as measured, with
the drift of sequential runs as the floor.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from annotate.case import Case
from annotate.compare.decision import MARGIN_RATIO, Comparison, Condition, Decision
from annotate.compare.quad_decision import Levels, decide_levels
from annotate.compare.two_machines import FLOOR_RATIO as CORRECTED_FLOOR_RATIO
from annotate.compare.two_machines import MachineTerms, Refusal, are_apart, compare_numbers
from annotate.derived import pair_conditions
from annotate.derived.launch_share import declared_share
from annotate.evidence import Evidence, Timings
from annotate.judge import judge
from annotate.rules import comparison, comparison_design
from annotate.stats.intervals import Interval, batch_interval
from annotate.times.clock_sensitivity import Corrected, NoFit, Sensitivity, sensitivity
from annotate.times.durations import usable
from annotate.user_policy import Policy
from annotate.verdict import Finding, Verdict

# About the largest drift between sequential runs of identical work (docs/COMPARE.md: 3.2 %).
SEQUENTIAL_FLOOR_RATIO = 0.03
_ONE_CLOCK_RATIO = 0.002  # constant clocks this close move a time by at most this share, less than the floor at one clock
_OF_DRIFT = frozenset({"order-bias", "aa-noise-floor-missing"})  # the drift of sequential runs, small at one clock
_FAMILY = frozenset(rule.name for rule in (*comparison.RULES, *comparison_design.RULES))


def of_runs(
    a: Evidence,
    b: Evidence,
    policy: Policy | None = None,
    *,
    names: tuple[str, str] = ("a", "b"),
    terms: MachineTerms | None = None,
) -> Comparison:
    """Compare run ``b`` with run ``a``.

    Runs of two machines, cards or boots are compared by their numbers at one clock, on these ``terms``, if possible.  Else
    the times are compared.  Other hardware or software, another boot, or a rejecting hazard then makes the runs incomparable,
    unless the policy accepts the rule.  At a common clock, ``clock-between-arms`` does not count.
    """
    policy, terms = policy or Policy(), terms or MachineTerms()
    verdicts = (judge(a, policy), judge(replace(b, baseline=a), policy))
    a, b = _with_possible_times(a), _with_possible_times(b)
    is_apart = are_apart(a, b, terms)
    common = None if is_apart else _at_common_clock(a.timings, b.timings) or _at_steady_clock(a, b)
    ending = _ending(verdicts, corrected=common is not None)
    about = Comparison(
        a=names[0],
        b=names[1],
        decision=Decision.INCOMPARABLE,
        a_s=_median_s(a),
        b_s=_median_s(b),
        a_launch=declared_share(a),
        b_launch=declared_share(b),
        design="sequential",
        conditions=conditions(a, b),
        reasons=tuple(dict.fromkeys((*ending, *_comparison_hazards(verdicts, corrected=common is not None)))),
        margin_ratio=MARGIN_RATIO,
        floor_ratio=SEQUENTIAL_FLOOR_RATIO if common is None else CORRECTED_FLOOR_RATIO,
        simulated=any(each.device is not None and each.device.simulated for each in (a, b)),
    )
    if is_apart:
        found = _between_machines(about, (a, b), verdicts, terms)
        if not isinstance(found, Refusal):
            return found
        about = replace(about, reasons=(f"not compared at one clock: {found.reason}", *about.reasons))
    return _as_recorded(about, (a, b), common, ending=ending)


def _between_machines(
    about: Comparison, runs: tuple[Evidence, Evidence], verdicts: tuple[Verdict, Verdict], terms: MachineTerms
) -> Comparison | Refusal:
    """Compare the numbers at one clock; differing conditions are only listed."""
    kept = [each for each in verdicts[1].hazards if each.rule == comparison_design.multiple_looks.name]
    notes = tuple(f"{each.rule}: {each.says}" for each in kept)
    if not terms.is_identified:
        # Equal pseudonyms in two files do not mean one card.
        kept_conditions = tuple(each for each in about.conditions if each.differs or each.name not in ("GPU", "boot"))
        about, notes = replace(about, conditions=kept_conditions), (*notes, f"{terms.unidentified}: treated as two machines")
    hazards = [finding for verdict in verdicts for finding in verdict.hazards if finding.rule not in _FAMILY]
    if any(finding.severity == "reject" and not finding.accepted for finding in hazards):
        return Refusal("one of the runs was rejected")
    return compare_numbers(replace(about, reasons=notes), runs, verdicts, terms)


def _as_recorded(
    about: Comparison,
    runs: tuple[Evidence, Evidence],
    common: tuple[Interval, Interval, str] | None,
    *,
    ending: tuple[str, ...],
) -> Comparison:
    """Compare the times as measured, or at the middle of the clocks that both runs had on one card."""
    a, b = runs
    names = (about.a, about.b)
    undecided = Decision.INCOMPARABLE if ending else Decision.INCONCLUSIVE
    timed = [name for name, each in zip(names, (a, b), strict=True) if each.timings is not None]
    if len(timed) < 2:
        missing = " and ".join(name for name in names if name not in timed)
        reason = f"{missing} recorded no times of single iterations: use w.iteration(), w.record() or gpuwatch.bench"
        return replace(about, decision=undecided, reasons=(*about.reasons, reason))
    if common is not None:
        wide, narrow, design = common
        about = replace(about, ratio=wide, design=design)
    else:
        ran = [_as_they_ran(a, b, confidence) for confidence in (0.95, 0.9)]
        if ran[0] is None or ran[1] is None:
            reason = "the runs are too short, or their times too correlated, for an interval: measure for 3 s and more"
            return replace(about, decision=undecided, reasons=(*about.reasons, reason))
        wide, narrow = ran[0], ran[1]
        about = replace(about, ratio=wide)
    if ending:
        return about
    return _decided(about, Levels(wide, narrow), _skew_ratio(b) / _skew_ratio(a), is_corrected=common is not None)


def _decided(about: Comparison, median: Levels, skew_ratio: float, *, is_corrected: bool) -> Comparison:
    """Decide on comparable runs; ``skew_ratio`` is the mean over the median of the second run, over that of the first."""
    # The clock affects means and medians alike, so the ratio of means is the ratio of medians times that of the skews.
    mean = Levels(*(_scaled(each, skew_ratio) for each in (median.wide, median.narrow)))
    decision = decide_levels(median, mean, floor_ratio=about.floor_ratio, margin_ratio=about.margin_ratio)
    # Uncorrected sequential runs cannot show equality: the margin lies inside their floor.
    if decision is Decision.SAME and not is_corrected:
        decision = Decision.INCONCLUSIVE
    reasons = list(about.reasons)
    if decision is Decision.INCONCLUSIVE and abs(skew_ratio - 1.0) > about.margin_ratio:
        changes = [100 * (each.wide.centre - 1.0) for each in (median, mean)]
        reasons.append(f"median and mean disagree: median {changes[0]:+.2f} %, mean {changes[1]:+.2f} %")
    if decision is Decision.INCONCLUSIVE:
        reasons.append(f"identical runs in sequence differ by up to {about.floor_ratio:.1%}: gpuwatch.compare interleaves them")
    return replace(about, decision=decision, mean_ratio=mean.wide, mean_used="plain", reasons=tuple(reasons))


def conditions(a: Evidence, b: Evidence) -> tuple[Condition, ...]:
    """Return the conditions that both runs should share: first the differing ones, then the others."""
    found: list[Condition] = []
    if a.device is not None and b.device is not None:
        differing = [
            *pair_conditions.differences(a.device, b.device, pair_conditions.MODEL, tolerance=0.5),
            *pair_conditions.differences(a.device, b.device, pair_conditions.BOARD, tolerance=0.0),
        ]
        found += [Condition(each.name, each.a, each.b, differs=True) for each in differing]
        if a.device.uuid == b.device.uuid:
            found.append(Condition("GPU", a.device.uuid, b.device.uuid, differs=False))
    found += [Condition(each.name, each.a, each.b, differs=True) for each in pair_conditions.software(a, b)[1]]
    if a.host.boot_id is not None and b.host.boot_id is not None:
        found.append(Condition("boot", a.host.boot_id, b.host.boot_id, differs=a.host.boot_id != b.host.boot_id))
    clocks = pair_conditions.clocks_mhz(a, b)
    if clocks is not None:
        name = "true SM clock" if clocks.true else "SM clock (driver)"
        differs = clocks.apart_ratio > (0.01 if clocks.true else 0.03)
        found.append(Condition(name, f"{clocks.a_mhz:.0f} MHz", f"{clocks.b_mhz:.0f} MHz", differs=differs))
    return tuple(sorted(found, key=lambda condition: not condition.differs))


def _ending(verdicts: Sequence[Verdict], *, corrected: bool) -> tuple[str, ...]:
    def ends(finding: Finding) -> bool:
        # These three hazards end the comparison even as a flag, other hazards only as a rejection.
        if finding.rule in ("hardware-mismatch", "software-mismatch", "boot-changed"):
            return finding.severity in ("flag", "reject")
        if finding.rule == "clock-between-arms" and corrected:
            return False
        return finding.severity == "reject"

    return tuple(
        f"{finding.rule}: {finding.says}" if finding.rule in _FAMILY else f"{name} is rejected: {finding.rule}: {finding.says}"
        for name, verdict in zip(("the first run", "the second run"), verdicts, strict=True)
        for finding in verdict.hazards
        if not finding.accepted and ends(finding)
    )


def _comparison_hazards(verdicts: Sequence[Verdict], *, corrected: bool) -> tuple[str, ...]:
    hazards = [finding for finding in verdicts[1].hazards if finding.rule in _FAMILY]
    return tuple(f"{each.rule}: {each.says}" for each in hazards if not (corrected and each.rule in _OF_DRIFT))


def _as_they_ran(a: Evidence, b: Evidence, confidence: float) -> Interval | None:
    both = [
        None if each.timings is None else batch_interval(each.timings.at_ns, each.timings.took_s, confidence=confidence)
        for each in (a, b)
    ]
    return None if both[0] is None or both[1] is None else quotient(both[0], both[1])


def _at_steady_clock(a: Evidence, b: Evidence) -> tuple[Interval, Interval, str] | None:
    """Return the ratio as measured, at 95 and 90 %, and the design.

    Return None unless both true clocks were constant and nearly equal, and without intervals.
    """
    clocks = [Case(replace(each, baseline=None)).one_clock for each in (a, b) if each.timings is not None]
    own_mhz = [each.clock_mhz for each in clocks if each.fit is None and each.clock_mhz is not None]
    if len(own_mhz) < 2 or abs(math.log(own_mhz[1] / own_mhz[0])) > _ONE_CLOCK_RATIO:
        return None
    wide, narrow = (_as_they_ran(a, b, confidence) for confidence in (0.95, 0.9))
    return None if wide is None or narrow is None else (wide, narrow, f"sequential, both at {own_mhz[0]:.0f} MHz")


def _at_common_clock(a: Timings | None, b: Timings | None) -> tuple[Interval, Interval, str] | None:
    """Return the ratio at the middle of the common clocks, at 95 and 90 %, and the design.

    Return None without fits, common clocks or intervals.
    """
    if a is None or b is None or a.sm_clock_mhz is None or b.sm_clock_mhz is None:
        return None
    first, second = sensitivity(a), sensitivity(b)
    if not isinstance(first, Sensitivity) or not isinstance(second, Sensitivity):
        return None
    low = max(first.clock_low_mhz, second.clock_low_mhz)
    high = min(first.clock_high_mhz, second.clock_high_mhz)
    if low > high:
        return None
    mhz = 0.5 * (low + high)
    times = [_interval(fit.at_clock(timings, mhz)) for fit, timings in ((first, a), (second, b))]
    if times[0] is None or times[1] is None:
        return None
    wide = quotient(times[0], times[1])
    # The 90 % interval of a normal distribution is 1.645/1.960 of the 95 % interval.
    edges = [wide.centre * (edge / wide.centre) ** (1.645 / 1.960) for edge in (wide.low, wide.high)]
    return wide, Interval(wide.centre, edges[0], edges[1], 0.9, 1), f"sequential, corrected to {mhz:.0f} MHz"


def _interval(corrected: Corrected | NoFit) -> Interval | None:
    if isinstance(corrected, NoFit) or corrected.low_s is None or corrected.high_s is None:
        return None
    return Interval(corrected.time_s, corrected.low_s, corrected.high_s, 0.95, 1)


def quotient(a: Interval, b: Interval) -> Interval:
    """Return the second over the first of two independent positive intervals; their log widths add as squares."""
    centre = b.centre / a.centre
    below = math.hypot(_log(b.centre / b.low), _log(a.high / a.centre))
    above = math.hypot(_log(b.high / b.centre), _log(a.centre / a.low))
    count = min(a.blocks_count, b.blocks_count)
    return Interval(centre, centre * math.exp(-below), centre * math.exp(above), a.confidence, count)


def _log(ratio: float) -> float:
    return math.log(ratio) if ratio > 0 else 20.0  # an edge below zero excludes nothing


def _skew_ratio(evidence: Evidence) -> float:
    took_s = np.empty(0) if evidence.timings is None else evidence.timings.took_s
    return float(np.nanmean(took_s) / np.nanmedian(took_s))


def _scaled(interval: Interval, factor: float) -> Interval:
    return replace(interval, centre=interval.centre * factor, low=interval.low * factor, high=interval.high * factor)


def _with_possible_times(evidence: Evidence) -> Evidence:
    """Return the run, without times if they are invalid: files come from anywhere, and a ratio needs times above zero."""
    timings = usable(evidence.timings, evidence.window)
    is_some = timings is not None and timings.timed.any() and float(np.nanmedian(timings.took_s)) > 0.0
    return evidence if is_some else replace(evidence, timings=None)


def _median_s(evidence: Evidence) -> float | None:
    timings = evidence.timings
    return float(np.nanmedian(timings.took_s)) if timings is not None and timings.timed.any() else None
