"""Tests of packed evidence."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import Number
from annotate.capsule import byte_planes, decimate
from annotate.capsule.pack import pack, unpack
from annotate.errors import CapsuleError
from annotate.evidence import (
    Column,
    Event,
    Evidence,
    Gap,
    Lane,
    OtherWindow,
    OtherWork,
    Ownership,
    Pause,
    Process,
    RecordedWindow,
    Timings,
    Visibility,
    WindowRecord,
    WorkRecord,
)
from annotate.judge import judge
from annotate.verdict import Verdict
from gpuwatch.sources.simulated import simulate
from tests.annotate.builders import BEGIN_NS, OWN, QUIET, UUID, capped_ns, evidence
from tests.examples import share_of

STRANGER = Process(pid=7, name="train", memory_bytes=1 << 30, utilization_ratio=0.4, ownership=Ownership.FOREIGN)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "sm_clock_mhz": st.sampled_from([None, 1980, 1410]),
    "power_w": st.sampled_from([None, 566.123, lambda t: 500.0 + 100 * np.sin(t)]),
    "utilization_ratio": st.sampled_from([None, 0.97, 1 / 3, lambda t: (7 * int(10 * t) % 100) / 100]),
    "power_cap_ns": st.sampled_from([None, 0, capped_ns(2.0, 0.5)]),
    "event_reasons_mask": st.sampled_from([0, 4, lambda t: 0x8 if t > 1 else 0]),
    "energy_j": st.sampled_from([None, lambda t: 1e6 / 7 * (t + 9)]),
}


@st.composite
def observed(draw: st.DrawFn) -> Evidence:
    processes = draw(st.sampled_from([None, (), (OWN,), (OWN, STRANGER)]))
    gaps = draw(st.sampled_from([(), (Gap(begin_ns=BEGIN_NS + 10**9, end_ns=BEGIN_NS + 2 * 10**9, lane=Lane.PROCESSES),)]))
    events = draw(st.sampled_from([(), (Event(uuid=UUID, at_ns=BEGIN_NS + 5, kind="xid", value=48, text="memory"),)]))
    timed = Timings(BEGIN_NS + np.arange(50) * 10**7, np.random.default_rng(draw(st.integers(0, 9))).normal(1e-2, 1e-4, 50))
    return evidence(
        length_s=draw(st.floats(0.05, 4.0)),
        signals={name: draw(strategy) for name, strategy in VALUES.items()},
        processes=processes,
        visibility=draw(st.sampled_from(Visibility)),
        gaps=gaps,
        events=events,
        declared=draw(st.sampled_from([{}, {"flops": 1.5, "profiler": None, "tf32": True, "library": "cuBLAS"}])),
        timings=draw(st.sampled_from([None, timed])),
    )


def same(one: Evidence, other: Evidence) -> bool:
    def equal(a: Column, b: Column) -> bool:
        return np.array_equal(a.at_ns, b.at_ns) and np.array_equal(a.values, b.values, equal_nan=True)

    columns, others = one.trace.columns, other.trace.columns
    empty = Column(np.empty(0, np.int64), np.empty(0))
    rest = [replace(each, trace=replace(each.trace, columns={}, dense_power=empty), timings=None) for each in (one, other)]
    timed = (one.timings is None) == (other.timings is None)
    if one.timings is not None and other.timings is not None:
        timed = equal(Column(one.timings.at_ns, one.timings.took_s), Column(other.timings.at_ns, other.timings.took_s))
    return (
        columns.keys() == others.keys()
        and all(equal(columns[name], others[name]) for name in columns)
        and equal(one.trace.dense_power, other.trace.dense_power)
        and timed
        and repr(rest[0]) == repr(rest[1])
    )


@settings(max_examples=share_of(25))
@given(observed())
def test_pack_round_trip_keeps_evidence_and_verdict(about: Evidence) -> None:
    (unpacked,) = unpack(pack([about]))
    assert same(unpacked, about)
    assert judge(unpacked).to_dict() == judge(about).to_dict()


def test_pack_holds_several_windows_or_none() -> None:
    two = (evidence(length_s=1.0, label="first"), evidence(length_s=2.0, label="second", device=None))
    assert [each.window.label for each in unpack(pack(two))] == ["first", "second"]
    assert unpack(pack([])) == ()


def test_pack_keeps_the_reason_for_missing_telemetry() -> None:
    nothing = Evidence(window=WindowRecord(begin_ns=5, end_ns=6), absence="no daemon")
    assert same(unpack(pack([nothing]))[0], nothing)


def test_pack_of_a_simulated_gemm_takes_less_than_10_kb() -> None:
    (scene,) = simulate("steady-gemm")[:1]
    assert scene.window.length_s > 3
    assert len(pack([replace(scene, timings=None)])) < 10_000


@settings(max_examples=share_of(50))
@given(st.lists(st.integers(-(1 << 62), (1 << 62) - 1)))
def test_integers_survive_byte_planes(values: list[int]) -> None:
    array = np.array(values, np.int64)
    decoded, rest = byte_planes.decode(byte_planes.encode(array) + b"rest", len(values))
    assert decoded.tolist() == values
    assert bytes(rest) == b"rest"


def throughput_bound(verdict: Verdict) -> float:
    assert verdict.budget is not None
    (found,) = [each for each in verdict.budget.numbers if each.number is Number.THROUGHPUT]
    assert found.bound_ratio is not None
    return found.bound_ratio


class TestLongWindows:
    def long(self, **changes: Any) -> Evidence:
        wanders = {
            "power_w": lambda t: 560.0 + 40 * np.sin(t / 7),
            "sm_clock_mhz": lambda t: 1980 - 15 * (int(t * 3) % 5),
            "power_cap_ns": capped_ns(300.0, 0.5),
        }
        return evidence(length_s=900.0, period_s=0.1, signals=wanders, **changes)

    def test_decimate_keeps_extremes_counters_and_status(self) -> None:
        """Decimation keeps extremes, counters, status and hazards above a note in less than half of the bytes."""
        about = self.long()
        data = pack([about])
        (thin,) = unpack(data)
        assert len(data) < 200_000
        assert len(data) < len(pack([about], decimate=False)) / 2
        for name in ("power_w", "sm_clock_mhz", "power_cap_ns"):
            before, after = about.trace.column(name).values, thin.trace.column(name).values
            assert (after.min(), after.max()) == (before.min(), before.max())
        assert thin.increase("power_cap_ns") == about.increase("power_cap_ns")
        assert thin.trace.dense_power.values.max() == about.trace.dense_power.values.max()
        kept, whole = judge(thin), judge(about)
        assert kept.status == whole.status
        assert [f.rule for f in kept.hazards if f.severity != "note"] == [f.rule for f in whole.hazards if f.severity != "note"]
        assert throughput_bound(kept) == pytest.approx(
            throughput_bound(whole), abs=0.002
        )  # decimation gives extremes more weight

    def test_decimate_keeps_silences(self) -> None:
        about = self.long(skip=lambda t: 400 < t < 410)
        (thin,) = unpack(pack([about]))
        times = np.arange(about.window.begin_ns, about.window.end_ns, 50_000_000, dtype=np.int64)
        unseen = np.isnan(about.trace.at("sm_clock_mhz", times))
        assert 100 < unseen.sum() < 200
        assert np.array_equal(np.isnan(thin.trace.at("sm_clock_mhz", times)), unseen)

    def test_decimate_keeps_a_neighbour_of_one_second(self) -> None:
        about = self.long()
        visited = tuple(
            replace(process_list, processes=(*process_list.processes, STRANGER))
            if 500 < (process_list.at_ns - BEGIN_NS) / 1e9 < 501
            else process_list
            for process_list in about.trace.process_lists
        )
        (thin,) = unpack(pack([replace(about, trace=replace(about.trace, process_lists=visited))]))
        seen = [(c.at_ns - BEGIN_NS) / 1e9 for c in thin.trace.process_lists if any(p.pid == STRANGER.pid for p in c.processes)]
        assert seen
        assert 500 < min(seen) <= max(seen) < 501

    def test_pack_without_decimation_is_lossless(self) -> None:
        about = self.long()
        assert same(unpack(pack([about], decimate=False))[0], about)


class TestDamage:
    @pytest.mark.parametrize("data", [b"", b"PK", b"not a zip at all", bytes(1000)])
    def test_invalid_recording_is_refused_in_one_line(self, data: bytes) -> None:
        with pytest.raises(CapsuleError, match="expected") as refused:
            unpack(data)
        assert "\n" not in str(refused.value)

    def test_unpack_refuses_another_archive(self) -> None:
        with pytest.raises(CapsuleError, match="another archive"):
            unpack(zipped({"readme": b"hello"}))

    @settings(max_examples=share_of(60))
    @given(st.data())
    def test_unpack_damage_raises_only_capsule_errors(self, data: st.DataObject) -> None:
        packed = bytearray(PACKED)
        if data.draw(st.booleans()):
            del packed[data.draw(st.integers(0, len(packed) - 1)) :]
        for _ in range(data.draw(st.integers(0, 4))):
            if packed:
                packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
        try:
            unpack(bytes(packed))
        except CapsuleError as error:
            assert "\n" not in str(error)  # noqa: PT017 - no error at all is fine too: the changed byte may be unused

    @settings(max_examples=share_of(60))
    @given(st.data())
    def test_altered_manifests_raise_only_capsule_errors(self, data: st.DataObject) -> None:
        manifest = json.loads(member(PACKED, "manifest.json"))
        entry = manifest["evidence"][0]
        parts = (manifest, entry, entry["window"], entry["columns"])
        where, key = data.draw(st.sampled_from([(part, key) for part in parts for key in part if key != "schema"]))
        where[key] = data.draw(st.sampled_from([None, -1, 10**30, "x", [], {}, [[]], [10**9, 1], [[1, 2]], [0, 1, 1, 0], True]))
        changed = zipped({"manifest.json": json.dumps(manifest).encode(), "arrays": member(PACKED, "arrays")})
        try:
            unpack(changed)
        except CapsuleError as error:
            assert "\n" not in str(error)  # noqa: PT017

    def test_recording_of_a_newer_schema_is_refused(self) -> None:
        with pytest.raises(CapsuleError, match="use a newer gpuwatch"):
            unpack(zipped({"manifest.json": b'{"schema": 99}', "arrays": b""}))

    def test_zip_bomb_is_refused_before_unpacking(self) -> None:
        with pytest.raises(CapsuleError, match="at most"):
            unpack(zipped({"manifest.json": b"{}", "arrays": bytes(300 << 20)}))

    def test_too_many_repeated_rows_are_refused(self) -> None:
        with pytest.raises(ValueError, match="at most"):
            decimate.fill_index(np.array([0, 1 << 60], np.int64), 1, np.empty(0, np.int64))


def test_unpack_reads_facts_of_other_versions() -> None:
    """Unknown facts of a newer version are left out, and facts missing in an older version are not observed."""
    manifest = json.loads(member(PACKED, "manifest.json"))
    manifest["evidence"][0]["device"]["colour"] = "green"
    del manifest["evidence"][0]["device"]["ecc_mode"]
    (about,) = unpack(zipped({"manifest.json": json.dumps(manifest).encode(), "arrays": member(PACKED, "arrays")}))
    assert about.device is not None
    assert about.device.ecc_mode is None
    assert about.device.name == "NVIDIA H200"


def member(data: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(name)


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


PACKED = pack([evidence(length_s=1.0, signals={"power_w": QUIET["power_w"]})])


def test_overlapping_windows_survive_packing() -> None:
    others = (OtherWindow(BEGIN_NS - 5, BEGIN_NS + 5, pid=7, label="theirs"), OtherWindow(BEGIN_NS, BEGIN_NS + 9))
    (kept,) = unpack(pack([replace(evidence(), overlapping=others)]))
    assert kept.overlapping == others


def test_capsule_without_overlapping_windows_has_none() -> None:
    """A capsule of an older version has no overlapping windows."""
    assert unpack(rewritten(lambda entry: entry.pop("overlapping")))[0].overlapping == ()


@pytest.mark.parametrize("other", [{"begin_ns": 9, "end_ns": 5}, {"begin_ns": 0, "end_ns": 1 << 63}, {"begin_ns": 0}])
def test_capsule_with_impossible_other_window_is_refused(other: dict[str, int]) -> None:
    with pytest.raises(CapsuleError):
        unpack(rewritten(lambda entry: entry.update(overlapping=[other])))


RECORD = WorkRecord((RecordedWindow(4926.1, 203e-6, steady_clock_mhz=1440.0), RecordedWindow(power_w=690.0)), 1500.0)


def test_record_of_the_work_survives_packing() -> None:
    """Packing keeps the record, so the verdict can be repeated without the store."""
    (kept,) = unpack(pack([replace(evidence(), record=RECORD)]))
    assert kept.record == RECORD


def test_capsule_of_an_older_version_has_no_record() -> None:
    assert unpack(rewritten(lambda entry: entry.pop("record")))[0].record is None


def test_capsule_with_a_former_number_of_the_record_is_read() -> None:
    """Earlier versions wrote ``regular_idle_ratio``, which was always unknown."""
    old = {"windows": [{"mean_s": 2e-3, "regular_idle_ratio": None}], "clock_mhz": None}
    (kept,) = unpack(rewritten(lambda entry: entry.update(record=old)))
    assert kept.record == WorkRecord((RecordedWindow(mean_s=2e-3),))


@pytest.mark.parametrize(
    "record",
    [
        {"windows": [{"mean_s": -1.0}]},
        {"windows": [{"mean_s": 1e300}]},
        {"clock_mhz": 0.0},
        {"windows": [{}] * 1001},
        {"windows": [{"mean_s": "1"}]},
    ],
)
def test_capsule_with_an_impossible_record_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(CapsuleError):
        unpack(rewritten(lambda entry: entry.update(record=record)))


def rewritten(change: Callable[[dict[str, Any]], object]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(pack([evidence()]))) as old, zipfile.ZipFile(out, "w") as new:
        manifest = json.loads(old.read("manifest.json"))
        change(manifest["evidence"][0])
        new.writestr("manifest.json", json.dumps(manifest))
        new.writestr("arrays", old.read("arrays"))
    return out.getvalue()


def test_other_work_and_pauses_survive_packing() -> None:
    other = OtherWork(BEGIN_NS + np.array([9, 5], np.int64), np.array([1e-6, 0.25]), ("flush", "check"))
    pauses = (Pause(BEGIN_NS, BEGIN_NS + 7, "collector"), Pause(BEGIN_NS + 3, BEGIN_NS + 4, "compilation"))
    (kept,) = unpack(pack([replace(evidence(), other_work=other, pauses=pauses)]))
    assert kept.pauses == pauses
    assert kept.other_work is not None
    assert kept.other_work.kinds == other.kinds
    assert kept.other_work.spans_ns == other.spans_ns


def test_older_capsule_observes_no_other_work_or_pauses() -> None:
    """A capsule of an older version has no other work, no pauses and no program."""

    def strip(entry: dict[str, Any]) -> None:
        del entry["other_work"], entry["pauses"], entry["window"]["program"]

    (kept,) = unpack(rewritten(strip))
    assert kept.other_work is None
    assert kept.pauses == ()
    assert kept.window.program is None


@pytest.mark.parametrize("field", ["other_work", "pauses"])
@pytest.mark.parametrize(
    "spans",
    [
        {"at": 0, "took": 1, "named": 0, "names": ["flush"]},
        {"at": 99, "took": 0, "named": 0, "names": ["flush"]},
        {"at": 0, "took": 0, "named": 0, "names": []},
        {"at": 0, "took": 0, "names": ["flush"]},
    ],
)
def test_capsule_with_impossible_spans_is_refused(field: str, spans: dict[str, Any]) -> None:
    with pytest.raises(CapsuleError):
        unpack(rewritten(lambda entry: entry.update({field: spans})))
