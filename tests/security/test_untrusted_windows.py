"""Tests of windows of untrusted code against that code, which knows the socket and the run, and is the same user."""

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
    """Try to end, close and feed a window; return the answer to each attempt."""
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


def test_untrusted_window_hears_only_its_opener(found: Settings) -> None:
    """The measured program's own connection can neither end the window nor add to it."""
    with gpuwatch.window("outer", untrusted=True, sync=False, settings=found) as w, connect(found) as inner:
        answers = refusals(inner, w.run_id or "")
    assert {each.partition(" takes ")[2] for each in answers} == {
        "times, facts and its end only from the client that opened it"
    }
    assert w.end_ns is not None
    run = judged_run(found.state, w.run_id or "")
    assert run.declared["untrusted"] is True
    assert "claimed_calls_count" not in run.declared


def test_mark_hears_only_its_name(found: Settings) -> None:
    """A run's id, which all of the user's processes can read, ends no mark."""
    with connect(found) as client:
        opened = client.exchange(OpenMark(name="held", expires_s=60.0, label="held"), Opened)
        assert all("the client that opened it" in each for each in refusals(client, opened.run))
        assert client.exchange(CloseMark(name="held"), Closed).run == opened.run


def test_untrusted_window_restates_nothing_at_its_end(found: Settings) -> None:
    """Statements from before the code's run are final: the claim's parts, the work, and the mark as untrusted."""
    w = gpuwatch.window("stated", untrusted=True, sync=False, settings=found)
    w.declare(call_flops_count=1e12)
    with w:
        w.declare(varies=True, every_s=0.5, call_flops_count=1.0, own_processes="all", claimed_calls_count=7)
    run = judged_run(found.state, w.run_id or "")
    assert {name: run.declared.get(name) for name in ("untrusted", "varies", "every_s", "own_processes")} == {
        "untrusted": True, "varies": None, "every_s": None, "own_processes": None,
    }  # fmt: skip
    assert (run.declared["call_flops_count"], run.declared["claimed_calls_count"]) == (1e12, 7)


def test_untrusted_window_hears_of_a_timer_replaced_meanwhile(found: Settings) -> None:
    """A hazard that is new at the end is added; one that was present at the opening stays."""
    with connect(found) as client:
        opened = client.open(label="late", declared={"untrusted": True, "tampered": "", "profiler_used": True})
        now_ns = clock.now_ns()
        client.close_window(opened.run, opened.opened_ns, now_ns, {"tampered": "time.perf_counter", "profiler_used": False})
        client.verdicts(opened.run)
    declared = judged_run(found.state, opened.run).declared
    assert (declared["tampered"], declared["profiler_used"]) == ("time.perf_counter", True)


def test_untrusted_window_is_as_long_as_the_daemon_saw(found: Settings) -> None:
    """A client's early end of its work shortens no window."""
    with connect(found) as client:
        opened = client.open(label="cut", declared={"untrusted": True})
        let_pass(0.15, "the piece that is cut off")
        client.close_window(opened.run, opened.opened_ns, opened.opened_ns + 1)
        client.verdicts(opened.run)
    run = judged_run(found.state, opened.run)
    assert (run.end_ns or 0) - run.begin_ns > 140_000_000


def test_untrusted_is_a_truth_value(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="untrusted: expected True or False, found 'yes'"):
        gpuwatch.window("x", untrusted="yes")  # type: ignore[arg-type]
