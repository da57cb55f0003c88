"""Numbers of two machines, compared at one clock.

Raw times of the same code on two cards can differ by more than 1 %, medians at a clock near both by less.  Each side's own
sensitivity converts its number to the clock.  The interval includes the repeatability of both numbers, the disturbances of
both windows, and the spread between cards.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from annotate.budget import Number
from annotate.case import Case
from annotate.compare.decision import Comparison, Decision, OneClock
from annotate.compare.quad_decision import Levels, decide_levels
from annotate.derived import pair_conditions
from annotate.evidence import Evidence
from annotate.stats.intervals import Interval
from annotate.stats.robust import centre
from annotate.times.at_one_clock import STILL_RATIO
from annotate.times.durations import usable
from annotate.times.reference_clock import ReferenceClock, card_spread_ratio, reference_clock_mhz
from annotate.verdict import Verdict

# The largest difference of identical work, timed in sequence and corrected to one clock, with a margin.
FLOOR_RATIO = 0.005
# A kernel's time is proportional to the clock to the power −β; an unknown β from 0 (memory) to 1 (arithmetic) is 0.5 ± 0.5.
_UNKNOWN_BETA, _UNKNOWN_BETA_ERROR = 0.5, 0.5
_NARROW = 1.645 / 1.960  # a normal 90 % interval over its 95 %


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineTerms:
    """The terms of a comparison of two machines: the user's clock and spread in place of the model's.

    ``clock_mhz`` is the clock to compare at, ``reference_clock_mhz`` that of models, for times that do not follow the clock.
    ``is_ratio`` requests the ratio of two models.  ``is_identified`` is false if equal names in two files may mean different
    cards, for example because names were redacted; ``unidentified`` is the reason.
    """

    clock_mhz: float | None = None
    reference_clock_mhz: ReferenceClock | None = None
    card_spread_ratio: float | None = None
    is_ratio: bool = False
    is_identified: bool = True
    unidentified: str = "names are redacted"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason, in one line, for not comparing two numbers at one clock."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Side:
    """One machine's number at a clock; ``random_ratio`` is the repeatability, ``bound_ratio`` the bound on disturbances."""

    mhz: float
    time_s: float
    mean_s: float
    random_ratio: float | None
    unknown: str  # reason why the repeatability is not known
    bound_ratio: float | None
    spread_ratio: float | None


def are_apart(a: Evidence, b: Evidence, terms: MachineTerms) -> bool:
    """Return True for two or unidentified cards, one card under other settings, or two boots; False if a device is unknown."""
    if a.device is None or b.device is None:
        return False
    boots = (a.host.boot_id, b.host.boot_id)
    if not terms.is_identified or (None not in boots and boots[0] != boots[1]):
        return True
    return any(
        pair_conditions.differences(a.device, b.device, names, tolerance=tolerance)
        for names, tolerance in ((pair_conditions.MODEL, 0.5), (pair_conditions.BOARD, 0.0))
    )


def compare_numbers(
    about: Comparison, runs: tuple[Evidence, Evidence], verdicts: Sequence[Verdict], terms: MachineTerms
) -> Comparison | Refusal:
    """Decide on the numbers at one clock, or return a refusal with the reason.

    ``about`` names the two runs and lists their conditions.  The caller refuses runs that were rejected.
    """
    other_kind = _kind_differences(runs)
    if other_kind and not terms.is_ratio:
        return Refusal(f"two models of GPU ({pair_conditions.listed(other_kind)}): only their ratio can be compared (--ratio)")
    if otherwise := pair_conditions.measured_otherwise(*runs):
        return Refusal(f"two different numbers: {pair_conditions.listed(otherwise)}")
    if terms.clock_mhz is None and not other_kind:
        terms = replace(terms, clock_mhz=_middle_mhz(runs))
    sides = []
    for name, run, verdict in zip((about.a, about.b), runs, verdicts, strict=True):
        side = _side(run, verdict, terms)
        if isinstance(side, Refusal):
            return Refusal(f"{name} has no number at one clock: {side.reason}")
        sides.append(side)
    return _decided(about, sides[0], sides[1], are_models=bool(other_kind))


def _kind_differences(runs: tuple[Evidence, Evidence]) -> list[pair_conditions.Difference]:
    a, b = (run.device for run in runs)
    return [] if a is None or b is None else pair_conditions.differences(a, b, pair_conditions.KIND, tolerance=0.0)


def _middle_mhz(runs: tuple[Evidence, Evidence]) -> float | None:
    """Return the clock between those of two runs, in whole MHz, or None if the times of one run do not follow the clock.

    Exponents of one kernel differ between cards, so numbers of two cards differ least if neither is converted far.
    """
    found = [Case(replace(run, timings=usable(run.timings, run.window), baseline=None)).one_clock for run in runs]
    own = [times.clock_mhz for times in found if times.fit is not None and times.clock_mhz is not None]
    return round(math.sqrt(own[0] * own[1])) if len(own) == len(runs) else None


def _side(run: Evidence, verdict: Verdict, terms: MachineTerms) -> _Side | Refusal:
    """Return the number of a run at the clock of the terms, else at its model's reference clock."""
    model = run.device.name if run.device is not None else None
    mhz = reference_clock_mhz(model, terms.clock_mhz or terms.reference_clock_mhz)
    if mhz is None:
        return Refusal(
            f"no reference clock of {model or 'its GPU'} is on record (give one with --clock MHZ, or set reference_clock)"
        )
    case = Case(replace(run, timings=usable(run.timings, run.window), baseline=None), reference_mhz=mhz)
    if not case.has_times:
        return Refusal("no times of single iterations were recorded")
    try:
        found, times = case.numbers.number(Number.MEDIAN_AT_CLOCK), case.one_clock
    except (ArithmeticError, ValueError):  # invalid times, which rules report
        return Refusal("no number can be computed from its times")
    if found.value is None or found.clock_mhz is None:
        return Refusal(times.refusal[:1].lower() + times.refusal[1:].rstrip("."))
    if not 0.0 < found.value < math.inf:
        return Refusal("no number can be computed from its times")
    moved = math.log(mhz / found.clock_mhz)
    if abs(moved) > STILL_RATIO:
        ran = "its clock was constant" if times.fit is None else "it ran too far away,"
        other = f"use --clock {found.clock_mhz:.0f} for that clock"
        return Refusal(f"{ran} at {found.clock_mhz:.0f} MHz, so its time at {mhz:.0f} MHz is unknown ({other})")
    factor = math.exp(-_UNKNOWN_BETA * moved)
    random_ratio = found.repeatability.ratio
    budget = verdict.budget.number(Number.MEDIAN_AT_CLOCK) if verdict.budget is not None else None
    return _Side(
        mhz=mhz,
        time_s=found.value * factor,
        mean_s=found.value * factor * float(times.took_s.mean()) / centre(times.took_s),
        random_ratio=None if random_ratio is None else math.hypot(random_ratio, _UNKNOWN_BETA_ERROR * moved),
        unknown=found.repeatability.kind,
        bound_ratio=None if budget is None else budget.bound_ratio,
        spread_ratio=card_spread_ratio(
            model, terms.card_spread_ratio, moved=math.log(mhz / times.clock_mhz) if times.fit and times.clock_mhz else 0.0
        ),
    )


def _decided(about: Comparison, a: _Side, b: _Side, *, are_models: bool) -> Comparison:
    spread_ratio = _spread_ratio(a, b, are_models=are_models)
    about = replace(
        about,
        decision=Decision.INCONCLUSIVE,
        design=f"two machines, at {a.mhz:.0f} MHz" if a.mhz == b.mhz else f"two machines, at {a.mhz:.0f} and {b.mhz:.0f} MHz",
        floor_ratio=FLOOR_RATIO,
        one_clock=OneClock(
            a_mhz=a.mhz,
            b_mhz=b.mhz,
            a_s=a.time_s,
            b_s=b.time_s,
            a_repeatability_ratio=a.random_ratio,
            b_repeatability_ratio=b.random_ratio,
            a_bound_ratio=a.bound_ratio,
            b_bound_ratio=b.bound_ratio,
            card_spread_ratio=spread_ratio,
        ),
    )
    unknown = [
        f"{name}: {reason}"
        for name, side in ((about.a, a), (about.b, b))
        for reason in (
            f"its repeatability is not known ({side.unknown})" if side.random_ratio is None else "",
            "the disturbances of its window have no bound" if side.bound_ratio is None else "",
        )
        if reason
    ]
    median = _levels(a, b, b.time_s / a.time_s, spread_ratio or 0.0)
    about = replace(about, ratio=median.wide)
    if spread_ratio is None:
        unknown.append("no spread between cards of this model is on record: set card_spread")
    if unknown:
        return replace(about, reasons=(*about.reasons, *unknown))
    mean = _levels(a, b, b.mean_s / a.mean_s, spread_ratio or 0.0)
    about = replace(about, mean_ratio=mean.wide, mean_used="plain")
    decision = decide_levels(median, mean, floor_ratio=about.floor_ratio, margin_ratio=about.margin_ratio)
    if are_models and decision is Decision.SAME:
        decision = Decision.INCONCLUSIVE
    reasons = list(about.reasons)
    if are_models:
        reasons.append("a ratio of two models, each at its own clock if the clocks differ: the ratio does not compare code")
    elif decision is Decision.INCONCLUSIVE:
        reasons.append(_doubt(median, mean, about))
    return replace(about, decision=decision, reasons=tuple(reasons))


def _spread_ratio(a: _Side, b: _Side, *, are_models: bool) -> float | None:
    """Return the difference to allow between two cards: the spread of one model, or the sum for two models; None if unknown."""
    if a.spread_ratio is None or b.spread_ratio is None:
        return None
    return a.spread_ratio + b.spread_ratio if are_models else max(a.spread_ratio, b.spread_ratio)


def _levels(a: _Side, b: _Side, ratio: float, spread_ratio: float) -> Levels:
    """Return the intervals of a ratio: repeatabilities add as squares, and limits (bounds and the spread) add in full."""
    random = math.hypot(a.random_ratio or 0.0, b.random_ratio or 0.0)
    limits = math.log1p(spread_ratio) + math.log1p(a.bound_ratio or 0.0) + math.log1p(b.bound_ratio or 0.0)
    halves = (random + limits, _NARROW * random + limits)
    wide, narrow = (
        Interval(ratio, ratio * math.exp(-half), ratio * math.exp(half), confidence, 1)
        for half, confidence in zip(halves, (0.95, 0.9), strict=True)
    )
    return Levels(wide, narrow)


def _doubt(median: Levels, mean: Levels, about: Comparison) -> str:
    changes = [100 * (each.wide.centre - 1.0) for each in (median, mean)]
    if abs(changes[1] - changes[0]) > 100 * about.margin_ratio:
        return f"median and mean disagree: median {changes[0]:+.2f} %, mean {changes[1]:+.2f} %"
    return (
        f"a difference must exceed its interval and {about.floor_ratio:.1%};"
        f" SAME needs all of the interval within {about.margin_ratio:.1%}"
    )
