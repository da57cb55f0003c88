"""Target: bytes to the metrics page's socket give an HTTP answer without metrics, or a closed connection.

No bytes cause an exception in the log, or pass as the password.
"""

from __future__ import annotations

import hashlib
import logging
import socket
from functools import cache

from gpuwatch.exporter.access import Access
from gpuwatch.exporter.collector import Collector
from gpuwatch.exporter.http_server import HttpServer

_ANSWERS = (b"HTTP/1.1 200", b"HTTP/1.1 400", b"HTTP/1.1 401", b"HTTP/1.1 404", b"HTTP/1.1 405", b"HTTP/1.1 414", b"HTTP/1.1 421", b"HTTP/1.1 431",
            b"HTTP/1.1 503", b"HTTP/1.1 505")  # fmt: skip
_TEXTS = (b"unauthorized", b"gpuwatch", b"healthy", b"ready", b"expected a name of this machine")
_SECRET = "correct horse battery staple"
_GUARDED = Access(None, {"prometheus": hashlib.sha256(_SECRET.encode()).hexdigest()})


class _Kept(logging.Handler):
    """A log handler that keeps the records of errors in the page's code."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@cache
def _serving() -> tuple[HttpServer, _Kept]:
    from tests.gpuwatch.exporter.fleet import Fleet

    kept = _Kept()
    collector: Collector = Fleet("steady-gemm").collector
    return HttpServer("127.0.0.1:0", _GUARDED, collector, lambda: True), kept


def target(data: bytes) -> None:
    assert not _GUARDED.admits(f"Basic {data.decode('latin-1')}")
    web, kept = _serving()
    log = logging.getLogger("gpuwatch.exporter")
    log.addHandler(kept)
    try:
        _ask(web, data)
    finally:
        log.removeHandler(kept)
    assert not kept.records, kept.records[0].exc_info


def _ask(web: HttpServer, data: bytes) -> None:
    port = int(web.url.rpartition(":")[2].partition("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=8) as connection:
        answer = b""
        try:
            connection.sendall(data[:200_000])
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65_536):
                answer += piece
        except (ConnectionError, BrokenPipeError):
            pass
    # A request line without a version is HTTP/0.9, whose answers have no header.
    assert not answer or answer.startswith((*_ANSWERS, *_TEXTS)), answer[:80]
    assert b"gpuwatch_up" not in answer
