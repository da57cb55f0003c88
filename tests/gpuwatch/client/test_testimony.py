"""Tests of facts and times that the measured process sends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuwatch
from annotate.evidence import Evidence, Timings
from annotate.verdict import Status
from gpuwatch import clock
from gpuwatch.client.connection import Client, connect
from gpuwatch.config.settings import Settings, load
from gpuwatch.daemon import server
from gpuwatch.errors import DaemonError
from gpuwatch.store import Reader
from gpuwatch.wire import messages, packed_times
from gpuwatch.wire import timings as iterations
from tests.gpuwatch.live import running
from tests.waiting import PATIENCE_S, let_pass, sample_for


def evidence_of(window: gpuwatch.Window, settings: Settings) -> Evidence:
    assert window.verdict, "expected a verdict"
    with Reader(settings.state) as reader:
        run = reader.run(window.run_id or "")
        return reader.evidence(run, run.uuids[0])


def timings_of(window: gpuwatch.Window, settings: Settings) -> Timings:
    timings = evidence_of(window, settings).timings
    assert timings is not None
    return timings


def iterate(seconds: float) -> None:
    let_pass(seconds, "the iteration takes this time")


def test_iterations_without_a_gpu_context_use_the_host(copying: Settings) -> None:
    with gpuwatch.window(settings=copying) as w:
        numbers = []
        for number in w.iterations(5):
            numbers.append(number)
            iterate(0.02)
        with w.iteration():
            iterate(0.05)
    timings = timings_of(w, copying)
    assert numbers == [0, 1, 2, 3, 4]
    assert len(timings.took_s) == 6
    assert (timings.took_s >= 0.019).all()
    assert timings.took_s[5] >= 0.049
    assert (np.diff(timings.at_ns) >= 19_000_000).all()
    assert evidence_of(w, copying).declared["timer"] == "host"


def test_loop_left_early_keeps_finished_iterations(copying: Settings) -> None:
    with gpuwatch.window(settings=copying) as w:
        for number in w.iterations(100):
            iterate(0.01)
            if number == 3:
                break
    assert len(timings_of(w, copying).took_s) == 3


def test_recorded_times_count_as_back_to_back(copying: Settings) -> None:
    """Recorded times without start times count as back to back, and end at the call of ``record``."""
    with gpuwatch.window(settings=copying) as w:
        sample_for(0.3)
        before_ns = clock.now_ns()
        w.record([0.1, 0.05, 0.1])
        after_ns = clock.now_ns()
    timings = timings_of(w, copying)
    assert list(timings.took_s) == [0.1, 0.05, 0.1]
    assert list(np.round(np.diff(timings.at_ns) / 1e9, 6)) == [0.1, 0.05]
    assert before_ns <= timings.at_ns[-1] + 100_000_000 <= after_ns
    assert evidence_of(w, copying).declared["timer"] == "caller"


def test_many_times_arrive_without_moving_the_end(copying: Settings) -> None:
    """Half a million times are merged to fit the limit, and the window ends with its block."""
    with gpuwatch.window(settings=copying) as w:
        begin_ns = clock.now_ns()
        sample_for(0.3)
        w.record(Timings(begin_ns + np.arange(500_000), np.full(500_000, 2e-6), np.full(500_000, 1500.0)))
    evidence = evidence_of(w, copying)
    assert evidence.window.end_ns == w.end_ns
    timings = evidence.timings
    assert timings is not None
    assert len(timings.took_s) <= messages.TIMES_COUNT
    assert timings.calls_count == 3
    assert timings.took_s == pytest.approx(2e-6)
    assert timings.sm_clock_mhz == pytest.approx(1500.0)


def failing() -> Iterator[float]:
    yield 0.1
    raise RuntimeError("the caller's error")


@pytest.mark.parametrize(
    "times",
    [
        [-1.0], [float("nan")], [float("inf")], [0.0], ["0.1"], "0.1", [True], [np.True_], [b"1"], None, [[1.0]], 3.0,
        np.ones((2, 1)), [1e305], [1j], failing(), Timings(np.array([clock.now_ns()]), np.array([np.nan])),
    ],
)  # fmt: skip
def test_record_never_raises_and_impossible_times_are_rejected(
    copying: Settings, times: Sequence[float], caplog: pytest.LogCaptureFixture
) -> None:
    """Invalid times never raise: a log line names the values, and the rule `impossible-time` rejects the window."""
    with caplog.at_level("WARNING", "gpuwatch"), gpuwatch.window(settings=copying) as w:
        w.record(times)
        sample_for(0.05)
    assert "record: expected durations in seconds, found" in caplog.text
    (finding,) = [each for each in w.verdict.findings if each.rule == "impossible-time"]
    assert finding.severity == "reject"


def test_record_without_times_leaves_no_timings(copying: Settings, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "gpuwatch"), gpuwatch.window(settings=copying) as w:
        w.record([])
        sample_for(0.05)
    assert "found none" in caplog.text
    assert evidence_of(w, copying).timings is None


@pytest.mark.parametrize("at_ns", [[1.5, 2], [time.monotonic()] * 2, ["x", "y"], [10**30] * 2, 5, [1]])
def test_record_ignores_invalid_start_times(copying: Settings, at_ns: Sequence[int], caplog: pytest.LogCaptureFixture) -> None:
    """With invalid start times, a log line warns that the times count as back to back."""
    with caplog.at_level("WARNING", "gpuwatch"), gpuwatch.window(settings=copying) as w:
        sample_for(0.3)
        w.record([0.1, 0.1], at_ns=at_ns)
    assert "the times count as back to back" in caplog.text
    timings = timings_of(w, copying)
    assert list(timings.took_s) == [0.1, 0.1]
    assert list(np.round(np.diff(timings.at_ns) / 1e9, 6)) == [0.1]


def test_unknown_fact_becomes_a_tag_with_a_warning(copying: Settings, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "gpuwatch"), gpuwatch.window(settings=copying) as w:
        w.declare(warmup_cout=3)
        with pytest.raises(gpuwatch.UsageError, match="declare: speeds: expected text or a number"):
            w.declare(speeds=[3])  # type: ignore[arg-type]  # the tested mistake
        with pytest.raises(gpuwatch.UsageError, match="cache: expected text"):
            w.declare(cache=["cold"])  # type: ignore[arg-type]  # the tested mistake
        w.declare(cache="cold", flush_bytes=1 << 27)
    assert evidence_of(w, copying).declared["flush_bytes"] == 1 << 27
    assert "'warmup_cout' is not a known fact (did you mean 'warmup_count'?); kept as a tag" in caplog.text
    assert w.tags.declared == {"warmup_cout": "3"}


@pytest.mark.parametrize(
    ("fact", "says"),
    [
        ("x" * 20_000, "characters in all, found 20005"),
        ("\ud800", "UTF-8"),
        (2**63, "found one of 64 bits"),
        (-(2**100), "found one of 101 bits"),
        (1j, "expected text"),
    ],
    ids=["long", "surrogate", "beyond 64 bits", "below", "complex"],
)
def test_declare_refuses_facts_that_cannot_be_sent(copying: Settings, fact: object, says: str) -> None:
    with gpuwatch.window(settings=copying) as w:
        with pytest.raises(gpuwatch.UsageError, match=f"declare: .*{says}"):
            w.declare(cache=fact)  # type: ignore[arg-type]  # the tested mistake
        w.declare(flush_bytes=2**63 - 1)
    assert w.verdict.findings, w.verdict.why
    assert evidence_of(w, copying).declared["flush_bytes"] == 2**63 - 1


def test_declare_converts_numpy_values(copying: Settings) -> None:
    with gpuwatch.window(settings=copying) as w:
        w.declare(flush_bytes=np.int64(7), busy_ratio=np.float64(0.5), input_zero_ratio=np.float32(0.25), cache=np.str_("cold"))  # type: ignore[arg-type]
        sample_for(0.05)
    facts = evidence_of(w, copying).declared
    assert (facts["flush_bytes"], facts["busy_ratio"], facts["input_zero_ratio"], facts["cache"]) == (7, 0.5, 0.25, "cold")


def test_iterations_may_nest_and_run_in_threads(copying: Settings) -> None:
    """Nested iterations and iterations of several threads are each timed from their own start."""

    def work(w: gpuwatch.Window) -> None:
        for _ in range(10):
            with w.iteration():
                iterate(0.005)

    with gpuwatch.window(settings=copying) as w:
        threads = [threading.Thread(target=work, args=(w,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with w.iteration():
            with w.iteration():
                iterate(0.02)
            iterate(0.03)
    timings = timings_of(w, copying)
    assert len(timings.took_s) == 42
    assert (timings.took_s >= 0.005).all()
    assert timings.took_s[-1] >= 0.02
    assert timings.took_s[-2] - timings.took_s[-1] >= 0.03
    assert (np.diff(timings.at_ns) >= 0).all()


@pytest.mark.parametrize("doing", ["iteration", "record", "iterations", "inputs"])
def test_window_methods_are_refused_outside_the_block(copying: Settings, doing: str) -> None:
    w = gpuwatch.window(settings=copying)
    with pytest.raises(gpuwatch.UsageError, match=f"{doing}: expected a call inside"):
        getattr(w, doing)(*{"record": ([1.0],), "iterations": (3,)}.get(doing, ()))


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "3"])
def test_iterations_refuses_a_wrong_count(copying: Settings, count: int) -> None:
    with gpuwatch.window(settings=copying) as w, pytest.raises(gpuwatch.UsageError, match="at least 1"):
        w.iterations(count)


@pytest.mark.parametrize("nothing", [("x",), (), ([3, 4],)])
def test_inputs_refuses_objects_without_a_tensor(copying: Settings, nothing: tuple[object, ...]) -> None:
    with gpuwatch.window(settings=copying) as w, pytest.raises(gpuwatch.UsageError, match="expected tensors"):
        w.inputs(*nothing)


def test_iterations_run_without_a_daemon(tmp_path: object, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    settings = load({"socket": "/proc/nowhere/s", "state": "/proc/nowhere"})
    with gpuwatch.window(settings=settings) as w:
        assert len(list(w.iterations(10))) == 10
        w.record([0.1])
        w.inputs(np.zeros(10))
    assert w.verdict.status is gpuwatch.Status.UNPROVEN


def opened(client: Client) -> tuple[str, int]:
    """Open a window over the wire; return the run's ID and start time."""
    window = client.open()
    return window.run, window.opened_ns


def test_ended_window_waits_for_its_times(copying: Settings) -> None:
    """An ended window accepts times until the close, and keeps its interval."""
    with connect(copying) as client:
        run, begin_ns = opened(client)
        sample_for(0.1)
        end_ns = clock.now_ns()
        client.end_window(run, begin_ns, end_ns)
        sample_for(0.5)
        assert client.verdicts(run, wait_s=0.0).status == "closing"
        client.times(run, Timings(np.array([begin_ns]), np.array([0.05])))
        client.close_window(run, begin_ns, clock.now_ns())
        judged = client.verdicts(run)
        assert judged.verdicts[0]["end_ns"] == end_ns
        with pytest.raises(DaemonError, match=r"closed|open or being judged"):
            client.times(run, Timings(np.array([begin_ns]), np.array([0.05])))


def test_client_gone_after_the_end_loses_only_facts(copying: Settings) -> None:
    """A window whose client disconnects after the end is judged without further facts."""
    with connect(copying) as client:
        run, begin_ns = opened(client)
        sample_for(0.3)
        client.end_window(run, begin_ns, clock.now_ns())
    with connect(copying) as client:
        judged = client.verdicts(run)
    assert "went away" not in judged.why
    assert judged.verdicts


def test_stopping_daemon_judges_windows_that_had_ended(tmp_path: Path) -> None:
    """A stopping daemon judges ended windows, without further facts."""
    with running(tmp_path) as live:
        with connect(live.settings) as client:
            run, begin_ns = opened(client)
            sample_for(0.3)
            client.end_window(run, begin_ns, clock.now_ns())
            live.process.terminate()
            live.process.wait(PATIENCE_S)
        with Reader(live.settings.state) as reader:
            stored = reader.run(run)
    assert stored.status in list(Status)
    assert "abandoned" not in stored.declared


TIMES = st.lists(st.tuples(st.integers(0, 2**60), st.floats(0, 1e6), st.floats(0, 3000, width=32)), min_size=1, max_size=50)


@given(TIMES, st.booleans(), st.integers(1, 5))
def test_times_survive_the_wire(rows: list[tuple[int, float, float]], clocked: bool, calls: int) -> None:
    at_ns, took_s, mhz = (np.array(column) for column in zip(*rows, strict=True))
    sent = Timings(at_ns.astype(np.int64), took_s.astype(np.float64), mhz.astype(np.float64) if clocked else None, calls)
    pieces: list[messages.Times] = []
    for message in iterations.encode("run", sent):
        request = messages.decode_request(messages.encode(message))
        assert isinstance(request, messages.Times)
        assert packed_times.check(request, pieces[0] if pieces else None, len(pieces)) == len(rows)
        pieces.append(request)
    packed = packed_times.joined(pieces)
    assert packed is not None
    got = packed.unpacked()
    assert (got.at_ns == sent.at_ns).all()
    assert (got.took_s == sent.took_s).all()
    assert (got.sm_clock_mhz is None) != clocked
    assert got.sm_clock_mhz is None or (got.sm_clock_mhz == mhz).all()
    assert got.calls_count == calls


@pytest.mark.parametrize(
    "piece",
    [
        messages.Times("r", b"", b""),
        messages.Times("r", bytes(8), bytes(16)),
        messages.Times("r", bytes(7), bytes(7)),
        messages.Times("r", bytes(8), bytes(8), bytes(8)),
        messages.Times("r", bytes(8), bytes(8), b"", 0),
        messages.Times("r", bytes(8), np.array([np.nan]).tobytes()),
        messages.Times("r", bytes(8), np.array([-1.0]).tobytes()),
        messages.Times("r", bytes(8 * 200_001), bytes(8 * 200_001)),
        messages.Times("r", bytes(8), np.array([1e300]).tobytes()),
        messages.Times("r", bytes(8), bytes(8), b"", 1 << 63),
    ],
    ids=["none", "uneven", "torn", "clocks", "calls", "nan", "negative", "many", "long", "calls beyond the store's"],
)
def test_invalid_times_messages_are_refused(piece: messages.Times) -> None:
    with pytest.raises(gpuwatch.UsageError, match="times: expected"):
        packed_times.check(piece, None, 0)


def test_window_bounds_its_times_over_all_messages() -> None:
    """The limit of 200 000 times applies to all messages of a window together."""
    one = messages.Times("r", bytes(8), bytes(8))
    assert packed_times.check(one, one, messages.TIMES_COUNT - 1) == 1
    with pytest.raises(gpuwatch.UsageError, match="at most 200000"):
        packed_times.check(one, one, messages.TIMES_COUNT)


def test_connection_has_at_most_256_open_windows(tmp_path: Path) -> None:
    with running(tmp_path) as live, connect(live.settings) as client:
        for _ in range(server.WINDOWS_COUNT - 1):
            client.open()
        run, begin_ns = opened(client)
        with pytest.raises(DaemonError, match="at most 256 open windows"):
            client.open()
        client.close_window(run, begin_ns, clock.now_ns())
        assert client.open().run, "expected room for a window after one was closed"
        live.process.kill()  # the test does not wait for this many verdicts
