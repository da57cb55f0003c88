"""Tests of the metrics page under attack: sampling continues, other clients are served, and refusals reveal nothing."""

from __future__ import annotations

import contextlib
import http.client
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings
from gpuwatch.exporter.access import Access
from gpuwatch.exporter.http_server import AT_ONCE_COUNT
from tests.gpuwatch.exporter.test_access import DIGEST, basic
from tests.gpuwatch.live import running
from tests.waiting import PATIENCE_S, sample_for, wait_until


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, str, int]]:
    """Yield the settings of a daemon, and host and port of its page."""
    with running(tmp_path_factory.mktemp("page"), environment={"GPUWATCH_LISTEN": "127.0.0.1:0"}) as live:
        with connect(live.settings) as client:
            parts = urlsplit(client.status()["metrics"])
        yield live.settings, parts.hostname or "", parts.port or 0


def asked(settings: Settings) -> tuple[int, int]:
    """Return the numbers of requested and missed fast-lane readings."""
    with connect(settings) as client:
        lane = client.status()["gpus"][0]["questions"]["fast"]
        return int(lane["asked_count"]), int(lane.get("missed_count", 0))


def answered(host: str, port: int, raw: bytes) -> bytes:
    with socket.create_connection((host, port), timeout=PATIENCE_S) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(raw)
        said = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65_536):
                said += piece
        return said


@contextlib.contextmanager
def attack(host: str, port: int) -> Iterator[None]:
    """Run slow, hanging and very many clients during the block."""
    stop = threading.Event()

    def many() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1) as connection:
                connection.sendall(b"GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n")

    with contextlib.ExitStack() as stack:
        for _ in range(AT_ONCE_COUNT // 2):  # the other connections open and close repeatedly
            slow = stack.enter_context(socket.create_connection((host, port), timeout=PATIENCE_S))
            slow.sendall(b"GET /metr")
        threads = [threading.Thread(target=many) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_sampling_continues_under_attack(page: tuple[Settings, str, int]) -> None:
    settings, host, port = page
    with attack(host, port):
        before_count, _ = asked(settings)
        wait_until(lambda: asked(settings)[0] >= before_count + 40, what="the GPU is still being read")


@pytest.mark.slow
def test_sampling_keeps_half_its_rate_under_attack(page: tuple[Settings, str, int]) -> None:
    settings, host, port = page
    with attack(host, port):
        before, begun_s = asked(settings), time.monotonic()
        sample_for(3.0)
        rate_hz = (asked(settings)[0] - before[0]) / (time.monotonic() - begun_s)
    assert rate_hz > 10  # half of 20 Hz, because the attack also loads the machine


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /metrics HTTP/1.1\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % i for i in range(5000)) + b"\r\n",
        b"GET /" + b"m" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    ],
    ids=["one header", "many headers", "path", "length", "chunks"],
)
def test_huge_request_does_not_stop_the_server(page: tuple[Settings, str, int], raw: bytes) -> None:
    """After a huge request, answered or dropped, the next request is served."""
    _, host, port = page
    said = answered(host, port, raw)
    assert not said or said.startswith(b"HTTP/1.1 ")
    assert answered(host, port, b"GET /-/healthy HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/metrics/../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/-/../metrics",
        "/\0",
        "/metrics%00",
    ],
)
def test_page_serves_no_files(page: tuple[Settings, str, int], path: str) -> None:
    _, host, port = page
    said = answered(host, port, f"GET {path} HTTP/1.1\r\n\r\n".encode())
    assert said.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400")), said[:80]
    assert b"root:" not in said


def test_answer_headers_contain_no_part_of_the_request(page: tuple[Settings, str, int]) -> None:
    _, host, port = page
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", "/x?%0d%0aSet-Cookie:%20a=b", headers={"Accept": "text/plain;\tx=\xe9", "Host": "evil"})
        headers = dict(connection.getresponse().getheaders())
    assert set(headers) <= {"Server", "Date", "Content-Type", "Content-Length", "Connection"}
    assert headers["Server"].startswith("gpuwatch/")
    assert "Python" not in headers["Server"]


@pytest.mark.slow
def test_refusal_time_reveals_no_user_or_password() -> None:
    """The median times to refuse two wrong passwords and an unknown user differ by less than 2 µs."""
    guarded = Access(None, {"prometheus": DIGEST})
    headers = [basic("prometheus", "x" * 28), basic("nobody", "x" * 28), basic("prometheus", "correct horse battery stapl3")]
    took: dict[str, list[float]] = {header: [] for header in headers}
    for _ in range(3000):
        for header in headers:
            begun = time.perf_counter()
            assert not guarded.admits(header)
            took[header].append(time.perf_counter() - begun)
    medians = [statistics.median(each) for each in took.values()]
    assert max(medians) - min(medians) < 2e-6, medians


@pytest.mark.parametrize("coded", ["é", "\xff" * 9, "====", "Og==", "cHJvbWV0aGV1czo=", "\ud800", "a" * 100_000])
def test_invalid_password_is_rejected_without_a_log(coded: str, caplog: pytest.LogCaptureFixture) -> None:
    assert not Access(None, {"prometheus": DIGEST}).admits(f"Basic {coded}")
    assert not caplog.records


def test_access_errors_do_not_quote_keys_or_users(tmp_path: Path) -> None:
    from gpuwatch.errors import UsageError
    from gpuwatch.exporter.access import access
    from tests.gpuwatch.exporter.test_access import settings

    users = tmp_path / "users"
    users.write_text("prometheus:hunter2-in-the-clear\n")
    with pytest.raises(UsageError) as caught:
        access(settings(listen="127.0.0.1:0", exporter__users=str(users)))
    assert "hunter2" not in str(caught.value)
    with pytest.raises(UsageError) as caught:
        access(settings(listen="127.0.0.1:0", exporter__certificate=str(users), exporter__key=str(users)))
    assert "hunter2" not in str(caught.value)
