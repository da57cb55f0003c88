"""Tests of errors from a server that is not Prometheus, or that is still starting."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator

import pytest

from dashboards.asking import Prometheus, PrometheusError
from dashboards.show import main


@contextlib.contextmanager
def answering(code: int, body: bytes) -> Iterator[str]:
    """Run a server with this answer to every request; yield its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("code", "body", "says"),
    [
        (503, b"Service Unavailable", "HTTP 503 Service Unavailable: up"),  # Prometheus while it reads its store
        (400, b'{"status": "error", "error": "parse error"}', "parse error: up"),
        (502, b"[1]", "HTTP 502 Bad Gateway: up"),
        (200, b"<html>", "expected a Prometheus, found another server; check the URL"),
        (200, b"[]", "expected a Prometheus, found another server; check the URL"),
        (200, b"{}", "expected a Prometheus, found another server; check the URL"),
    ],
)
def test_invalid_answer_is_reported_in_one_line(code: int, body: bytes, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(code, body) as url:
        with pytest.raises(PrometheusError) as raised:
            Prometheus(url).now("up")
        assert main([url]) == 1
    assert str(raised.value) == says
    told = capsys.readouterr().err
    assert (told.startswith(url), told.count("\n")) == (True, 1)
