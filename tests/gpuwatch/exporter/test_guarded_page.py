"""Tests of the page's protection: host names, users and TLS."""

from __future__ import annotations

import hashlib
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from gpuwatch import clock
from gpuwatch.errors import UsageError
from gpuwatch.exporter.access import Access, access
from gpuwatch.exporter.collector import DaemonFigures
from gpuwatch.exporter.exporter import Exporter
from gpuwatch.exporter.http_server import HttpServer
from tests.gpuwatch.exporter.fleet import STORE, Fleet, of
from tests.gpuwatch.exporter.page_server import ask, raw, serving
from tests.gpuwatch.exporter.test_access import DIGEST, PASSWORD, basic, settings
from tests.gpuwatch.programs import program
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9836", "127.0.0.1.evil.example", "0.0.0.0", "192.0.2.7", "[2001:db8::1]:9836", ""]
)
def test_server_on_loopback_rejects_foreign_host_names(web: HttpServer, host: str) -> None:
    """The page on loopback rejects foreign host names, because a web page may point its own name here."""
    for path in ("/metrics", "/", "/elsewhere"):
        code, _, body = ask(web, path, headers={"Host": host})
        assert code == 421
        assert b"expected a name of this machine in the Host header" in body
        assert b"gpuwatch_up" not in body
    assert ask(web, "/-/healthy", headers={"Host": host})[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:9836",
        "localhost.",
        "127.0.0.1:1",
        "127.8.8.8",
        "[::1]:9836",
        "gpu.localhost",
        socket.gethostname(),
    ],
)
def test_server_on_loopback_accepts_local_host_names(web: HttpServer, host: str) -> None:
    assert ask(web, headers={"Host": host})[0] == 200


def test_server_counts_requests_with_foreign_host_names(fleet: Fleet, web: HttpServer) -> None:
    before = of(fleet.scrape(), "gpuwatch_scrapes_refused_total", reason="host") or 0
    ask(web, headers={"Host": "evil.example"})
    assert of(fleet.scrape(), "gpuwatch_scrapes_refused_total", reason="host") == before + 1


def test_server_with_users_needs_a_password_except_probes(fleet: Fleet) -> None:
    """With users, the metrics and the index need a password, and the probes need none."""
    with serving(fleet, Access(None, {"prometheus": DIGEST})) as web:
        code, headers, body = ask(web)
        assert (code, headers["WWW-Authenticate"]) == (401, 'Basic realm="gpuwatch"')
        assert b"gpuwatch_up" not in body
        assert ask(web, "/")[0] == 401
        assert ask(web, headers={"Authorization": basic("prometheus", "wrong")})[0] == 401
        assert ask(web, headers={"Authorization": basic("prometheus", PASSWORD)})[0] == 200
        assert ask(web, "/-/healthy")[0] == ask(web, "/-/ready")[0] == 200


def test_exporter_reload_keeps_users_if_the_file_is_invalid(fleet: Fleet, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(f"prometheus:{DIGEST}\n")
    chosen = settings(listen="127.0.0.1:0", exporter__users=str(users))
    exporter = Exporter(chosen, lambda _: None)
    known = DaemonFigures(lambda: STORE, lambda: 0, lambda: 0)
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


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a certificate authority, and certificates of a server and a client."""
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


def test_server_with_tls_and_users(fleet: Fleet, certificates: Path, tmp_path: Path) -> None:
    """With TLS, clients need the authority's certificate and a password."""
    users = tmp_path / "users"
    users.write_text(f"prometheus:{hashlib.sha256(PASSWORD.encode()).hexdigest()}\n")
    files = {"exporter__certificate": certificates / "localhost.pem", "exporter__key": certificates / "localhost.key"}
    named = {name: str(path) for name, path in files.items()}
    with pytest.raises(UsageError, match=r"expected also exporter.users or exporter.client_ca"):
        access(settings(listen="0.0.0.0:0", **named))
    guarded = access(settings(listen="0.0.0.0:0", exporter__users=str(users), **named))
    assert guarded.expiry_s == pytest.approx(clock.wall_s() + 2 * 86_400, abs=3600)
    trusting = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    with serving(fleet, guarded) as web:
        assert web.url.startswith("https://")
        assert ask(web, headers={"Authorization": basic("prometheus", PASSWORD)}, context=trusting)[0] == 200
        assert ask(web, context=trusting)[0] == 401
        with pytest.raises(ssl.SSLError):
            ask(web, context=ssl.create_default_context())
        with pytest.raises((urllib.error.URLError, OSError)):
            urllib.request.urlopen(web.url.replace("https", "http"), timeout=PATIENCE_S)
        with raw(web):  # a connection without a handshake does not block the next client
            assert ask(web, headers={"Authorization": basic("prometheus", PASSWORD)}, context=trusting)[0] == 200


def test_server_with_a_client_authority_rejects_others(fleet: Fleet, certificates: Path) -> None:
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
