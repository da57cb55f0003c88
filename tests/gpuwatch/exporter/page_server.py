"""A server of a fleet's page, and requests to it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

from gpuwatch.exporter.access import Access
from gpuwatch.exporter.http_server import HttpServer
from tests.gpuwatch.exporter.fleet import Fleet
from tests.waiting import PATIENCE_S

OPEN = Access(None, None)


@contextlib.contextmanager
def serving(fleet: Fleet, guarded: Access = OPEN, *, ready: bool = True, connection_s: float = 10.0) -> Iterator[HttpServer]:
    """Serve the fleet's page on loopback until the end of the block."""
    web = HttpServer("127.0.0.1:0", guarded, fleet.collector, lambda: ready, connection_s=connection_s)
    try:
        yield web
    finally:
        web.close()


def ask(
    web: HttpServer, path: str = "/metrics", *, method: str = "GET", headers: dict[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> tuple[int, http.client.HTTPMessage, bytes]:  # fmt: skip
    """Return the status, the headers and the body of one answer."""
    parts = urlsplit(web.url)
    where = f"{parts.hostname}:{parts.port}"
    connection = (
        http.client.HTTPSConnection(where, timeout=PATIENCE_S, context=context)
        if web.site.access.tls
        else http.client.HTTPConnection(where, timeout=PATIENCE_S)
    )
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def raw(web: HttpServer) -> socket.socket:
    """Connect to the server without sending a request."""
    parts = urlsplit(web.url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=PATIENCE_S)
