"""Tests of a window from the benchmark's side: the body runs whatever happens to telemetry, and the verdict gives the reason."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpuwatch
from annotate.output import report
from annotate.verdict import Answered
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings, load
from tests.busy_machine import BUSY_MACHINE
from tests.gpuwatch.live import running
from tests.gpuwatch.live import settings as settings_in
from tests.waiting import PATIENCE_S, let_pass_async, sample_for, wait_until


def test_a_quiet_window_is_valid_and_every_rule_was_asked(copying: Settings) -> None:
    with gpuwatch.window("quiet", settings=copying, policy=BUSY_MACHINE) as w:
        sample_for(2.5)
    assert w.verdict.status is gpuwatch.Status.VALID, str(w.verdict)
    assert w.verdict.simulated
    assert "SIMULATED" in str(w.verdict)
    assert len(w.verdict.findings) > 15


def test_a_rejected_window_raises_only_where_asked(two_gpus: Settings) -> None:
    with connect(two_gpus) as client:
        busy = client.status()["gpus"][1]["uuid"]
    with gpuwatch.window("contended", settings=two_gpus, gpus=busy) as w:
        sample_for(3.0)
    assert w.verdict.status is gpuwatch.Status.REJECTED
    assert "contention-process" in [hazard.rule for hazard in w.verdict.hazards]
    with pytest.raises(gpuwatch.RejectedError, match="contention-process") as caught:
        w.raise_for_verdict()
    assert caught.value.verdict == w.verdict


def test_a_neighbour_on_another_gpu_is_not_contention(two_gpus: Settings) -> None:
    with connect(two_gpus) as client:
        quiet = client.status()["gpus"][0]["uuid"]
    with gpuwatch.window("alone", settings=two_gpus, gpus=[quiet], policy=BUSY_MACHINE) as w:
        sample_for(2.5)
    assert w.verdict.status is gpuwatch.Status.VALID, str(w.verdict)


def test_on_reject_raise_waits_for_the_verdict_at_the_end(two_gpus: Settings) -> None:
    with connect(two_gpus) as client:
        busy = client.status()["gpus"][1]["uuid"]
    with pytest.raises(gpuwatch.RejectedError), gpuwatch.window(settings=two_gpus, gpus=busy, on_reject="raise"):
        sample_for(3.0)


def test_an_exception_passes_through_and_the_window_is_unproven(copying: Settings) -> None:
    w = gpuwatch.window("broken", settings=copying, policy=BUSY_MACHINE)
    with pytest.raises(ZeroDivisionError), w:
        sample_for(1.5)
        raise ZeroDivisionError
    assert w.verdict.status is gpuwatch.Status.UNPROVEN
    assert "ZeroDivisionError" in w.verdict.why


def test_nested_windows_know_their_parent_and_are_judged_apart(copying: Settings) -> None:
    with gpuwatch.window("outer", settings=copying) as outer, gpuwatch.window("inner", settings=copying) as inner:
        sample_for(1.2)
    from gpuwatch.store import Reader

    assert outer.verdict.label == "outer"
    assert inner.verdict.label == "inner"
    assert inner.run_id
    with Reader(copying.state) as reader:
        assert reader.run(inner.run_id).parent == outer.run_id


def test_parent_is_never_a_closed_window(copying: Settings) -> None:
    """A closed window is never a parent, even if windows end in another order than they began."""
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


def test_a_decorator_gives_every_call_a_window_of_its_own(copying: Settings) -> None:
    @gpuwatch.window(settings=copying)
    def work(seconds: float) -> str:
        sample_for(seconds)
        return "done"

    assert work(0.05) == "done"
    first = work.window  # type: ignore[attr-defined]  # functions take attributes
    assert work(0.05) == "done"
    assert work.window.run_id != first.run_id  # type: ignore[attr-defined]
    assert first.label.endswith("work")


def test_a_coroutine_is_measured_until_it_ends(copying: Settings) -> None:
    @gpuwatch.window("async", settings=copying)
    async def work() -> None:
        await let_pass_async(0.3, "the body takes so long")

    async def both() -> gpuwatch.Window:
        await work()
        async with gpuwatch.window("async with", settings=copying) as w:
            await let_pass_async(0.1, "the body takes so long")
        return w

    w = asyncio.run(both())
    assert w.verdict.length_s >= 0.1
    assert work.window.verdict.length_s >= 0.3  # type: ignore[attr-defined]


def test_windows_of_many_threads_are_judged_each(copying: Settings) -> None:
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


def test_a_forked_child_leaves_its_parents_window_alone(copying: Settings) -> None:
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


def test_without_a_daemon_that_can_start_the_body_runs_unproven(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    settings = load(
        {"source": "simulated", "state": str(tmp_path / "file" / "state"), "socket": str(tmp_path / "s")},
        environment={"HOME": "/"},
    )
    ran = []
    with gpuwatch.window(settings=settings) as w:
        ran.append(1)
    assert ran == [1]
    assert w.verdict.status is gpuwatch.Status.UNPROVEN
    assert "daemon" in w.verdict.why


def test_a_daemon_killed_under_an_open_window_leaves_it_unproven(tmp_path: Path) -> None:
    with running(tmp_path) as live, gpuwatch.window("orphan", settings=live.settings) as w:
        sample_for(0.3)
        live.process.kill()
        live.process.wait()
    assert w.verdict.status is gpuwatch.Status.UNPROVEN
    assert "went away" in w.verdict.why


def test_no_gpu_at_all_is_unproven_with_the_reason(tmp_path: Path) -> None:
    from gpuwatch.sources import has_driver

    if has_driver():
        pytest.skip("this machine has an NVIDIA driver")
    with running(tmp_path, "auto") as live:
        with gpuwatch.window("nothing here", settings=live.settings) as w:
            sample_for(0.1)
        assert w.verdict.status is gpuwatch.Status.UNPROVEN
        assert "NVIDIA" in w.verdict.why or "libnvidia-ml" in w.verdict.why


def test_a_simulated_daemon_is_never_taken_for_a_real_one(tmp_path: Path) -> None:
    with running(tmp_path) as live:
        real = load({"socket": str(live.settings.socket), "state": str(live.settings.state)}, environment={"HOME": "/"})
        with gpuwatch.window("meant to be real", settings=real) as w:
            sample_for(0.05)
        assert w.verdict.status is gpuwatch.Status.UNPROVEN
        assert "simulated:steady-copy, not a real GPU" in w.verdict.why


WRONG = [
    ({"claim": "sustaned"}, "did you mean 'sustained'"),
    ({"claim": 3}, "claim"),
    ({"label": 3}, "label: expected text"),
    ({"on_reject": "explode"}, "on_reject"),
    ({"gpus": [0]}, "index"),
    ({"claim": "burst", "policy": gpuwatch.Policy()}, "contradicts"),
]


@pytest.mark.parametrize("accept", [["dark-time", "outliers"], ("outliers", "dark-time")])
def test_window_makes_a_policy_of_accept_and_limits(copying: Settings, accept: list[str]) -> None:
    with gpuwatch.window(settings=copying, accept=accept, limits={"no-work": {"busy_ratio": 0.02}}) as w:
        pass
    assert w.verdict.policy["accept"] == ["dark-time", "outliers"]
    assert w.verdict.policy["limits"] == {"no-work": {"busy_ratio": 0.02}}
    assert gpuwatch.window(accept="outliers").policy.accept == {"outliers"}


@pytest.mark.parametrize(("arguments", "expected"), WRONG)
def test_what_can_never_be_right_is_refused_before_the_body(arguments: dict[str, object], expected: str) -> None:
    with pytest.raises((gpuwatch.UsageError, ValueError), match=expected):
        gpuwatch.window(**arguments)  # type: ignore[arg-type]  # wrong on purpose


def test_a_gpu_that_is_not_there_is_said_and_the_body_runs(copying: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    with gpuwatch.window(settings=copying, gpus="GPU-nowhere") as w:
        sample_for(0.05)
    assert w.verdict.status is gpuwatch.Status.UNPROVEN
    assert "GPU-nowhere" in w.verdict.why
    assert "GPU-nowhere" in capfd.readouterr().err


def test_a_window_is_entered_once(copying: Settings) -> None:
    w = gpuwatch.window(settings=copying)
    with w:
        pass
    with pytest.raises(gpuwatch.UsageError, match="not entered before"), w:
        pass


def test_an_open_window_has_no_verdict(copying: Settings) -> None:
    with gpuwatch.window(settings=copying) as w, pytest.raises(gpuwatch.UsageError, match="found an open one"):
        _ = w.verdict


def test_hostile_labels_are_harmless_everywhere(copying: Settings) -> None:
    label = "<script>alert(1)</script>\x1b[2J\n| x"
    with gpuwatch.window(label, settings=copying) as w:
        sample_for(0.1)
    assert w.to_dict()["label"] == label
    assert "\x1b" not in str(w.verdict)
    assert "\n| x" not in str(w.verdict)
    assert "<script>" not in w._repr_html_()


PROGRAM = """
import sys, time
import gpuwatch
from gpuwatch.config import settings as config
busy_machine = gpuwatch.Policy(accept=["dark-time", "idle-stretch", "outliers"])
with gpuwatch.window("first", settings=config.load({flags!r}), policy=busy_machine) as w:
    time.sleep(1.2)
print(w.verdict.status.value, flush=True)
"""


def test_started_daemon_holds_neither_pipe_nor_processor(tmp_path: Path) -> None:
    """The daemon holds neither pipe nor affinity: with `taskset -c 0 python bench.py | tee log` the pipe ends with the program."""
    flags = dict(flag.lstrip("-").split("=", 1) for flag in settings_in(tmp_path).flags())
    program = tmp_path / "bench.py"
    program.write_text(PROGRAM.format(flags={**flags, "daemon.idle_exit": "4s"}))
    bound = f"import os, runpy, sys; os.sched_setaffinity(0, {{0}}); runpy.run_path({str(program)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", bound], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout.strip() == "valid", done.stderr
    assert "starting a daemon" in done.stderr
    with connect(settings_in(tmp_path), start=False) as client:
        pid = client.status()["pid"]
        assert len(os.sched_getaffinity(pid)) == os.cpu_count()
        assert os.getsid(pid) == pid
        assert b"OPENBLAS_NUM_THREADS=1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        streams = [os.readlink(f"/proc/{pid}/fd/{n}") for n in range(3)]  # noqa: PTH115
        # The daemon's log explains an unforeseen end.
        assert streams == ["/dev/null", "/dev/null", str(settings_in(tmp_path).log)]
        assert client.status()["on_demand"]
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the daemon leaves after its last client")


def test_window_replaces_another_windows_failed_daemon(tmp_path: Path) -> None:
    """If another window's daemon fails to start, this window starts one in its place."""
    flags = dict(flag.lstrip("-").split("=", 1) for flag in settings_in(tmp_path).flags())
    settings = load({**flags, "daemon.idle_exit": "1s"}, environment={"HOME": "/"})
    settings.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Another daemon is starting, holds the lock, and ends before its first answer.
    with Path(f"{settings.socket}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ends = threading.Timer(1.0, fcntl.flock, (lock, fcntl.LOCK_UN))
        ends.start()
        with gpuwatch.window("second", settings=settings) as w:
            sample_for(0.3)
        ends.join()
    assert w.run_id is not None, str(w.verdict)


def test_daemon_failing_before_its_log_is_quoted(tmp_path: Path) -> None:
    """The error quotes a daemon that fails before it has a log, and not the previous daemon's log."""
    settings = settings_in(tmp_path)
    settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings.log.write_text("2026-01-01 10:00:00,000 INFO gpuwatch.daemon.daemon: stopped\n")
    settings.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    Path(f"{settings.socket}.lock").mkdir()
    descriptors = os.listdir("/proc/self/fd")  # noqa: PTH208 - names are wanted
    with gpuwatch.window("refused", settings=settings) as w:
        pass
    assert f"{settings.socket}.lock: cannot be locked" in str(w.verdict)
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)  # noqa: PTH208


def test_daemon_ending_at_start_is_quoted(tmp_path: Path) -> None:
    """The error quotes a daemon that ends during its start, and the earlier log stays."""
    settings = settings_in(tmp_path)
    settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings.log.write_text("what the one before said\n")
    (settings.state / "lock").mkdir()  # no process can be its one writer
    with gpuwatch.window("refused", settings=settings) as w:
        pass
    assert "expected a folder that can be written" in str(w.verdict)
    kept = (settings.state / "daemon.log.old").read_text()  # tried twice
    assert "expected a folder that can be written" in kept


def test_daemon_without_the_store_leaves_its_owners_log(tmp_path: Path) -> None:
    """A daemon that finds the store taken leaves the log to the store's owner."""
    flags = dict(flag.lstrip("-").split("=", 1) for flag in settings_in(tmp_path).flags())
    settings = load({**flags, "daemon.idle_exit": "1s"}, environment={"HOME": "/"})
    other = load({**flags, "socket": f"{settings.socket}2"}, environment={"HOME": "/"})
    with connect(settings):
        with gpuwatch.window("refused", settings=other) as w:
            pass
        assert "expected a store without a writer" in str(w.verdict)
        log = settings.log.read_text()
    assert "ready: " in log
    assert "expected a store without a writer" in log


def test_without_xdg_runtime_dir_a_private_folder_is_made(tmp_path: Path) -> None:
    """Without XDG_RUNTIME_DIR all files lie in a private folder."""
    temporary = Path(tempfile.mkdtemp(prefix="t"))  # pytest's own path is too long for a socket
    program = tmp_path / "bench.py"
    program.write_text(PROGRAM.format(flags={"source": "simulated:steady-copy", "daemon.idle_exit": "1s"}))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "TMPDIR": str(temporary),
        "XDG_STATE_HOME": str(tmp_path / "st"),
    }
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=PATIENCE_S, env=environment, check=False
    )
    assert done.stdout.strip() == "valid", done.stderr
    (folder,) = temporary.glob("gpuwatch-*")
    assert folder.stat().st_mode & 0o777 == 0o700


def test_foreign_socket_folder_does_not_stop_the_benchmark(tmp_path: Path) -> None:
    """A foreign folder in place of the socket folder does not stop the benchmark."""
    (tmp_path / "in-the-way").symlink_to(tmp_path)
    settings = load(
        {"source": "simulated", "state": str(tmp_path / "state"), "socket": str(tmp_path / "in-the-way" / "s")},
        environment={"HOME": "/"},
    )
    ran = []
    with gpuwatch.window(settings=settings) as w:
        ran.append(1)
    assert ran == [1]
    assert "symbolic link" in w.verdict.why


def test_a_benchmark_has_no_child_of_ours(tmp_path: Path) -> None:
    program = tmp_path / "bench.py"
    flags = dict(flag.lstrip("-").split("=", 1) for flag in settings_in(tmp_path).flags())
    program.write_text(
        "import os, gpuwatch\nfrom gpuwatch.config import settings as config\n"
        f"with gpuwatch.window(settings=config.load({ ({**flags, 'daemon.idle_exit': '2s'})!r})):\n    pass\n"
        "try:\n    os.wait()\nexcept ChildProcessError:\n    print('childless')\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout.strip() == "childless", done.stderr


def test_a_generator_is_refused_as_a_benchmark() -> None:
    with pytest.raises(gpuwatch.UsageError, match="generator"):

        @gpuwatch.window()
        def numbers() -> Iterator[int]:
            yield 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"gpus": 0}, "gpus: expected a list of UUIDs, found 0"),
        ({"gpus": [0]}, "gpus: expected UUIDs, found 0"),
        ({"policy": "strict"}, "policy: expected a gpuwatch.Policy, found 'strict'"),
        ({"policy": "strict", "claim": "burst"}, "policy: expected"),
        ({"accept": ["outlier"]}, "did you mean 'outliers'?"),
        ({"limits": {"no-work": {"busy": 0.1}}}, "busy"),
        ({"limits": 3}, "limits: expected a table of tables, found 3"),
        ({"policy": gpuwatch.Policy(), "accept": ["outliers"]}, "policy: expected no accept or limits with a policy"),
        ({"claim": None}, "claim: expected text, found None"),
        ({"settings": {}}, "settings: expected gpuwatch.config.settings.Settings"),
        ({"label": "x" * 257}, "label: expected at most 256 characters, found 257"),
        ({"label": 5}, "label: expected text, found 5"),
        ({"on_reject": None}, "on_reject: expected 'report' or 'raise'"),
    ],
)
def test_what_can_never_be_right_is_said_when_the_window_is_made(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(gpuwatch.UsageError, match=re.escape(says)) as caught:
        gpuwatch.window(**wrong)
    assert "\n" not in str(caught.value)


def test_undecodable_label_loses_no_window(copying: Settings) -> None:
    """An undecodable label loses no window and controls no terminal."""
    with gpuwatch.window("a\udcff\x1b[31m", settings=copying) as w:
        pass
    assert w.run_id is not None
    assert w.verdict.label == "a�\x1b[31m"
    assert "\x1b" not in repr(w) + str(w.verdict)


def test_what_is_told_steers_no_terminal(copying: Settings) -> None:
    with gpuwatch.window(settings=copying) as w:
        w.declare(timer="\x1b[31m", tampered="\x1b[2Jtime.time", environment="A=\x1b[0m", profiler_used=True)
    assert "\x1b" not in str(w.verdict) + report.text(w.verdict, verbose=True) + report.markdown(w.verdict)


def test_a_decorator_without_its_brackets_says_so() -> None:
    with pytest.raises(gpuwatch.UsageError, match=r"@gpuwatch.window\(\)"):
        gpuwatch.window(lambda: None)  # type: ignore[arg-type]  # wrong on purpose


def test_import_brings_nothing_heavy() -> None:
    code = "import sys, gpuwatch; print([m for m in ('scipy','numpy','textual','plotly','torch','sqlite3','click') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
