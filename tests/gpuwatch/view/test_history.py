"""Tests of past moments in recordings, and in a store, where past moments agree with the daemon's live answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from annotate.evidence import Event, Lane, Process, ProcessList, Trace
from gpuwatch import clock
from gpuwatch.client.connection import connect
from gpuwatch.client.window import window
from gpuwatch.errors import StoreError, UsageError
from gpuwatch.interfaces import Sweep
from gpuwatch.tui.text import gpu_words, overview_tables, words
from gpuwatch.view import at_moment
from gpuwatch.view.history import Recorded, StoredHistory
from gpuwatch.view.live import Live, of
from tests.faults.stores import committed_ns
from tests.gpuwatch.live import running
from tests.gpuwatch.store.stored import feed, opened
from tests.gpuwatch.store.streams import BEGIN_NS, DEVICE, UUID, fast
from tests.waiting import sample_for, wait_until

TRACES = Path(__file__).parents[2] / "traces"
S = 1_000_000_000


@dataclass(frozen=True)
class Lived:
    """A daemon's state folder after a window, with the daemon's live answers during and after the window."""

    state: Path
    during: Live
    after: Live
    uuid: str


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    with running(tmp_path_factory.mktemp("past"), "simulated:steady-copy,neighbour") as live:
        with connect(live.settings, start=False) as client:
            uuid = of(client.readings(0)).gpus[1].device.uuid
            with window("looked at", gpus=[uuid], sync=False, settings=live.settings) as watched:
                sample_for(1.2)
                during = of(client.readings(0))
                sample_for(0.3)
            assert watched.verdict.label == "looked at"
            after = of(client.readings(0))
            state = live.settings.state
            wait_until(
                lambda: min(committed_ns(state).values(), default=0) >= after.at_ns,
                what="the readings up to the last live answer are stored",
            )
        yield Lived(live.settings.state, during, after, uuid)


@pytest.fixture
def past(lived: Lived) -> Iterator[StoredHistory]:
    stored = StoredHistory(lambda: lived.state)
    yield stored
    stored.close()


def test_past_moment_agrees_with_the_live_answer(lived: Lived, past: StoredHistory) -> None:
    then = past.live(lived.during.at_ns)
    assert [gpu.device for gpu in then.gpus] == [gpu.device for gpu in lived.during.gpus]
    assert (then.source, then.simulated, then.at_ns) == (lived.during.source, True, lived.during.at_ns)
    for was, told in zip(then.gpus, lived.during.gpus, strict=True):
        assert told.rows[Lane.FAST].at_ns - S < was.rows[Lane.FAST].at_ns <= lived.during.at_ns
        assert was.said("sm_clock_mhz") == pytest.approx(told.said("sm_clock_mhz"), rel=0.2)
        assert was.said("memory_used_bytes") == told.said("memory_used_bytes")
        assert type(was.said("sm_clock_mhz")) is int
        assert {p.pid for p in was.process_list.processes} == {p.pid for p in told.process_list.processes}  # type: ignore[union-attr]
    assert gpu_words.stale_s(then.gpus[0], then.at_ns) is None


def test_window_is_open_until_it_ended_then_has_its_verdict(lived: Lived, past: StoredHistory) -> None:
    """A window is absent before its start, open before its end, and has its verdict afterwards."""
    (opened,) = past.live(lived.during.at_ns).windows
    assert (opened.status, opened.end_ns, opened.label, opened.hazards) == ("open", None, "looked at", [])
    assert past.live(lived.after.at_ns).windows == lived.after.windows
    assert past.live(opened.begin_ns - 1).windows == ()


def test_past_verdicts_are_the_stored_verdicts(lived: Lived, past: StoredHistory) -> None:
    (shown,) = lived.after.windows
    (verdict,) = past.verdicts(shown.run)
    assert verdict.status.value == shown.status
    assert verdict.finding("contention-process").answered == "found"
    with pytest.raises(StoreError, match="expected a run in"):
        past.verdicts("ffffffff")


def test_stored_history_spans_first_reading_to_now(lived: Lived, past: StoredHistory) -> None:
    span = past.span_ns()
    assert span is not None
    assert span[0] < lived.during.at_ns < span[1] <= clock.now_ns()
    assert past.live(span[0]).gpus
    before = past.live(span[0] - 3600 * S)
    assert (before.gpus, before.windows) == ((), ())
    assert before.absence == "nothing was read around that moment"


def test_trace_holds_the_readings_between_two_moments(lived: Lived, past: StoredHistory) -> None:
    at_ns = lived.during.at_ns
    trace = past.trace(lived.uuid, at_ns - S, at_ns)
    times = trace.column("power_w").at_ns
    assert len(times)
    assert times[0] >= at_ns - S
    assert times[-1] <= at_ns


@pytest.mark.slow
def test_moment_of_two_gpus_is_read_in_a_tenth_of_a_second(lived: Lived, past: StoredHistory) -> None:
    past.live(lived.during.at_ns)
    took = []
    for _ in range(5):
        begin_ns = clock.now_ns()
        past.live(lived.during.at_ns)
        took.append((clock.now_ns() - begin_ns) / 1e9)
    assert min(took) < 0.1


def test_past_process_use_holds_until_the_next_reading() -> None:
    asked = ProcessList(uuid=UUID, at_ns=1 * S, took_ns=1, processes=(Process(pid=7, utilization_ratio=0.7),))
    after = ProcessList(uuid=UUID, at_ns=2 * S, took_ns=1, processes=(Process(pid=7),))
    shown = at_moment.then(DEVICE, Trace(columns={}, process_lists=(asked, after)), 3 * S).process_list
    assert shown == replace(asked, at_ns=2 * S)


def test_lost_gpu_is_shown_until_its_return(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put_device(DEVICE)
    feed(store, [fast(BEGIN_NS + second * S, power_w=100.0 + second, sm_clock_mhz=1000 + second) for second in range(10)])
    events = [
        Event(uuid=UUID, at_ns=BEGIN_NS + 4 * S, kind="lost", text="fell off the bus"),
        Event(uuid=UUID, at_ns=BEGIN_NS + 7 * S, kind="back"),
    ]
    feed(store, [Sweep(UUID, Lane.EVENTS, event.at_ns, 0, 0, event) for event in events])
    store.close()
    past = StoredHistory(lambda: tmp_path)
    then = [past.live(BEGIN_NS + second * S).gpus[0] for second in (3, 5, 8)]
    assert [gpu.lost for gpu in then] == [None, "fell off the bus", None]
    assert [gpu.said("power_w") for gpu in then] == [103.0, 105.0, 108.0]
    assert past.span_ns() == (BEGIN_NS, BEGIN_NS + 9 * S)
    assert list(past.events(BEGIN_NS, BEGIN_NS + 10 * S)) == events
    assert past.events(BEGIN_NS + 5 * S, BEGIN_NS + 6 * S) == ()
    past.close()


def test_gpus_are_in_bus_order_for_any_reading_order(tmp_path: Path) -> None:
    first, second = (
        replace(DEVICE, uuid=uuid, pci_bus_id=at) for uuid, at in (("GPU-z", "0000:3B:00.0"), ("GPU-a", "0000:AF:00.0"))
    )
    store = opened(tmp_path)
    for device in (second, first):
        store.put_device(device)
        feed(store, [fast(BEGIN_NS, device.uuid, power_w=100.0)])
    store.close()
    past = StoredHistory(lambda: tmp_path)
    assert [gpu.device for gpu in past.live(BEGIN_NS + S).gpus] == [first, second]
    past.close()


def test_missing_store_is_reported_and_later_store_is_found(tmp_path: Path, lived: Lived) -> None:
    where = [tmp_path]
    past = StoredHistory(lambda: where[0])
    with pytest.raises(StoreError, match="expected a gpuwatch database, found none"):
        past.span_ns()
    where[0] = lived.state
    assert past.span_ns() is not None
    past.close()


@pytest.mark.parametrize(
    ("name", "windows_count"), [("h200-windows.capsule", 14), ("scenarios.npz", 16), ("h200-nvidia-smi.csv", 1)]
)
def test_recording_is_shown_at_any_moment(name: str, windows_count: int) -> None:
    past = Recorded(TRACES / name)
    begin_ns, end_ns = past.span_ns()
    assert len(past.live(end_ns).windows) == windows_count
    for at_ns in range(begin_ns, end_ns, (end_ns - begin_ns) // 7):
        live = past.live(at_ns)
        assert live.source == f"replay:{TRACES / name}"
        assert all(each.begin_ns <= at_ns for each in live.windows)
        assert all(row.at_ns <= at_ns for gpu in live.gpus for row in gpu.rows.values())
        assert words.text(overview_tables.gpu_lines(live, 99))
    assert past.has_wall_time is name.endswith(".csv")


def test_recorded_neighbour_is_foreign_as_in_the_verdict() -> None:
    past = Recorded(TRACES / "h200-windows.capsule")
    found = next(each for each in past.live(past.span_ns()[1]).windows if each.label == "neighbour-gemm-4096")
    assert (found.status, found.hazards[0]) == ("rejected", "contention-process")
    then = past.live(found.begin_ns + 3 * S)
    assert gpu_words.processes(then.gpus[0], then.windows).text == "1o 1F"
    assert next(each for each in then.windows if each.run == found.run).status == "open"
    assert past.verdicts(found.run)[0].finding("contention-process").span_ns is not None


def test_recorded_trace_is_cut_to_the_interval() -> None:
    past = Recorded(TRACES / "scenarios.npz")
    begin_ns, _ = past.span_ns()
    uuid = past.live(begin_ns).gpus[0].device.uuid
    trace = past.trace(uuid, begin_ns + S, begin_ns + 2 * S)
    assert begin_ns + S <= trace.column("power_w").at_ns[0] <= trace.column("power_w").at_ns[-1] <= begin_ns + 2 * S
    with pytest.raises(StoreError, match="found GPU-x"):
        past.trace("GPU-x", 0, 1)


def test_file_that_is_not_a_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello")
    with pytest.raises(UsageError, match="expected"):
        Recorded(tmp_path / "x")
