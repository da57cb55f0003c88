"""The scores of the judge on the generator's pairs as tables: the part of docs/VALIDATION.md that results.json makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tests.proof.disturbances import FAMILIES, drawn
from tests.proof.judged import BOOKED_S, CLAIMED_NAMES, NAMES, JudgedRow, load, sleeps_undeclared
from tests.proof.scores import (
    SHARP_S,
    TOLERANCE_RATIO,
    VALID,
    Row,
    Share,
    coverage,
    coverage_by_family,
    halves,
    sharpness,
    status_errors,
)
from tests.proof.testified import Variant

UNPROVEN = "unproven"
_TELLS: Mapping[Variant, str] = {
    Variant.PLAIN: "nothing",
    Variant.TIMES: "begins and times",
    Variant.DURATIONS: "times alone",
    Variant.STAMPED: "begins, times and clocks",
}
_CLOCK = frozenset({"clock-levels", "clock-drift", "clock-ramp", "regime-change"})
_STALLS = frozenset({"idle-stretch", "outliers", "mid-run-compile"})
_NEIGHBOURS = frozenset({"contention-process", "contention-residual"})
_WORK = frozenset({"iteration-growth", "iteration-levels", "bimodal", "outliers"})
# The rules that name each family's hazard; whatever else speaks is by-catch.
OWN: Mapping[str, frozenset[str]] = {
    "sm-clock": _CLOCK | {"throttle-hw-slowdown", "throttle-power-brake", "sync-boost-limited", "setting-changed"},
    "mem-clock": frozenset({"mem-clock-change"}),
    "thermal": _CLOCK | {"throttle-thermal", "throttle-hw-slowdown"},
    "power-cap": _CLOCK | {"setting-changed"},
    "neighbour-slices": _NEIGHBOURS,
    "neighbour-bandwidth": _NEIGHBOURS,
    "neighbour-holds": _NEIGHBOURS,
    "host-stall": _STALLS,
    "garbage-pauses": _STALLS,
    "idle-stretch": _STALLS | {"bursty-duty-cycle"},
    "pause-before": _CLOCK,
    "work-growth": _WORK | {"data-dependent-power"},
    "work-modes": _WORK,
    "own-other-work": frozenset({"contention-self", "unaccounted-time"}),
    "times-wrong": frozenset({"unaccounted-time", "impossible-time"}),
}


def section() -> list[str]:
    """The lines of the part of the page."""
    found = load()
    seeds = {each.row.seed for each in found}
    reported = [each for each in found if each.row.seed % 2]
    return [
        "## How far the bounds hold: pairs with a known truth\n",
        f"Generated from `tests/proof/results.json` (`python -m tests.proof.judged`): the windows of {len(seeds)} pairs of simulated runs,",
        "one disturbed and one not, with the same noise (`tests/proof/pairs.py`); their ratio is the truth.  The authors of the",
        "disturbances had not read the rules.  Constants of the judge were fitted on even seeds; the tables show odd seeds, and even",
        "ones where they say so.  Intervals are exact (Clopper-Pearson, 95 %).  A bound speaks of what happened within the window: a",
        "disturbance that stands from first to last needs a record of this work, which these windows have not, and is counted apart.",
        "So is what the specification bounds nowhere: throughput under a rhythm of five equal pauses and more from first to last, which",
        "counts by the clock it buys; times that are wrong by less than the books' own error of 1.3 points, or under a second, where",
        "there are no books; and, in windows that tell nothing of their iterations, what the measured process itself did.\n",
        *tables(reported, found),
    ]


def tables(reported: Sequence[JudgedRow], both: Sequence[JudgedRow]) -> list[str]:
    return [
        *covered(reported, both),
        *covered_by_family(reported),
        *sharp(reported),
        *statuses(reported),
        *by_family(reported),
        *alarms(reported),
    ]


def covered(reported: Sequence[JudgedRow], both: Sequence[JudgedRow]) -> list[str]:
    """How often the truth lies within bound plus repeatability, by number."""
    steady = sum(each.is_steady for each in reported)
    opened = sum(bool(each.left_open) and not each.is_steady for each in reported)
    even, _ = halves(_in_scope(both))
    out = [
        "### Coverage\n",
        'The true deviation of a disturbed window lies within bound plus repeatability.  Target: 95 %.  "No bound": something was seen',
        f"and nobody can say how large it is.  The first columns leave out {steady} windows whose disturbance stands from first to last, and",
        f"of {opened} others the numbers that the specification leaves open.\n",
        "| number | windows | covered | 95 % | by the bound alone | no bound | even seeds | with those left out |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in NAMES.values():
        rows = _in_scope(reported)
        share = coverage(rows, name)
        alone = coverage([replace(row, answer=replace(row.answer, repeatability={})) for row in rows], name)
        whole = coverage([each.row for each in reported if _happens(each.row)], name)
        out.append(
            f"| {_words(name)} | {share.total} | {_percent(share)} | {_interval(share)} | {_percent(alone)} | {share.unbounded} | "
            f"{_percent(coverage(even, name))} | {_percent(whole)} of {whole.total} |"
        )
    return [*out, ""]


def covered_by_family(reported: Sequence[JudgedRow]) -> list[str]:
    """Coverage of each family's windows that are in scope."""
    out = [
        "Covered, by family (target 90 % each); windows in brackets:\n",
        "| family | " + " | ".join(_words(name) for name in NAMES.values()) + " |",
        "|---|---|---|---|---|",
    ]
    by_number = {name: coverage_by_family(_in_scope(reported), name) for name in NAMES.values()}
    for family in sorted({family for shares in by_number.values() for family in shares}):
        shares = [by_number[name][family] for name in NAMES.values()]
        out.append(f"| {family} | " + " | ".join(f"{_percent(each)} ({each.total})" for each in shares) + " |")
    return [*out, ""]


def sharp(reported: Sequence[JudgedRow]) -> list[str]:
    """The bounds of clean windows."""
    out = [
        "### Sharpness\n",
        f"Bounds of clean windows of {SHARP_S:.0f} s and more.  Targets: 0.15 and 0.5 % where iterations were stamped, 0.5 and 1.5 % elsewhere.",
        "Left out here and in the statuses: timed loops that sleep 20 ms between calls and declare no period, whose clock is that of a burst.\n",
        "| number | stamped: windows | median | 95th percentile | elsewhere: windows | median | 95th percentile |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = [each.row for each in reported if not sleeps_undeclared(each.row)]
    for name in NAMES.values():
        cells = [cell for select in (_is_stamped, _is_not_stamped) for cell in _sharp_cells(rows, name, select)]
        out.append(f"| {_words(name)} | " + " | ".join(cells) + " |")
    return [*out, ""]


def _sharp_cells(rows: Sequence[Row], name: str, select: Callable[[Row], bool]) -> list[str]:
    middle, high = (sharpness(rows, name, ratio=ratio, select=select) for ratio in (0.5, 0.95))
    if middle is None or high is None:
        return ["0", "–", "–"]
    return [str(middle.count), _ratio(middle.value), _ratio(high.value)]


def statuses(reported: Sequence[JudgedRow]) -> list[str]:
    """Both errors of the status at the default tolerance."""
    out = [
        "### Status\n",
        f"At a tolerance of {TOLERANCE_RATIO:.0%}, of the numbers that `sustained` claims.  Targets: each at most 1 %, the interval's upper end 2 %.",
        f"Windows under {BOOKED_S:.0f} s have no books, so they are unproven at best.\n",
        "| windows | total | share | 95 % |",
        "|---|---|---|---|",
    ]
    every = [each.row for each in reported if each.row.clean]
    clean = [row for row in every if not sleeps_undeclared(row)]
    for words, least_s in (("", 0.0), (f" of {BOOKED_S:.0f} s and more", BOOKED_S), (f" of {SHARP_S:.0f} s and more", SHARP_S)):
        kept = [row for row in clean if row.length_s >= least_s]
        out.append(_share_line(f"clean{words}, not valid", status_errors(kept).clean_not_valid))
        out.append(_share_line(f"clean{words}, flagged or rejected", _share(kept, _is_alarmed)))
    booked = [row for row in every if row.length_s >= BOOKED_S]
    sleeping = f"the same of {BOOKED_S:.0f} s and more, with timed loops that sleep 20 ms between calls and declare no period"
    out.append(_share_line(sleeping, status_errors(booked).clean_not_valid))
    for variant in Variant:
        told = [row for row in clean if row.variant == variant and row.length_s >= BOOKED_S]
        out.append(
            _share_line(
                f"clean of {BOOKED_S:.0f} s and more that tells {_TELLS[variant]}, not valid",
                status_errors(told).clean_not_valid,
            )
        )
    disturbed = [replace(each, row=_claimed_only(each.row)) for each in reported if not each.row.clean]
    within = status_errors(row for each in disturbed if (row := each.bounded) is not None).off_called_valid
    opened = status_errors(each.row for each in disturbed if not each.is_steady).off_called_valid
    whole = status_errors(each.row for each in disturbed).off_called_valid
    out.append(_share_line("off by more than tolerance plus repeatability, called valid", within))
    out.append(_share_line("the same, with numbers that the specification leaves open", opened))
    out.append(_share_line("the same, with disturbances that stand throughout as well", whole))
    return [*out, ""]


def by_family(reported: Sequence[JudgedRow]) -> list[str]:
    """Misses and false alarms of each family, named and by-catch apart."""
    out = [
        "### Misses and false alarms, by family\n",
        '"Off": in scope, and by more than tolerance plus repeatability.  "Named": by a rule of the family\'s own; "by-catch": by another',
        "one.  A false alarm is a flag or a rejection of a window that is off by no more than the tolerance.\n",
        "| family | off | called valid | 95 % | named | by-catch alone | within the tolerance | false alarms | named | rejected |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    families: dict[str, list[JudgedRow]] = {}
    for each in reported:
        if not each.row.clean:
            families.setdefault(each.row.family, []).append(replace(each, row=_claimed_only(each.row)))
    for family, judged in sorted(families.items()):
        rows = [row for each in judged if (row := each.bounded) is not None]
        off = [row for row in rows if row.is_off(TOLERANCE_RATIO)]
        whole = [each.row for each in judged if not each.is_steady and not each.left_open and not sleeps_undeclared(each.row)]
        calm = [row for row in whole if all(abs(row.truth[name]) <= TOLERANCE_RATIO for name in row.answer.bounds)]
        named = _share(off, _is_named)
        caught = _share(off, lambda row: bool(row.answer.named) and not _is_named(row))
        missed = _share(off, lambda row: row.answer.status == VALID)
        alarmed = [row for row in calm if _is_alarmed(row)]
        out.append(
            f"| {family} | {len(off)} | {_percent(missed)} | {_interval(missed)} | {_percent(named)} | {_percent(caught)} | {len(calm)} | "
            f"{_percent(_share(calm, _is_alarmed))} | {sum(map(_is_named, alarmed))} | {sum(row.answer.status == 'rejected' for row in alarmed)} |"
        )
    return [*out, ""]


def alarms(reported: Sequence[JudgedRow]) -> list[str]:
    """The rules that flagged or rejected clean windows."""
    clean = [each.row for each in reported if each.row.clean]
    counts: dict[str, int] = {}
    for name in (name for row in clean for name in row.answer.named):
        counts[name] = counts.get(name, 0) + 1
    if not counts:
        return [f"No rule flagged one of the {len(clean)} clean windows.", ""]
    said = ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])))
    return [f"Rules that flagged or rejected clean windows, of {len(clean)}: {said}.", ""]


def own_names(row: Row) -> frozenset[str]:
    """Return the rules that name what happened in this row; of a combination those of both families."""
    families = {each.family for each in drawn(row.family, row.seed, row.length_s)}
    return frozenset().union(*(OWN.get(family, frozenset()) for family in families))


def _is_named(row: Row) -> bool:
    return bool(row.answer.named & own_names(row))


def _in_scope(of: Sequence[JudgedRow]) -> list[Row]:
    return [row for each in of if _happens(each.row) and (row := each.bounded) is not None]


def _happens(row: Row) -> bool:
    """Return whether something happened that is no mere blindness of the watcher."""
    return not row.clean and (row.family not in FAMILIES or not FAMILIES[row.family].blind)


def _claimed_only(row: Row) -> Row:
    """The row with the numbers that decide its status: without times the throughput alone."""
    names = CLAIMED_NAMES if row.variant != Variant.PLAIN else ("throughput",)
    bounds = {name: bound for name, bound in row.answer.bounds.items() if name in names}
    return replace(row, answer=replace(row.answer, bounds=bounds))


def _is_alarmed(row: Row) -> bool:
    return row.answer.status not in (VALID, UNPROVEN)


def _is_stamped(row: Row) -> bool:
    return row.variant == Variant.STAMPED


def _is_not_stamped(row: Row) -> bool:
    return row.variant != Variant.STAMPED


def _share(of: Sequence[Row], holds: Callable[[Row], bool]) -> Share:
    return Share(count=sum(map(holds, of)), total=len(of))


def _share_line(words: str, share: Share) -> str:
    return f"| {words} | {share.total} | {_percent(share)} | {_interval(share)} |"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _percent(share: Share) -> str:
    return "–" if share.ratio is None else f"{share.ratio:.1%}"


def _interval(share: Share) -> str:
    low, high = share.interval
    return f"{low:.1%} to {high:.1%}" if share.total else "–"


def _ratio(value: float) -> str:
    return "none" if math.isinf(value) else f"{value:.2%}"
