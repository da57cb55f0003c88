"""The scores of the judge on paired windows of real GPUs as tables: a part of docs/VALIDATION.md."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.hardware import paired_data as data
from tests.hardware.paired_disturbances import FAMILIES, PLAIN, STAMPED
from tests.hardware.paired_scores import STALLED, STEM, TRACES, Judged, Scored, load
from tests.proof.judged import CLAIMED_NAMES
from tests.proof.scores import (
    SHARP_S,
    TOLERANCE_RATIO,
    VALID,
    Row,
    Share,
    coverage,
    coverage_by_family,
    sharpness,
    status_errors,
)

CLUSTERS_COUNT = 10  # fewer independent ones give no interval
_UNPROVEN = "unproven"
_FOREIGN = tuple(name for name, family in FAMILIES.items() if family.outside and name != "hogs")
_MISSES_COUNT = 30


def section(folder: Path = TRACES) -> list[str]:
    """Return the lines of the part of the page; none before any windows were taken."""
    found = load(folder)
    if found is None:
        return []
    return [*_head(found), *tables(found.scored)]


def tables(scored: Sequence[Scored]) -> list[str]:
    return [
        *covered(scored),
        *covered_by_family(scored),
        *sharp(scored),
        *repeats(scored),
        *statuses(scored),
        *misses(scored),
        *alarms(scored),
        *likeness(scored),
    ]


def _head(judged: Judged) -> list[str]:
    whole, scored = judged.whole, judged.scored
    happened = [each for each in scored if not each.row.clean]
    untold = sum(not each.has_truth for each in happened)
    stalled = sum(each.row.family == STALLED for each in happened)
    cards = dict.fromkeys((each.card, each.model, each.driver, each.date) for each in whole.windows)
    works = sorted({each.row.workload for each in scored})
    return [
        "## How far the bounds hold: paired windows on real GPUs\n",
        f"Generated from `tests/traces/{STEM}*` (`tests/hardware/paired.py`): {len(scored)} windows of 2 to 4 s, each disturbed one between two",
        f"clean ones of the same work in the same process; {', '.join(works)}; iterations stamped, timed without clock, or not told.",
        f"{_cards(cards)}.  Judged on {judged.date} by judge {judged.judge}.  No setting of a card was changed.  The truth is the number of a window over the mean of both clean ones.",
        f"{len(happened)} windows were disturbed, {stalled} of them by a stall of more than {data.STALL_S * 1e3:.0f} ms that nobody intended; such a window is no",
        f"reference.  {untold} of the {len(happened)} lack a reference on either side and are left out below, as are {whole.failed_count} windows whose disturbance",
        "could not be made.  Disturbances are drawn as `tests/hardware/paired_disturbances.py` says.\n",
    ]


def _cards(cards: Iterable[tuple[str, str, str, str]]) -> str:
    """Name the cards by numbers, in the order they came."""
    numbers: dict[str, int] = {}
    return "; ".join(
        f"card {numbers.setdefault(card, len(numbers) + 1)}: {model}, driver {driver}, {date}"
        for card, model, driver, date in cards
    )


def covered(scored: Sequence[Scored]) -> list[str]:
    """How often the truth lies within bound plus repeatability, by number."""
    told = [each for each in scored if not each.row.clean and each.has_truth]
    within = [each for each in told if not each.throughout]
    out = [
        "### Coverage on GPUs\n",
        f"{_clusters(told)}  A miss is clear if it exceeds what the two references are apart: else they may not tell.  The last column",
        "counts disturbances that stand from first to last as well, which only a record bounds.\n",
        "| number | windows | covered | misses | clear | 95 % | by the bound alone | no bound | with those that stand throughout |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in data.NUMBERS:
        rows = _with(within, name)
        share = coverage(rows, name)
        alone = coverage([replace(row, answer=replace(row.answer, repeatability={})) for row in rows], name)
        throughout = coverage(_with(told, name), name)
        clear = sum(each.is_clear_miss(name) for each in within)
        out.append(
            f"| {_words(name)} | {share.total} | {_percent(share)} | {share.total - share.count} | {clear} | {_interval(share, within)} | {_percent(alone)} | "
            f"{share.unbounded} | {_percent(throughout)} of {throughout.total} |"
        )
    return [*out, ""]


def covered_by_family(scored: Sequence[Scored]) -> list[str]:
    """Coverage of each family, those that stand throughout included."""
    told = [each for each in scored if not each.row.clean and each.has_truth]
    out = [
        "Covered, by family, of so many windows; those that stand throughout are counted too:\n",
        f"| family | {' | '.join(_words(name) for name in data.NUMBERS)} | stand throughout |",
        "|---|---|---|---|---|---|",
    ]
    by_number = {name: coverage_by_family(_with(told, name), name) for name in data.NUMBERS}
    for family in sorted({each.row.family for each in told}):
        shares = [by_number[name].get(family, Share(count=0, total=0)) for name in data.NUMBERS]
        standing = sum(each.throughout for each in told if each.row.family == family)
        out.append(f"| {family} | " + " | ".join(f"{each.count} of {each.total}" for each in shares) + f" | {standing} |")
    return [*out, ""]


def sharp(scored: Sequence[Scored]) -> list[str]:
    """The bounds of clean windows."""
    out = [
        "### Sharpness on GPUs\n",
        f"Bounds of clean windows of {SHARP_S:.0f} s and more.\n",
        "| number | stamped: windows | median | 95th percentile | elsewhere: windows | median | 95th percentile |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = [each.row for each in scored]
    for name in data.NUMBERS:
        cells = [cell for is_stamped in (True, False) for cell in _sharp_cells(rows, name, is_stamped=is_stamped)]
        out.append(f"| {_words(name)} | {' | '.join(cells)} |")
    return [*out, ""]


def _sharp_cells(rows: Sequence[Row], name: str, *, is_stamped: bool) -> list[str]:
    kept = [row for row in rows if (row.variant == STAMPED) is is_stamped]
    middle, high = (sharpness(kept, name, ratio=ratio) for ratio in (0.5, 0.95))
    if middle is None or high is None:
        return ["0", "–", "–"]
    return [str(middle.count), _ratio(middle.value), _ratio(high.value)]


def repeats(scored: Sequence[Scored]) -> list[str]:
    """How far clean windows lie apart, and how far each number moved where something happened."""
    told = [each for each in scored if not each.row.clean and each.has_truth]
    out = [
        "### Repeatability on GPUs\n",
        "Of the two clean windows around a disturbed one: half the range that holds 95 % of their differences, and the median of their",
        "size.  Beside it how far disturbed windows moved, median and 95th percentile.\n",
        "| number | power | pairs | half of 95 % | median | disturbed from within or by hogs | by other processes on the GPU |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in data.NUMBERS:
        for is_capped, power in ((True, "capped"), (False, "uncapped")):
            kept = [each for each in told if each.is_capped is is_capped and name in each.references_differ]
            apart = np.array([each.references_differ[name] for each in kept])
            if not len(apart):
                continue
            half = float(np.diff(np.quantile(apart, [0.025, 0.975]))[0]) / 2.0
            foreign = [each for each in kept if each.row.family in _FOREIGN]
            within = [each for each in kept if each.row.family not in _FOREIGN]
            out.append(
                f"| {_words(name)} | {power} | {len(kept)} | {half:.2%} | {np.median(np.abs(apart)):.3%} | {_moved(within, name)} | {_moved(foreign, name)} |"
            )
    return [*out, ""]


def _moved(scored: Sequence[Scored], name: str) -> str:
    sizes = [abs(each.row.truth[name]) for each in scored if name in each.row.truth]
    return f"{np.median(sizes):.2%} / {np.quantile(sizes, 0.95):.2%} of {len(sizes)}" if sizes else "–"


def statuses(scored: Sequence[Scored]) -> list[str]:
    """Both errors of the status at the default tolerance."""
    clean = [each for each in scored if each.row.clean]
    told = [each for each in scored if not each.row.clean and each.has_truth]
    out = [
        "### Status on GPUs\n",
        f"At a tolerance of {TOLERANCE_RATIO:.0%}, of the numbers that `sustained` claims.\n",
        "| windows | total | number | share | 95 % |",
        "|---|---|---|---|---|",
    ]

    def line(words: str, of: Sequence[Scored], share: Share) -> None:
        out.append(f"| {words} | {share.total} | {share.count} | {_percent(share)} | {_interval(share, of)} |")

    def alarmed(of: Sequence[Scored]) -> Share:
        return Share(count=sum(each.row.answer.status not in (VALID, _UNPROVEN) for each in of), total=len(of))

    line("clean, not valid", clean, status_errors(each.row for each in clean).clean_not_valid)
    line("clean, flagged or rejected", clean, alarmed(clean))
    for mode in (PLAIN, "timed", STAMPED):
        of = [each for each in clean if each.row.variant == mode]
        line(f"clean and {mode}, not valid", of, status_errors(each.row for each in of).clean_not_valid)
    within = [each for each in told if not each.throughout]
    for words, of in (("", within), (", with those that stand throughout", told)):
        off = status_errors(_claimed(each) for each in of).off_called_valid
        line(f"off by more than tolerance plus repeatability, called valid{words}", of, off)
    calm = [each for each in told if not _claimed(each).is_off(TOLERANCE_RATIO)]
    line("disturbed, and off by no more than that: flagged or rejected", calm, alarmed(calm))
    return [*out, ""]


def misses(scored: Sequence[Scored]) -> list[str]:
    """Windows called valid that are off by more than tolerance plus repeatability, worst first."""
    told = [each for each in scored if not each.row.clean and each.has_truth]
    off = [each for each in told if each.row.answer.status == VALID and _claimed(each).is_off(TOLERANCE_RATIO)]
    if not off:
        return ["No window that is off by more than tolerance plus repeatability was called valid.", ""]
    off.sort(key=lambda each: -max(map(abs, _claimed(each).truth.values())))
    out = [
        f"The {len(off)} windows that are off and were called valid{f', the {_MISSES_COUNT} worst' if len(off) > _MISSES_COUNT else ''}:\n",
        "| work | mode | disturbance | throughout | throughput | references apart | bound | mean | bound |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in off[:_MISSES_COUNT]:
        row = each.row
        out.append(
            f"| {row.workload} | {row.variant} | {row.family} {each.words} | {'yes' if each.throughout else 'no'} | {_signed(row.truth, data.THROUGHPUT)} | "
            f"{_signed(each.references_differ, data.THROUGHPUT)} | {_ratio(row.bound(data.THROUGHPUT))} | {_signed(row.truth, data.MEAN)} | {_ratio(row.bound(data.MEAN))} |"
        )
    return [*out, ""]


def alarms(scored: Sequence[Scored]) -> list[str]:
    """The rules that flagged or rejected clean windows."""
    clean = [each.row for each in scored if each.row.clean]
    counts = Counter(name for row in clean for name in row.answer.named)
    said = ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])))
    return [f"Rules that flagged or rejected clean windows, of {len(clean)}: {said or 'none'}.", ""]


def likeness(scored: Sequence[Scored]) -> list[str]:
    """How alike windows of one cluster are."""
    told = [each for each in scored if not each.row.clean and each.has_truth and data.THROUGHPUT in each.row.truth]
    clean = [each for each in scored if each.row.clean]
    covers = within_clusters(told, lambda each: float(each.row.covers(data.THROUGHPUT) is not False))
    valid = within_clusters(clean, lambda each: float(each.row.answer.status == VALID))
    return [f"Correlation within clusters: of coverage of the throughput {covers}, of `valid` among clean windows {valid}.", ""]


def within_clusters(scored: Sequence[Scored], value: Callable[[Scored], float]) -> str:
    """Return the intraclass correlation of a value in words, by one-way analysis of variance."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for each in scored:
        groups.setdefault(each.cluster, []).append(value(each))
    values = [np.array(group) for group in groups.values()]
    count = sum(map(len, values))
    if len(values) < 2 or count <= len(values):
        return "unknown"
    mean = sum(group.sum() for group in values) / count
    between = sum(len(group) * (group.mean() - mean) ** 2 for group in values) / (len(values) - 1)
    within = sum(((group - group.mean()) ** 2).sum() for group in values) / (count - len(values))
    size = (count - sum(len(group) ** 2 for group in values) / count) / (len(values) - 1)
    total = between + (size - 1.0) * within
    return f"{max(0.0, (between - within) / total):.2f}" if total > 0.0 else "none (all alike)"


def _claimed(each: Scored) -> Row:
    """The row with the numbers that decide its status: without times the throughput alone."""
    names = CLAIMED_NAMES if each.row.variant != PLAIN else (data.THROUGHPUT,)
    row = each.row
    bounds = {name: bound for name, bound in row.answer.bounds.items() if name in names}
    return replace(row, answer=replace(row.answer, bounds=bounds))


def _with(scored: Sequence[Scored], name: str) -> list[Row]:
    return [each.row for each in scored if name in each.row.truth]


def _clusters(scored: Sequence[Scored]) -> str:
    count = len({each.cluster for each in scored})
    few = "" if count >= CLUSTERS_COUNT else ": too few for intervals, so the figures are point estimates"
    return f"{count} clusters of one card, day and kernel{few}."


def _interval(share: Share, of: Sequence[Scored]) -> str:
    if not share.total or len({each.cluster for each in of}) < CLUSTERS_COUNT:
        return "–"
    low, high = share.interval
    return f"{low:.1%} to {high:.1%}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _percent(share: Share) -> str:
    return "–" if share.ratio is None else f"{share.ratio:.1%}"


def _ratio(value: float | None) -> str:
    return "–" if value is None else "none" if math.isinf(value) else f"{value:.2%}"


def _signed(values: Mapping[str, float], name: str) -> str:
    return f"{values[name]:+.2%}" if name in values else "–"
