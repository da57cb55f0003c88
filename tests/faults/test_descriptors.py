"""Tests of a daemon without free descriptors: it logs a few lines, and serves again once descriptors are free."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.client.connection import connect
from tests.faults.test_removed import answers
from tests.gpuwatch.exporter.test_served import LISTEN, url
from tests.gpuwatch.live import Live, running
from tests.waiting import let_pass, wait_until

SILENT_S = 5.0  # least duration of the shortage
MOST_BYTES = 20_000


@contextlib.contextmanager
def out_of_descriptors(pid: int) -> Iterator[None]:
    """Limit a process to the descriptors that it has open."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    taken = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(set(range(len(taken) + 1)) - taken), before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("clients_count", [1, 40])
def test_descriptor_shortage_does_not_flood_the_log(tmp_path: Path, clients_count: int) -> None:
    with running(tmp_path) as live, contextlib.ExitStack() as waiting:
        written = live.log.stat().st_size
        with out_of_descriptors(live.process.pid):
            for _ in range(clients_count):
                client = waiting.enter_context(socket.socket(socket.AF_UNIX))
                client.connect(str(live.settings.socket))
            let_pass(SILENT_S, "a flood needs time to show")
            log = live.log.read_text()[written:]
        assert "Too many open files" in log
        assert len(log) < MOST_BYTES, log[:3000]
        wait_until(lambda: answers(live.settings))
        with connect(live.settings, start=False) as back:
            assert back.open(label="afterwards").run


def scraped(live: Live, address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=2) as answer:
            return bool(answer.read())
    except OSError:
        return False


def test_metrics_page_waits_for_free_descriptors(tmp_path: Path) -> None:
    with running(tmp_path, environment=LISTEN) as live, contextlib.ExitStack() as waiting:
        address = url(live)
        assert scraped(live, address)
        host, _, port = address.removeprefix("http://").removesuffix("/metrics").partition(":")
        written, begun_s = live.log.stat().st_size, cpu_s(live.process.pid)
        with out_of_descriptors(live.process.pid):
            waiting.enter_context(socket.create_connection((host, int(port))))
            wait_until(
                lambda: "a connection could not be accepted" in live.log.read_text()[written:], what="the log names the scrape"
            )
            let_pass(SILENT_S, "a flood needs time to show")
            used_s = cpu_s(live.process.pid) - begun_s
            log = live.log.read_text()[written:]
        assert log.count("a connection could not be accepted") == 1, log
        assert len(log) < MOST_BYTES, log[:3000]
        assert used_s < SILENT_S / 2, "the daemon does not loop"
        wait_until(lambda: scraped(live, address))
