"""Rows of judged pairs: answers, storage, scope, and tables."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.proof.disturbances import family_name
from tests.proof.judged import (
    NAMES,
    answer,
    is_mostly,
    is_steady,
    judged_pair,
    left_open,
    load,
    main,
    sleeps_undeclared,
    waits_for_launches,
    write,
)
from tests.proof.pairs import Pair, length_s, pair
from tests.proof.published import OWN, own_names, tables
from tests.proof.shapes import Piece, Shape
from tests.proof.testified import Variant


@cache
def short(family: str) -> Pair:
    """Return the pair of this family with the shortest windows among the first 200 seeds."""
    return pair(min((seed for seed in range(200) if family_name(seed) == family), key=length_s))


@pytest.mark.parametrize("variant", [Variant.PLAIN, Variant.STAMPED])
def test_answer_holds_measured_and_claimed_numbers(variant: Variant) -> None:
    """A plain window's answer holds the throughput alone, and a stamped window's answer holds all numbers."""
    of = next(made for seed in range(60) if (made := pair(seed)).variant is variant and made.length_s > 2.0)
    spoken = set(answer(of.clean).bounds)
    assert spoken == ({"throughput"} if variant is Variant.PLAIN else set(NAMES.values()))


def test_rows_survive_their_file(tmp_path: Path) -> None:
    """Infinite bounds and absent numbers survive a round trip through the file."""
    found, _, _ = judged_pair(short("host-stall").seed)
    row = found[0].row
    open_ended = replace(row, answer=replace(row.answer, bounds={"throughput": math.inf}, repeatability={}))
    rows = [replace(found[0], row=open_ended), *found[1:]]
    write(rows, tmp_path / "results.json")
    again = load(tmp_path / "results.json")
    assert not again[0].is_steady
    assert again[0].row.answer == open_ended.answer
    assert [each.row.seed for each in again] == [each.row.seed for each in rows]
    assert again[0].row.truth == pytest.approx(dict(row.truth), abs=1e-6)


def test_steady_disturbance_fills_the_window() -> None:
    """A level over the whole window, alone or with others, a rhythm of the calls, and a fast sine are steady.

    A level in a part of the window, a slow or late sine, and a gap in the evidence are not.
    """
    of = short("sm-clock").disturbances[0]
    whole = replace(of, pieces=(Piece(-3.0, 2.0),))
    part = replace(of, pieces=(Piece(0.1, 2.0),))
    rhythm = replace(part, family="work-modes", kind="every-third")
    assert is_steady([whole], 2.0)
    assert is_steady([rhythm], 2.0)
    assert not is_steady([part], 2.0)
    assert is_steady([whole, part], 2.0)
    wave = replace(of, shape=Shape.SINE, begin_s=-3.0, length_s=0.1, pieces=(Piece(-3.0, -2.9), Piece(-2.9, 2.0, 0.5)))
    assert is_steady([wave], 2.0)
    assert not is_steady([replace(wave, length_s=0.5)], 2.0)
    assert not is_steady([replace(wave, begin_s=0.1)], 2.0)
    assert not is_steady(short("evidence-gap").disturbances, 2.0)
    assert not is_steady([], 2.0)


def test_level_over_four_fifths_leaves_no_reference() -> None:
    """A level over more than four fifths of the window counts, in pieces or whole; a raised limit counts outside its pieces."""
    of = replace(short("sm-clock").disturbances[0], shape=Shape.PULSE, pieces=(Piece(0.3, 2.0),))
    assert is_mostly([of], 2.0)
    assert is_mostly([replace(of, shape=Shape.SQUARE, pieces=(Piece(0.2, 1.0), Piece(1.1, 2.0)))], 2.0)
    assert not is_mostly([replace(of, pieces=(Piece(0.5, 2.0),))], 2.0)
    assert not is_mostly([replace(of, shape=Shape.DRIFT)], 2.0)
    assert not is_mostly([replace(of, family="host-stall")], 2.0)
    limit = replace(of, family="power-cap", kind="raised", pieces=(Piece(0.3, 0.5),))
    assert is_mostly([limit], 2.0)
    assert is_mostly([replace(limit, shape=Shape.DRIFT)], 2.0)
    assert not is_mostly([replace(limit, kind="lowered")], 2.0)
    row = judged_pair(short("sm-clock").seed)[0][0]
    assert replace(row, is_steady=False, is_mostly=True, left_open=frozenset()).bounded is None


def test_wrong_times_are_in_scope_throughout() -> None:
    """Wrong times are in scope even for the whole window, because the books compare times with outside evidence."""
    wrong = short("times-wrong").disturbances[0]
    assert not is_steady([replace(wrong, pieces=(Piece(-3.0, 2.0),))], 2.0)


def test_rhythm_of_pauses_leaves_throughput_open() -> None:
    """Five equal pauses leave throughput open; fewer, random pauses, or pauses inside timed iterations do not."""
    row = judged_pair(short("host-stall").seed)[0][0].row
    pieces = tuple(Piece(0.1 + 0.3 * i, 0.2 + 0.3 * i) for i in range(5))
    rhythm = replace(short("host-stall").disturbances[0], shape=Shape.SQUARE, pieces=pieces, inside=False)
    assert left_open([rhythm], row) == {"throughput"}
    assert not left_open([replace(rhythm, pieces=pieces[:4])], row)
    assert not left_open([replace(rhythm, shape=Shape.TELEGRAPH)], row)
    timed = replace(row, variant=Variant.TIMES)
    assert not left_open([replace(rhythm, inside=True)], timed)
    assert left_open([replace(rhythm, inside=True, family="idle-stretch")], timed) == {"throughput"}  # never inside


def test_books_leave_small_errors_of_times_open() -> None:
    """Time errors up to the books' own error are open, and in windows under 1 s all time errors; throughput stays in scope."""
    row = replace(judged_pair(short("times-wrong").seed)[0][0].row, length_s=2.0)
    wrong = short("times-wrong").disturbances[0]
    times = {"mean", "median", "median_at_one_clock"}
    assert left_open([replace(wrong, depth=0.01)], row) == times
    assert not left_open([replace(wrong, depth=0.02)], row)
    assert left_open([replace(wrong, depth=0.02)], replace(row, length_s=0.9)) == times


def test_own_work_is_open_in_plain_windows() -> None:
    """Own work leaves all numbers open without times; easier data, which change the clock, stay in scope."""
    row = replace(judged_pair(short("own-other-work").seed)[0][0].row, variant=Variant.PLAIN)
    other = short("own-other-work").disturbances[0]
    assert left_open([other], row) == set(NAMES.values())
    assert not left_open([other], replace(row, variant=Variant.TIMES))
    assert not left_open([replace(other, family="work-growth", kind="easier-data")], row)
    found = judged_pair(short("own-other-work").seed)[0][0]
    assert replace(found, left_open=frozenset(NAMES.values())).bounded is None
    assert replace(found, is_steady=False, left_open=frozenset()).bounded == found.row


def test_sleeps_are_undeclared_with_and_without_times() -> None:
    row = replace(judged_pair(short("host-stall").seed)[0][0].row, workload="sleeps between")
    assert sleeps_undeclared(replace(row, variant=Variant.STAMPED))
    assert sleeps_undeclared(replace(row, variant=Variant.PLAIN))
    assert not sleeps_undeclared(replace(row, variant=Variant.STAMPED, workload="gemm"))


def test_events_of_short_calls_wait_for_launches() -> None:
    row = replace(judged_pair(short("host-stall").seed)[0][0].row, workload="small launches")
    assert waits_for_launches(replace(row, variant=Variant.TIMES))
    assert not waits_for_launches(replace(row, variant=Variant.DURATIONS))
    assert not waits_for_launches(replace(row, variant=Variant.TIMES, workload="gemm"))


def test_own_names_of_a_combination_join_both_families() -> None:
    found = [judged_pair(short("combined").seed)[0][0].row, judged_pair(short("host-stall").seed)[0][0].row]
    families = {each.family for each in short("combined").disturbances}
    assert own_names(found[0]) == frozenset().union(*(OWN.get(family, frozenset()) for family in families))
    assert own_names(found[1]) == OWN["host-stall"]


def test_main_judges_the_seeds_and_keeps_others(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    assert main(["--seeds", "0:2", "--out", str(out)]) == 0
    assert {each.row.seed for each in load(out)} == {0, 1}
    assert main(["--seeds", "1:3", "--add", "--out", str(out)]) == 0
    assert [each.row.seed for each in load(out) if each.row.clean] == [0, 1, 2]  # seed 1 once


def test_tables_without_rows_contain_no_nan() -> None:
    """Tables without rows print a count of 0 and no ``nan``."""
    lines = tables([], [])
    assert any("| throughput | 0 |" in line for line in lines)
    assert not any("nan" in line for line in lines)
