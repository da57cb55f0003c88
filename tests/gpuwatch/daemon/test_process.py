"""Tests that a daemon's process ends with the daemon, even with a hung thread, and stops without warnings."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpuwatch.client.connection import connect
from gpuwatch.daemon.watched_gpus import WatchedGpus
from gpuwatch.store import Store
from tests.gpuwatch.live import running, settings
from tests.waiting import PATIENCE_S, wait_until

# The daemon's stand-in leaves a thread that never ends, like a hung call.
STUCK = """
import logging, sys, threading
from gpuwatch.daemon import process
from gpuwatch.config.settings import load

def stuck(_):
    threading.Thread(target=threading.Event().wait).start()
    print("printed", end="")
    logging.getLogger("gpuwatch").warning("logged")
    {ends}

process.main(load({{"source": "simulated", "state": sys.argv[1], "socket": sys.argv[2]}}), code_of=stuck)
"""


@pytest.mark.parametrize(
    ("ends", "code", "words"),
    [("return 7", 7, "logged"), ('raise RuntimeError("can\'t start new thread")', 1, "RuntimeError: can't start new thread")],
)
def test_endless_thread_does_not_keep_the_process(tmp_path: Path, ends: str, code: int, words: str) -> None:
    places = settings(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-c", STUCK.format(ends=ends), str(places.state), str(places.socket)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (code, "printed")
    assert "logged" in ended.stderr
    assert words in ended.stderr


@pytest.mark.parametrize("has_window", [False, True], ids=["measuring", "a worker starting"])
def test_stop_right_after_the_start_logs_no_warning(tmp_path: Path, *, has_window: bool) -> None:
    """A daemon that is stopped while it measures its lanes, or while the judge's worker starts, logs no warning."""
    with running(tmp_path) as live:
        if has_window:
            with connect(live.settings, start=False) as client:
                client.open(label="cut off")
        live.process.send_signal(signal.SIGTERM)
        assert live.process.wait(PATIENCE_S) == 0
    assert "stopped" in live.log.read_text()
    assert "warning" not in live.log.read_text().lower(), live.log.read_text()


def test_stop_while_lanes_are_measured_logs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = settings(tmp_path)
    store = Store(found.state, source=found.source, boot_id="boot")
    with ThreadPoolExecutor(2) as threads:
        gpus = WatchedGpus(found, store, sinks=(store,), threads=threads)
        gpus.has_answered.set()
        gpus.start()
        wait_until(lambda: gpus.samplers, what="a GPU is sampled, and measured from then on")
        measuring = [each for each in threading.enumerate() if each.name == "gpuwatch-measure"]
        gpus.stop()
        for thread in measuring:
            thread.join(PATIENCE_S)
    store.close()
    assert measuring
    assert not caplog.records
