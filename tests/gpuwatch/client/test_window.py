"""Tests of a window in the benchmark: the block runs whatever happens to telemetry, and the verdict gives the reason."""

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


def test_window_without_a_startable_daemon_is_unproven(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
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
def test_window_refuses_wrong_arguments(arguments: dict[str, object], expected: str) -> None:
    with pytest.raises((gpuwatch.UsageError, ValueError), match=expected):
        gpuwatch.window(**arguments)  # type: ignore[arg-type]  # wrong on purpose


def test_window_of_an_unknown_gpu_is_unproven(copying: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    with gpuwatch.window(settings=copying, gpus="GPU-nowhere") as w:
        sample_for(0.05)
    assert w.verdict.status is gpuwatch.Status.UNPROVEN
    assert "GPU-nowhere" in w.verdict.why
    assert "GPU-nowhere" in capfd.readouterr().err


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


PROGRAM = """
import sys, time
import gpuwatch
from gpuwatch.config import settings as config
busy_machine = gpuwatch.Policy(accept=["dark-time", "idle-stretch", "outliers"])
with gpuwatch.window("first", settings=config.load({flags!r}), policy=busy_machine) as w:
    time.sleep(1.2)
print(w.verdict.status.value, flush=True)
"""


def test_started_daemon_keeps_neither_pipe_nor_affinity(tmp_path: Path) -> None:
    """The daemon keeps neither pipes nor affinity of a benchmark under `taskset -c 0 … | tee log`."""
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
        # Standard error is the log, which then has the reason of an unexpected end.
        assert streams == ["/dev/null", "/dev/null", str(settings_in(tmp_path).log)]
        assert client.status()["on_demand"]
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the daemon exits after its last client")


def test_window_replaces_another_windows_failed_daemon(tmp_path: Path) -> None:
    """If another window's daemon fails to start, this window starts a new daemon."""
    flags = dict(flag.lstrip("-").split("=", 1) for flag in settings_in(tmp_path).flags())
    settings = load({**flags, "daemon.idle_exit": "1s"}, environment={"HOME": "/"})
    settings.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Like another daemon that starts, holds the lock, and ends before its first answer.
    with Path(f"{settings.socket}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ends = threading.Timer(1.0, fcntl.flock, (lock, fcntl.LOCK_UN))
        ends.start()
        with gpuwatch.window("second", settings=settings) as w:
            sample_for(0.3)
        ends.join()
    assert w.run_id is not None, str(w.verdict)


def test_daemon_failing_before_its_log_is_quoted(tmp_path: Path) -> None:
    """The verdict quotes the message of a daemon that fails before it opens the log; no file descriptor stays open."""
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
    """The verdict quotes the message of a daemon that ends during its start; the log of the first attempt is kept."""
    settings = settings_in(tmp_path)
    settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings.log.write_text("the earlier daemon's line\n")
    (settings.state / "lock").mkdir()  # no process can own the store
    with gpuwatch.window("refused", settings=settings) as w:
        pass
    assert "expected a folder that can be written" in str(w.verdict)
    kept = (settings.state / "daemon.log.old").read_text()  # the log of the first of two attempts
    assert "expected a folder that can be written" in kept


def test_second_daemon_leaves_the_store_owners_log(tmp_path: Path) -> None:
    """A daemon that cannot own the store does not replace the log of the store's owner."""
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


def test_window_without_xdg_runtime_dir_makes_a_private_folder(tmp_path: Path) -> None:
    """Without XDG_RUNTIME_DIR, the socket is in a private folder of mode 0700 below TMPDIR."""
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
    """A link in place of the socket folder does not stop the benchmark; the verdict names the link."""
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


def test_window_leaves_the_benchmark_without_a_child(tmp_path: Path) -> None:
    program = tmp_path / "bench.py"
    flags = dict(flag.lstrip("-").split("=", 1) for flag in settings_in(tmp_path).flags())
    program.write_text(
        "import os, gpuwatch\nfrom gpuwatch.config import settings as config\n"
        f"with gpuwatch.window(settings=config.load({ ({**flags, 'daemon.idle_exit': '2s'})!r})):\n    pass\n"
        "try:\n    os.wait()\nexcept ChildProcessError:\n    print('childless')\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout.strip() == "childless", done.stderr


def test_decorator_refuses_a_generator() -> None:
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
def test_window_refuses_wrong_arguments_in_one_line(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(gpuwatch.UsageError, match=re.escape(says)) as caught:
        gpuwatch.window(**wrong)
    assert "\n" not in str(caught.value)


def test_undecodable_label_is_cleaned(copying: Settings) -> None:
    """The label is stored with a replacement character, and escaped in text."""
    with gpuwatch.window("a\udcff\x1b[31m", settings=copying) as w:
        pass
    assert w.run_id is not None
    assert w.verdict.label == "a�\x1b[31m"
    assert "\x1b" not in repr(w) + str(w.verdict)


def test_declared_facts_are_escaped_in_text(copying: Settings) -> None:
    with gpuwatch.window(settings=copying) as w:
        w.declare(timer="\x1b[31m", tampered="\x1b[2Jtime.time", environment="A=\x1b[0m", profiler_used=True)
    assert "\x1b" not in str(w.verdict) + report.text(w.verdict, verbose=True) + report.markdown(w.verdict)


def test_decorator_without_parentheses_names_the_fix() -> None:
    with pytest.raises(gpuwatch.UsageError, match=r"@gpuwatch.window\(\)"):
        gpuwatch.window(lambda: None)  # type: ignore[arg-type]  # wrong on purpose


def test_import_gpuwatch_loads_no_heavy_library() -> None:
    code = "import sys, gpuwatch; print([m for m in ('scipy','numpy','textual','plotly','torch','sqlite3','click') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
