"""Test of the limits of a shared daemon: one user's messages do not affect another user's windows."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from annotate.evidence import Timings
from gpuwatch import clock
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings
from gpuwatch.daemon.line_reader import USER_UNFINISHED_BYTES
from gpuwatch.wire import messages
from tests.gpuwatch.live import settings, wait_for
from tests.security.people import NOBODY, only_root, open_folder
from tests.waiting import PATIENCE_S

pytestmark = only_root

ROOT = Path(__file__).resolve().parents[2]
UNFINISHED_COUNT = 80
WINDOWS_COUNT = 7
HOLDS = """
import contextlib, os, socket, sys
os.setgroups([]); os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[3]))
held, refused = [], []
for number in range(int(sys.argv[2])):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(100)
    connection.connect(sys.argv[1])
    connection.sendall(sys.argv[4].encode() + b"\\n")
    connection.recv(4096)
    with contextlib.suppress(ConnectionError):
        connection.sendall(b"x" * 1_000_000)
    held.append(connection)
for connection in held:
    connection.setblocking(False)
    try:
        refused.append(connection.recv(4096).decode().strip())
    except (BlockingIOError, ConnectionError):
        pass
print(*refused, sep="\t", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[Settings]:
    with open_folder() as folder:
        found = settings(folder)
        log = folder / "log"
        with log.open("ab") as said:
            command = [sys.executable, "-P", "-m", "gpuwatch", *found.flags(), "daemon", "--system"]
            process = subprocess.Popen(command, stderr=said, cwd="/", env={**os.environ, "PYTHONPATH": str(ROOT)})
        try:
            wait_for(found, process, log)
            yield found
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


@contextlib.contextmanager
def unfinished(found: Settings) -> Iterator[list[str]]:
    """Open many connections as nobody, each with an unfinished line of a megabyte; yield the answers to rejected ones."""
    hello = messages.encode(messages.Hello(protocol=1, version="0")).decode().strip()
    command = [sys.executable, "-c", HOLDS, str(found.socket), str(UNFINISHED_COUNT), str(NOBODY), hello]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as other:
        assert other.stdout is not None
        try:
            yield other.stdout.readline().decode().split("\t")
        finally:
            other.kill()


def test_unfinished_lines_end_only_their_own_users_connections(shared: Settings) -> None:
    """One user's unfinished lines use up that user's limit, while another user's windows still deliver long lines of times."""
    count = messages.TIMES_AT_ONCE_COUNT
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(shared)) for _ in range(WINDOWS_COUNT)]
        opened = [client.open(label="beside") for client in clients]
        refused = stack.enter_context(unfinished(shared))
        assert UNFINISHED_COUNT * 1_000_000 > USER_UNFINISHED_BYTES
        assert all('"busy"' in answer and "unfinished lines per user" in answer for answer in refused), refused
        for client, window in zip(clients, opened, strict=True):
            times = Timings(window.opened_ns + np.arange(count), np.full(count, 1e-9))
            client.times(window.run, times)
            client.close_window(window.run, window.opened_ns, clock.now_ns())
        assert all(client.verdicts(window.run).verdicts for client, window in zip(clients, opened, strict=True))
