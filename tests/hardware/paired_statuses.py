"""Tables of the statuses of paired windows of real GPUs, and the formats of all tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tests.hardware import paired_data as data
from tests.hardware.paired_disturbances import PLAIN, STAMPED, TIMED
from tests.hardware.paired_scores import STALLED, Scored
from tests.proof.judged import CLAIMED_NAMES
from tests.proof.published import OWN
from tests.proof.scores import TOLERANCE_RATIO, VALID, Row, Share, status_errors

CLUSTERS_COUNT = 10  # fewer independent clusters give no interval
_UNPROVEN = "unproven"
_MISSES_COUNT = 30
_STALLS, _NEIGHBOURS = OWN["host-stall"], OWN["neighbour-slices"]
# The rules that name each family's hazard; other findings do not count.
NAMES: Mapping[str, frozenset[str]] = {
    STALLED: _STALLS,
    "host-stall": _STALLS,
    "pause-before": OWN["pause-before"],
    "sleep-rhythm": OWN["idle-stretch"],
    "eased-data": OWN["work-growth"],
    "work-growth": OWN["work-growth"],
    "work-modes": OWN["work-modes"],
    "own-stream": OWN["own-other-work"],
    "own-other-work": OWN["own-other-work"],
    "garbage": _STALLS,
    "compilation": _STALLS,
    "times-wrong": OWN["times-wrong"] | {"wrong-stream", "missing-sync"},
    "neighbour-slices": _NEIGHBOURS,
    "neighbour-copies": _NEIGHBOURS,
    "neighbour-holds": _NEIGHBOURS,
    "neighbour-late": _NEIGHBOURS,
    "hogs": _STALLS | {"host-bound"},
}


def statuses(scored: Sequence[Scored]) -> list[str]:
    """Return both error rates of the status at the default tolerance."""
    clean = [each for each in scored if each.row.clean]
    told = [each for each in scored if not each.row.clean and each.has_truth]
    out = [
        "### Status on GPUs\n",
        f"At a tolerance of {TOLERANCE_RATIO:.0%}, of the numbers that `sustained` claims.\n",
        "| windows | total | number | share | 95 % |",
        "|---|---|---|---|---|",
    ]

    def line(words: str, of: Sequence[Scored], share: Share) -> None:
        out.append(f"| {words} | {share.total} | {share.count} | {percent(share)} | {interval(share, of)} |")

    def alarmed(of: Sequence[Scored]) -> Share:
        return Share(count=sum(each.row.answer.status not in (VALID, _UNPROVEN) for each in of), total=len(of))

    line("clean, not valid", clean, status_errors(each.row for each in clean).clean_not_valid)
    line("clean, flagged or rejected", clean, alarmed(clean))
    # A window that its siblings contradict is a reference that holds a stall, whatever its status.
    alike = [each for each in clean if each.apart_ratio is not None and abs(each.apart_ratio) <= TOLERANCE_RATIO]
    words = f"clean, and within {TOLERANCE_RATIO:.0%} of the throughput of the process's other clean windows: not valid"
    line(words, alike, status_errors(each.row for each in alike).clean_not_valid)
    for mode in (PLAIN, TIMED, STAMPED):
        of = [each for each in clean if each.row.variant == mode]
        line(f"clean and {mode}, not valid", of, status_errors(each.row for each in of).clean_not_valid)
    within = [each for each in told if not each.throughout]
    for words, of in (("", within), (", with disturbances throughout", told)):
        off = status_errors(claimed(each) for each in of).off_called_valid
        line(f"off by more than tolerance plus repeatability, called valid{words}", of, off)
    calm = [each for each in told if not claimed(each).is_off(TOLERANCE_RATIO)]
    line("disturbed, but not off by more: flagged or rejected", calm, alarmed(calm))
    return [*out, "", *_where(clean, scored)]


def _where(clean: Sequence[Scored], scored: Sequence[Scored]) -> list[str]:
    """Return works, cards and throughput of the clean windows that are not valid."""
    cards = list(dict.fromkeys(each.card for each in scored))
    others = [each for each in clean if each.row.answer.status != VALID]
    if not others:
        return []
    counts = Counter((each.row.workload, cards.index(each.card) + 1) for each in others)
    where = ", ".join(f"{count} of {work} on card {card}" for (work, card), count in counts.most_common())
    apart = ", ".join(f"{ratio:+.1%}" for ratio in sorted(each.apart_ratio for each in others if each.apart_ratio is not None))
    beside = f"  Their throughput, against the median of the other clean windows of the process: {apart}." if apart else ""
    return [f"The clean windows that are not valid: {where}.{beside}", ""]


def misses(scored: Sequence[Scored]) -> list[str]:
    """Return windows called valid with an error above tolerance plus repeatability, worst first."""
    told = [each for each in scored if not each.row.clean and each.has_truth]
    off = [each for each in told if each.row.answer.status == VALID and claimed(each).is_off(TOLERANCE_RATIO)]
    if not off:
        return ["No window that is off by more than tolerance plus repeatability was called valid.", ""]
    off.sort(key=lambda each: -max(map(abs, claimed(each).truth.values())))
    out = [
        f"The {len(off)} windows that are off and were called valid{f', the {_MISSES_COUNT} worst' if len(off) > _MISSES_COUNT else ''}:\n",
        "| work | mode | disturbance | throughout | throughput | references apart | bound | mean | bound |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in off[:_MISSES_COUNT]:
        row = each.row
        out.append(
            f"| {row.workload} | {row.variant} | {row.family} {each.words} | {'yes' if each.throughout else 'no'} | {signed(row.truth, data.THROUGHPUT)} | "
            f"{signed(each.references_differ, data.THROUGHPUT)} | {ratio(row.bound(data.THROUGHPUT))} | {signed(row.truth, data.MEAN)} | {ratio(row.bound(data.MEAN))} |"
        )
    return [*out, ""]


def named(scored: Sequence[Scored]) -> list[str]:
    """Return misses and false alarms of each family; only a family's rules count as naming the hazard."""
    told = [each for each in scored if not each.row.clean and each.has_truth]
    out = [
        "### Misses and false alarms on GPUs, by family\n",
        '"Off": by more than tolerance plus repeatability, including disturbances throughout the window.  "Named": by a rule of the',
        'family; "by-catch": by other rules alone.  The last columns count windows that are not off.\n',
        "| family | off | called valid | named | by-catch alone | not off | flagged or rejected | named | rejected |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for family in sorted({each.row.family for each in told}):
        rows = [claimed(each) for each in told if each.row.family == family]
        off = [row for row in rows if row.is_off(TOLERANCE_RATIO)]
        calm = [row for row in rows if not row.is_off(TOLERANCE_RATIO)]
        own = NAMES.get(family, frozenset())
        caught = sum(bool(row.answer.named) and not row.answer.named & own for row in off)
        alarmed = [row for row in calm if row.answer.status not in (VALID, _UNPROVEN)]
        out.append(
            f"| {family} | {len(off)} | {sum(row.answer.status == VALID for row in off)} | {sum(bool(row.answer.named & own) for row in off)} | {caught} | "
            f"{len(calm)} | {len(alarmed)} | {sum(bool(row.answer.named & own) for row in alarmed)} | {sum(row.answer.status == 'rejected' for row in alarmed)} |"
        )
    return [*out, ""]


def alarms(scored: Sequence[Scored]) -> list[str]:
    clean = [each.row for each in scored if each.row.clean]
    counts = Counter(name for row in clean for name in row.answer.named)
    said = ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])))
    return [f"Rules that flagged or rejected clean windows, of {len(clean)}: {said or 'none'}.", ""]


def likeness(scored: Sequence[Scored]) -> list[str]:
    """Return the similarity of windows in one cluster."""
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


def claimed(each: Scored) -> Row:
    """Return the row with only the bounds of the numbers that decide the status: without times, of the throughput alone."""
    names = CLAIMED_NAMES if each.row.variant != PLAIN else (data.THROUGHPUT,)
    row = each.row
    bounds = {name: bound for name, bound in row.answer.bounds.items() if name in names}
    return replace(row, answer=replace(row.answer, bounds=bounds))


def clusters(scored: Sequence[Scored]) -> str:
    count = len({each.cluster for each in scored})
    few = "" if count >= CLUSTERS_COUNT else ": too few for intervals, so the figures are point estimates"
    return f"{count} clusters of one card, day and kernel{few}."


def interval(share: Share, of: Sequence[Scored]) -> str:
    if not share.total or len({each.cluster for each in of}) < CLUSTERS_COUNT:
        return "–"
    low, high = share.interval
    return f"{low:.1%} to {high:.1%}"


def words(name: str) -> str:
    return name.replace("_", " ")


def percent(share: Share) -> str:
    return "–" if share.ratio is None else f"{share.ratio:.1%}"


def ratio(value: float | None) -> str:
    return "–" if value is None else "none" if math.isinf(value) else f"{value:.2%}"


def signed(values: Mapping[str, float], name: str) -> str:
    return f"{values[name]:+.2%}" if name in values else "–"
