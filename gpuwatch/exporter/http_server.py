"""The page over HTTP: one thread, started before the first request, in which no peer is waited for, however slow.

Waiting costs a connection a few kilobytes and no thread, so silent and slow peers cannot keep others from being served:
the oldest makes room for the newest, and health is answered however many pages are on their way.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import logging
import re
import socket
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
from gpuwatch.exporter.access import Access, address, is_ours, own_names
from gpuwatch.exporter.collector import Collector

_log = logging.getLogger("gpuwatch.exporter")

AT_ONCE_COUNT = 8  # pages on their way: two Prometheus servers, a person, and as much again
CONNECTIONS_COUNT = 128  # open ones; a further one takes the place of the oldest that no page is on its way to
HEAD_BYTES = 1 << 16
SILENCE_S = 5.0  # a peer that has not said what it wants by then is gone
STOP_S = 2.0
AGAIN_S = 0.1  # after an accept that failed for want of descriptors or memory
PLAIN = "text/plain; charset=utf-8"
OPENMETRICS = "application/openmetrics-text"
_HEAD_ENDS = re.compile(rb"\n\r?\n|\A\r?\n")
_VERSION = re.compile(r"1(\.\d{1,3}){0,2}")
_FAILED = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Web:
    """Serves ``/metrics``, ``/-/healthy`` and ``/-/ready`` from the moment it is made.

    Raises UsageError: when it cannot listen, or its thread cannot be started.
    """

    def __init__(
        self,
        listen: str,
        access: Access,
        collector: Collector,
        ready: Callable[[], bool],
        *,
        connection_s: float = 10.0,  # Prometheus gives up after ten seconds too; one that drips bytes is cut off then
        thread: Callable[..., threading.Thread] = threading.Thread,
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(collector)
        self.access = access  # replaced when certificate or users were read again
        self.ready = ready
        self.collector = collector
        self.own_names = own_names(listen)
        self._connection_s = connection_s
        self._open: dict[asyncio.Task[None], None] = {}  # oldest first
        self._paged: set[asyncio.Task[None]] = set()  # those that a page is on its way to
        self._listener = _listening(listen)
        self._loop = asyncio.new_event_loop()
        self._serving = self._loop.create_task(self._serve())
        self._thread = thread(target=self._run, name="gpuwatch-metrics", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._serving.cancel()
            self._run()
            raise UsageError(
                f"listen: expected a thread for the metrics page, found: {error}; raise the limit of tasks or of memory"
            ) from error

    @property
    def url(self) -> str:
        """Where it listens; with port 0 the one that was free."""
        host, port = self._listener.getsockname()[:2]
        host = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"{'https' if self.access.tls else 'http'}://{host}:{port}/metrics"

    @property
    def is_busy(self) -> bool:
        """Tell whether as many pages as may be are on their way."""
        return len(self._paged) >= AT_ONCE_COUNT

    def close(self) -> None:
        """Serve no more; returns within two seconds, whatever the thread is at."""
        with contextlib.suppress(RuntimeError):  # its loop is closed already
            self._loop.call_soon_threadsafe(self._serving.cancel)
        self._thread.join(STOP_S)
        self._listener.close()

    def page(self, accept: str) -> tuple[bytes, str]:
        """Make the page in the format a scraper asks for: OpenMetrics if it names a version of it that is known, else text."""
        # The library's own reading fails on a version that is none, and puts what was asked into the answer's header.
        wanted = f"{OPENMETRICS}; version=1.0.0" if any(map(_is_openmetrics, accept.split(","))) else ""
        encode, content_type = choose_encoder(wanted)
        begun_ns = clock.now_ns()
        body = encode(self.registry)
        self.collector.took((clock.now_ns() - begun_ns) / 1e9)
        return body, content_type

    # What follows runs in the page's thread

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serving)
        self._listener.close()
        self._loop.close()

    async def _serve(self) -> None:
        try:
            while True:
                try:
                    await self._accept()
                except (OSError, MemoryError) as error:
                    _log.warning("a scrape waits: its connection was not accepted (%s)", error)
                    await asyncio.sleep(AGAIN_S)
                await asyncio.sleep(0)  # an accept that need not wait lets nobody else run
        finally:
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self) -> None:
        connection, peer = await self._loop.sock_accept(self._listener)
        if len(self._open) >= CONNECTIONS_COUNT:
            oldest = next(task for task in self._open if task not in self._paged)
            del self._open[oldest]
            oldest.cancel()
            self.collector.refuse("busy")
        task = self._loop.create_task(self._attend(connection, str(peer[0])))
        self._open[task] = None
        task.add_done_callback(lambda done: self._open.pop(done, None))

    async def _attend(self, connection: socket.socket, peer: str) -> None:
        """One connection and its one request."""
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(self._connection_s):
                async with asyncio.timeout(SILENCE_S):
                    reader, writer = await self._met(connection)
                    head = await _head(reader)
                await self._answer(head, peer, writer)
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError) as error:  # it went away, was too slow, or speaks no TLS
            _log.debug("%s: %s", peer, error)
        finally:
            if writer is not None:
                writer.transport.abort()
            connection.close()

    async def _met(self, connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Shake hands as the certificate of now asks."""
        reader = asyncio.StreamReader(HEAD_BYTES, self._loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, connection, ssl=self.access.tls)
        transport.set_write_buffer_limits(0)  # so that what is written has left once it is drained
        return reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

    async def _answer(self, head: bytes, peer: str, writer: asyncio.StreamWriter) -> None:
        if not head:
            return
        try:
            handler = _Handler(self, head, peer)
        except Exception:  # noqa: BLE001 - one request's boundary: the next is served
            _log.exception("a request for metrics failed")
            writer.write(_FAILED)
            await writer.drain()
            return
        writer.write(handler.wfile.getvalue())
        task = asyncio.current_task()
        if handler.is_page and task is not None:
            self._paged.add(task)
        try:
            await writer.drain()
        finally:
            if task is not None:
                self._paged.discard(task)


class _Handler(BaseHTTPRequestHandler):
    """One request's head, and the answer in ``wfile``: the standard library's reading of HTTP, without its socket."""

    protocol_version = "HTTP/1.1"
    server_version = f"gpuwatch/{__version__}"
    sys_version = ""
    wfile: io.BytesIO

    def __init__(self, web: Web, head: bytes, peer: str) -> None:
        self.web = web
        self.is_page = False
        self.requestline = ""
        self.rfile, self.wfile = io.BytesIO(head), io.BytesIO()
        self.client_address = (peer, 0)
        if len(head) > HEAD_BYTES:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "expected a request of at most 64 KiB")
        else:
            self.handle_one_request()

    def do_GET(self) -> None:
        web = self.web
        path = self.path.partition("?")[0]
        if path == "/-/healthy":
            self._answer(200, b"healthy\n")
        elif path == "/-/ready":
            ready = web.ready()
            self._answer(200 if ready else 503, b"ready\n" if ready else b"not ready: the source is not known yet\n")
        elif web.own_names is not None and not is_ours(host := self.headers.get("Host"), web.own_names):
            self._refuse("host", 421, _misdirected(host), {})
        elif not web.access.admits(self.headers.get("Authorization")):
            self._refuse("unauthorized", 401, b"unauthorized\n", {"WWW-Authenticate": 'Basic realm="gpuwatch"'})
        elif path == "/metrics":
            self._metrics()
        elif path == "/":
            self._answer(200, b"gpuwatch\n\n/metrics\n/-/healthy\n/-/ready\n")
        else:
            self._refuse("not_found", 404, b"not found; there are /metrics, /-/healthy and /-/ready\n", {})

    do_HEAD = do_GET  # noqa: N815 - named so by the base class

    def _metrics(self) -> None:
        if self.web.is_busy:
            self._refuse("busy", 503, b"busy: as many pages as may be are on their way\n", {"Retry-After": "1"})
            return
        body, content_type = self.web.page(self.headers.get("Accept") or "")
        headers = {"Vary": "Accept, Accept-Encoding"}
        if "gzip" in (self.headers.get("Accept-Encoding") or ""):
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        self._answer(200, body, content_type, headers)
        self.is_page = True

    def _refuse(self, why: str, code: int, body: bytes, headers: dict[str, str]) -> None:
        self.web.collector.refuse(why)
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
        self.web.collector.refuse("method")
        self.command = getattr(self, "command", None) or "GET"
        self.request_version = "HTTP/1.1"
        self.close_connection = True
        if code == HTTPStatus.NOT_IMPLEMENTED:  # a method that is HTTP's but not ours
            self._answer(405, b"expected GET or HEAD\n", headers={"Allow": "GET, HEAD"})
        else:
            self._answer(code, f"{message or 'refused'}\n".encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named so by the base class
        _log.debug("%s: %s", self.client_address[0], format % args)


async def _head(reader: asyncio.StreamReader) -> bytes:
    """Read a request up to its blank line, up to a little more than it may be long, or to the end of what the peer says."""
    head = bytearray()
    while len(head) <= HEAD_BYTES:
        piece = await reader.read(HEAD_BYTES)
        seen = max(0, len(head) - 2)  # a line's end may have come in two pieces
        head += piece
        if not piece or _HEAD_ENDS.search(head, seen):
            break
    return bytes(head)


def _listening(listen: str) -> socket.socket:
    """A socket that listens there.  Raises UsageError: when the address cannot be had."""
    family, bound = address(listen)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(bound)
        listener.listen(CONNECTIONS_COUNT)
        listener.setblocking(False)  # noqa: FBT003 - the standard library's signature
    except OSError as error:
        listener.close()
        raise UsageError(f"listen: {listen}: {error.strerror or error}; choose another --listen") from error
    return listener


def _is_openmetrics(offered: str) -> bool:
    """Tell whether one of the formats in an Accept header is a version of OpenMetrics that can be had."""
    kind, *parameters = (part.strip() for part in offered.lower().split(";"))
    said = {name.strip(): value.strip(' "') for name, _, value in (part.partition("=") for part in parameters)}
    refused = re.fullmatch(r"0(\.0*)?", said.get("q", "1"))
    return kind == OPENMETRICS and not refused and bool(_VERSION.fullmatch(said.get("version", "1.0.0")))


def _misdirected(host: str | None) -> bytes:
    return (
        f"expected a name of this machine in the Host header, as localhost or 127.0.0.1, found {host!a}; "
        "ask for the page under one of those, have a proxy send Host: localhost, or listen on the name that is asked for\n"
    ).encode()


__all__ = ["AT_ONCE_COUNT", "CONNECTIONS_COUNT", "Web"]
