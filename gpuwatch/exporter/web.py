"""The page over HTTP: its own threads, at most so many at a time, and none of them for longer than a scrape may take."""

from __future__ import annotations

import contextlib
import errno
import gzip
import logging
import socket
import socketserver
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from annotate import __version__
from gpuwatch import clock
from gpuwatch.errors import UsageError
from gpuwatch.exporter.access import Access, address
from gpuwatch.exporter.collector import Collector

_log = logging.getLogger("gpuwatch.exporter")

AT_ONCE_COUNT = 8  # two Prometheus servers, a person, and as much again
SILENCE_S = 5.0  # a peer that neither reads nor writes for so long is gone
AGAIN_S = 1.0  # after there was no descriptor for a connection
_SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
PLAIN = "text/plain; charset=utf-8"


class Web:
    """Serves ``/metrics``, ``/-/healthy`` and ``/-/ready`` from the moment it is made.  Raises UsageError if it cannot listen."""

    def __init__(
        self,
        listen: str,
        access: Access,
        collector: Collector,
        ready: Callable[[], bool],
        *,
        connection_s: float = 10.0,  # Prometheus gives up after ten seconds too; one that drips bytes is cut off then
    ) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector)
        self.access = access  # replaced when certificate or users were read again
        self.ready = ready
        self.collector = collector
        self.registry = registry
        self.connection_ns = round(connection_s * 1e9)
        family, bound = address(listen)
        try:
            self._server = _Server(family, bound, self)
        except OSError as error:
            raise UsageError(f"listen: {listen}: {error.strerror or error}; choose another --listen") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.5}, name="gpuwatch-metrics", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens; with port 0 the one that was free."""
        host, port = self._server.server_address[:2]
        host = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"{'https' if self.access.tls else 'http'}://{host}:{port}/metrics"

    def close(self) -> None:
        self._server.stopping.set()
        self._server.shutdown()
        self._server.server_close()

    def page(self, accept: str) -> tuple[bytes, str]:
        """The page as the scraper wants it, and its content type."""
        encode, content_type = choose_encoder(accept)
        begun_ns = clock.now_ns()
        body = encode(self.registry)
        self.collector.took((clock.now_ns() - begun_ns) / 1e9)
        return body, content_type


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 32

    def __init__(self, family: socket.AddressFamily, bound: tuple[str, int], web: Web) -> None:
        self.address_family = family
        self.web = web
        self._free = threading.BoundedSemaphore(AT_ONCE_COUNT)
        self._since_ns: dict[socket.socket, int] = {}
        self.stopping = threading.Event()
        super().__init__(bound, _Handler)

    def get_request(self) -> Any:  # as typed by socketserver, which takes an OSError for a peer that went away
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _SHORT:
                _log.error("a scrape waits: no descriptor is left for it (%s)", error.strerror)
                self.stopping.wait(AGAIN_S)  # the connection stays ready to be accepted: without a pause this is a circle
            raise

    def process_request(self, request: Any, client_address: Any) -> None:  # as typed by socketserver
        if not self._free.acquire(blocking=False):
            self.web.collector.refuse("busy")
            if self.web.access.tls is None:
                with contextlib.suppress(OSError):
                    request.settimeout(0)
                    request.send(b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self.shutdown_request(request)
            return
        self._since_ns[request] = clock.now_ns()
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started: its place is free again
            self._since_ns.pop(request, None)
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            request.settimeout(SILENCE_S)
            tls = self.web.access.tls
            if tls is None:
                self.finish_request(request, client_address)
            else:
                # The handshake is made here, where a slow peer holds up nobody.
                with tls.wrap_socket(request, server_side=True) as secured:
                    self._since_ns[secured] = self._since_ns.pop(request)
                    request = secured
                    self.finish_request(secured, client_address)
        except OSError as error:  # it went away, was too slow, or speaks no TLS
            _log.debug("%s: %s", client_address, error)
        finally:
            self._since_ns.pop(request, None)
            self.shutdown_request(request)
            self._free.release()

    def service_actions(self) -> None:
        """Between accepts: end connections that live too long; their threads then find them closed."""
        now_ns = clock.now_ns()
        for connection, since_ns in list(self._since_ns.items()):
            if now_ns - since_ns > self.web.connection_ns:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - as in the base class
        _log.exception("a request for metrics failed")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = f"gpuwatch/{__version__}"
    sys_version = ""
    timeout = SILENCE_S
    wbufsize = -1  # a page leaves in large pieces
    server: _Server

    def do_GET(self) -> None:
        web = self.server.web
        path = self.path.partition("?")[0]
        if path == "/-/healthy":
            self._answer(200, b"healthy\n")
        elif path == "/-/ready":
            ready = web.ready()
            self._answer(200 if ready else 503, b"ready\n" if ready else b"not ready: the source is not known yet\n")
        elif not web.access.admits(self.headers.get("Authorization")):
            self._refuse("unauthorized", 401, b"unauthorized\n", {"WWW-Authenticate": 'Basic realm="gpuwatch"'})
        elif path == "/metrics":
            self._metrics(web)
        elif path == "/":
            self._answer(200, b"gpuwatch\n\n/metrics\n/-/healthy\n/-/ready\n")
        else:
            self._refuse("not_found", 404, b"not found; there are /metrics, /-/healthy and /-/ready\n", {})

    do_HEAD = do_GET  # noqa: N815 - named so by the base class

    def _metrics(self, web: Web) -> None:
        body, content_type = web.page(self.headers.get("Accept") or "")
        headers = {"Vary": "Accept, Accept-Encoding"}
        if "gzip" in (self.headers.get("Accept-Encoding") or ""):
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        self._answer(200, body, content_type, headers)

    def _refuse(self, why: str, code: int, body: bytes, headers: dict[str, str]) -> None:
        self.server.web.collector.refuse(why)
        self._answer(code, body, PLAIN, headers)

    def _answer(self, code: int, body: bytes, content_type: str = PLAIN, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Type": content_type, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """What the base class refuses by itself: other methods, and lines that are no HTTP."""
        self.server.web.collector.refuse("method")
        self.command = getattr(self, "command", None) or "GET"
        self.request_version = "HTTP/1.1"
        self.close_connection = True
        if code == HTTPStatus.NOT_IMPLEMENTED:  # a method that is HTTP's but not ours
            self._answer(405, b"expected GET or HEAD\n", headers={"Allow": "GET, HEAD"})
        else:
            self._answer(code, f"{message or 'refused'}\n".encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named so by the base class
        _log.debug("%s: %s", self.client_address[0], format % args)


__all__ = ["AT_ONCE_COUNT", "Web"]
