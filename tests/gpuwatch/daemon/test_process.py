"""Tests that a daemon's process ends with the daemon, whatever its threads do, with all output written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpuwatch.live import settings
from tests.waiting import PATIENCE_S

# The stand-in leaves an unjoinable thread behind, like one inside a hung call.
STUCK = """
import logging, sys, threading
from gpuwatch.daemon import process
from gpuwatch.config.settings import load

def stuck(_):
    threading.Thread(target=threading.Event().wait).start()
    print("said", end="")
    logging.getLogger("gpuwatch").warning("logged")
    {ends}

process.main(load({{"source": "simulated", "state": sys.argv[1], "socket": sys.argv[2]}}), code_of=stuck)
"""


@pytest.mark.parametrize(
    ("ends", "code", "words"),
    [("return 7", 7, "logged"), ('raise RuntimeError("can\'t start new thread")', 1, "RuntimeError: can't start new thread")],
)
def test_a_thread_that_never_ends_does_not_keep_the_process(tmp_path: Path, ends: str, code: int, words: str) -> None:
    places = settings(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-c", STUCK.format(ends=ends), str(places.state), str(places.socket)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (code, "said")
    assert "logged" in ended.stderr
    assert words in ended.stderr
