"""Tests of the daemon's key and signatures: created once, private, and valid only for the signed bytes."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.errors import UsageError
from gpuwatch.signing import Signature, Signer, fingerprint, holds, read_public, signer_of, statement
from tests.gpuwatch import forked
from tests.gpuwatch.programs import program
from tests.waiting import PATIENCE_S

VERDICT: dict[str, Any] = {
    "label": "gemm", "claim": "sustained", "policy": {"claim": "sustained"}, "begin_ns": 1, "end_ns": 2, "status": "valid",
    "judge_version": "0.1.0", "simulated": False, "device": {"uuid": "GPU-1", "name": "NVIDIA H200"},
}  # fmt: skip


def made(state: Path) -> Signer:
    signer = signer_of(state)
    assert signer is not None
    return signer


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return made(tmp_path_factory.mktemp("state"))


def said(evidence: bytes | None = b"evidence", **changed: object) -> bytes:
    """Return the statement about a verdict, with these values changed."""
    about: dict[str, Any] = {"run": "0a", "user": "ann", "process": "python"}
    of_run = {name: changed.pop(name) for name in list(changed) if name in about}
    return statement({**VERDICT, **changed}, evidence, **{**about, **of_run})


def test_signer_of_creates_a_private_key_once(tmp_path: Path) -> None:
    first = made(tmp_path)
    assert made(tmp_path).public_key == first.public_key
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"signing.key": 0o600, "signing.pub": 0o644}
    assert read_public(tmp_path / "signing.pub") == first.public_key


def test_key_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    for umask in (0o077, 0o000):
        state = tmp_path / f"{umask:o}"
        state.mkdir()
        script = f"import os, pathlib; os.umask({umask}); from gpuwatch import signing; signing.signer_of(pathlib.Path({str(state)!r}))"
        assert forked.run([sys.executable, "-c", script], timeout_s=PATIENCE_S).returncode == 0
        assert {stat.S_IMODE(path.stat().st_mode) for path in state.iterdir()} == {0o600, 0o644}


def test_concurrent_workers_create_only_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        keys = {each.public_key for each in threads.map(lambda _: made(tmp_path), range(8))}
    assert len(keys) == 1


def test_exposed_damaged_or_linked_key_gives_no_signer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A key that others can read, a damaged key and a link give no signer, and a damaged key stays unchanged."""
    made(tmp_path)
    key = tmp_path / "signing.key"
    key.chmod(0o640)
    assert signer_of(tmp_path) is None
    key.chmod(0o600)
    key.write_bytes(b"torn")
    assert signer_of(tmp_path) is None
    assert key.read_bytes() == b"torn"
    key.unlink()
    key.symlink_to(tmp_path / "elsewhere")
    assert signer_of(tmp_path) is None
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["verdicts are not signed"] * 3
    assert signer_of(tmp_path / "no such folder") is None


def test_key_of_an_unknown_algorithm_gives_no_signer(tmp_path: Path) -> None:
    der = bytes.fromhex("3012020100300506032a03040406040400000000")  # PKCS 8 of an algorithm 1.2.3.4
    kept = tmp_path / "signing.key"
    kept.write_text(f"-----BEGIN PRIVATE KEY-----\n{base64.b64encode(der).decode()}\n-----END PRIVATE KEY-----\n")
    kept.chmod(0o600)
    assert signer_of(tmp_path) is None


def test_panic_of_the_library_gives_no_signer(tmp_path: Path) -> None:
    """A panic in the library's import is logged and gives no signer."""
    broken = tmp_path / "cryptography"
    broken.mkdir()
    # As in pyo3, a panic of Rust code is not an Exception.
    (broken / "__init__.py").write_text(
        "PanicException = type('PanicException', (BaseException,), {'__module__': 'pyo3_runtime'})\n"
        "raise PanicException('Python API call failed')\n"
    )
    script = "import pathlib, sys; from gpuwatch import signing; print(signing.signer_of(pathlib.Path(sys.argv[1])))"
    said = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert (said.returncode, said.stdout.strip()) == (0, "None"), said.stderr
    assert said.stderr.startswith("verdicts are not signed")
    assert "Python API call failed" in said.stderr


def test_changed_public_key_file_is_written_again(tmp_path: Path) -> None:
    first = made(tmp_path)
    (tmp_path / "signing.pub").write_text("another")
    assert made(tmp_path).public_key == first.public_key
    assert read_public(tmp_path / "signing.pub") == first.public_key


@pytest.mark.parametrize(
    "changed",
    [
        {"label": "gemm2"}, {"claim": "burst"}, {"policy": {"claim": "sustained", "accept": ["x"]}}, {"begin_ns": 2},
        {"end_ns": 3}, {"status": "flagged"}, {"judge_version": "9"}, {"simulated": True}, {"evidence": None},
        {"evidence": b"other"}, {"run": "0b"}, {"user": "bob"}, {"process": "sh"}, {"device": {"uuid": "GPU-2", "name": "x"}},
    ],
    ids=lambda each: next(iter(each)),
)  # fmt: skip
def test_signature_holds_only_for_the_signed_statement(signer: Signer, changed: dict[str, Any]) -> None:
    """A signature holds for the signed bytes and fails after a change of any signed value."""
    signature = signer.sign(said())
    assert holds(signature, said())
    assert not holds(signature, said(**changed))


@given(st.binary(min_size=96, max_size=96))
def test_random_bytes_are_not_a_signature(data: bytes) -> None:
    signature = Signature.unpacked(data)
    assert signature is not None
    assert signature.packed == data
    assert not holds(signature, said())


def test_signature_of_another_key_does_not_hold(signer: Signer, tmp_path: Path) -> None:
    other = made(tmp_path)
    forged = Signature(signer.public_key, other.sign(said()).value)
    assert not holds(forged, said())
    assert fingerprint(other.public_key) != fingerprint(signer.public_key)
    assert fingerprint(other.public_key).startswith("SHA256:")
    assert Signature.unpacked(b"short") is None


def test_openssl_verifies_a_signature(signer: Signer, tmp_path: Path) -> None:
    """OpenSSL can verify a signature, because the signed content and the method are public."""
    openssl = program("openssl")
    own = made(tmp_path)
    (tmp_path / "said").write_bytes(said())
    (tmp_path / "signature").write_bytes(own.sign(said()).value)
    checked = subprocess.run(
        [openssl, "pkeyutl", "-verify", "-pubin", "-inkey", "signing.pub", "-rawin", "-in", "said", "-sigfile", "signature"],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert "Verified Successfully" in checked.stdout, checked


def test_read_public_refuses_other_files(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "text").write_text("hello")
    for name in ("signing.key", "text", "missing", "."):
        with pytest.raises(UsageError, match="expected a public key"):
            read_public(tmp_path / name)


def test_import_gpuwatch_does_not_load_cryptography() -> None:
    script = "import sys, gpuwatch, gpuwatch.client.window, gpuwatch.cli.run, gpuwatch.daemon.windows; print('cryptography' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    assert out.strip() == "False"
