"""Answers to requests for the metrics page, with the standard library's HTTP parser and without a socket."""

import gzip
import io
import logging
import re
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from prometheus_client.exposition import choose_encoder

from annotate import __version__
from gpuwatch import clock
from gpuwatch.exporter.access import Access, is_ours
from gpuwatch.exporter.collector import Collector

_log = logging.getLogger("gpuwatch.exporter")

HEAD_BYTES = 1 << 16
PLAIN = "text/plain; charset=utf-8"
OPENMETRICS = "application/openmetrics-text"
_VERSION = re.compile(r"1(\.\d{1,3}){0,2}")


class MetricsSite:
    """The metrics page with access control.  ``own_names`` are the names for ``is_ours``; None allows any Host header."""

    def __init__(
        self, access: Access, collector: Collector, ready: Callable[[], bool], own_names: frozenset[str] | None
    ) -> None:
        self.access = access  # replaced at a reload of certificate and users
        self.collector = collector
        self.make_text = _texts_of(collector)
        self.ready = ready
        self.own_names = own_names

    def page(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its content type: OpenMetrics if the scraper accepts it, otherwise text."""
        # The client library's parser fails on malformed versions, and copies parts of the request into the answer's header.
        is_openmetrics = any(map(_is_openmetrics, accept.split(",")))
        _, content_type = choose_encoder(f"{OPENMETRICS}; version=1.0.0" if is_openmetrics else "")
        begun_ns = clock.now_ns()
        body = self.make_text(is_openmetrics).encode()
        self.collector.took((clock.now_ns() - begun_ns) / 1e9)
        return body, content_type


class RequestHandler(BaseHTTPRequestHandler):
    """One request.  The answer to ``head`` is in ``wfile`` after construction."""

    protocol_version = "HTTP/1.1"
    server_version = f"gpuwatch/{__version__}"
    sys_version = ""
    wfile: io.BytesIO

    def __init__(self, site: MetricsSite, head: bytes, peer: str, *, is_busy: bool) -> None:
        self.site = site
        self.is_busy = is_busy  # True while the maximum number of pages is being sent
        self.is_page = False
        self.requestline = ""
        self.rfile, self.wfile = io.BytesIO(head), io.BytesIO()
        self.client_address = (peer, 0)
        if len(head) > HEAD_BYTES:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "expected a request of at most 64 KiB")
        else:
            self.handle_one_request()

    def do_GET(self) -> None:
        site = self.site
        path = self.path.partition("?")[0]
        if path == "/-/healthy":
            self._answer(200, b"healthy\n")
        elif path == "/-/ready":
            ready = site.ready()
            self._answer(200 if ready else 503, b"ready\n" if ready else b"not ready: the daemon has not found its GPUs yet\n")
        elif site.own_names is not None and not is_ours(host := self.headers.get("Host"), site.own_names):
            self._refuse("host", 421, _misdirected(host), {})
        elif not site.access.admits(self.headers.get("Authorization")):
            self._refuse("unauthorized", 401, b"unauthorized\n", {"WWW-Authenticate": 'Basic realm="gpuwatch"'})
        elif path == "/metrics":
            self._metrics()
        elif path == "/":
            self._answer(200, b"gpuwatch\n\n/metrics\n/-/healthy\n/-/ready\n")
        else:
            self._refuse("not_found", 404, b"not found; request /metrics, /-/healthy or /-/ready\n", {})

    do_HEAD = do_GET  # noqa: N815 - named so by the base class

    def _metrics(self) -> None:
        if self.is_busy:
            self._refuse("busy", 503, b"busy: too many pages are being sent; retry in 1 s\n", {"Retry-After": "1"})
            return
        body, content_type = self.site.page(self.headers.get("Accept") or "")
        headers = {"Vary": "Accept, Accept-Encoding"}
        if "gzip" in (self.headers.get("Accept-Encoding") or ""):
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        self._answer(200, body, content_type, headers)
        self.is_page = True

    def _refuse(self, why: str, code: int, body: bytes, headers: dict[str, str]) -> None:
        self.site.collector.refuse(why)
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
        """Answer requests that are too large, and requests that the base class rejects: other methods, and malformed ones."""
        self.site.collector.refuse("method")
        self.command = getattr(self, "command", None) or "GET"
        self.request_version = "HTTP/1.1"
        self.close_connection = True
        if code == HTTPStatus.NOT_IMPLEMENTED:  # a method other than GET and HEAD
            self._answer(405, b"expected GET or HEAD\n", headers={"Allow": "GET, HEAD"})
        else:
            self._answer(code, f"{message or 'refused'}\n".encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named so by the base class
        _log.debug("%s: %s", self.client_address[0], format % args)


def _texts_of(collector: Collector) -> Callable[[bool], str]:
    return lambda is_openmetrics: collector.page().text(is_openmetrics=is_openmetrics)


def _is_openmetrics(offered: str) -> bool:
    """Return True if a format of an Accept header is a supported version of OpenMetrics, with a weight above 0."""
    kind, *parameters = (part.strip() for part in offered.lower().split(";"))
    values = {name.strip(): value.strip(' "') for name, _, value in (part.partition("=") for part in parameters)}
    refused = re.fullmatch(r"0(\.0*)?", values.get("q", "1"))
    return kind == OPENMETRICS and not refused and bool(_VERSION.fullmatch(values.get("version", "1.0.0")))


def _misdirected(host: str | None) -> bytes:
    return (
        f"expected a name of this machine in the Host header, such as localhost or 127.0.0.1, found {host!a}; "
        "use such a name in the URL, let the proxy send Host: localhost, or listen on the requested name\n"
    ).encode()
