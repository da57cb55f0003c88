"""Tests of ``gpuwatch top`` in a terminal of tmux."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gpuwatch.config.settings import Settings
from tests.gpuwatch.programs import program
from tests.waiting import PATIENCE_S, let_pass, wait_until

TRACES = Path(__file__).parents[2] / "traces"


class Terminal:
    """A private tmux server with 100 columns and 30 lines."""

    def __init__(self, folder: Path, tmux: str) -> None:
        self._program = tmux
        self._socket = str(folder / "tmux")

    def _tmux(self, *arguments: str) -> str:
        command = [self._program, "-S", self._socket, "-f", "/dev/null", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout

    def start(self, *arguments: str) -> None:
        home = f"HOME={Path(self._socket).parent}"
        command = shlex.join(["env", "-u", "COLUMNS", "-u", "LINES", home, sys.executable, "-m", "gpuwatch", *arguments])
        self._tmux("new-session", "-d", "-x", "100", "-y", "30", f"{command}; sleep 60")

    def start_shell(self) -> None:
        home = f"HOME={Path(self._socket).parent}"
        self._tmux(
            "new-session", "-d", "-x", "100", "-y", "30", shlex.join(["env", "-u", "COLUMNS", "-u", "LINES", home, "sh", "-i"])
        )

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", "--", *keys)

    def shows(self, holds: Callable[[str], bool]) -> str:
        seen = [""]

        def holds_now() -> bool:
            seen[0] = self._tmux("capture-pane", "-p")
            return holds(seen[0])

        wait_until(holds_now, what=lambda: seen[0], every_s=0.05)
        return seen[0]

    def programs(self) -> list[psutil.Process]:
        return psutil.Process(int(self._tmux("display-message", "-p", "#{pane_pid}"))).children(recursive=True)

    def stop(self) -> None:
        subprocess.run([self._program, "-S", self._socket, "kill-server"], check=False, capture_output=True)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    held = Terminal(tmp_path, program("tmux"))
    yield held
    held.stop()


def test_terminal_shows_live_past_and_live_again(terminal: Terminal, copying: Settings) -> None:
    terminal.start(*copying.flags(), "top")
    seen = terminal.shows(lambda pane: "● LIVE" in pane and "0 H200" in pane)
    assert "SIMULATED" in seen
    let_pass(1.0, "the store needs readings from before the key Left")
    terminal.press("Left")
    seen = terminal.shows(lambda pane: "◂ PAST" in pane)
    assert " s ago" in seen
    assert "0 H200" in seen
    terminal.press("g")
    terminal.shows(lambda pane: "go to:" in pane)
    terminal.press("-900d", "Enter")
    terminal.shows(lambda pane: "the store holds nothing before" in pane)
    terminal.press("Enter")
    terminal.shows(lambda pane: "SM clock" in pane)
    terminal.press("Escape")
    terminal.shows(lambda pane: "⏎ open" in pane)
    terminal.press("l")
    terminal.shows(lambda pane: "● LIVE" in pane)
    terminal.press("q")
    terminal.shows(lambda pane: "LIVE" not in pane)


def test_recording_of_a_neighbour_needs_no_daemon(terminal: Terminal) -> None:
    terminal.start("--socket", "/nowhere/s", "top", "--trace", str(TRACES / "h200-windows.capsule"))
    seen = terminal.shows(lambda pane: "◂ PAST" in pane and "neighbour-gemm" in pane)
    assert "REPLAY" in seen
    assert "a recording, not now: h200-windows" in seen
    terminal.press("Down", "Down", "Down", "Down", "Enter")
    terminal.shows(lambda pane: "R contention-process" in pane)
    terminal.press("Enter")
    terminal.shows(lambda pane: "SM clock" in pane and "1 foreign" in pane and "neighbour-gemm-4096" in pane)


def test_closed_terminal_ends_the_monitor(terminal: Terminal) -> None:
    terminal.start("--socket", "/nowhere/s", "top", "--trace", str(TRACES / "h200-windows.capsule"))
    terminal.shows(lambda pane: "◂ PAST" in pane)
    programs = terminal.programs()
    assert programs
    terminal.stop()
    assert psutil.wait_procs(programs, timeout=PATIENCE_S)[1] == []


def test_resumed_monitor_redraws_the_whole_screen(terminal: Terminal) -> None:
    """Ctrl-Z returns to the shell, and the resumed screen is complete."""
    terminal.start_shell()
    command = [
        sys.executable,
        "-m",
        "gpuwatch",
        "--socket",
        "/nowhere/s",
        "top",
        "--trace",
        str(TRACES / "h200-windows.capsule"),
    ]
    terminal.press(shlex.join(command), "Enter")
    parts = ("◂ PAST", "REPLAY", "SM MHz/max", "0 H200", "verdict", "neighbour-gemm-4096", "q quit")
    terminal.shows(lambda pane: all(part in pane for part in parts))
    terminal.press("C-z")
    terminal.shows(lambda pane: "Stopped" in pane)
    terminal.press("clear; fg", "Enter")
    terminal.shows(lambda pane: all(part in pane for part in parts) and "Stopped" not in pane)
    terminal.press("C-c")
    terminal.shows(lambda pane: "PAST" not in pane)
