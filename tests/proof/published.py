"""The part of docs/VALIDATION.md that follows from results.json: the judge's scores on the generator's pairs, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.proof.cells import as_interval, as_percent, claimed_only, in_words, is_alarmed, share_of
from tests.proof.disturbances import FAMILIES, drawn
from tests.proof.judged import NAMES, JudgedRow, load
from tests.proof.published_status import TELLS, sharp, statuses, tells_itself
from tests.proof.scores import TOLERANCE_RATIO, VALID, Row, coverage, coverage_by_family, halves
from tests.proof.testified import Variant

_CLOCK = frozenset({"clock-levels", "clock-drift", "clock-ramp", "regime-change"})
_STALLS = frozenset({"idle-stretch", "outliers", "mid-run-compile"})
_NEIGHBOURS = frozenset({"contention-process", "contention-residual"})
_WORK = frozenset({"iteration-growth", "iteration-levels", "bimodal", "outliers"})
# The rules that name each family's hazard; findings of other rules are by-catch.
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
    """Return the lines of this part of the page."""
    found = load()
    seeds = {each.row.seed for each in found}
    reported = [each for each in found if each.row.seed % 2]
    return [
        "## How far the bounds hold: pairs with a known deviation\n",
        f"Generated from `tests/proof/results.json` (`python -m tests.proof.judged`): the windows of {len(seeds)} pairs of simulated runs,",
        "one disturbed and one clean, with the same noise (`tests/proof/pairs.py`).  Their ratio is the true deviation.  The authors of the",
        "disturbances had not read the rules.  Constants of the judge were fitted on even seeds.  The tables show odd seeds, and even seeds",
        "only if stated.  Intervals are exact (Clopper-Pearson, 95 %).\n",
        "A bound covers disturbances inside the window.  The tables exclude these cases from the scope:\n",
        "- a disturbance throughout the window, alone or with another one, or a sine of five or more periods that began before the window:",
        "  only a record of this work bounds it, and these windows have none;",
        "- a level that holds for more than four fifths of the window: the specification uses no shorter part as a reference;",
        "- throughput under a rhythm of five or more equal pauses throughout, of which only the gained clock counts;",
        "- times that are wrong by less than the books' error of 1.3 percentage points, or in windows under a second, which have no books;",
        "- actions of the measured process itself in windows without times.\n",
        "The combined disturbance, the sine and the level were excluded after an inspection of even seeds; the columns with excluded cases",
        "include them.  One fix (the clock gained by pauses between times without start times) was found on even seeds and made after an",
        "inspection of odd seeds, of which it flagged one more.  The exclusion of a controller's crests as references was also found on even",
        "seeds.  The size of a swing was set from recorded clocks after an inspection of odd seeds, of which it cleared one more.  A review",
        "then showed drifts, and phases of 0.9 s, that this rule called valid.  A crest now lasts at most half a cycle, and a clock that",
        "changes in one direction has none.  This flags four more clean windows of odd seeds, whose clocks were 1.3 to 2.2 % above their mean",
        "for 0.7 s or more.\n",
        *tables(reported, found),
    ]


def tables(reported: Sequence[JudgedRow], both: Sequence[JudgedRow]) -> list[str]:
    return [
        *covered(reported, both),
        *covered_by_family(reported),
        *sharp(reported),
        *statuses(reported),
        *missed(reported),
        *by_family(reported),
        *alarms(reported),
    ]


def covered(reported: Sequence[JudgedRow], both: Sequence[JudgedRow]) -> list[str]:
    """Return the table of coverage by number: the share of true deviations within bound plus repeatability."""
    steady = sum(each.is_steady for each in reported)
    mostly = sum(each.is_mostly and not each.is_steady for each in reported)
    opened = sum(bool(each.left_open) and not each.is_steady and not each.is_mostly for each in reported)
    even, _ = halves(_in_scope(both))
    out = [
        "### Coverage\n",
        'Coverage is the share of disturbed windows whose true deviation lies within bound plus repeatability.  Target: 95 %.  "No bound"',
        f"means a hazard of unknown size.  The first columns exclude {steady} windows with a disturbance throughout, {mostly} windows with a",
        f"disturbance that leaves less than a fifth without it, and unbounded numbers of {opened} other windows.\n",
        "| number | windows | covered | 95 % | by the bound alone | no bound | even seeds | with excluded cases |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in NAMES.values():
        rows = _in_scope(reported)
        share = coverage(rows, name)
        alone = coverage([replace(row, answer=replace(row.answer, repeatability={})) for row in rows], name)
        whole = coverage([each.row for each in reported if _happens(each.row)], name)
        out.append(
            f"| {in_words(name)} | {share.total} | {as_percent(share)} | {as_interval(share)} | {as_percent(alone)} | {share.unbounded} | "
            f"{as_percent(coverage(even, name))} | {as_percent(whole)} of {whole.total} |"
        )
    return [*out, ""]


def covered_by_family(reported: Sequence[JudgedRow]) -> list[str]:
    """Return the table of coverage by family, for windows in scope."""
    out = [
        "Coverage by family (target 90 % each), with the count of windows in brackets:\n",
        "| family | " + " | ".join(in_words(name) for name in NAMES.values()) + " |",
        "|---|---|---|---|---|",
    ]
    by_number = {name: coverage_by_family(_in_scope(reported), name) for name in NAMES.values()}
    for family in sorted({family for shares in by_number.values() for family in shares}):
        shares = [by_number[name][family] for name in NAMES.values()]
        out.append(f"| {family} | " + " | ".join(f"{as_percent(each)} ({each.total})" for each in shares) + " |")
    return [*out, ""]


def missed(reported: Sequence[JudgedRow]) -> list[str]:
    """Return the table of windows in scope that are off and were called valid, by their number farthest off."""
    disturbed = [replace(each, row=claimed_only(each.row)) for each in reported if not each.row.clean]
    rows = [row for each in disturbed if (row := each.bounded) is not None and row.answer.status == VALID]
    out = [
        "| seed | family | work | s | declares | number | off | bound | repeatability |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.is_off(TOLERANCE_RATIO):
            name = max(row.answer.bounds, key=lambda each: abs(row.truth[each]) - row.repeatability(each))
            out.append(
                f"| {row.seed} | {row.family} | {row.workload} | {row.length_s:.1f} | {TELLS[Variant(row.variant)]} | {in_words(name)} | "
                f"{row.truth[name]:+.2%} | {row.answer.bounds[name]:.2%} | {row.repeatability(name):.2%} |"
            )
    return ["Windows in scope that are off and were called valid:\n", *out, ""] if len(out) > 2 else []


def by_family(reported: Sequence[JudgedRow]) -> list[str]:
    """Return the table of misses and false alarms by family, with separate counts for named hazards and by-catch."""
    out = [
        "### Misses and false alarms, by family\n",
        '"Off" means in scope, and off by more than tolerance plus repeatability.  "Named" means found by a rule of the family, "by-catch"',
        "by another rule.  A false alarm is a flag or a rejection of a window that is within the tolerance.\n",
        "| family | off | called valid | 95 % | named | by-catch alone | within the tolerance | false alarms | named | rejected |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    families: dict[str, list[JudgedRow]] = {}
    for each in reported:
        if not each.row.clean:
            families.setdefault(each.row.family, []).append(replace(each, row=claimed_only(each.row)))
    for family, judged in sorted(families.items()):
        rows = [row for each in judged if (row := each.bounded) is not None]
        off = [row for row in rows if row.is_off(TOLERANCE_RATIO)]
        whole = [each.row for each in judged if _is_told(each)]
        calm = [row for row in whole if all(abs(row.truth[name]) <= TOLERANCE_RATIO for name in row.answer.bounds)]
        named = share_of(off, _is_named)
        caught = share_of(off, lambda row: bool(row.answer.named) and not _is_named(row))
        missed = share_of(off, lambda row: row.answer.status == VALID)
        alarmed = [row for row in calm if is_alarmed(row)]
        out.append(
            f"| {family} | {len(off)} | {as_percent(missed)} | {as_interval(missed)} | {as_percent(named)} | {as_percent(caught)} | {len(calm)} | "
            f"{as_percent(share_of(calm, is_alarmed))} | {sum(map(_is_named, alarmed))} | {sum(row.answer.status == 'rejected' for row in alarmed)} |"
        )
    return [*out, ""]


def _is_told(of: JudgedRow) -> bool:
    return not of.is_steady and not of.is_mostly and not of.left_open and tells_itself(of.row)


def alarms(reported: Sequence[JudgedRow]) -> list[str]:
    """Return the lines about the rules that flagged or rejected clean windows."""
    clean = [each.row for each in reported if each.row.clean]
    counts: dict[str, int] = {}
    for name in (name for row in clean for name in row.answer.named):
        counts[name] = counts.get(name, 0) + 1
    if not counts:
        return [f"No rule flagged any of the {len(clean)} clean windows.", ""]
    said = ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])))
    return [f"Rules that flagged or rejected some of {len(clean)} clean windows: {said}.", ""]


def own_names(row: Row) -> frozenset[str]:
    """Return the rules that name this row's disturbance; for a combination, those of both families."""
    families = {each.family for each in drawn(row.family, row.seed, row.length_s)}
    return frozenset().union(*(OWN.get(family, frozenset()) for family in families))


def _is_named(row: Row) -> bool:
    return bool(row.answer.named & own_names(row))


def _in_scope(of: Sequence[JudgedRow]) -> list[Row]:
    return [row for each in of if _happens(each.row) and (row := each.bounded) is not None]


def _happens(row: Row) -> bool:
    """Return whether the row has a disturbance other than missing evidence."""
    return not row.clean and (row.family not in FAMILIES or not FAMILIES[row.family].blind)
