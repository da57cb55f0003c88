"""Tests of evidence from a store."""

from __future__ import annotations

import sqlite3
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.capsule.pack import pack
from annotate.evidence import (
    Column,
    Device,
    Event,
    Evidence,
    Gap,
    Lane,
    Ownership,
    PowerRecord,
    Process,
    ProcessList,
    Reading,
    Timings,
    Trace,
    Visibility,
    signals,
)
from annotate.judge import judge
from gpuwatch.clock import VirtualClock
from gpuwatch.errors import StoreError
from gpuwatch.interfaces import Lost, Sweep
from gpuwatch.sources.simulated import simulate
from gpuwatch.store import Reader, dense_power
from gpuwatch.store.committer import Committer, LedgerWrite
from gpuwatch.store.ledger import Ledger
from gpuwatch.store.signal_columns import LANE_COLUMNS, stored
from gpuwatch.store.store_options import StoreLimits, WriterFacts
from tests.annotate.builders import evidence
from tests.examples import share_of
from tests.gpuwatch.store.stored import a_run, feed, opened, sweeps_of
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, DEVICE, OWN, UUID, fast, listing, pulse, stream, sweep

MS, S = 1_000_000, 1_000_000_000


def readback(folder: Path, sweeps: list[Sweep], begin_ns: int, end_ns: int) -> Trace:
    with_store = opened(folder)
    feed(with_store, sweeps)
    try:
        with Reader(folder) as reader:
            return reader.trace(UUID, BOOT, begin_ns, end_ns)
    finally:
        with_store.close()


@pytest.mark.parametrize("scene", ["steady-copy", "steady-gemm", "neighbour", "bursty", "gpu-lost", "thermal"])
def test_stored_scene_gets_the_verdict_of_the_scene(scene: str, tmp_path: Path) -> None:
    """A scene gets the same status, hazards and unobserved rules from the store as directly."""
    about = replace(simulate(scene)[0], timings=None)
    assert about.device is not None
    store = opened(tmp_path, clock=VirtualClock(about.window.begin_ns - 6 * S))
    store.put_device(about.device)
    feed(store, sweeps_of(about))
    for gap in about.trace.gaps:
        store.put_gap(about.device.uuid, gap.lane, gap.begin_ns, gap.end_ns)
    run = a_run(begin_ns=about.window.begin_ns, end_ns=about.window.end_ns, label=about.window.label, pids=about.window.pids,
                host=about.host, declared=about.declared, uuids=(about.device.uuid,), status="judging")  # fmt: skip
    store.put_run(run)
    assert store.flush()
    with Reader(tmp_path) as reader:
        read = reader.evidence(reader.run(run.id), about.device.uuid)
    store.close()
    ours, theirs = judge(read), judge(about)
    assert ours.status == theirs.status
    assert [(f.rule, f.severity) for f in ours.hazards] == [(f.rule, f.severity) for f in theirs.hazards]
    assert {f.rule for f in ours.unobserved} == {f.rule for f in theirs.unobserved}


def test_pulses_hold_only_clock_and_reasons(tmp_path: Path) -> None:
    """Pulses add readings of clock and reasons, but not of other signals."""
    sweeps = []
    for ms in range(0, 1000, 10):
        at_ns, clock_mhz = BEGIN_NS + ms * MS, 1500 if ms in (310, 320) else 1980
        if ms % 50:
            sweeps.append(pulse(at_ns, sm_clock_mhz=clock_mhz, event_reasons_mask=4 if ms < 700 else None))
        else:
            sweeps.append(fast(at_ns, sm_clock_mhz=clock_mhz, event_reasons_mask=4, power_w=600.0 + ms))
    trace = readback(tmp_path, sweeps, BEGIN_NS, BEGIN_NS + S)
    times = BEGIN_NS + MS * np.arange(5, 1000, 10)
    low = trace.at("sm_clock_mhz", times) == 1500
    assert ((times[low] - BEGIN_NS) // MS).tolist() == [315, 325]
    assert np.isnan(trace.at("event_reasons_mask", times[72:75])).all()  # read without a value
    assert set((trace.column("power_w").at_ns - BEGIN_NS) // MS) == set(range(0, 1000, 50))
    assert not np.isnan(trace.column("power_w").values).any()


def test_contradicting_row_ends_a_pulse(tmp_path: Path) -> None:
    """Without a later pulse, the next fast row ends a pulse's values."""
    sweeps = [fast(BEGIN_NS + ms * MS, sm_clock_mhz=1980, event_reasons_mask=0) for ms in range(0, 950, 50)]
    sweeps.append(pulse(BEGIN_NS + 330 * MS, sm_clock_mhz=1500, event_reasons_mask=4))
    trace = readback(tmp_path, sorted(sweeps, key=lambda each: each.due_ns), BEGIN_NS, BEGIN_NS + S)
    times = BEGIN_NS + MS * np.array([325, 335, 345, 355, 700])
    assert trace.at("sm_clock_mhz", times).tolist() == [1980, 1500, 1500, 1980, 1980]
    assert trace.at("event_reasons_mask", times).tolist() == [0, 4, 4, 0, 0]


STEP = st.tuples(
    st.integers(20, 200),
    st.sampled_from([None, 1980, 1965]),
    st.sampled_from([None, 0.97, 1 / 3]),
    st.sampled_from([75.0, 566.123, None]),
    st.sampled_from([0, 73_000_000]),
)


@settings(max_examples=share_of(15))
@given(st.lists(STEP, min_size=1, max_size=60))
def test_stored_readings_keep_their_values_and_times(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int | None, float | None, float | None, int]]
) -> None:
    at_ns, cap_ns, sweeps = BEGIN_NS, 0, []
    for step_ms, clock_mhz, busy_ratio, power_w, rise_ns in steps:
        at_ns, cap_ns = at_ns + step_ms * MS, cap_ns + rise_ns
        sweeps.append(fast(at_ns, sm_clock_mhz=clock_mhz, utilization_ratio=busy_ratio, power_w=power_w, power_cap_ns=cap_ns))
    trace = readback(tmp_path_factory.mktemp("store"), sweeps, BEGIN_NS, at_ns)
    expected = Trace.of([each.observed for each in sweeps if isinstance(each.observed, Reading)])
    times = np.array([each.due_ns for each in sweeps], np.int64)
    assert trace.columns.keys() == expected.columns.keys()
    for name in expected.columns:
        assert np.allclose(trace.at(name, times), expected.at(name, times), rtol=1e-10, equal_nan=True)
        assert (np.diff(trace.column(name).at_ns) > 0).all()


def test_counter_increase_between_edges_is_exact(tmp_path: Path) -> None:
    def cap_ns(ms: int) -> int:
        return 5 * S + max(0, min(ms, 4000) - 1000) * 600_000

    sweeps: list[Sweep] = []
    for ms in range(-5000, 5000, 50):
        sweeps.append(fast(BEGIN_NS + ms * MS, power_cap_ns=cap_ns(ms)))
        if ms in (0, 4000):
            sweeps.append(sweep(Reading(uuid=UUID, lane=Lane.EDGE, at_ns=BEGIN_NS + ms * MS + 1, took_ns=1), Lane.EDGE))
    increase = readback(tmp_path, sweeps, BEGIN_NS - 5 * S, BEGIN_NS + 5 * S).increase(
        "power_cap_ns", BEGIN_NS, BEGIN_NS + 4 * S
    )
    assert increase is not None
    assert (increase.amount, increase.begin_ns, increase.end_ns) == (1.8e9, BEGIN_NS, BEGIN_NS + 4 * S)


def test_idle_gpu_has_stored_samples_each_second(tmp_path: Path) -> None:
    trace = readback(tmp_path, list(stream(30.0, loaded=False)), BEGIN_NS + 10 * S, BEGIN_NS + 20 * S)
    times = trace.column("sm_clock_mhz").at_ns
    assert np.diff(times).max() <= S
    assert times[0] <= BEGIN_NS + 11 * S
    assert times[-1] >= BEGIN_NS + 19 * S
    assert np.diff([process_list.at_ns for process_list in trace.process_lists]).max() <= S


def test_loss_is_read_as_a_gap_and_an_event(tmp_path: Path) -> None:
    """A loss without a later reading is a gap until the end of the query, with an event."""
    sweeps = [fast(BEGIN_NS + i * 50 * MS) for i in range(20)]
    lost = Sweep(UUID, Lane.FAST, 0, 0, 0, Lost(BEGIN_NS + 1000 * MS, "it fell off the bus"))
    trace = readback(tmp_path, [*sweeps, lost], BEGIN_NS, BEGIN_NS + 3 * S)
    assert trace.gaps == (Gap(begin_ns=BEGIN_NS + 950 * MS, end_ns=BEGIN_NS + 3 * S, lane=Lane.FAST),)
    assert [(event.kind, event.text) for event in trace.events] == [("lost", "it fell off the bus")]


def test_stored_processes_keep_every_field(tmp_path: Path) -> None:
    stranger = Process(
        pid=7, name="train", user="them", started_s=1.5e9, memory_bytes=1 << 33, utilization_ratio=1 / 3, graphics=True
    )
    hidden = Process(pid=8, listed=False, utilization_ratio=0.5)
    sweeps = [listing(BEGIN_NS, OWN), listing(BEGIN_NS + 200 * MS, OWN, stranger, hidden, visibility=Visibility.NAMESPACE)]
    trace = readback(tmp_path, sweeps, BEGIN_NS, BEGIN_NS + S)
    assert [process_list.processes for process_list in trace.process_lists] == [(OWN,), (OWN, stranger, hidden)]
    assert [process_list.visibility for process_list in trace.process_lists] == [Visibility.HOST, Visibility.NAMESPACE]
    assert all(isinstance(process_list, ProcessList) and process_list.took_ns == 10_000 for process_list in trace.process_lists)


def test_dense_power_keeps_0_1_w_and_0_5_ms(tmp_path: Path) -> None:
    """Stored dense power is exact to 0.05 W and 0.5 ms."""
    times = tuple(BEGIN_NS + i * 20_013_337 for i in range(1000))
    watts = tuple(500.0 + 100 * np.sin(i / 9) for i in range(1000))
    records = [PowerRecord(uuid=UUID, at_ns=times[i], took_ns=1, sample_at_ns=times[i : i + 50], sample_w=watts[i : i + 50])
               for i in range(0, 1000, 50)]  # fmt: skip
    trace = readback(tmp_path, [sweep(record, Lane.POWER) for record in records], BEGIN_NS, times[-1] + S)
    assert len(trace.dense_power) == 1000
    assert np.abs(trace.dense_power.at_ns - times).max() <= MS // 2
    assert np.abs(trace.dense_power.values - watts).max() <= 0.051


@settings(max_examples=share_of(40))
@given(st.lists(st.tuples(st.integers(1, 10**10), st.floats(0, 2000)), min_size=1, max_size=100))
def test_packed_power_survives_a_round_trip(samples: list[tuple[int, float]]) -> None:
    times = np.cumsum([step for step, _ in samples])
    at_ns, watts = dense_power.unpack(int(times[0]), len(samples), dense_power.pack(times.tolist(), [w for _, w in samples]))
    assert np.abs(at_ns - times).max() <= MS // 2
    assert np.abs(watts - [w for _, w in samples]).max() <= 0.051


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x01junk", dense_power.pack([1, 2], [3.0, 4.0])[:-2]])
def test_damaged_power_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"samples|packed"):
        dense_power.unpack(1, 2, data)


class TestOwnership:
    stranger = Process(pid=7, name="train")

    def read(self, folder: Path, *processes: Process, pids: frozenset[int]) -> list[Ownership]:
        store = opened(folder)
        feed(store, [listing(BEGIN_NS + 5 * S + i * 200 * MS, *processes) for i in range(20)])
        run = a_run(pids=pids)
        store.put_run(run)
        store.flush()
        with Reader(folder) as reader:
            process_lists = reader.evidence(run, UUID).trace.process_lists
        store.close()
        return [process.ownership for process in process_lists[0].processes]

    def test_process_outside_the_tree_is_foreign(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, OWN, self.stranger, pids=frozenset({OWN.pid})) == [Ownership.OWN, Ownership.FOREIGN]

    def test_process_started_after_the_window_is_foreign(self, tmp_path: Path) -> None:
        """A process that started after the window's end only reused a PID of the tree."""
        late = replace(OWN, started_s=4e9)
        assert self.read(tmp_path, late, pids=frozenset({OWN.pid})) == [Ownership.FOREIGN]

    def test_processes_with_one_reused_pid_are_both_own(self, tmp_path: Path) -> None:
        """Two processes with one PID of the tree both count as own if both started before the window's end."""
        assert OWN.started_s is not None
        again = replace(OWN, started_s=OWN.started_s + 1.0)
        assert self.read(tmp_path, OWN, again, pids=frozenset({OWN.pid})) == [Ownership.OWN, Ownership.OWN]

    def test_ownership_without_pids_is_unknown(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, OWN, pids=frozenset()) == [Ownership.UNKNOWN]


class TestEvidence:
    def test_packed_evidence_gets_the_same_verdict(self, tmp_path: Path) -> None:
        about = evidence(length_s=1.0)
        store = opened(tmp_path)
        run = a_run()
        store.put_run(run, {UUID: pack([about])})
        store.flush()
        store.close()
        with Reader(tmp_path) as reader:
            assert judge(reader.evidence(run, UUID)).to_dict() == judge(about).to_dict()

    def test_damaged_packed_evidence_is_refused(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        store.put_run(a_run(), {UUID: b"torn"})
        store.flush()
        with Reader(tmp_path) as reader, pytest.raises(StoreError, match="expected readable evidence of"):
            reader.evidence(a_run(), UUID)
        store.close()

    def test_evidence_without_readings_has_a_reason(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        store.flush()
        with Reader(tmp_path) as reader:
            assert reader.evidence(a_run(), UUID).absence == "no readings of this interval are stored"
            assert reader.evidence(a_run(why="no driver"), UUID).absence == "no driver"
        store.close()

    def test_evidence_holds_device_refresh_host_facts_and_timings(self, tmp_path: Path) -> None:
        """Evidence holds the device at the window's time, the refresh periods, the host, the declared facts and the timings."""
        clock = VirtualClock(BEGIN_NS)
        store = opened(tmp_path, clock=clock)
        store.put_device(DEVICE)
        store.put_refresh(UUID, {"power_w": 100_000_000})
        feed(store, stream(10.0, loaded=True), clock=clock)
        store.put_device(replace(DEVICE, power_limit_w=500.0))
        timings = Timings(np.arange(5, dtype=np.int64), np.linspace(0.1, 0.2, 5))
        run = a_run()
        store.put_run(run)
        store.put_timings(run.id, timings)
        assert store.flush()
        with Reader(tmp_path) as reader:
            about = reader.evidence(run, UUID)
            assert reader.device(UUID).power_limit_w == 500.0
            assert [device.power_limit_w for device in reader.devices()] == [500.0]
        store.close()
        assert about.device == DEVICE
        assert about.trace.refresh_of_ns("power_w") == 100_000_000
        assert (about.host, about.declared) == (run.host, run.declared)
        assert about.timings is not None
        assert np.array_equal(about.timings.took_s, timings.took_s)
        assert isinstance(about, Evidence)
        assert about.window.pids == run.pids


def test_every_signal_is_stored_in_a_column_of_its_lane(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        name: 0.123 if name.endswith(("_ratio", "_w", "_j")) else 7 for lane in LANE_COLUMNS for name in signals(lane)
    }
    values |= {"memory_used_bytes": 645_000_193, "power_cap_ns": 123_456_789_012_345, "energy_j": 123_456.789}
    sweeps = [
        sweep(
            Reading(uuid=UUID, lane=lane, at_ns=BEGIN_NS + i, took_ns=1, **{name: values[name] for name in signals(lane)}), lane
        )
        for i, lane in enumerate((Lane.FAST, Lane.SLOW, Lane.EDGE))
    ]
    trace = readback(tmp_path, sweeps, BEGIN_NS, BEGIN_NS + S)
    assert {name: column.values[0] for name, column in trace.columns.items()} == pytest.approx(values, rel=1e-14)


def test_fast_signal_read_in_the_slow_lane_is_stored(tmp_path: Path) -> None:
    slow = Reading(uuid=UUID, lane=Lane.SLOW, at_ns=BEGIN_NS, took_ns=1, utilization_ratio=0.5, energy_j=1.0)
    trace = readback(tmp_path, [sweep(slow, Lane.SLOW), fast(BEGIN_NS + 5, power_w=1.0)], BEGIN_NS, BEGIN_NS + S)
    assert trace.column("utilization_ratio").values.tolist() == [0.5]


def test_columns_hold_the_drivers_whole_units() -> None:
    assert stored("power_w").encode(566.123) == 566123.0
    assert stored("utilization_ratio").encode(0.07) == 7.0
    assert stored("utilization_ratio").encode(0.29) / 100 == 0.29
    assert stored("power_w").name == "power_mw"


def test_events_and_devices_keep_their_facts(tmp_path: Path) -> None:
    event = Event(uuid=UUID, at_ns=BEGIN_NS + 5, kind="xid", value=79, text="fell off the bus")
    trace = readback(tmp_path, [sweep(event, Lane.EVENTS)], BEGIN_NS, BEGIN_NS + S)
    assert trace.events == (event,)
    whole = Device(**{field.name: _example(str(field.type)) for field in fields(Device)})
    store = opened(tmp_path / "devices")
    store.put_device(whole)
    store.flush()
    with Reader(tmp_path / "devices") as reader:
        assert reader.device(whole.uuid) == whole
        assert type(reader.device(whole.uuid).ecc_mode) is bool
    store.close()


def _example(kind: str) -> Any:
    return "x" if "str" in kind else True if "bool" in kind else 1.5 if "float" in kind else 3


def test_columns_are_float64_with_int64_times(tmp_path: Path) -> None:
    trace = readback(tmp_path, list(stream(2.0, loaded=True)), BEGIN_NS, BEGIN_NS + 2 * S)
    assert all(isinstance(column, Column) and column.values.dtype == np.float64 for column in trace.columns.values())
    assert all(column.at_ns.dtype == np.int64 for column in trace.columns.values())


def test_undone_commit_does_not_count_its_evidence(tmp_path: Path) -> None:
    """A run that cannot be stored undoes the whole commit; the other run is stored again and its evidence counts once."""
    limits = StoreLimits(budget_bytes=8 << 20)
    facts = WriterFacts(source="synthetic", boot_id=BOOT, mode=0o600, now_ns=lambda: BEGIN_NS, wall_offset_ns=lambda: 0)
    committer = Committer(tmp_path, facts, limits)
    runs = [a_run(id=f"{number:018x}", label=label) for number, label in enumerate(("first", "second", "\udcff"))]
    writes = [
        LedgerWrite(
            partial(Ledger.put_run, run=run, evidence={UUID: bytes(int(share * limits.evidence_bytes))} if share else {})
        )
        for run, share in zip(runs, (0.3, 0.4, 0.0), strict=True)
    ]
    committer.commit(writes[:1])
    committer.commit(writes[1:])
    committer.folder.close()
    with sqlite3.connect(tmp_path / "gpuwatch.db") as ledger:
        assert ledger.execute("SELECT run FROM evidence ORDER BY run").fetchall() == [(run.id,) for run in runs[:2]]
