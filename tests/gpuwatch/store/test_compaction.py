"""Tests of compaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from annotate.evidence import Event, Lane, PowerRecord, Process, ProcessList, Reading
from gpuwatch.interfaces import Lost, Sweep
from gpuwatch.store.compaction import POWER_BLOB_NS, Compactor, SegmentRows
from tests.gpuwatch.store.streams import BEGIN_NS, OWN, UUID, fast, listing, pulse, sweep

MS = 1_000_000


def kept(*sweeps: Sweep) -> SegmentRows:
    keeper = Compactor()
    for each in sweeps:
        keeper.take(each)
    return keeper.rows()


def spans(rows: SegmentRows) -> list[tuple[int, int]]:
    """Return the start in milliseconds since BEGIN_NS and the duration of each fast row."""
    return [((at - BEGIN_NS) // MS, stood_ms) for lane, at, _, stood_ms, _ in rows.readings if lane is Lane.FAST]


def every(period_ms: int, count: int, *, first_ms: int = 0, **signals: Any) -> list[Sweep]:
    return [fast(BEGIN_NS + (first_ms + i * period_ms) * MS, **signals) for i in range(count)]


def test_equal_readings_are_one_row_with_a_duration() -> None:
    assert spans(kept(*every(50, 100, power_w=75.0))) == [(0, 4950)]


def test_any_changed_value_begins_a_row() -> None:
    rows = kept(*every(50, 3, sm_clock_mhz=1980), *every(50, 2, first_ms=150, sm_clock_mhz=1965))
    assert spans(rows) == [(0, 100), (150, 50)]


def test_compactor_ignores_power_noise_but_not_creep() -> None:
    """Power changes below the noise begin no row; a slow drift beyond the noise begins rows."""
    noise = [fast(BEGIN_NS + i * 50 * MS, power_w=75.0 + 0.7 * (i % 2)) for i in range(20)]
    assert len(spans(kept(*noise))) == 1
    creeping = [fast(BEGIN_NS + i * 50 * MS, power_w=75.0 + 0.5 * i) for i in range(20)]
    assert len(spans(kept(*creeping))) == 7


def test_value_that_becomes_unobserved_begins_a_row() -> None:
    rows = kept(*every(50, 2, power_w=75.0), *every(50, 2, first_ms=100))
    assert spans(rows) == [(0, 50), (100, 50)]


def test_growing_row_is_returned_again() -> None:
    keeper = Compactor()
    grown = []
    for each in every(50, 4, power_w=75.0):
        keeper.take(each)
        grown += spans(keeper.rows())
    assert grown == [(0, 0), (0, 50), (0, 100), (0, 150)]
    assert len(keeper.rows()) == 0


def test_last_reading_before_an_edge_is_a_separate_row() -> None:
    """The last fast reading before a window's edge starts a row, which later readings may extend."""
    edge = Reading(uuid=UUID, lane=Lane.EDGE, at_ns=BEGIN_NS + 101 * MS, took_ns=600_000, power_violation_ns=5)
    rows = kept(*every(50, 3, power_cap_ns=7), sweep(edge, Lane.EDGE), *every(50, 2, first_ms=150, power_cap_ns=7))
    assert spans(rows) == [(0, 100), (100, 100)]
    assert [lane for lane, *_ in rows.readings].count(Lane.EDGE) == 1


class TestPulse:
    """Cases of pulses: readings of only clock and reasons between two fast rows, in separate rows."""

    @staticmethod
    def pulses(rows: SegmentRows) -> list[tuple[int, int]]:
        return [((at - BEGIN_NS) // MS, stood_ms) for lane, at, _, stood_ms, _ in rows.readings if lane is Lane.PULSE]

    @staticmethod
    def window(clock_mhz: Callable[[int], int], count: int = 100) -> list[Sweep]:
        """Return a fast sweep every 50 ms, and a pulse every 10 ms in between."""
        return [
            (fast if ms % 50 == 0 else pulse)(BEGIN_NS + ms * MS, sm_clock_mhz=clock_mhz(ms), event_reasons_mask=4)
            for ms in range(0, 10 * count, 10)
        ]

    def test_equal_pulses_are_one_row_across_fast_rows(self) -> None:
        rows = kept(*self.window(lambda ms: 1980))
        assert self.pulses(rows) == [(10, 980)]
        assert spans(rows) == [(0, 950)]

    def test_dip_between_fast_rows_is_located_to_10_ms(self) -> None:
        rows = kept(*self.window(lambda ms: 1500 if ms in (310, 320) else 1980))
        assert self.pulses(rows) == [(10, 280), (310, 10), (330, 660)]
        assert spans(rows) == [(0, 950)]

    def test_dip_seen_only_by_a_fast_row_ends_the_pulse(self) -> None:
        rows = kept(*self.window(lambda ms: 1500 if ms == 300 else 1980))
        assert self.pulses(rows) == [(10, 280), (310, 680)]

    def test_pulse_does_not_last_from_window_to_window(self) -> None:
        later = [pulse(BEGIN_NS + (2000 + i) * MS, sm_clock_mhz=1980, event_reasons_mask=4) for i in (10, 20)]
        rows = kept(*self.window(lambda ms: 1980, 10), *every(50, 30, first_ms=100, sm_clock_mhz=1980), *later)
        assert self.pulses(rows) == [(10, 80), (2010, 10)]

    def test_pulse_neither_makes_nor_hides_a_gap(self) -> None:
        rows = kept(*self.window(lambda ms: 1980, 10), *every(50, 3, first_ms=600))
        assert rows.gaps == [(UUID, Lane.FAST, BEGIN_NS + 50 * MS, BEGIN_NS + 600 * MS)]

    def test_growing_pulse_is_returned_again_until_a_restart(self) -> None:
        keeper, found = Compactor(), []
        for each in self.window(lambda ms: 1980, 5):
            keeper.take(each)
            found.append(self.pulses(keeper.rows()))
        assert found == [[], [(10, 0)], [(10, 10)], [(10, 20)], [(10, 30)]]
        keeper.restart()
        keeper.take(pulse(BEGIN_NS + 50 * MS, sm_clock_mhz=1980, event_reasons_mask=4))
        assert self.pulses(keeper.rows()) == [(50, 0)]


def test_equal_slow_readings_are_all_kept() -> None:
    rows = kept(*(sweep(Reading(uuid=UUID, lane=Lane.SLOW, at_ns=BEGIN_NS + i, took_ns=1), Lane.SLOW) for i in range(3)))
    assert len(rows.readings) == 3


class TestGaps:
    def test_silence_longer_than_250_ms_is_a_gap(self) -> None:
        rows = kept(*every(50, 3), *every(50, 3, first_ms=500))
        assert rows.gaps == [(UUID, Lane.FAST, BEGIN_NS + 100 * MS, BEGIN_NS + 500 * MS)]
        assert spans(rows) == [(0, 100), (500, 100)]

    def test_silence_of_250_ms_is_not_a_gap(self) -> None:
        assert kept(*every(50, 3), *every(50, 3, first_ms=350)).gaps == []

    def test_board_read_twice_a_second_has_no_gaps(self) -> None:
        rows = kept(*every(500, 10, power_w=30.0))
        assert rows.gaps == []
        assert spans(rows) == [(0, 4500)]

    def test_missed_deadlines_are_one_gap(self) -> None:
        late = replace(fast(BEGIN_NS + 3000 * MS), missed_count=19)
        assert len(kept(*every(100, 10), late).gaps) == 1

    def test_changed_rate_is_not_a_gap(self) -> None:
        assert kept(*every(50, 5), *every(10, 20, first_ms=210), *every(50, 5, first_ms=450)).gaps == []

    def test_lost_gpu_is_a_gap_between_its_readings(self) -> None:
        keeper = Compactor()
        for each in every(50, 3):
            keeper.take(each)
        keeper.take(Sweep(UUID, Lane.FAST, 0, 0, 0, Lost(BEGIN_NS + 160 * MS, "GPU is lost")))
        rows = keeper.rows()
        assert rows.gaps == [(UUID, Lane.FAST, BEGIN_NS + 100 * MS, None)]
        assert [(event.kind, event.text) for event in rows.events] == [("lost", "GPU is lost")]
        keeper.take(fast(BEGIN_NS + 1160 * MS))
        assert keeper.rows().gaps == [(UUID, Lane.FAST, BEGIN_NS + 100 * MS, BEGIN_NS + 1160 * MS)]

    def test_silence_of_one_gpu_is_not_a_gap_of_another(self) -> None:
        other = [fast(BEGIN_NS + i * 50 * MS, uuid="GPU-2") for i in range(20)]
        rows = kept(*every(50, 2), *other, *every(50, 2, first_ms=900))
        assert [uuid for uuid, *_ in rows.gaps] == [UUID]


class TestProcesses:
    def test_unchanged_process_list_is_one_row(self) -> None:
        rows = kept(*(listing(BEGIN_NS + i * 200 * MS, OWN) for i in range(10)))
        assert [(at, stood) for at, _, stood, *_ in rows.process_lists] == [(BEGIN_NS, 1800)]

    def test_started_and_ended_processes_begin_rows(self) -> None:
        rows = kept(listing(BEGIN_NS, OWN), listing(BEGIN_NS + 200 * MS), listing(BEGIN_NS + 400 * MS, OWN))
        assert [len(processes) for *_, processes in rows.process_lists] == [1, 0, 1]

    def test_process_list_with_utilisation_has_no_duration(self) -> None:
        busy = replace(OWN, utilization_ratio=0.5)
        rows = kept(*(listing(BEGIN_NS + i * 200 * MS, busy) for i in range(3)))
        assert [stood for _, _, stood, *_ in rows.process_lists] == [0, 0, 0]

    def test_process_list_does_not_last_over_a_silence(self) -> None:
        rows = kept(listing(BEGIN_NS), listing(BEGIN_NS + 200 * MS), listing(BEGIN_NS + 3000 * MS))
        assert [stood for _, _, stood, *_ in rows.process_lists] == [200, 0]


class TestDensePower:
    def record(self, *at_ms: int) -> Sweep:
        times = tuple(BEGIN_NS + ms * MS for ms in at_ms)
        return sweep(
            PowerRecord(uuid=UUID, at_ns=times[-1], took_ns=1, sample_at_ns=times, sample_w=(75.0,) * len(times)), Lane.POWER
        )

    def test_growing_power_blob_is_returned_each_time(self) -> None:
        keeper = Compactor()
        keeper.take(self.record(0, 20, 40))
        assert [len(at) for _, at, _ in keeper.rows().power] == [3]
        keeper.take(self.record(40, 60))
        assert [len(at) for _, at, _ in keeper.rows().power] == [4]
        keeper.take(self.record(80, POWER_BLOB_NS // MS + 100))
        assert [len(at) for _, at, _ in keeper.rows().power] == [5, 1]

    def test_empty_power_record_makes_no_row(self) -> None:
        nothing = PowerRecord(uuid=UUID, at_ns=BEGIN_NS, took_ns=1, sample_at_ns=(), sample_w=())
        assert len(kept(sweep(nothing, Lane.POWER))) == 0


def test_events_are_returned_for_the_ledger() -> None:
    event = Event(uuid=UUID, at_ns=BEGIN_NS, kind="xid", value=79)
    assert kept(sweep(event, Lane.EVENTS)).events == [event]


def test_compactor_restart_forgets_earlier_rows() -> None:
    """After a restart, equal readings begin new rows."""
    keeper = Compactor()
    for each in every(50, 3, power_w=75.0):
        keeper.take(each)
    keeper.take(listing(BEGIN_NS))
    keeper.rows()
    keeper.restart()
    keeper.take(fast(BEGIN_NS + 150 * MS, power_w=75.0))
    keeper.take(listing(BEGIN_NS + 200 * MS))
    rows = keeper.rows()
    assert spans(rows) == [(150, 0)]
    assert len(rows.process_lists) == 1


@pytest.mark.parametrize("observed", [ProcessList(uuid=UUID, at_ns=BEGIN_NS, took_ns=5, processes=(Process(pid=1),))])
def test_first_process_list_is_kept(observed: ProcessList) -> None:
    assert len(kept(sweep(observed, Lane.PROCESSES))) == 1
