"""Tests of untrusted windows: the measured code has the socket, the run id and the same user, but cannot change the window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch import clock
from gpuwatch.client.connection import Client, connect
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DaemonError, UsageError
from gpuwatch.wire.messages import Closed, CloseMark, Opened, OpenMark, Spans
from gpuwatch.wire.packed_times import PackedTimes
from tests.gpuwatch.live import judged_run, running
from tests.waiting import let_pass


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    with running(tmp_path_factory.mktemp("untrusted")) as live:
        yield live.settings


def refusals(client: Client, run: str) -> list[str]:
    """Try to end a window, to close it and to send data to it; return the error of each attempt."""
    now_ns = clock.now_ns()
    times = PackedTimes(now_ns.to_bytes(8, "little"), b"\0" * 8, b"", 1)
    spans = Spans(run=run, what="other", begin_ns=b"", end_ns=b"", named=b"", names=[])
    answers = []
    attempts: list[Callable[[], None]] = [
        lambda: client.end_window(run, now_ns, now_ns),
        lambda: client.close_window(run, now_ns, now_ns, {"claimed_calls_count": 1}),
        lambda: client.times(run, times),
        lambda: client.send_spans(spans),
    ]
    for attempt in attempts:
        with pytest.raises(DaemonError) as caught:
            attempt()
        answers.append(str(caught.value))
    return answers


def test_untrusted_window_accepts_only_its_opener(found: Settings) -> None:
    """Another connection of the measured program can neither end the window nor add data."""
    with gpuwatch.window("outer", untrusted=True, sync=False, settings=found) as w, connect(found) as inner:
        answers = refusals(inner, w.run_id or "")
    assert {each.partition(": ")[2] for each in answers} == {
        "expected data and end from the connection that opened it, found another connection; let the opening process send them"
    }
    assert w.end_ns is not None
    run = judged_run(found.state, w.run_id or "")
    assert run.declared["untrusted"] is True
    assert "claimed_calls_count" not in run.declared


def test_mark_cannot_be_ended_by_its_run_id(found: Settings) -> None:
    """A run id, which all processes of the user can read, does not end a mark."""
    with connect(found) as client:
        opened = client.exchange(OpenMark(name="held", expires_s=60.0, label="held"), Opened)
        assert all("use `gpuwatch mark end`" in each for each in refusals(client, opened.run))
        assert client.exchange(CloseMark(name="held"), Closed).run == opened.run


def test_untrusted_window_keeps_earlier_declarations(found: Settings) -> None:
    """Variation, period, own processes and stated work count only if declared before the window; claimed calls may follow."""
    w = gpuwatch.window("stated", untrusted=True, sync=False, settings=found)
    w.declare(call_flops_count=1e12)
    with w:
        w.declare(varies=True, every_s=0.5, call_flops_count=1.0, own_processes="all", claimed_calls_count=7)
    run = judged_run(found.state, w.run_id or "")
    assert {name: run.declared.get(name) for name in ("untrusted", "varies", "every_s", "own_processes")} == {
        "untrusted": True, "varies": None, "every_s": None, "own_processes": None,
    }  # fmt: skip
    assert (run.declared["call_flops_count"], run.declared["claimed_calls_count"]) == (1e12, 7)


def test_untrusted_window_adds_a_hazard_at_its_end(found: Settings) -> None:
    """A hazard that is new at the end is added, and a hazard declared at the opening stays."""
    with connect(found) as client:
        opened = client.open(label="late", declared={"untrusted": True, "tampered": "", "profiler_used": True})
        now_ns = clock.now_ns()
        client.close_window(opened.run, opened.opened_ns, now_ns, {"tampered": "time.perf_counter", "profiler_used": False})
        client.verdicts(opened.run)
    declared = judged_run(found.state, opened.run).declared
    assert (declared["tampered"], declared["profiler_used"]) == ("time.perf_counter", True)


def test_untrusted_window_length_is_the_daemons(found: Settings) -> None:
    """A client's early end does not shorten an untrusted window."""
    with connect(found) as client:
        opened = client.open(label="cut", declared={"untrusted": True})
        let_pass(0.15, "the time that the client cuts off")
        client.close_window(opened.run, opened.opened_ns, opened.opened_ns + 1)
        client.verdicts(opened.run)
    run = judged_run(found.state, opened.run)
    assert (run.end_ns or 0) - run.begin_ns > 140_000_000


def test_untrusted_argument_must_be_a_bool(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="untrusted: expected True or False, found 'yes'"):
        gpuwatch.window("x", untrusted="yes")  # type: ignore[arg-type]
