"""Tests of the demo's simulating daemon."""

from __future__ import annotations

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpuwatch.cli import scene_player
from gpuwatch.errors import DaemonError
from tests.gpuwatch.live import settings
from tests.waiting import PATIENCE_S


def test_status_queries_a_silent_daemon_again(tmp_path: Path) -> None:
    """The demo queries a silent new daemon again, because a busy machine may delay the first answer."""
    found, log = settings(tmp_path), tmp_path / "log"
    log.write_text("it never answered\n")
    command = [sys.executable, "-c", "input()"]
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as threads:
        listener.settimeout(PATIENCE_S)
        listener.bind(str(found.socket))
        listener.listen()
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            asked = threads.submit(scene_player._status, process, found, log)
            asked.add_done_callback(lambda _: socket.socket(socket.AF_UNIX).connect(str(found.socket)))  # ends the wait below
            with listener.accept()[0], listener.accept()[0]:
                assert not asked.done(), asked.exception()
                process.kill()
                process.wait()
                with pytest.raises(DaemonError, match="did not start: it never answered"):
                    asked.result(PATIENCE_S)
