"""Tests of a daemon that cannot start threads: it serves with its present ones, ends on request, and releases its store."""

from __future__ import annotations

import contextlib
import http.client
import resource
import socket
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import gpuwatch
from gpuwatch.client.connection import connect
from gpuwatch.daemon.user_turns import running_pool
from gpuwatch.store import Store
from tests.faults.test_memory import limit, mapped_bytes
from tests.gpuwatch.live import Live, running
from tests.security.people import open_folder
from tests.waiting import PATIENCE_S

LISTEN = {"GPUWATCH_LISTEN": "127.0.0.1:0"}


def page(live: Live) -> tuple[str, int]:
    """Return host and port of the metrics page."""
    with connect(live.settings, start=False) as client:
        parts = urlsplit(str(client.status()["metrics"]))
    return parts.hostname or "", parts.port or 0


def asked(host: str, port: int, path: str) -> int:
    with contextlib.closing(http.client.HTTPConnection(host, port, timeout=PATIENCE_S)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process")
def test_daemon_without_further_threads_serves_and_ends(tmp_path: Path) -> None:
    """A daemon serves and ends although no new thread's stack can be mapped."""
    with running(tmp_path, environment=LISTEN) as live:
        host, port = page(live)
        assert asked(host, port, "/metrics") == 200
        pid = live.process.pid
        limit(pid, mapped_bytes(pid))
        for _ in range(20):
            assert asked(host, port, "/-/healthy") == 200
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(socket.create_connection((host, port), timeout=PATIENCE_S)).sendall(b"GET /metr")
            assert asked(host, port, "/-/healthy") == 200
            with gpuwatch.window("meanwhile", settings=live.settings) as w:
                pass
            assert w.verdict.findings or w.verdict.why
        live.process.terminate()
        assert live.process.wait(PATIENCE_S) == 0, live.log.read_text()
    Store(live.settings.state, source="simulated", boot_id="b").close()


# The script imports as the tests' user, who can read the files, and then starts threads as nobody, who may start none.
_WITHOUT_THREADS = """
import os, resource, sys, threading
from pathlib import Path
from gpuwatch.errors import GpuwatchError
from gpuwatch.daemon.user_turns import running_pool
from gpuwatch.store import Store
state = Path(sys.argv[1])
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
store = lambda: Store(state, source="simulated", boot_id="b")
for make in (lambda: running_pool(4, "test"), store, store):
    try:
        make()
    except GpuwatchError as error:
        print(type(error).__name__, str(error).replace(str(state), "STATE"))
print(threading.active_count())
"""


def test_daemon_parts_refuse_a_start_without_threads() -> None:
    """If no thread can start, the parts of a daemon raise an error at once and release the store's folder."""
    with open_folder() as folder:
        state = folder / "state"
        state.mkdir(mode=0o777)
        state.chmod(0o777)
        done = subprocess.run(
            [sys.executable, "-c", _WITHOUT_THREADS, str(state)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.stderr == ""
        assert done.stdout.splitlines() == [
            "DaemonError expected to start 4 threads, found: can't start new thread; raise the limit of tasks "
            "(ulimit -u, TasksMax, pids.max) or of memory",
            *2
            * [
                "StoreError STATE: expected to start a writer thread, found: can't start new thread; raise the limit of tasks or "
                "memory"
            ],
            "1",
        ]


def test_running_pool_starts_all_threads_at_once() -> None:
    before_count = threading.active_count()
    pool = running_pool(5, "test")
    assert threading.active_count() == before_count + 5
    assert list(pool.map(abs, range(-9, 0))) == list(range(9, 0, -1))
    pool.shutdown()
