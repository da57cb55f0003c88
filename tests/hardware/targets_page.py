"""The specification's targets beside the results on simulated pairs and on real GPUs: a part of docs/VALIDATION.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.hardware import paired_data as data
from tests.hardware.paired_page import FOREIGN, PAUSES
from tests.hardware.paired_scores import TRACES, Scored, load
from tests.hardware.paired_statuses import claimed
from tests.proof import published
from tests.proof.cells import as_interval, as_percent, claimed_only, in_words, is_not_stamped, is_stamped
from tests.proof.judged import BOOKED_S, NAMES, JudgedRow, stored
from tests.proof.published_status import is_testable
from tests.proof.scores import Quantile, Row, Share, coverage, coverage_by_family, sharpness, status_errors

COVERED, OF_FAMILY = 0.95, 0.9
# Median and 95th percentile of the bounds of clean windows, by whether iterations are stamped.
SHARP: Mapping[bool, tuple[float, float]] = {True: (0.0015, 0.005), False: (0.005, 0.015)}
REPEATS_CAPPED: Mapping[str, float] = {
    data.THROUGHPUT: 0.01, "mean": 0.006, "median": 0.015, "median_at_one_clock": 0.001,
}  # fmt: skip
REPEATS_UNCAPPED: Mapping[str, float] = {"median": 0.001, "mean": 0.005}
STILL, STILL_BESIDE = 0.001, 0.005  # of the median at one clock, without and with foreign work
CLEAN_LOST, OFF_PASSED = 0.01, 0.01
CLEAN_LOST_ON_CARDS, OFF_PASSED_ON_CARDS = 0.03, 0.05
# Loops of many kernels, whose clean windows differ by up to 7 % on one card.
_DECODING = ("decode", "decode-graph")
_ONE_CLOCK = "median_at_one_clock"


def section(folder: Path = TRACES) -> list[str]:
    """Return the lines of this part of the page, or none without results of cards."""
    cards = load(folder)
    if cards is None:
        return []
    reported = [each for each in stored() if each.row.seed >= published.FRESH_SEED]
    return [
        "## Targets, met or not\n",
        "Each row is a target of the specification.  On simulated pairs a target is met if the unfavourable end of the 95 % interval",
        "meets it, on GPUs if the point estimate does.  Coverage on GPUs counts a window if a value between its references is covered.",
        "`decode` and `decode-graph` are loops of many kernels, whose clean windows differ by up to 7 %; figures about repeatability",
        "are given for all pairs of windows, and without these loops.  The sections below define every figure.\n",
        "| target | at most or at least | simulated pairs | met | windows on GPUs | met |",
        "|---|---|---|---|---|---|",
        *_covered(reported, cards.scored),
        *_sharp(reported, cards.scored),
        *_statuses(reported, cards.scored),
        *_repeats(cards.scored),
        *_still(cards.scored),
        "",
    ]


def _line(target: str, asked: str, *cells: str) -> str:
    return f"| {target} | {asked} | " + " | ".join(cells) + " |"


def _met(is_met: bool) -> str:
    return "met" if is_met else "**not met**"


def _covered(reported: Sequence[JudgedRow], scored: Sequence[Scored]) -> Iterator[str]:
    pairs = published.in_scope(reported)
    told = [each for each in scored if not each.row.clean and each.has_truth and not each.throughout]
    for name in data.NUMBERS:
        share, between = coverage(pairs, name), _between(told, name)
        yield _line(
            f"coverage of {in_words(name)}", f"≥ {COVERED:.0%}", f"{as_percent(share)} of {share.total} ({as_interval(share)})",
            _met(share.is_at_least(COVERED)), f"{as_percent(between)} of {between.total}", _met((between.ratio or 0.0) >= COVERED),
        )  # fmt: skip
    low = [
        f"{family}, {in_words(name)} {as_percent(share)} of {share.total}, from {share.interval[0]:.1%}"
        for name in NAMES.values()
        for family, share in coverage_by_family(pairs, name).items()
        if not share.is_at_least(OF_FAMILY)
    ]
    families = sorted({each.row.family for each in told})
    missing = [
        f"{family}, {in_words(name)} {share.count} of {share.total}"
        for name in data.NUMBERS
        for family in families
        if (share := _between([each for each in told if each.row.family == family], name)).total
        and share.count < OF_FAMILY * share.total
    ]
    yield _line(
        "coverage of each family", f"≥ {OF_FAMILY:.0%}", "; ".join(low) or "every family", _met(not low),
        "; ".join(missing) or "every family", _met(not missing),
    )  # fmt: skip


def _between(of: Sequence[Scored], name: str) -> Share:
    bounded = [each for each in of if name in each.row.truth and each.row.covers(name) is not None]
    return Share(count=sum(each.is_covered_between_references(name) for each in bounded), total=len(bounded))


def _sharp(reported: Sequence[JudgedRow], scored: Sequence[Scored]) -> Iterator[str]:
    pairs = [each.row for each in reported if each.row.clean and is_testable(each.row)]
    cards = [each.row for each in scored]
    for stamped, (middle, high) in SHARP.items():
        select: Callable[[Row], bool] = is_stamped if stamped else is_not_stamped
        for name in (each for each in data.NUMBERS if stamped or each != _ONE_CLOCK):
            found = [[sharpness(rows, name, ratio=ratio, select=select) for ratio in (0.5, 0.95)] for rows in (pairs, cards)]
            (of_pairs, ends), (of_cards, values) = ((_figures(each), each) for each in found)
            yield _line(
                f"bound of clean windows, {in_words(name)}, {'stamped' if stamped else 'not stamped'}",
                f"≤ {middle:.2%} / {high:.1%}",
                of_pairs, _met(all(each is not None and each.high <= most for each, most in zip(ends, (middle, high), strict=True))),
                of_cards, _met(all(each is not None and each.value <= most for each, most in zip(values, (middle, high), strict=True))),
            )  # fmt: skip


def _figures(of: Sequence[Quantile | None]) -> str:
    return " / ".join("–" if each is None else f"{each.value:.2%}" for each in of)


def _statuses(reported: Sequence[JudgedRow], scored: Sequence[Scored]) -> Iterator[str]:
    clean = [each.row for each in reported if each.row.clean and is_testable(each.row) and each.row.length_s >= BOOKED_S]
    lost = status_errors(clean).clean_not_valid
    of_cards = status_errors([each.row for each in scored if each.row.clean]).clean_not_valid
    bounded = [each.bounded for each in reported if not each.row.clean]
    passed = status_errors([claimed_only(row) for row in bounded if row is not None]).off_called_valid
    held = [claimed(each) for each in scored if not each.row.clean and each.has_truth and not each.throughout]
    passed_on_cards = status_errors(held).off_called_valid
    for target, ratio, share, ratio_on_cards, on_cards in (
        ("clean windows not valid", CLEAN_LOST, lost, CLEAN_LOST_ON_CARDS, of_cards),
        ("windows off, called valid", OFF_PASSED, passed, OFF_PASSED_ON_CARDS, passed_on_cards),
    ):
        yield _line(
            target, f"≤ {ratio:.0%}, upper end ≤ {2 * ratio:.0%}; on GPUs ≤ {ratio_on_cards:.0%}",
            f"{share.ratio or 0.0:.2%} of {share.total} ({as_interval(share)})",
            _met((share.ratio or 0.0) <= ratio and share.is_at_most(2 * ratio)),
            f"{as_percent(on_cards)} of {on_cards.total}", _met((on_cards.ratio or 0.0) <= ratio_on_cards),
        )  # fmt: skip


def _repeats(scored: Sequence[Scored]) -> Iterator[str]:
    """Yield half the range that holds 95 % of the differences of two clean windows."""
    told = [each for each in scored if not each.row.clean and each.has_truth]
    for asked, capped in ((REPEATS_CAPPED, True), (REPEATS_UNCAPPED, False)):
        for name, most in asked.items():
            power = "capped" if capped else "uncapped"
            kept = [each for each in told if each.is_capped is capped and name in each.references_differ]
            yield _two(f"repeatability of {in_words(name)}, {power}", most, kept, _apart_in(name))


def _apart_in(name: str) -> Callable[[Scored], float]:
    return lambda each: each.references_differ[name]


def _still(scored: Sequence[Scored]) -> Iterator[str]:
    """Yield the 95th percentile of the changes of the median at one clock."""
    told = [each for each in scored if not each.row.clean and each.has_truth and _ONE_CLOCK in each.row.truth]
    apart = [each for each in told if _ONE_CLOCK in each.references_differ]
    for words, most, of in (
        ("disturbed by pauses", STILL, [each for each in told if each.row.family in PAUSES]),
        ("beside other processes", STILL_BESIDE, [each for each in told if each.row.family in FOREIGN]),
    ):
        yield _two(f"the number that does not move, {words}", most, of, lambda each: each.row.truth[_ONE_CLOCK], _largest)
    yield _two("the number that does not move, clean", STILL, apart, _apart_in(_ONE_CLOCK), _largest)


def _half(of: Sequence[float]) -> float:
    low, high = np.quantile(of, [0.025, 0.975])
    return float(high - low) / 2.0


def _largest(of: Sequence[float]) -> float:
    return float(np.quantile(np.abs(of), 0.95))


def _two(
    target: str,
    most: float,
    of: Sequence[Scored],
    figure: Callable[[Scored], float],
    measure: Callable[[Sequence[float]], float] = _half,
) -> str:
    """Return a line with the figure of all windows, and of those without decoding loops."""
    few = [each for each in of if each.row.workload not in _DECODING]
    both = [(measure([figure(each) for each in kept]) if kept else math.nan, len(kept)) for kept in (of, few)]
    cells = [f"{value:.3%} of {count}" for value, count in both]
    is_met = [_met(value <= most) for value, _ in both]
    words = is_met[0] if is_met[0] == is_met[1] else f"{is_met[0]}; without decoding loops {is_met[1]}"
    return _line(target, f"≤ {most:.1%}", "–", "–", f"{cells[0]}; without decoding loops {cells[1]}", words)
