"""The decision on a qualification: differences from reference cards of the model, with intervals, and the answer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from annotate.times.reference_clock import card_spread_ratio
from gpuwatch.comparing.instance_facts import FactDifference, Reach, fact_differences
from gpuwatch.comparing.qualification import Amount, Qualification

# A further card of the model lies outside the band of one probe with this probability; of all six probes, one card in 17.
_OUTSIDE_SHARE = 0.01
_FEWEST_CARDS_COUNT = 3  # with fewer cards, the spread between cards is unknown
# The GEMM's exponent: five H200s gave 0.93 to 1.03 (docs/decisions/0088).
_BETA, _BETA_ERROR = 0.97, 0.05


class Likeness(StrEnum):
    """The relation of a difference's interval to the band in which cards of the model lie."""

    ALIKE = "alike"
    UNCLEAR = "unclear"
    DIFFERENT = "different"


class Comparable(StrEnum):
    """The four answers, best first."""

    YES = "comparable"
    UNKNOWN = "unknown"
    PARTLY = "partly"
    NO = "not-comparable"


@dataclass(frozen=True, slots=True)
class Probe:
    """A probed number.  ``floor_ratio`` is the least half width of its band, even if the reference cards are closer."""

    name: str
    title: str
    reach: Reach
    floor_ratio: float
    is_rate: bool = False  # a larger number is a faster GPU
    has_library: bool = False  # the number depends on a library's version


# Floors: the largest differences between the first five cards of docs/FLEET.md, rounded up; for the light clock, less than a
# step of 15 MHz.  For GEMM at one clock, more than these cards' difference: two other cards showed 0.34 %
# (annotate/times/reference_clock.py).  For a launch, more than the 23 % by which reruns on one instance differed, because the
# host dominates a launch.
PROBES = (
    Probe("light_clock_mhz", "clock under light work", Reach.RAW, 0.005, is_rate=True),
    Probe("copy_s", "copy 1 GiB", Reach.ALL, 0.008),
    Probe("gemm_s", "GEMM bf16", Reach.RAW, 0.024, has_library=True),
    Probe("gemm_clock_mhz", "its clock", Reach.RAW, 0.019, is_rate=True, has_library=True),
    Probe("gemm_at_clock_s", "GEMM at one clock", Reach.ALL, 0.005, has_library=True),
    Probe("launch_s", "launch and wait", Reach.HOST, 0.25),
)
_AT_CLOCK = "gemm_at_clock_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeDifference:
    """The relative difference of this instance from the reference cards, its 95 % interval, and the band of such cards."""

    probe: Probe
    here: float
    reference: float
    cards_count: int
    ratio: float
    low_ratio: float
    high_ratio: float
    band_ratio: float
    likeness: Likeness

    @property
    def speed(self) -> str:
        """Return the word faster or slower for this instance."""
        return "faster" if (self.ratio > 0.0) is self.probe.is_rate else "slower"

    @property
    def interval(self) -> str:
        """Format the difference with its interval."""
        ends = f"{self.low_ratio:+.2%} to {self.high_ratio:+.2%}" if math.isfinite(self.high_ratio) else "interval not known"
        return f"{self.ratio:+.2%} ({ends})".replace("-0.00%", "+0.00%")


@dataclass(frozen=True, slots=True, kw_only=True)
class QualifyDecision:
    """The answer, its reasons, and all comparisons."""

    comparable: Comparable
    reasons: tuple[str, ...]
    facts: tuple[FactDifference, ...]
    probes: tuple[ProbeDifference, ...]
    cards_count: int
    is_own: bool  # the reference is an earlier result of this card


def decide(card: Qualification, reference: Sequence[Qualification], spread_ratio: float | None = None) -> QualifyDecision:
    """Compare a card with the other cards of a reference, or with its own earlier result if the reference holds no other.

    Results of cards that were disturbed during their measurement are ignored.  ``spread_ratio`` is the setting card_spread.
    """
    clean = [each for each in reference if each.is_clean]
    others = [each for each in clean if each.card_key != card.card_key] or clean
    facts = tuple(fact_differences(card, others)) if others else ()
    probes, unknown = [], []
    for probe in PROBES:
        measured = [each for each in others if probe.name in each.amounts]
        theirs = [each for each in measured if not probe.has_library or each.software.get("gemm") == card.software.get("gemm")]
        here = card.amounts.get(probe.name)
        if measured and here is None:
            unknown.append(f"{probe.title} was not measured: {card.missing.get(probe.name, 'no reason is on record')}")
        elif measured and not theirs:
            unknown.append(f"{probe.title} is not compared: {_libraries(card, measured)}")
        elif here is not None and theirs:
            amounts = [each.amounts[probe.name] for each in theirs]
            probes.append(_compare(probe, here, amounts, _floor_ratio(probe, card.device.name, spread_ratio)))
    if not others:
        unknown.append(f"the reference holds no undisturbed {card.device.name}")
    return _answer(card, others, facts, tuple(probes), unknown)


def _libraries(card: Qualification, others: Sequence[Qualification]) -> str:
    theirs = sorted({each.software.get("gemm", "an unknown library") for each in others})
    return f"it ran with {card.software.get('gemm', 'an unknown library')}, the reference with {', '.join(theirs)}"


def _floor_ratio(probe: Probe, model: str, given_ratio: float | None) -> float:
    if probe.name != _AT_CLOCK:
        return probe.floor_ratio
    return max(probe.floor_ratio, card_spread_ratio(model, given_ratio) or 0.0) if given_ratio is None else given_ratio


def _compare(probe: Probe, here: Amount, theirs: Sequence[Amount], floor_ratio: float) -> ProbeDifference:
    moved = [move_to_clock(each, here.clock_mhz) for each in theirs]
    logs = [math.log(each.value) for each in moved]
    error, band = _spread_errors(logs, [each.half_ratio for each in theirs], floor_ratio)
    middle = statistics.fmean(logs)
    difference = math.log(here.value) - middle
    # All converted times share the exponent's error.
    moved_log = (
        statistics.fmean(math.log(each.value / before.value) for each, before in zip(moved, theirs, strict=True)) / _BETA
    )
    half = math.inf if here.half_ratio is None else math.hypot(here.half_ratio, error, _BETA_ERROR * moved_log)
    low, high = difference - half, difference + half
    if -band <= low and high <= band:
        likeness = Likeness.ALIKE
    else:
        likeness = Likeness.DIFFERENT if low > band or high < -band else Likeness.UNCLEAR
    return ProbeDifference(
        probe=probe,
        here=here.value,
        reference=math.exp(middle),
        cards_count=len(theirs),
        ratio=math.expm1(difference),
        low_ratio=math.expm1(low),
        high_ratio=math.expm1(high),
        band_ratio=math.expm1(band),
        likeness=likeness,
    )


def move_to_clock(amount: Amount, clock_mhz: float | None) -> Amount:
    """Return a time at another card's clock, by the cards' common exponent; return any other number unchanged."""
    return replace(amount, beta=_BETA).moved_to(clock_mhz) if amount.clock_mhz is not None else amount


def _spread_errors(logs: Sequence[float], halves: Sequence[float | None], floor_ratio: float) -> tuple[float, float]:
    """Return half the interval of the cards' centre, and half the band for a further card.

    The band is the 99 % prediction interval of a t distribution, and at least the floor.  For one or two cards, half the band
    is the larger of the floor and the cards' distance: two cards show no spread.
    """
    from scipy.special import stdtrit

    count = len(logs)
    if count < _FEWEST_CARDS_COUNT:
        error = max(math.inf if half is None else half for half in halves)
        return error, max(math.log1p(floor_ratio), max(logs) - min(logs))
    spread = statistics.stdev(logs)
    error = float(stdtrit(count - 1, 0.975)) * spread / math.sqrt(count)
    band = float(stdtrit(count - 1, 1.0 - _OUTSIDE_SHARE / 2)) * spread * math.sqrt(1.0 + 1.0 / count)
    return error, max(math.log1p(floor_ratio), band)


def _answer(
    card: Qualification,
    others: Sequence[Qualification],
    facts: tuple[FactDifference, ...],
    probes: tuple[ProbeDifference, ...],
    unknown: Sequence[str],
) -> QualifyDecision:
    no, unclear = [*card.neighbours, *card.faults], [*unknown, *card.disturbances]
    partly: list[str] = []
    for fact in facts:
        words = f"{fact.name} {fact.here}, reference {fact.reference}"
        (no if fact.reach is Reach.ALL else partly if fact.reach is Reach.RAW else []).append(words)
    for each in probes:
        if each.likeness is Likeness.DIFFERENT:
            (no if each.probe.reach is Reach.ALL else partly).append(
                f"{each.probe.title} {each.interval}, {each.speed}; reaches {each.probe.reach.value}"
            )
        elif each.likeness is Likeness.UNCLEAR:
            unclear.append(
                f"{each.probe.title} {each.interval}: it is unclear whether this is within the cards' ±{each.band_ratio:.2%}"
            )
    comparable = Comparable.NO if no else Comparable.PARTLY if partly else Comparable.UNKNOWN if unclear else Comparable.YES
    # If there is a neighbour or a fault, nothing unclear is listed: the neighbour or fault may be the cause.
    reasons = (*no, *partly) if card.neighbours or card.faults else (*no, *partly, *unclear)
    return QualifyDecision(
        comparable=comparable,
        reasons=reasons,
        facts=facts,
        probes=probes,
        cards_count=len(others),
        is_own=bool(others) and all(each.card_key == card.card_key for each in others),
    )
