"""The page over HTTP: who asks wrongly is told, who hangs holds up nobody, and who may not read does not."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gpuwatch.errors import UsageError
from gpuwatch.exporter.access import Access, access
from gpuwatch.exporter.collector import Daemon
from gpuwatch.exporter.exporter import Exporter
from gpuwatch.exporter.web import AT_ONCE_COUNT, Web
from tests.gpuwatch.exporter.fleet import STORE, Fleet, of, openmetrics_names, series
from tests.gpuwatch.exporter.test_access import DIGEST, PASSWORD, basic, settings
from tests.gpuwatch.programs import program
from tests.waiting import PATIENCE_S, wait_until

OPEN = Access(None, None)


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    found = Fleet("steady-gemm")
    found.play(1)
    return found


@contextlib.contextmanager
def serving(fleet: Fleet, guarded: Access = OPEN, *, ready: bool = True, connection_s: float = 10.0) -> Iterator[Web]:
    web = Web("127.0.0.1:0", guarded, fleet.collector, lambda: ready, connection_s=connection_s)
    try:
        yield web
    finally:
        web.close()


def ask(
    web: Web, path: str = "/metrics", *, method: str = "GET", headers: dict[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> tuple[int, http.client.HTTPMessage, bytes]:  # fmt: skip
    parts = urlsplit(web.url)
    where = f"{parts.hostname}:{parts.port}"
    connection = (
        http.client.HTTPSConnection(where, timeout=PATIENCE_S, context=context)
        if web.access.tls
        else http.client.HTTPConnection(where, timeout=PATIENCE_S)
    )
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def raw(web: Web) -> socket.socket:
    parts = urlsplit(web.url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=PATIENCE_S)


def test_a_scraper_gets_the_format_it_asks_for(fleet: Fleet) -> None:
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


def test_health_readiness_and_what_is_not_there(fleet: Fleet) -> None:
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
def test_what_is_no_http_ends_without_harm(fleet: Fleet, noise: bytes) -> None:
    with serving(fleet) as web:
        with raw(web) as connection:
            connection.sendall(noise)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(4096)
        assert ask(web)[0] == 200


def test_scrapers_that_hang_hold_up_nobody_and_more_than_a_few_are_turned_away(fleet: Fleet) -> None:
    with serving(fleet) as web, contextlib.ExitStack() as stack:
        hung = [stack.enter_context(raw(web)) for _ in range(AT_ONCE_COUNT - 1)]
        for connection in hung:
            connection.sendall(b"GET /metr")
        assert ask(web)[0] == 200
        turned_away = b""
        for _ in range(3):  # the place of the one that was served may be free a little later
            connection = stack.enter_context(raw(web))
            connection.settimeout(0.5)
            hung.append(connection)
            with contextlib.suppress(TimeoutError):
                turned_away = connection.recv(64)
                break
        assert turned_away.startswith(b"HTTP/1.1 503")
        for connection in hung:
            connection.close()
        assert of(series(patiently(web).decode()), "gpuwatch_scrapes_refused_total", reason="busy")


def patiently(web: Web) -> bytes:
    """The page, once a place is free."""

    def asked() -> bytes | None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            code, _, body = ask(web)
            return body if code == 200 else None
        return None

    return wait_until(asked, what="a place is free") or b""


def test_a_connection_that_drips_bytes_is_ended(fleet: Fleet) -> None:
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


def test_with_users_the_page_is_theirs_alone_and_probes_need_no_password(fleet: Fleet) -> None:
    with serving(fleet, Access(None, {"prometheus": DIGEST})) as web:
        code, headers, body = ask(web)
        assert (code, headers["WWW-Authenticate"]) == (401, 'Basic realm="gpuwatch"')
        assert b"gpuwatch_up" not in body
        assert ask(web, "/")[0] == 401
        assert ask(web, headers={"Authorization": basic("prometheus", "wrong")})[0] == 401
        assert ask(web, headers={"Authorization": basic("prometheus", PASSWORD)})[0] == 200
        assert ask(web, "/-/healthy")[0] == ask(web, "/-/ready")[0] == 200


def test_users_are_read_again_and_a_broken_file_changes_nothing(fleet: Fleet, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(f"prometheus:{DIGEST}\n")
    chosen = settings(listen="127.0.0.1:0", exporter__users=str(users))
    exporter = Exporter(chosen, lambda _: None)
    known = Daemon(lambda: STORE, lambda: 0, lambda: 0)
    exporter.start(fleet.machine, known, lambda: True)
    try:
        assert exporter.web is not None
        old, new = ({"Authorization": basic("prometheus", password)} for password in (PASSWORD, "another one"))
        assert ask(exporter.web, headers=old)[0] == 200
        users.write_text("prometheus:another one\n")
        exporter.reload(chosen)
        assert ask(exporter.web, headers=old)[0] == 200
        users.write_text(f"prometheus:{hashlib.sha256(b'another one').hexdigest()}\n")
        exporter.reload(chosen)
        assert [ask(exporter.web, headers=headers)[0] for headers in (old, new)] == [401, 200]
    finally:
        exporter.stop()


def test_an_address_that_is_taken_is_an_error_of_usage(fleet: Fleet) -> None:
    with serving(fleet) as web, pytest.raises(UsageError, match="choose another --listen"):
        Web(urlsplit(web.url).netloc, OPEN, fleet.collector, lambda: True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority that signed itself, and a server and a client it signed."""
    folder = tmp_path_factory.mktemp("pki")
    openssl = program("openssl")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    run("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=authority")
    for name in ("localhost", "client"):
        run("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        run("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", "names", "-out", f"{name}.pem")  # fmt: skip
    return folder


def test_over_tls_with_a_password_from_another_machine(fleet: Fleet, certificates: Path, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(f"prometheus:{hashlib.sha256(PASSWORD.encode()).hexdigest()}\n")
    files = {"exporter__certificate": certificates / "localhost.pem", "exporter__key": certificates / "localhost.key"}
    named = {name: str(path) for name, path in files.items()}
    with pytest.raises(UsageError, match=r"expected exporter.users or exporter.client_ca"):
        access(settings(listen="0.0.0.0:0", **named))
    guarded = access(settings(listen="0.0.0.0:0", exporter__users=str(users), **named))
    trusting = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    with serving(fleet, guarded) as web:
        assert web.url.startswith("https://")
        assert ask(web, headers={"Authorization": basic("prometheus", PASSWORD)}, context=trusting)[0] == 200
        assert ask(web, context=trusting)[0] == 401
        with pytest.raises(ssl.SSLError):
            ask(web, context=ssl.create_default_context())
        with pytest.raises((urllib.error.URLError, OSError)):
            urllib.request.urlopen(web.url.replace("https", "http"), timeout=PATIENCE_S)
        with raw(web):  # shakes no hands: the next is served all the same
            assert ask(web, headers={"Authorization": basic("prometheus", PASSWORD)}, context=trusting)[0] == 200


def test_only_clients_of_the_authority_are_served(fleet: Fleet, certificates: Path) -> None:
    guarded = access(
        settings(
            listen="0.0.0.0:0",
            exporter__certificate=str(certificates / "localhost.pem"),
            exporter__key=str(certificates / "localhost.key"),
            exporter__client_ca=str(certificates / "ca.pem"),
        )
    )
    stranger = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    known = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    known.load_cert_chain(certificates / "client.pem", certificates / "client.key")
    with serving(fleet, guarded) as web:
        assert ask(web, context=known)[0] == 200
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(web, context=stranger)
