"""Tests of a window in the benchmark."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

import gpuwatch
from annotate.output import report
from annotate.verdict import Answered
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings, load
from tests.busy_machine import BUSY_MACHINE
from tests.gpuwatch.live import running
from tests.waiting import let_pass_async, sample_for


def test_quiet_window_is_valid(copying: Settings) -> None:
    with gpuwatch.window("quiet", settings=copying, policy=BUSY_MACHINE) as w:
        sample_for(2.5)
    assert w.verdict.status is gpuwatch.Status.VALID, str(w.verdict)
    assert w.verdict.simulated
    assert "SIMULATED" in str(w.verdict)
    assert len(w.verdict.findings) > 15


def test_rejected_window_raises_only_on_request(two_gpus: Settings) -> None:
    with connect(two_gpus) as client:
        busy = client.status()["gpus"][1]["uuid"]
    with gpuwatch.window("contended", settings=two_gpus, gpus=busy) as w:
        sample_for(3.0)
    assert w.verdict.status is gpuwatch.Status.REJECTED
    assert "contention-process" in [hazard.rule for hazard in w.verdict.hazards]
    with pytest.raises(gpuwatch.RejectedError, match="contention-process") as caught:
        w.raise_for_verdict()
    assert caught.value.verdict == w.verdict


def test_neighbour_on_another_gpu_is_not_contention(two_gpus: Settings) -> None:
    with connect(two_gpus) as client:
        quiet = client.status()["gpus"][0]["uuid"]
    with gpuwatch.window("alone", settings=two_gpus, gpus=[quiet], policy=BUSY_MACHINE) as w:
        sample_for(2.5)
    assert w.verdict.status is gpuwatch.Status.VALID, str(w.verdict)


def test_on_reject_raise_raises_at_the_end_of_the_block(two_gpus: Settings) -> None:
    with connect(two_gpus) as client:
        busy = client.status()["gpus"][1]["uuid"]
    with pytest.raises(gpuwatch.RejectedError), gpuwatch.window(settings=two_gpus, gpus=busy, on_reject="raise"):
        sample_for(3.0)


def test_exception_propagates_and_the_window_is_unproven(copying: Settings) -> None:
    w = gpuwatch.window("broken", settings=copying, policy=BUSY_MACHINE)
    with pytest.raises(ZeroDivisionError), w:
        sample_for(1.5)
        raise ZeroDivisionError
    assert w.verdict.status is gpuwatch.Status.UNPROVEN
    assert "ZeroDivisionError" in w.verdict.why


def test_nested_windows_have_a_parent_and_own_verdicts(copying: Settings) -> None:
    with gpuwatch.window("outer", settings=copying) as outer, gpuwatch.window("inner", settings=copying) as inner:
        sample_for(1.2)
    from gpuwatch.store import Reader

    assert outer.verdict.label == "outer"
    assert inner.verdict.label == "inner"
    assert inner.run_id
    with Reader(copying.state) as reader:
        assert reader.run(inner.run_id).parent == outer.run_id


def test_parent_is_never_a_closed_window(copying: Settings) -> None:
    """A closed window is never a parent, even if windows do not end in reverse order."""
    first, second, inside, after = (gpuwatch.window(name, settings=copying) for name in ("1", "2", "inside", "after"))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    with inside:
        pass
    second.__exit__(None, None, None)
    with after:
        pass
    assert (second.parent, inside.parent, after.parent) == (first, second, None)


def test_decorator_opens_a_new_window_for_each_call(copying: Settings) -> None:
    @gpuwatch.window(settings=copying)
    def work(seconds: float) -> str:
        sample_for(seconds)
        return "done"

    assert work(0.05) == "done"
    first = work.window  # type: ignore[attr-defined]  # functions take attributes
    assert work(0.05) == "done"
    assert work.window.run_id != first.run_id  # type: ignore[attr-defined]
    assert first.label.endswith("work")


def test_decorated_coroutine_is_measured_to_its_end(copying: Settings) -> None:
    @gpuwatch.window("async", settings=copying)
    async def work() -> None:
        await let_pass_async(0.3, "the body takes this time")

    async def both() -> gpuwatch.Window:
        await work()
        async with gpuwatch.window("async with", settings=copying) as w:
            await let_pass_async(0.1, "the body takes this time")
        return w

    w = asyncio.run(both())
    assert w.verdict.length_s >= 0.1
    assert work.window.verdict.length_s >= 0.3  # type: ignore[attr-defined]


def test_windows_of_many_threads_get_own_verdicts(copying: Settings) -> None:
    labels: list[str | None] = []

    def one(i: int) -> None:
        with gpuwatch.window(f"thread-{i}", settings=copying) as w:
            sample_for(0.2)
        labels.append(w.verdict.label)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(filter(None, labels)) == sorted(f"thread-{i}" for i in range(12))


def test_forked_child_does_not_close_the_parents_window(copying: Settings) -> None:
    w = gpuwatch.window("forking", settings=copying)
    with w:
        sample_for(1.2)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                w.__exit__(None, None, None)
                code = 0 if "forked" in w.verdict.why else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert w.verdict.finding("incomplete-body").answered is Answered.CLEAR


def test_window_of_a_killed_daemon_is_unproven(tmp_path: Path) -> None:
    with running(tmp_path) as live, gpuwatch.window("orphan", settings=live.settings) as w:
        sample_for(0.3)
        live.process.kill()
        live.process.wait()
    assert w.verdict.status is gpuwatch.Status.UNPROVEN
    assert "went away" in w.verdict.why


def test_window_without_a_driver_is_unproven_with_the_reason(tmp_path: Path) -> None:
    from gpuwatch.sources import has_driver

    if has_driver():
        pytest.skip("this machine has an NVIDIA driver")
    with running(tmp_path, "auto") as live:
        with gpuwatch.window("nothing here", settings=live.settings) as w:
            sample_for(0.1)
        assert w.verdict.status is gpuwatch.Status.UNPROVEN
        assert "NVIDIA" in w.verdict.why or "libnvidia-ml" in w.verdict.why


def test_window_refuses_a_simulated_daemon_for_a_real_gpu(tmp_path: Path) -> None:
    with running(tmp_path) as live:
        real = load({"socket": str(live.settings.socket), "state": str(live.settings.state)}, environment={"HOME": "/"})
        with gpuwatch.window("meant to be real", settings=real) as w:
            sample_for(0.05)
        assert w.verdict.status is gpuwatch.Status.UNPROVEN
        assert "expected a real GPU, found a daemon that watches simulated:steady-copy" in w.verdict.why


@pytest.mark.parametrize("accept", [["dark-time", "outliers"], ("outliers", "dark-time")])
def test_window_makes_a_policy_of_accept_and_limits(copying: Settings, accept: list[str]) -> None:
    with gpuwatch.window(settings=copying, accept=accept, limits={"no-work": {"busy_ratio": 0.02}}) as w:
        pass
    assert w.verdict.policy["accept"] == ["dark-time", "outliers"]
    assert w.verdict.policy["limits"] == {"no-work": {"busy_ratio": 0.02}}
    assert gpuwatch.window(accept="outliers").policy.accept == {"outliers"}


def test_window_of_an_unknown_gpu_is_refused_on_entry(copying: Settings) -> None:
    """A name of no GPU is a wrong argument: the block does not run, and an enclosing window stays open."""
    with gpuwatch.window(settings=copying) as outer:
        refused = pytest.raises(gpuwatch.UsageError, match=r"gpus: expected an index, .* found 'GPU-nowhere'; GPUs here: 0")
        with refused, gpuwatch.window(settings=copying, gpus="GPU-nowhere"):
            pytest.fail("the block ran")
        assert outer.end_ns is None
    with pytest.raises(gpuwatch.UsageError, match=r"found '0,1'; write: gpus=\['0', '1'\]"):
        gpuwatch.window(settings=copying, gpus=["0,1"]).__enter__()


def test_window_names_a_gpu_as_the_command_line_does(two_gpus: Settings) -> None:
    """An index names the GPU of that place, as --gpu does."""
    with connect(two_gpus) as client:
        listed = [gpu["uuid"] for gpu in client.status()["gpus"]]
    for name, uuid in (("1", listed[1]), (listed[0][-4:], listed[0])):
        with gpuwatch.window(settings=two_gpus, gpus=[name]) as w:
            sample_for(0.05)
        assert [verdict.device_uuid for verdict in w.verdicts] == [uuid]


def test_window_cannot_be_entered_twice(copying: Settings) -> None:
    w = gpuwatch.window(settings=copying)
    with w:
        pass
    with pytest.raises(gpuwatch.UsageError, match="found one that was entered before"), w:
        pass


def test_open_window_has_no_verdict(copying: Settings) -> None:
    with gpuwatch.window(settings=copying) as w, pytest.raises(gpuwatch.UsageError, match="found an open one"):
        _ = w.verdict


def test_hostile_label_is_escaped_in_every_output(copying: Settings) -> None:
    label = "<script>alert(1)</script>\x1b[2J\n| x"
    with gpuwatch.window(label, settings=copying) as w:
        sample_for(0.1)
    assert w.to_dict()["label"] == label
    assert "\x1b" not in str(w.verdict)
    assert "\n| x" not in str(w.verdict)
    assert "<script>" not in w._repr_html_()


def test_undecodable_label_is_cleaned(copying: Settings) -> None:
    """The verdict's label has a replacement character, and text escapes the label's control characters."""
    with gpuwatch.window("a\udcff\x1b[31m", settings=copying) as w:
        pass
    assert w.run_id is not None
    assert w.verdict.label == "a�\x1b[31m"
    assert "\x1b" not in repr(w) + str(w.verdict)


def test_declared_facts_are_escaped_in_text(copying: Settings) -> None:
    with gpuwatch.window(settings=copying) as w:
        w.declare(timer="\x1b[31m", tampered="\x1b[2Jtime.time", environment="A=\x1b[0m", profiler_used=True)
    assert "\x1b" not in str(w.verdict) + report.text(w.verdict, verbose=True) + report.markdown(w.verdict)
