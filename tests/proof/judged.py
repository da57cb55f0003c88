"""Rows of judged windows of the generator's pairs.

python -m tests.proof.judged --seeds 100000:116000 [--processes 2] [--add]
judges the windows of each pair and writes tests/proof/results.json.  ``make pages`` computes the proof's figures from this file.
``--add`` keeps the file's rows of other seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from annotate.budget import Number, NumberBudget
from annotate.combine import CLAIMED
from annotate.derived.measured_numbers import measured_between
from annotate.derived.time_accounts import BOOKS_ERROR_RATIO
from annotate.evidence import Evidence
from annotate.judge import judge
from annotate.user_policy import Policy
from tests.proof.disturbances import FAMILIES, Disturbance, drawn, is_inside
from tests.proof.pairs import pair
from tests.proof.scores import Answer, Row, rows
from tests.proof.shapes import Shape
from tests.proof.testified import Variant

RESULTS = Path(__file__).parent / "results.json"
PROCESSES_COUNT = os.cpu_count() or 1  # most worker processes
# The generator's name of each number of a verdict.
NAMES: Mapping[Number, str] = {
    Number.THROUGHPUT: "throughput",
    Number.MEAN: "mean",
    Number.MEDIAN: "median",
    Number.MEDIAN_AT_CLOCK: "median_at_one_clock",
}
CLAIMED_NAMES = tuple(NAMES[number] for number in CLAIMED[Policy().claim])
BOOKED_S = 1.0  # shorter windows have no books, so they are never valid
RHYTHM_COUNT = 5  # least count of equal, equally spaced pauses of a rhythm, and of periods of a steady sine
REFERENCE_RATIO = 0.2  # smallest share of the window that the specification accepts as a reference level
_OWN_WORK = frozenset({"own-other-work", "work-growth", "work-modes"})
_LEVELLED = _OWN_WORK | {"sm-clock", "thermal", "power-cap"}
_FLAT = frozenset({Shape.STEP, Shape.PULSE, Shape.SQUARE, Shape.TELEGRAPH, Shape.BURSTS})
_DIGITS = 6  # decimals of a stored ratio: 1e-6 is a ten-thousandth of the tolerance
_UNBOUNDED = 1e9  # written for an infinite bound, because JSON has no infinity


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """One judged window, with the reasons that put the window or some of its numbers out of scope."""

    row: Row
    is_steady: bool = False  # a disturbance lasts throughout the window: only a record of this work bounds it
    is_mostly: bool = False  # the undisturbed work holds too little of the window to be a reference
    left_open: frozenset[str] = frozenset()  # numbers that the specification leaves unbounded, see ``left_open``

    @property
    def bounded(self) -> Row | None:
        """Return the row with its in-scope numbers, or None if no number is in scope."""
        bounds = self.row.answer.bounds
        if self.is_steady or self.is_mostly or not bounds.keys() - self.left_open:
            return None
        if self.left_open.isdisjoint(bounds):
            return self.row
        kept = {name: bound for name, bound in bounds.items() if name not in self.left_open}
        return replace(self.row, answer=replace(self.row.answer, bounds=kept))


def answer(evidence: Evidence) -> Answer:
    """Return the judge's answer for one window under the default policy.

    The answer covers the numbers that were measured or are claimed.  An unknown repeatability is replaced by its known parts.
    ``named`` holds the hazards that flag or reject.
    """
    verdict = judge(evidence)
    assert verdict.budget is not None
    relevant = [each for each in verdict.budget.numbers if each.value is not None or each.number in verdict.budget.claimed]
    kept = [each for each in relevant if each.number in NAMES]
    return Answer(
        bounds={NAMES[each.number]: math.inf if each.bound_ratio is None else each.bound_ratio for each in kept},
        repeatability={NAMES[each.number]: ratio for each in kept if (ratio := _repeats(each, evidence)) is not None},
        status=verdict.status.value,
        named=frozenset(each.rule for each in verdict.hazards if each.severity in ("flag", "reject")),
    )


def _repeats(number: NumberBudget, evidence: Evidence) -> float | None:
    of = number.repeatability
    if of.ratio is not None or of.within_ratio is None:
        return of.ratio
    return math.hypot(of.within_ratio, of.between_ratio or measured_between(number.number, evidence))


def is_steady(disturbances: Iterable[Disturbance], length_s: float) -> bool:
    """Return whether a disturbance is constant from the window's start, or earlier, to the window's end.

    Nothing in the window separates such a disturbance from the work itself.  A rhythm of the iterations counts as constant.  So
    does a sine of at least five periods that began before the window.  Wrong times do not count, because the books bound them.
    """
    return any(
        each.kind.startswith("every-")
        or (each.family != "times-wrong" and (_is_one_level(each, length_s) or _is_steady_sine(each, length_s)))
        for each in disturbances
        if not FAMILIES[each.family].blind
    )


def _is_one_level(each: Disturbance, length_s: float) -> bool:
    whole = len(each.pieces) == 1 and each.pieces[0].begin_s <= 0.0
    return whole and each.pieces[0].end_s >= length_s - 1e-6


def _is_steady_sine(each: Disturbance, length_s: float) -> bool:
    return each.shape is Shape.SINE and each.begin_s <= 0.0 and each.length_s * RHYTHM_COUNT <= length_s


def is_mostly(disturbances: Iterable[Disturbance], length_s: float) -> bool:
    """Return whether a level of a family in ``_LEVELLED`` leaves less than a fifth of the window undisturbed.

    The specification accepts a level as a reference if the level holds a fifth of the window.  A sine, a saw or a drift has no
    level.  A raised power limit is at one lower level outside the pieces, whatever the shape of the pieces.
    """
    return any(
        _level_share(each, length_s) > 1.0 - REFERENCE_RATIO
        for each in disturbances
        if each.family in _LEVELLED and (each.shape in _FLAT or _is_raised(each))
    )


def _level_share(each: Disturbance, length_s: float) -> float:
    share = sum(max(0.0, min(piece.end_s, length_s) - max(piece.begin_s, 0.0)) for piece in each.pieces) / length_s
    return 1.0 - share if _is_raised(each) else share


def _is_raised(each: Disturbance) -> bool:
    return (each.family, each.kind) == ("power-cap", "raised")


def left_open(disturbances: Iterable[Disturbance], row: Row) -> frozenset[str]:
    """Return the numbers that the specification leaves unbounded in this window.

    Throughput is open under a rhythm of pauses, which is part of the work.  Wrong times are open if their error is within the
    books' own error, and in windows under a second, which have no books.  All numbers are open in a plain window whose own
    work changed other than by easier data (the proof "steadiness of the times" is not shown).
    """
    is_plain = row.variant == Variant.PLAIN
    found: set[str] = set()
    for each in disturbances:
        is_between = is_plain or not is_inside(each)
        if FAMILIES[each.family].stalls and each.shape is Shape.SQUARE and len(each.pieces) >= RHYTHM_COUNT and is_between:
            found.add("throughput")
        if each.family == "times-wrong" and (each.depth <= BOOKS_ERROR_RATIO or row.length_s < BOOKED_S):
            found |= {"mean", "median", "median_at_one_clock"}
        if is_plain and each.family in _OWN_WORK and each.kind != "easier-data":
            found |= set(NAMES.values())
    return frozenset(found)


def sleeps_undeclared(row: Row) -> bool:
    """Return whether a loop sleeps between its calls, with the clock of a burst, and declares no period."""
    return row.workload == "sleeps between"


def waits_for_launches(row: Row) -> bool:
    """Return whether events time calls so short that the GPU waits for each launch, which lengthens the times on a real GPU."""
    return row.workload == "small launches" and row.variant in (Variant.TIMES, Variant.STAMPED)


def _judged_row(row: Row) -> JudgedRow:
    if row.clean:
        return JudgedRow(row)
    happened = drawn(row.family, row.seed, row.length_s)
    return JudgedRow(row, is_steady(happened, row.length_s), is_mostly(happened, row.length_s), left_open(happened, row))


def judged_pair(seed: int) -> tuple[list[JudgedRow], float, float]:
    """Return the rows of one seed, and the seconds spent on making and on judging its windows."""
    begin_s = time.perf_counter()
    made = pair(seed)
    made_s = time.perf_counter()
    found = [_judged_row(row) for row in rows([made], answer)]
    return found, made_s - begin_s, time.perf_counter() - made_s


def to_data(of: JudgedRow) -> list[Any]:
    """Return a row as plain data: an infinite bound as ``_UNBOUNDED``, an absent number as None."""
    row = of.row

    def ratios(by: Mapping[str, float]) -> list[float | None]:
        values = [by.get(name) for name in NAMES.values()]
        return [None if each is None else min(round(each, _DIGITS), _UNBOUNDED) for each in values]

    answered = row.answer
    figures = (ratios(row.truth), ratios(answered.bounds), ratios(answered.repeatability))
    head = (row.seed, row.family, int(row.clean), row.workload, row.variant, row.length_s)
    return [*head, *figures, answered.status, sorted(answered.named)]


def from_data(data: Sequence[Any]) -> JudgedRow:
    """Return the row of the output of ``to_data``."""
    seed, family, clean, workload, variant, length_s, truth, bounds, repeatability, status, named = data

    def ratios(values: Sequence[float | None]) -> dict[str, float]:
        known = zip(NAMES.values(), values, strict=True)
        return {name: math.inf if value >= _UNBOUNDED else value for name, value in known if value is not None}

    answered = Answer(bounds=ratios(bounds), repeatability=ratios(repeatability), status=status, named=frozenset(named))
    row = Row(
        seed=seed,
        family=family,
        clean=bool(clean),
        workload=workload,
        variant=variant,
        length_s=length_s,
        truth=ratios(truth),
        answer=answered,
    )
    return _judged_row(row)


def load(path: Path = RESULTS) -> list[JudgedRow]:
    return [from_data(each) for each in json.loads(path.read_text(encoding="utf-8"))["rows"]]


@cache
def stored() -> Sequence[JudgedRow]:
    """Return the rows of ``RESULTS``, read once, because reading takes seconds and two sections of a page need the rows."""
    return tuple(load())


def write(found: Iterable[JudgedRow], path: Path = RESULTS) -> None:
    """Write the rows to a file, one per line, ordered by seed."""
    ordered = sorted(found, key=lambda each: (each.row.seed, each.row.clean))
    lines = ",\n".join(json.dumps(to_data(each), separators=(",", ":")) for each in ordered)
    path.write_text(f'{{"rows": [\n{lines}\n]}}\n', encoding="utf-8")


def judged(seeds: Sequence[int], processes: int) -> Iterator[list[JudgedRow]]:
    """Yield the rows of each seed as worker processes finish, and print mean times."""
    made_s = judged_s = 0.0
    count = windows = 0
    with get_context("spawn").Pool(processes) as pool:
        for found, made, took in pool.imap_unordered(judged_pair, seeds, chunksize=4):
            made_s, judged_s, count, windows = made_s + made, judged_s + took, count + 1, windows + len(found)
            if count % 20 == 0 or count == len(seeds):
                print(
                    f"{count} of {len(seeds)} pairs: made in {made_s / count:.2f} s each, judged in {judged_s / windows:.3f} s per window"
                )
                sys.stdout.flush()
            yield found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.judged", description=__doc__)
    parser.add_argument("--seeds", default="0:100", metavar="FIRST:END", help="judge the pairs of seeds FIRST to END - 1")
    parser.add_argument("--processes", type=int, choices=range(1, PROCESSES_COUNT + 1), default=1)
    parser.add_argument("--add", action="store_true", help="keep the rows of other seeds")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args(arguments)
    wanted = range(*(int(each) for each in asked.seeds.split(":")))
    found = [row for of_pair in judged(wanted, asked.processes) for row in of_pair]
    kept = [each for each in load(asked.out) if each.row.seed not in wanted] if asked.add and asked.out.exists() else []
    write([*kept, *found], asked.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
