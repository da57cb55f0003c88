"""The daemon's signature under a verdict: the key, the signed statement, and the check of a signature.

Keys are Ed25519.  The private key stays in the state folder, readable by its owner alone, next to the public key.
The judge's worker signs, so that signing slows neither sampling nor the benchmark.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuwatch import atomic_write
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_log = logging.getLogger("gpuwatch.signing")

KEY, PUBLIC_KEY = "signing.key", "signing.pub"
PUBLIC_BYTES, SIGNATURE_BYTES = 32, 64
_MOST_KEY_BYTES = 10_000
_SIGNED = ("label", "claim", "policy", "begin_ns", "end_ns", "status", "judge_version", "simulated")


@dataclass(frozen=True, slots=True)
class Signature:
    """The signer's public key and the signature: raw bytes as in RFC 8032."""

    public_key: bytes
    value: bytes

    @property
    def packed(self) -> bytes:
        """Return key and signature in the stored order."""
        return self.public_key + self.value

    @staticmethod
    def unpacked(data: bytes) -> Signature | None:
        """Split stored bytes; return None for another length."""
        whole = len(data) == PUBLIC_BYTES + SIGNATURE_BYTES
        return Signature(data[:PUBLIC_BYTES], data[PUBLIC_BYTES:]) if whole else None


def statement(
    verdict: Mapping[str, Any], evidence: bytes | None, *, run: str | None, user: str | None, process: str | None
) -> bytes:
    """Return the bytes to sign for one verdict (in the form of ``Verdict.to_dict``) and its evidence: JSON with sorted keys.

    Findings are not included: anybody can judge the evidence again.
    """
    said = {
        "gpuwatch": "verdict 1",
        "run": run,
        "user": user,
        "process": process,
        **{name: verdict[name] for name in _SIGNED},
        "gpu": verdict["device"]["uuid"],
        "evidence_sha256": None if evidence is None else hashlib.sha256(evidence).hexdigest(),
    }
    return json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


@dataclass(frozen=True, slots=True)
class Signer:
    """The key of one state folder."""

    key: Ed25519PrivateKey
    public_key: bytes

    def sign(self, said: bytes) -> Signature:
        return Signature(self.public_key, self.key.sign(said))


def signer_of(state: Path) -> Signer | None:
    """Return a signer with the folder's key, created if missing; without a usable key, log the reason and return None."""
    try:
        key = _load_key(state / KEY)
        signer = Signer(key, key.public_key().public_bytes_raw())
        _publish(state / PUBLIC_KEY, pem(signer.public_key))
    except (KeyboardInterrupt, SystemExit):
        raise
    # Windows are judged even if the key or its library fails.  A library built for another Python or OpenSSL panics in Rust.
    # pyo3 derives the panic from BaseException, so that an uncaught panic would end the judge's worker at every start.
    except BaseException as error:  # noqa: BLE001
        _log.warning("verdicts are not signed: %s: %s", state / KEY, error)
        return None
    return signer


def holds(signature: Signature, said: bytes) -> bool:
    """Return True if the owner of the public key signed exactly these bytes."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(signature.public_key).verify(signature.value, said)
    except (InvalidSignature, ValueError):
        return False
    return True


def fingerprint(public_key: bytes) -> str:
    """Return a public key's short name, in the form that ssh uses."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(public_key).digest()).decode().rstrip("=")


def read_public(path: Path) -> bytes:
    """Read the raw key of a PEM file.

    Raises UsageError: for an unreadable file, and for other content, above all a private key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        with path.open("rb") as file:
            key = load_pem_public_key(file.read(_MOST_KEY_BYTES))
    except OSError as error:
        raise UsageError(f"{path}: expected a public key, found nothing to read: {error.strerror}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{path}: expected a public key as printed by `gpuwatch verify --key`, found other content") from error
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"{path}: expected an Ed25519 public key, found {type(key).__name__}")
    return key.public_bytes_raw()


def pem(public_key: bytes) -> bytes:
    """Return a public key as PEM, the form of files and other tools."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return Ed25519PublicKey.from_public_bytes(public_key).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _load_key(path: Path) -> Ed25519PrivateKey:
    """Return the file's key; create a missing file.  Raises OSError, ValueError: for any file but this user's private key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

    if not path.exists():
        made = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with contextlib.suppress(FileExistsError):  # another worker created it first
            atomic_write.create(path, made, mode=0o600, is_synced=True)
    there = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a pipe would block
    with os.fdopen(there, "rb") as file:
        mode = os.fstat(there)
        if not stat.S_ISREG(mode.st_mode):
            raise ValueError("expected a file, found a pipe or a device; remove it for a new key")
        if mode.st_uid != os.geteuid() or stat.S_IMODE(mode.st_mode) & 0o077:
            raise ValueError(
                f"expected a file of uid {os.geteuid()} that no other user can read, found uid {mode.st_uid},"
                f" mode {stat.S_IMODE(mode.st_mode):04o}; remove it for a new key, or: chmod 600"
            )
        key = load_pem_private_key(file.read(_MOST_KEY_BYTES), None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"expected an Ed25519 key, found {type(key).__name__}")
    return key


def _publish(path: Path, text: bytes) -> None:
    with contextlib.suppress(OSError):
        if path.is_file() and path.read_bytes() == text:
            return
    atomic_write.replace(path, text, mode=0o644, is_synced=True)
