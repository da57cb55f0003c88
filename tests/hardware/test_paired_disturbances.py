"""Tests of the disturbances of paired windows, drawn and applied to work that only notes them."""

from __future__ import annotations

import gc
from itertools import islice
from typing import Any

import msgspec
import pytest

import gpuwatch
from tests.hardware.paired_disturbances import FAMILIES, Course, Disturbance, Planned, deck, drawn, length_s, turns
from tests.proof.shapes import Piece

WINDOW_S = 3.0


class Noting:
    """Work that does nothing but note each disturbance."""

    capped = False

    def __init__(self) -> None:
        self.did: list[tuple[str, Any]] = []

    def step(self, calls: int, *, aside: bool = False) -> None: ...

    def add(self, share: float, *, aside: bool = False) -> None:
        if share:
            self.did.append(("aside" if aside else "add", share))

    def ease(self, share: float) -> None:
        self.did.append(("ease", share))

    def compile(self, kind: str, number: int) -> None:
        self.did.append(("compile", kind))

    def join(self) -> None: ...

    def mark(self) -> None: ...

    def passed_s(self, first: Any, last: Any) -> float:
        return 0.0

    def synchronize(self) -> None:
        self.did.append(("synchronize", None))


def done(of: Disturbance, moments_s: tuple[float, ...] = (0.0, 1.0, 2.0)) -> list[tuple[str, Any]]:
    """Return a disturbance's actions between and inside of calls at these moments."""
    work = Noting()
    between, inside = turns(work, gpuwatch.window("never entered"), of)
    for call, at_s in enumerate(moments_s):
        between(at_s, call)
        inside(at_s, call)
    return work.did


def a(family: str, kind: str, *pieces: Piece, **more: Any) -> Disturbance:
    return Disturbance(family=family, kind=kind, depth=0.2, pieces=pieces, **more)


def test_every_round_of_the_deck_holds_every_family() -> None:
    cards = deck(3)
    first, second = (list(islice(cards, len(FAMILIES))) for _ in range(2))
    assert sorted(first) == sorted(second) == sorted(FAMILIES)
    assert first != second
    assert first == list(islice(deck(3), len(FAMILIES)))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_draws_follow_from_the_seed_and_keep_their_limits(family: str) -> None:
    low, high = FAMILIES[family].depth
    made = [drawn(family, 1, number, WINDOW_S, 16) for number in range(40)]
    assert made == [drawn(family, 1, number, WINDOW_S, 16) for number in range(40)]
    assert len({each.depth for each in made}) == 40
    assert all(low <= each.depth <= high for each in made)
    assert all(0.0 <= piece.begin_s <= piece.end_s <= WINDOW_S + 1e-6 for each in made for piece in each.pieces)
    assert all(each.kind in FAMILIES[family].kinds and family in each.words for each in made)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_draws_survive_a_round_trip_through_json(family: str) -> None:
    for number in range(30):
        planned = Planned(number=number, length_s=WINDOW_S, warm_s=1.0, disturbance=drawn(family, 1, number, WINDOW_S, 16))
        assert msgspec.json.decode(msgspec.json.encode(planned), type=Planned) == planned


def test_depths_are_drawn_as_often_small_as_large() -> None:
    """About half of the drawn depths lie below the geometric middle of their range."""
    low, high = FAMILIES["host-stall"].depth
    small = sum(drawn("host-stall", 5, number, WINDOW_S, 16).depth < (low * high) ** 0.5 for number in range(200))
    assert 70 <= small <= 130


def test_stalls_add_up_to_their_share() -> None:
    for number in range(40):
        of = drawn("host-stall", 2, number, WINDOW_S, 16)
        assert sum(piece.end_s - piece.begin_s for piece in of.pieces) == pytest.approx(of.depth * WINDOW_S)


def test_lengths_lie_in_the_requested_range() -> None:
    assert all(2.0 <= length_s(1, number) <= 4.0 for number in range(50))
    assert all(0.3 <= length_s(1, number, (0.3, 0.5)) <= 0.5 for number in range(50))


def test_only_lasting_disturbances_are_throughout() -> None:
    standing = {
        family: [drawn(family, 4, number, WINDOW_S, 16).throughout for number in range(60)]
        for family in ("neighbour-slices", "hogs", "neighbour-late", "host-stall", "work-growth", "own-stream")
    }
    assert all(standing["neighbour-slices"])
    assert all(standing["hogs"])
    assert not any(standing["neighbour-late"])
    assert not any(standing["host-stall"])
    assert 0 < sum(standing["work-growth"]) < 60
    assert 0 < sum(standing["own-stream"]) < 60


def test_course_returns_its_level_and_each_piece_once() -> None:
    pieces = (Piece(0.5, 1.0, 0.25), Piece(1.5, 2.0))
    course = Course(pieces)
    assert [course.level(at_s) for at_s in (0.0, 0.5, 0.9, 1.2, 1.7, 2.5)] == [0.0, 0.25, 0.25, 0.0, 1.0, 0.0]
    moments = Course(pieces)
    assert [moments.due(at_s) for at_s in (0.0, 0.6, 0.7, 1.6, 9.0)] == [None, pieces[0], None, pieces[1], None]


def test_growth_and_modes_work_inside_of_calls() -> None:
    grown = done(a("work-growth", "grows", Piece(0.5, 1.5, 0.5), Piece(1.5, 3.0)))
    assert grown == [("add", 0.1), ("add", 0.2)]
    assert done(a("work-modes", "every-second", Piece(9.0, 9.5))) == [("add", 0.2), ("add", 0.2)]
    assert done(a("work-modes", "dwells", Piece(0.5, 1.5))) == [("add", 0.2)]


def test_other_work_runs_between_calls_or_aside() -> None:
    assert done(a("own-other-work", "undeclared", Piece(0.5, 1.5))) == [("add", 0.2)]
    assert done(a("own-stream", "stream", Piece(0.5, 3.0))) == [("aside", 0.2), ("aside", 0.2)]


def test_inputs_are_eased_for_their_part_only() -> None:
    assert [share for _, share in done(a("eased-data", "zeros", Piece(0.5, 1.5)))] == [0.0, 0.2, 0.0]


def test_kernels_are_compiled_once_per_moment() -> None:
    assert done(a("compilation", "jiterator", Piece(0.5, 0.5), Piece(1.5, 1.5))) == [("compile", "jiterator")] * 2


def test_rhythm_waits_once_per_period() -> None:
    assert done(a("sleep-rhythm", "sleep", period_s=0.001), (0.0, 0.0005, 0.002)) == [("synchronize", None)] * 2


def collections(of: Disturbance, moments_s: tuple[float, ...]) -> list[int]:
    """Return the generation of each collector run during the actions at these moments."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    try:
        assert done(of, moments_s) == []
    finally:
        gc.callbacks.remove(note)
    return seen


def test_collector_runs_at_the_start_of_a_piece() -> None:
    assert collections(a("garbage", "heap", Piece(0.5, 0.6), Piece(5.0, 5.1)), (0.0, 1.0, 2.0)).count(2) == 1


def test_kept_objects_trigger_the_collector() -> None:
    """Kept objects, a fifth of 15 million per second, trigger the collector from the first piece on."""
    litter, before = a("garbage", "litter", Piece(0.5, 0.6)), gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # Python's default: the suite collects more rarely
    try:
        assert len(collections(litter, (0.0, 0.4))) < 5
        assert len(collections(litter, (0.0, 0.51, 0.52))) > 20
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize("family", ["neighbour-slices", "neighbour-holds", "hogs", "times-wrong", "pause-before"])
def test_disturbances_outside_the_loop_take_no_turn(family: str) -> None:
    assert done(drawn(family, 1, 1, WINDOW_S, 16)) == []
