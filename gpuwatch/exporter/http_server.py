"""The server of the metrics page: one thread, started before the first request, that no slow peer can block.

A waiting connection costs no thread.  At the limit of connections, a new one replaces the oldest that is not receiving a page.
Health requests get an answer regardless of the number of pages being sent.
"""

import asyncio
import contextlib
import logging
import re
import socket
import threading
from collections.abc import Callable

from gpuwatch.errors import UsageError
from gpuwatch.exporter.access import Access, address, own_names
from gpuwatch.exporter.collector import Collector
from gpuwatch.exporter.http_answers import HEAD_BYTES, MetricsSite, RequestHandler

_log = logging.getLogger("gpuwatch.exporter")

AT_ONCE_COUNT = 8  # most pages being sent at once: enough for several Prometheus servers and people
CONNECTIONS_COUNT = 128  # most open connections; another one replaces the oldest that is not receiving a page
SILENCE_S = 5.0  # a peer without a complete request after this time is disconnected
STOP_S = 2.0
AGAIN_S = 0.1  # pause after a failed accept
_HEAD_ENDS = re.compile(rb"\n\r?\n|\A\r?\n")
_FAILED = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class HttpServer:
    """A server of ``/metrics``, ``/-/healthy`` and ``/-/ready``, which serves from construction on.

    Raises UsageError: when the address cannot be bound, or the thread cannot start.
    """

    def __init__(
        self,
        listen: str,
        access: Access,
        collector: Collector,
        ready: Callable[[], bool],
        *,
        connection_s: float = 10.0,  # the default timeout of Prometheus; a peer that reads byte by byte is then disconnected
        thread: Callable[..., threading.Thread] = threading.Thread,
    ) -> None:
        self.site = MetricsSite(access, collector, ready, own_names(listen))
        self._connection_s = connection_s
        self._open: dict[asyncio.Task[None], None] = {}  # oldest first
        self._paged: set[asyncio.Task[None]] = set()  # connections that are receiving a page
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
        """Return the page's address, with the chosen port in place of port 0."""
        host, port = self._listener.getsockname()[:2]
        host = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"{'https' if self.site.access.tls else 'http'}://{host}:{port}/metrics"

    def close(self) -> None:
        """Stop serving; return within two seconds, even if the thread hangs."""
        with contextlib.suppress(RuntimeError):  # the loop is already closed
            self._loop.call_soon_threadsafe(self._serving.cancel)
        self._thread.join(STOP_S)
        self._listener.close()

    # The methods below run in the page's thread; if no thread can start, ``_run`` cleans up in the caller's thread.

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
                    _log.warning("metrics: a connection could not be accepted, retrying: %s", error)
                    await asyncio.sleep(AGAIN_S)
                await asyncio.sleep(0)  # let other tasks run, even if every accept returns at once
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
            self.site.collector.refuse("busy")
        task = self._loop.create_task(self._attend(connection, str(peer[0])))
        self._open[task] = None
        task.add_done_callback(lambda done: self._open.pop(done, None))

    async def _attend(self, connection: socket.socket, peer: str) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(self._connection_s):
                async with asyncio.timeout(SILENCE_S):
                    reader, writer = await self._connect(connection)
                    head = await _head(reader)
                await self._answer(head, peer, writer)
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError) as error:  # the peer disconnected, was too slow, or did not use TLS
            _log.debug("%s: %s", peer, error)
        finally:
            if writer is not None:
                writer.transport.abort()
            connection.close()

    async def _connect(self, connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the streams of a connection, after the TLS handshake if the page uses TLS."""
        reader = asyncio.StreamReader(HEAD_BYTES, self._loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, connection, ssl=self.site.access.tls)
        transport.set_write_buffer_limits(0)  # so that a drained buffer means that everything was sent
        return reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

    async def _answer(self, head: bytes, peer: str, writer: asyncio.StreamWriter) -> None:
        if not head:
            return
        try:
            handler = RequestHandler(self.site, head, peer, is_busy=len(self._paged) >= AT_ONCE_COUNT)
        except Exception:  # noqa: BLE001 - the peer gets an answer after any error
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


async def _head(reader: asyncio.StreamReader) -> bytes:
    """Read a request up to its blank line, beyond the size limit, or to the end of the stream."""
    head = bytearray()
    while len(head) <= HEAD_BYTES:
        piece = await reader.read(HEAD_BYTES)
        seen = max(0, len(head) - 2)  # the blank line may arrive in two pieces
        head += piece
        if not piece or _HEAD_ENDS.search(head, seen):
            break
    return bytes(head)


def _listening(listen: str) -> socket.socket:
    """Return a listening socket.  Raises UsageError: when the address cannot be bound."""
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
