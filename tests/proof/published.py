"""The scores of the judge on the generator's pairs as tables: the part of docs/VALIDATION.md that results.json makes."""

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
        "ones where they say so.  Intervals are exact (Clopper-Pearson, 95 %).\n",
        "A bound covers disturbances inside the window.  The tables count these cases apart:\n",
        "- a disturbance that holds from first to last, alone or beside another one: only a record of this work bounds it, and these",
        "  windows have none; so does a sine of five periods and more that began before the window;",
        "- a level that leaves less than a fifth of the window without it: the specification takes no shorter part as a reference;",
        "- throughput under a rhythm of five equal pauses and more from first to last, which counts by the clock that it buys;",
        "- times that are wrong by less than the books' own error of 1.3 points, or in windows under a second, which have no books;",
        "- actions of the measured process itself in windows without times.\n",
        "The disturbance beside another one, the sine and the level were set apart after a look at even seeds; the columns with what is left",
        "out include them.  One fix (the clock that pauses buy where times have no begins) was found on even seeds and made after a look at",
        "the odd ones, of which it flagged one more.  That crests of a controller's swing are no references was found on even seeds as well; how",
        "far a swing reaches was set from recorded clocks after a look at the odd ones, of which it cleared one more.  A review then",
        "showed drifts, and phases of 0.9 s, that this rule called valid.  A crest now lasts half a cycle at most, and a clock that goes one",
        "way has none: that flags four more clean windows of odd seeds, whose clocks stood 1.3 to 2.2 % above their mean for 0.7 s and more.\n",
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
    """How often the truth lies within bound plus repeatability, by number."""
    steady = sum(each.is_steady for each in reported)
    mostly = sum(each.is_mostly and not each.is_steady for each in reported)
    opened = sum(bool(each.left_open) and not each.is_steady and not each.is_mostly for each in reported)
    even, _ = halves(_in_scope(both))
    out = [
        "### Coverage\n",
        'The true deviation of a disturbed window lies within bound plus repeatability.  Target: 95 %.  "No bound": a rule saw',
        f"something of unknown size.  The first columns leave out {steady} windows with a disturbance that stands from first to last,",
        f"{mostly} with one that leaves less than a fifth without it, and of {opened} others the numbers that the specification leaves open.\n",
        "| number | windows | covered | 95 % | by the bound alone | no bound | even seeds | with those left out |",
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
    """Coverage of each family's windows that are in scope."""
    out = [
        "Covered, by family (target 90 % each); windows in brackets:\n",
        "| family | " + " | ".join(in_words(name) for name in NAMES.values()) + " |",
        "|---|---|---|---|---|",
    ]
    by_number = {name: coverage_by_family(_in_scope(reported), name) for name in NAMES.values()}
    for family in sorted({family for shares in by_number.values() for family in shares}):
        shares = [by_number[name][family] for name in NAMES.values()]
        out.append(f"| {family} | " + " | ".join(f"{as_percent(each)} ({each.total})" for each in shares) + " |")
    return [*out, ""]


def missed(reported: Sequence[JudgedRow]) -> list[str]:
    """Every window in scope that is off and was called valid, by the number that is farthest off."""
    disturbed = [replace(each, row=claimed_only(each.row)) for each in reported if not each.row.clean]
    rows = [row for each in disturbed if (row := each.bounded) is not None and row.answer.status == VALID]
    out = [
        "| seed | family | work | s | tells | number | off | bound | repeatability |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.is_off(TOLERANCE_RATIO):
            name = max(row.answer.bounds, key=lambda each: abs(row.truth[each]) - row.repeatability(each))
            out.append(
                f"| {row.seed} | {row.family} | {row.workload} | {row.length_s:.1f} | {TELLS[Variant(row.variant)]} | {in_words(name)} | "
                f"{row.truth[name]:+.2%} | {row.answer.bounds[name]:.2%} | {row.repeatability(name):.2%} |"
            )
    return ["The windows of these seeds that are in scope, off, and were called valid:\n", *out, ""] if len(out) > 2 else []


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
