"""Tests of access to the page, and of refusals before the start."""

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
from gpuwatch.exporter.access import Access, access

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
def test_an_address_is_host_and_port_or_part_of_it(given_text: str, meant: str) -> None:
    assert settings(listen=given_text).listen == meant


@pytest.mark.parametrize("text", [":9836", "::1", "host:", "host:x", "host:70000", "a b:1", "host:-1", "99999"])
def test_an_address_that_could_mean_another_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--listen: expected"):
        settings(listen=text)


def test_listen_error_for_an_unknown_name_has_no_errno() -> None:
    """An unknown host name is refused without the system's error number."""
    with pytest.raises(
        UsageError, match=r"expected a name or an address of this machine, found 'no\.such\.invalid': \w"
    ) as said:
        access(settings(listen="no.such.invalid:0"))
    assert "Errno" not in str(said.value)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:0", "127.8.8.8:0"])
def test_on_loopback_nothing_more_is_needed(listen: str) -> None:
    assert access(settings(listen=listen)).admits(None)


def test_page_beyond_this_machine_needs_tls_and_users() -> None:
    """Beyond this machine the page needs TLS and users."""
    with pytest.raises(UsageError, match=r"reached from other machines; expected exporter.certificate"):
        access(settings(listen="0.0.0.0:0"))
    assert access(settings(listen="0.0.0.0:0", listen_insecure="yes")).tls is None


@pytest.mark.parametrize("given_keys", [("exporter__certificate",), ("exporter__key",), ("exporter__client_ca",)])
def test_half_of_what_tls_needs_is_refused(given_keys: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected"):
        access(settings(listen="9836", **dict.fromkeys(given_keys, str(tmp_path / "x"))))


def test_files_that_are_none_are_named(tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing.pem")
    with pytest.raises(UsageError, match=r"nothing\.pem"):
        access(settings(listen="9836", exporter__certificate=nothing, exporter__key=nothing))
    with pytest.raises(UsageError, match=r"nothing\.pem: expected a file of lines NAME:SHA256, found: No such file"):
        access(settings(listen="9836", exporter__users=nothing))


def test_users_are_admitted_by_their_password_and_nobody_else(tmp_path: Path) -> None:
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
def test_no_header_raises(header: str) -> None:
    assert not Access(None, {"prometheus": DIGEST}).admits(header)


@pytest.mark.parametrize("line", ["prometheus:hunter2", "prometheus", f":{DIGEST}", f"a:{'0' * 63}", "", "a:" + "g" * 64])
def test_a_line_that_holds_no_digest_is_refused_and_not_quoted(line: str, tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(line + "\n")
    with pytest.raises(UsageError, match="NAME:SHA256") as caught:
        access(settings(listen="9836", exporter__users=str(file)))
    assert "hunter2" not in str(caught.value)


def test_the_digest_of_an_empty_password_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"a:{hashlib.sha256(b'').hexdigest()}\n")
    with pytest.raises(UsageError, match="NAME:SHA256"):
        access(settings(listen="9836", exporter__users=str(file)))
