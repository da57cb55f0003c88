"""Tests of the page over HTTP."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import socket
import threading
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.errors import UsageError
from gpuwatch.exporter.http_server import AT_ONCE_COUNT, CONNECTIONS_COUNT, HttpServer
from tests.gpuwatch.exporter.fleet import Fleet, of, openmetrics_names, series
from tests.gpuwatch.exporter.page_server import OPEN, ask, raw, serving
from tests.waiting import PATIENCE_S, wait_until


def test_server_answers_in_the_accepted_format(fleet: Fleet) -> None:
    with serving(fleet) as web:
        code, headers, body = ask(web)
        assert (code, headers["Content-Type"].partition(";")[0]) == (200, "text/plain")
        assert of(series(body.decode()), "gpuwatch_up") == 1
        accept = "application/openmetrics-text; version=1.0.0; charset=utf-8"
        code, headers, body = ask(web, headers={"Accept": accept, "Accept-Encoding": "gzip"})
        assert headers["Content-Type"].startswith("application/openmetrics-text")
        assert headers["Content-Encoding"] == "gzip"
        text = gzip.decompress(body).decode()
        assert text.endswith("# EOF\n")
        assert "gpuwatch_gpu_up" in set(openmetrics_names(text))


def test_server_answers_probes_and_unknown_requests(fleet: Fleet) -> None:
    with serving(fleet, ready=False) as web:
        assert ask(web, "/-/healthy")[0] == 200
        assert ask(web, "/-/ready")[0] == 503
        assert ask(web, "/")[0] == 200
        assert ask(web, "/metricsx")[0] == 404
        assert ask(web, method="POST")[0] == 405
        assert ask(web, "/metrics?name[]=x")[0] == 200
        code, headers, body = ask(web, method="HEAD")
        assert (code, body) == (200, b"")
        assert int(headers["Content-Length"]) > 10_000
        found = series(ask(web)[2].decode())
        assert of(found, "gpuwatch_scrapes_refused_total", reason="method")
        assert of(found, "gpuwatch_scrapes_refused_total", reason="not_found")
        assert of(found, "gpuwatch_scrape_seconds_count")
    with serving(fleet) as web:
        assert ask(web, "/-/ready")[0] == 200


@pytest.mark.parametrize("noise", [b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00" * 20, b"GET / HTTP/9.9\r\n\r\n", b""])
def test_server_survives_requests_that_are_not_http(fleet: Fleet, noise: bytes) -> None:
    with serving(fleet) as web:
        with raw(web) as connection:
            connection.sendall(noise)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(4096)
        assert ask(web)[0] == 200


@pytest.mark.parametrize("said", [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"])
def test_server_answers_with_many_slow_connections(fleet: Fleet, said: bytes) -> None:
    """Probes and a scrape get answers after more than ``CONNECTIONS_COUNT`` clients connected without a complete request."""
    with serving(fleet) as web, contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS_COUNT + 10):
            stack.enter_context(raw(web)).sendall(said)
        for path in ("/-/healthy", "/-/ready", "/metrics"):
            assert ask(web, path)[0] == 200
    assert of(fleet.scrape(), "gpuwatch_scrapes_refused_total", reason="busy")


def test_server_health_answers_while_eight_pages_are_sent(fleet: Fleet) -> None:
    """With eight unread pages, a further scrape gets 503 and probes get 200; once the eight end, pages are sent again."""
    large = "x" * (24 << 20)  # more than socket buffers hold
    with serving(fleet, connection_s=PATIENCE_S) as web, contextlib.ExitStack() as stack:
        made, web.site.make_text = web.site.make_text, lambda _: large
        slow = [stack.enter_context(raw(web)) for _ in range(AT_ONCE_COUNT)]
        for connection in slow:
            connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16
            )  # otherwise the buffer grows to tens of megabytes
            connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 200"
        code, headers, _ = ask(web)
        assert (code, headers["Retry-After"]) == (503, "1")
        assert ask(web, "/-/healthy")[0] == ask(web, "/-/ready")[0] == 200
        for connection in slow:
            connection.close()
        web.site.make_text = made
        assert b"gpuwatch_up" in patiently(web)


def test_server_failed_request_frees_its_place(fleet: Fleet) -> None:
    def make_text(_: bool) -> str:
        if failing:
            raise RuntimeError("can't start new thread")
        return ""

    failing = True
    with serving(fleet) as web:
        web.site.make_text = make_text
        for _ in range(2 * AT_ONCE_COUNT):
            assert ask(web)[0] == 500
        failing = False
        assert ask(web)[0] == 200


def test_server_requests_start_no_thread(fleet: Fleet) -> None:
    """Requests start no thread, because the machine may have none left."""
    with serving(fleet) as web, contextlib.ExitStack() as stack:
        before = set(threading.enumerate())
        for _ in range(AT_ONCE_COUNT):
            stack.enter_context(raw(web)).sendall(b"GET /metr")
        assert ask(web)[0] == 200
        assert set(threading.enumerate()) == before


def test_server_without_a_thread_frees_its_address(fleet: Fleet) -> None:
    """A server that cannot start its thread raises UsageError and frees the address."""

    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(UsageError, match="expected a thread for the metrics page, found: can't start new thread; raise"):
        HttpServer(listen, OPEN, fleet.collector, lambda: True, thread=Refused)
    HttpServer(listen, OPEN, fleet.collector, lambda: True).close()


def test_server_close_does_not_wait_for_a_hanging_page(fleet: Fleet) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def make_text(_: bool) -> str:
        hangs.set()
        goes_on.wait()
        return ""

    with serving(fleet) as web, raw(web) as connection:
        web.site.make_text = make_text
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert hangs.wait(PATIENCE_S)
        web.close()
        goes_on.set()


PARTS = st.sampled_from(
    ["application/openmetrics-text", "text/plain", "*/*", "version", "escaping", "q", "=", ";", ",", " ", "1.0.0"]
)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/openmetrics-text; version=abc", "text/plain"),
        ("application/openmetrics-text; version=", "text/plain"),
        ("application/openmetrics-text; version=2.0.0", "text/plain"),
        ("application/openmetrics-text; version=0.0.1", "text/plain"),
        ("application/openmetrics-text; q=0", "text/plain"),
        ("text/plain; version=abc", "text/plain"),
        ("application/openmetrics-text; version=1.0.0; escaping=nonsense", "application/openmetrics-text"),
        ("text/html, APPLICATION/OpenMetrics-Text;q=0.7", "application/openmetrics-text"),
    ],
)
def test_server_answers_an_unsupported_format_in_text(web: HttpServer, accept: str, kind: str) -> None:
    code, headers, body = ask(web, headers={"Accept": accept})
    assert (code, headers["Content-Type"].partition(";")[0]) == (200, kind)
    assert b"gpuwatch_up" in body


@pytest.fixture(scope="module")
def content_types(web: HttpServer) -> set[str]:
    """Return the types of the page's two formats."""
    return {web.site.page(accept)[1] for accept in ("", "application/openmetrics-text")}


@given(accept=st.one_of(st.text(), st.lists(st.one_of(PARTS, st.text(max_size=5)), max_size=12).map("".join)))
def test_server_any_accept_header_gets_a_known_type(web: HttpServer, content_types: set[str], accept: str) -> None:
    body, content_type = web.site.page(accept)
    assert body
    assert content_type in content_types


def patiently(web: HttpServer) -> bytes:
    """Return the page as soon as the server does not answer "busy"."""

    def asked() -> bytes | None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            code, _, body = ask(web)
            return body if code == 200 else None
        return None

    return wait_until(asked, what="the server is not busy") or b""


def test_server_ends_a_connection_that_sends_slowly(fleet: Fleet) -> None:
    with serving(fleet, connection_s=0.5) as web, raw(web) as connection:
        connection.settimeout(0.05)

        def ended() -> bool:
            try:
                connection.sendall(b"X")
                return connection.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_until(ended, what="the connection is ended")


def test_server_address_in_use_is_a_usage_error(fleet: Fleet) -> None:
    with serving(fleet) as web, pytest.raises(UsageError, match="choose another --listen"):
        HttpServer(urlsplit(web.url).netloc, OPEN, fleet.collector, lambda: True)
