"""Tests of access to the page, and of errors in the access settings."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.config import settings as config
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError
from gpuwatch.exporter.access import Access, access, is_ours, own_names

PASSWORD = "correct horse battery staple"
DIGEST = hashlib.sha256(PASSWORD.encode()).hexdigest()


def settings(**given: str) -> Settings:
    flags = {name.replace("__", "."): value for name, value in given.items()}
    return config.load(flags, environment={"HOME": "/"})


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("given_text", "meant"),
    [
        ("9836", "127.0.0.1:9836"), ("localhost", "localhost:9836"), ("[::1]", "[::1]:9836"), ("[::1]:80", "[::1]:80"),
        ("0.0.0.0:0", "0.0.0.0:0"), ("off", ""), ("gpu-17.example", "gpu-17.example:9836"),
    ],
)  # fmt: skip
def test_listen_accepts_host_port_or_both(given_text: str, meant: str) -> None:
    assert settings(listen=given_text).listen == meant


@pytest.mark.parametrize("text", [":9836", "::1", "host:", "host:x", "host:70000", "a b:1", "host:-1", "99999"])
def test_listen_rejects_an_ambiguous_address(text: str) -> None:
    with pytest.raises(UsageError, match="--listen: expected"):
        settings(listen=text)


def test_listen_error_for_an_unknown_name_has_no_errno() -> None:
    with pytest.raises(
        UsageError, match=r"expected a name or an address of this machine, found 'no\.such\.invalid': \w"
    ) as said:
        access(settings(listen="no.such.invalid:0"))
    assert "Errno" not in str(said.value)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:0", "127.8.8.8:0"])
def test_access_on_loopback_needs_no_password(listen: str) -> None:
    assert access(settings(listen=listen)).admits(None)


def test_access_beyond_loopback_needs_a_certificate() -> None:
    """Beyond loopback the page needs a certificate, unless ``listen_insecure`` is set."""
    with pytest.raises(UsageError, match=r"reachable from other machines; expected also exporter.certificate"):
        access(settings(listen="0.0.0.0:0"))
    assert access(settings(listen="0.0.0.0:0", listen_insecure="yes")).tls is None


@pytest.mark.parametrize("given_keys", [("exporter__certificate",), ("exporter__key",), ("exporter__client_ca",)])
def test_access_rejects_incomplete_tls_settings(given_keys: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected"):
        access(settings(listen="9836", **dict.fromkeys(given_keys, str(tmp_path / "x"))))


def test_access_error_names_the_missing_file(tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing.pem")
    with pytest.raises(UsageError, match=r"nothing\.pem"):
        access(settings(listen="9836", exporter__certificate=nothing, exporter__key=nothing))
    with pytest.raises(UsageError, match=r"nothing\.pem: expected a file of lines NAME:SHA256, found: No such file"):
        access(settings(listen="9836", exporter__users=nothing))


def test_access_admits_only_users_with_their_password(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"# who reads\nprometheus:{DIGEST}\n\nsecond:{hashlib.sha256(b'x:y').hexdigest().upper()}\n")
    found = access(settings(listen="9836", exporter__users=str(file)))
    assert found.admits(basic("prometheus", PASSWORD))
    assert found.admits(basic("second", "x:y"))
    wrong = (
        None, "", "Basic", "Basic !!!", "Bearer x", basic("prometheus", ""), basic("prometheus", "wrong"), basic("", ""),
        basic("nobody", ""), basic("second", PASSWORD), basic("prometheus", DIGEST), "Basic " + base64.b64encode(b"\xff").decode(),
    )  # fmt: skip
    for header in wrong:
        assert not found.admits(header)


@given(st.text(max_size=60))
def test_access_rejects_any_random_header(header: str) -> None:
    assert not Access(None, {"prometheus": DIGEST}).admits(header)


@pytest.mark.parametrize("line", ["prometheus:hunter2", "prometheus", f":{DIGEST}", f"a:{'0' * 63}", "", "a:" + "g" * 64])
def test_access_rejects_a_line_other_than_name_and_digest(line: str, tmp_path: Path) -> None:
    """The error for a line other than NAME:SHA256 does not quote the line."""
    file = tmp_path / "users"
    file.write_text(line + "\n")
    with pytest.raises(UsageError, match="NAME:SHA256") as caught:
        access(settings(listen="9836", exporter__users=str(file)))
    assert "hunter2" not in str(caught.value)


def test_access_rejects_the_digest_of_an_empty_password(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"a:{hashlib.sha256(b'').hexdigest()}\n")
    with pytest.raises(UsageError, match="NAME:SHA256"):
        access(settings(listen="9836", exporter__users=str(file)))


@pytest.mark.parametrize(
    ("listen", "host", "admitted"),
    [
        ("127.0.0.1:0", "evil.example", False),
        ("127.0.0.2:0", "127.0.0.2:0", True),
        ("[::1]:0", "[::1]", True),
        ("localhost:0", "localhost", True),
        ("0.0.0.0:0", "gpu-17.cluster.example:9836", True),
        ("0.0.0.0:0", "10.0.0.7:9836", True),
    ],
)
def test_server_beyond_loopback_accepts_any_host_name(listen: str, host: str, *, admitted: bool) -> None:
    """Host names are restricted only on loopback, because service discovery chooses the names elsewhere."""
    names = own_names(listen)
    assert (names is None or is_ours(host, names)) is admitted
