"""Tables of statuses and of clean windows' bounds, with and without the loops that the pairs cannot test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.proof.cells import (
    as_interval,
    as_percent,
    as_ratio,
    in_words,
    is_alarmed,
    is_not_stamped,
    is_stamped,
    share_line,
    share_of,
)
from tests.proof.disturbances import drawn
from tests.proof.judged import BOOKED_S, NAMES, JudgedRow, sleeps_undeclared, waits_for_launches
from tests.proof.scores import SHARP_S, TOLERANCE_RATIO, Row, sharpness, status_errors
from tests.proof.testified import Variant

# The books of clean windows do not close exactly: smaller errors of the times are not always found.
BOOKS_RESOLVE_RATIO = 0.05
RECORDS: Mapping[Variant, str] = {
    Variant.PLAIN: "no times",
    Variant.TIMES: "start times and durations",
    Variant.DURATIONS: "durations only",
    Variant.STAMPED: "start times, durations and clocks",
}
_WITH_BOTH = "with both kinds of loop"
_MOST_ALARMED = 0.01  # target for clean windows; the upper end of the interval may be twice the target


def is_testable(row: Row) -> bool:
    """Return True for a loop that the pairs can test: without undeclared sleeps, and without timed calls that wait for launches."""
    return not sleeps_undeclared(row) and not waits_for_launches(row)


def sharp(reported: Sequence[JudgedRow]) -> list[str]:
    """Return the table of clean windows' bounds."""
    out = [
        "### Sharpness\n",
        f"Bounds of clean windows of at least {SHARP_S:.0f} s.  Targets for median and 95th percentile: 0.15 and 0.5 % with stamped iterations, 0.5 and",
        f'1.5 % without.  The pairs cannot test two kinds of loop.  The lines "{_WITH_BOTH}", here and under Status, include them:\n',
        "- Loops that sleep 20 ms between calls and declare no period.  The specification counts the higher clock that sleeping allows",
        "  (`bursty-duty-cycle`).",
        "- Loops of calls of 62 µs, timed by events, that wait 28 µs for each launch.  On a real GPU the time between two events includes part of",
        "  the launch, and `host-bound` bounds a kernel's time by this part.  The simulated times exclude the part, so the true deviation does",
        "  not show it.\n",
        "| number | stamped: windows | median | 95th percentile | not stamped: windows | median | 95th percentile |",
        "|---|---|---|---|---|---|---|",
    ]
    every = [each.row for each in reported if each.row.clean]
    testable = [row for row in every if is_testable(row)]
    kinds = [[list(filter(select, rows)) for select in (is_stamped, is_not_stamped)] for rows in (testable, every)]
    for name in NAMES.values():
        for groups, words in zip(kinds, (in_words(name), f"… {_WITH_BOTH}"), strict=True):
            cells = [cell for rows in groups for cell in _sharp_cells(rows, name)]
            out.append(f"| {words} | " + " | ".join(cells) + " |")
    return [*out, ""]


def _sharp_cells(rows: Sequence[Row], name: str) -> list[str]:
    middle, high = (sharpness(rows, name, ratio=ratio) for ratio in (0.5, 0.95))
    if middle is None or high is None:
        return ["0", "–", "–"]
    return [str(middle.count), as_ratio(middle.value), as_ratio(high.value)]


def statuses(clean: Sequence[Row], claimed: Sequence[JudgedRow]) -> list[str]:
    """Return the table of both status errors at the default tolerance; the disturbed windows have only their claimed numbers."""
    out = [
        "### Status\n",
        f"At a tolerance of {TOLERANCE_RATIO:.0%}, for the numbers that `sustained` claims.  Targets: each share at most 1 %, the interval's upper end at",
        f"most 2 %.  Windows under {BOOKED_S:.0f} s have no books, so such windows are unproven at best.\n",
        "| windows | total | share | 95 % interval |",
        "|---|---|---|---|",
    ]
    return [*out, *_clean_lines(clean), *_off_lines(claimed), "", _on_target(clean), ""]


def _on_target(clean: Sequence[Row]) -> str:
    """Return a sentence on whether false alarms meet the target."""
    share = share_of([row for row in clean if is_testable(row) and row.length_s >= BOOKED_S], is_alarmed)
    kept = (share.ratio or 0.0) <= _MOST_ALARMED and share.is_at_most(2.0 * _MOST_ALARMED)
    return (
        f"The judge flags or rejects {as_percent(share)} of the clean windows of at least {BOOKED_S:.0f} s ({as_interval(share)}): this "
        f"{'meets' if kept else 'misses'} the target of {_MOST_ALARMED:.0%} with an upper end of at most {2.0 * _MOST_ALARMED:.0%}."
    )


def _clean_lines(every: Sequence[Row]) -> list[str]:
    out = []
    clean = [row for row in every if is_testable(row)]
    for words, least_s in (("", 0.0), (f" of at least {BOOKED_S:.0f} s", BOOKED_S), (f" of at least {SHARP_S:.0f} s", SHARP_S)):
        kept = [row for row in clean if row.length_s >= least_s]
        out.append(share_line(f"clean{words}, not valid", status_errors(kept).clean_not_valid))
        out.append(share_line(f"clean{words}, flagged or rejected", share_of(kept, is_alarmed)))
        whole = [row for row in every if row.length_s >= least_s]
        out.append(share_line(f"clean{words}, not valid, {_WITH_BOTH}", status_errors(whole).clean_not_valid))
    booked = [row for row in every if row.length_s >= BOOKED_S]
    sleeping, waiting = ([row for row in booked if is_such(row)] for is_such in (sleeps_undeclared, waits_for_launches))
    out.append(
        share_line(
            f"… loops of at least {BOOKED_S:.0f} s that sleep and declare no period", status_errors(sleeping).clean_not_valid
        )
    )
    out.append(
        share_line(f"… loops of at least {BOOKED_S:.0f} s that wait for each launch", status_errors(waiting).clean_not_valid)
    )
    for variant in Variant:
        kept = [row for row in clean if row.variant == variant and row.length_s >= BOOKED_S]
        words = f"clean of at least {BOOKED_S:.0f} s with {RECORDS[variant]}, not valid"
        out.append(share_line(words, status_errors(kept).clean_not_valid))
    return out


def _off_lines(disturbed: Sequence[JudgedRow]) -> list[str]:
    bounded = [row for each in disturbed if (row := each.bounded) is not None]
    resolved = [row for row in bounded if not _is_below_the_books(row)]
    held = [each.row for each in disturbed if not each.is_steady and not each.is_mostly]
    few = f"the same, without times at most {BOOKS_RESOLVE_RATIO:.0%} too short, which the gauge cannot always resolve"
    return [
        share_line(words, status_errors(rows).off_called_valid)
        for words, rows in (
            ("off by more than tolerance plus repeatability, called valid", bounded),
            (few, resolved),
            ("off, called valid, open numbers included", held),
            ("the same, with disturbances of the whole window, or nearly, included", [each.row for each in disturbed]),
        )
    ]


def _is_below_the_books(row: Row) -> bool:
    happened = drawn(row.family, row.seed, row.length_s)
    return any(each.family == "times-wrong" and each.depth <= BOOKS_RESOLVE_RATIO for each in happened)
