"""Tests of gpuwatch top: the table of --once, and the screen in a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.config.settings import Settings
from gpuwatch.sources import has_driver
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.live import running
from tests.waiting import PATIENCE_S

TRACES = Path(__file__).parents[2] / "traces"


def test_top_asks_the_daemon_of_a_named_socket(gpuwatch: Gpuwatch, daemon: Settings) -> None:
    """Without a driver too, a named socket names the daemon: top refuses its simulated GPUs and simulates no others."""
    ended = gpuwatch("top", "--once", "--socket", str(daemon.socket))
    assert (ended.code, ended.out) == (1, "")
    assert "found a daemon that watches simulated:steady-copy; accept it with --source" in ended.err


def test_top_once_prints_every_gpu_and_marks_simulated_ones(gpuwatch: Gpuwatch, daemon: Settings) -> None:
    ended = gpuwatch("top", "--once", *daemon.flags())
    assert ended.code == 0, ended.err
    lines = ended.out.split("\n")
    assert lines[0].startswith("SIMULATED  these GPUs do not exist: simulated:steady-copy")
    assert "clock event reasons" in lines[1]
    assert lines[2].split()[:2] == ["0", "H200"]
    assert "\x1b" not in ended.out


def test_top_once_prints_the_windows(gpuwatch: Gpuwatch, daemon: Settings) -> None:
    assert gpuwatch("run", "--name", "shown", *daemon.flags(), "--", "true").code == 0
    ended = gpuwatch("top", "--once", *daemon.flags())
    assert any("shown" in line and "ago" in line for line in ended.out.split("\n")), ended.out


def test_top_in_a_pipe_suggests_once(gpuwatch: Gpuwatch, daemon: Settings) -> None:
    ended = gpuwatch("top", *daemon.flags())
    assert ended.code == 2
    assert "--once" in ended.err


@pytest.mark.skipif(has_driver(), reason="this machine has a driver, so no GPU is simulated by default")
def test_top_without_a_driver_shows_real_windows(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver the GPUs are simulated, with the reason shown, and the windows are the user's."""
    monkeypatch.setenv("GPUWATCH_DAEMON_IDLE_EXIT", "1s")
    assert gpuwatch("run", "--name", "mine", "--", "true").code == 0
    ended = gpuwatch("top", "--once")
    assert ended.out.startswith("SIMULATED  no NVIDIA driver found: simulated GPUs: simulated:demo\n")
    assert any(line.startswith("U UNPROVEN") and " mine " in line for line in ended.out.splitlines()), ended.out
    told = gpuwatch("top", "--once", "--json").data
    assert (told["absence"], len(told["gpus"]), [window["label"] for window in told["windows"]]) == (
        "no NVIDIA driver found", 3, ["mine"],
    )  # fmt: skip


def test_top_reports_a_failing_driver(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """A failing driver is reported, and not replaced by simulated GPUs."""
    with running(tmp_path, "nvml", environment={"LD_LIBRARY_PATH": "/nowhere"}) as live:
        ended = gpuwatch("top", "--once", *live.settings.flags())
    if "H200" in ended.out:  # this machine has GPUs
        return
    assert ended.code == 1
    assert "no GPU to watch" in ended.err
    assert "gpuwatch doctor" in ended.err


def test_top_once_does_not_import_textual(daemon: Settings) -> None:
    asks = (
        "import sys; from gpuwatch.cli import main; code = main(sys.argv[1:]); sys.exit(code or 3 * ('textual' in sys.modules))"
    )
    command = [sys.executable, "-c", asks, "top", "--once", *daemon.flags()]
    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0


def read_until(terminal: int, words: bytes, seconds: float = 20.0) -> bytes:
    said = b""
    while words not in said and select.select([terminal], [], [], seconds)[0]:
        said += os.read(terminal, 1 << 16)
    return said


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGHUP])
def test_top_is_live_in_a_terminal_and_exits_at_q(daemon: Settings, number: int | None) -> None:
    """In a terminal the screen is live, exits at q and at a signal, and restores the terminal."""
    here, there = pty.openpty()
    command = [sys.executable, "-m", "gpuwatch", *daemon.flags(), "top"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(command, stdin=there, stdout=there, stderr=there, env=environment, start_new_session=True)
    os.close(there)
    try:
        assert b"LIVE" in read_until(here, b"LIVE")
        if number is None:
            os.write(here, b"q")
        else:
            process.send_signal(number)
        assert b"\x1b[?1049l" in read_until(here, b"\x1b[?1049l"), "the terminal is restored"
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(here)


def test_top_once_as_json_has_every_gpu_and_its_processes(gpuwatch: Gpuwatch, daemon: Settings) -> None:
    ended = gpuwatch("top", "--once", "--json", *daemon.flags())
    assert ended.code == 0, ended.err
    data = ended.data
    assert (data["schema"], data["source"], data["simulated"]) == (1, "simulated:steady-copy", True)
    (gpu,) = data["gpus"]
    assert gpu["said"]["sm_clock_mhz"] > 0
    assert gpu["said"]["pcie_replay_count"] is None or gpu["said"]["pcie_replay_count"] >= 0
    assert isinstance(gpu["reasons"], list)
    assert all(set(process) == {"pid", "name", "user", "memory_bytes", "utilization_ratio"} for process in gpu["processes"])
    assert gpuwatch("top", "--json", *daemon.flags()).code == 2


def test_top_once_shows_a_recording_without_a_daemon(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    nowhere = ("--socket", str(tmp_path / "none"))
    ended = gpuwatch("top", "--once", "--trace", str(TRACES / "h200-windows.capsule"), *nowhere)
    assert ended.code == 0, ended.err
    assert ended.out.startswith("REPLAY  a recording, not now")
    assert "contention-process" in ended.out
    told = gpuwatch("top", "--once", "--json", "--trace", str(TRACES / "h200-windows.capsule"), *nowhere).data
    assert [window["label"] for window in told["windows"]][-1] == "plain-run"
    refused = gpuwatch("top", "--once", "--trace", str(tmp_path / "none.csv"))
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert not list(tmp_path.glob("**/gpuwatch.db"))
