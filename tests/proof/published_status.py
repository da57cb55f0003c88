"""The tables of bounds of clean windows and of statuses, with and without the loops that the pairs cannot test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tests.proof.cells import (
    as_interval,
    as_percent,
    as_ratio,
    claimed_only,
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

# The books of clean windows balance to -3.0 to +1.9 percentage points and count from 1.3: smaller shares may stay hidden.
BOOKS_RESOLVE_RATIO = 0.05
TELLS: Mapping[Variant, str] = {
    Variant.PLAIN: "nothing",
    Variant.TIMES: "start times and times",
    Variant.DURATIONS: "times alone",
    Variant.STAMPED: "start times, times and clocks",
}
_WITH_BOTH = "with both kinds of loop"
_MOST_ALARMED = 0.01  # the target for clean windows; the upper end of the interval may be twice that


def tells_itself(row: Row) -> bool:
    """Return whether the pairs can test this loop: it declares its sleeps, and its events include no launches."""
    return not sleeps_undeclared(row) and not waits_for_launches(row)


def sharp(reported: Sequence[JudgedRow]) -> list[str]:
    """Return the table of the bounds of clean windows."""
    out = [
        "### Sharpness\n",
        f"Bounds of clean windows of {SHARP_S:.0f} s or more.  Targets: 0.15 and 0.5 % with stamped iterations, 0.5 and 1.5 % without.",
        "Two kinds of loop are excluded, here and in the statuses; every second line includes them.  The first are timed loops that sleep",
        "20 ms between calls without a declared period: the specification counts the clock gained by sleeping (`bursty-duty-cycle`).  The",
        "second are loops of 62 µs that wait 28 µs for each launch and are timed by events.  Two events include a part of the launch, and",
        "`host-bound` bounds a kernel's time by it.  Both windows of a pair include it, so no true deviation here tests that bound.\n",
        "| number | stamped: windows | median | 95th percentile | not stamped: windows | median | 95th percentile |",
        "|---|---|---|---|---|---|---|",
    ]
    every = [each.row for each in reported]
    told = [row for row in every if tells_itself(row)]
    for name in NAMES.values():
        for rows, words in ((told, in_words(name)), (every, f"… {_WITH_BOTH}")):
            cells = [cell for select in (is_stamped, is_not_stamped) for cell in _sharp_cells(rows, name, select)]
            out.append(f"| {words} | " + " | ".join(cells) + " |")
    return [*out, ""]


def _sharp_cells(rows: Sequence[Row], name: str, select: Callable[[Row], bool]) -> list[str]:
    middle, high = (sharpness(rows, name, ratio=ratio, select=select) for ratio in (0.5, 0.95))
    if middle is None or high is None:
        return ["0", "–", "–"]
    return [str(middle.count), as_ratio(middle.value), as_ratio(high.value)]


def statuses(reported: Sequence[JudgedRow]) -> list[str]:
    """Return the table of both errors of the status at the default tolerance."""
    out = [
        "### Status\n",
        f"For the numbers that `sustained` claims, at a tolerance of {TOLERANCE_RATIO:.0%}.  Targets: at most 1 % each, upper end of the interval 2 %.",
        f"Windows under {BOOKED_S:.0f} s have no books, so they are unproven at best.\n",
        "| windows | total | share | 95 % |",
        "|---|---|---|---|",
    ]
    clean = [each.row for each in reported if each.row.clean]
    return [*out, *_clean_lines(clean), *_off_lines(reported), "", _on_target(clean), ""]


def _on_target(clean: Sequence[Row]) -> str:
    """Return a sentence on whether the share of false alarms meets the target."""
    share = share_of([row for row in clean if tells_itself(row) and row.length_s >= BOOKED_S], is_alarmed)
    kept = (share.ratio or 0.0) <= _MOST_ALARMED and share.is_at_most(2.0 * _MOST_ALARMED)
    return (
        f"{as_percent(share)} of clean windows of {BOOKED_S:.0f} s or more are flagged or rejected ({as_interval(share)}).  "
        f"This {'meets' if kept else 'misses'} the target of {_MOST_ALARMED:.0%}, and {2.0 * _MOST_ALARMED:.0%} for the upper end."
    )


def _clean_lines(every: Sequence[Row]) -> list[str]:
    out = []
    clean = [row for row in every if tells_itself(row)]
    for words, least_s in (("", 0.0), (f" of {BOOKED_S:.0f} s or more", BOOKED_S), (f" of {SHARP_S:.0f} s or more", SHARP_S)):
        kept = [row for row in clean if row.length_s >= least_s]
        out.append(share_line(f"clean{words}, not valid", status_errors(kept).clean_not_valid))
        out.append(share_line(f"clean{words}, flagged or rejected", share_of(kept, is_alarmed)))
        whole = [row for row in every if row.length_s >= least_s]
        out.append(share_line(f"clean{words}, not valid, {_WITH_BOTH}", status_errors(whole).clean_not_valid))
    booked = [row for row in every if row.length_s >= BOOKED_S]
    sleeping, waiting = ([row for row in booked if is_such(row)] for is_such in (sleeps_undeclared, waits_for_launches))
    out.append(
        share_line(
            f"… loops of {BOOKED_S:.0f} s or more that sleep and declare no period", status_errors(sleeping).clean_not_valid
        )
    )
    out.append(
        share_line(f"… loops of {BOOKED_S:.0f} s or more that wait for each launch", status_errors(waiting).clean_not_valid)
    )
    for variant in Variant:
        told = [row for row in clean if row.variant == variant and row.length_s >= BOOKED_S]
        words = f"clean of {BOOKED_S:.0f} s or more that declares {TELLS[variant]}, not valid"
        out.append(share_line(words, status_errors(told).clean_not_valid))
    return out


def _off_lines(reported: Sequence[JudgedRow]) -> list[str]:
    disturbed = [replace(each, row=claimed_only(each.row)) for each in reported if not each.row.clean]
    bounded = [row for each in disturbed if (row := each.bounded) is not None]
    resolved = [row for row in bounded if not _is_below_the_books(row)]
    held = [each.row for each in disturbed if not each.is_steady and not each.is_mostly]
    few = f"the same, without times too short by up to {BOOKS_RESOLVE_RATIO:.0%}, which may be within the gauge's error"
    return [
        share_line(words, status_errors(rows).off_called_valid)
        for words, rows in (
            ("off by more than tolerance plus repeatability, called valid", bounded),
            (few, resolved),
            ("off, called valid, with numbers that the specification does not bound", held),
            ("the same, with disturbances throughout, or nearly throughout", [each.row for each in disturbed]),
        )
    ]


def _is_below_the_books(row: Row) -> bool:
    happened = drawn(row.family, row.seed, row.length_s)
    return any(each.family == "times-wrong" and each.depth <= BOOKS_RESOLVE_RATIO for each in happened)
