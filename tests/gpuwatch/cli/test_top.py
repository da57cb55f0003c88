"""gpuwatch top: a table to paste, and what it says where there is nothing to show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gpuwatch.config import Settings
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.live import running


def test_once_prints_every_gpu_and_says_that_it_is_invented(gpuwatch: Gpuwatch, daemon: Settings) -> None:
    ended = gpuwatch("top", "--once", *daemon.flags())
    assert ended.code == 0, ended.err
    lines = ended.out.split("\n")
    assert lines[0].startswith("SIMULATED  these GPUs do not exist: simulated:steady-copy")
    assert "clock event reasons" in lines[1]
    assert lines[2].split()[:2] == ["0", "H200"]
    assert "\x1b" not in ended.out


def test_once_shows_the_windows_and_their_verdicts(gpuwatch: Gpuwatch, daemon: Settings) -> None:
    assert gpuwatch("run", "--name", "shown", *daemon.flags(), "--", "true").code == 0
    ended = gpuwatch("top", "--once", *daemon.flags())
    assert any("shown" in line and "ago" in line for line in ended.out.split("\n")), ended.out


def test_a_pipe_is_no_screen(gpuwatch: Gpuwatch, daemon: Settings) -> None:
    ended = gpuwatch("top", *daemon.flags())
    assert ended.code == 2
    assert "--once" in ended.err


def test_a_driver_that_fails_is_said_and_never_replaced_by_an_invention(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    with running(tmp_path, "nvml", environment={"LD_LIBRARY_PATH": "/nowhere"}) as live:
        ended = gpuwatch("top", "--once", *live.settings.flags())
    if "H200" in ended.out:  # this machine has GPUs
        return
    assert ended.code == 1
    assert "no GPU to watch" in ended.err
    assert "gpuwatch doctor" in ended.err


def test_a_table_needs_no_textual(daemon: Settings) -> None:
    asks = (
        "import sys; from gpuwatch.cli import main; code = main(sys.argv[1:]); sys.exit(code or 3 * ('textual' in sys.modules))"
    )
    command = [sys.executable, "-c", asks, "top", "--once", *daemon.flags()]
    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0
