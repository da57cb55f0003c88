"""Access control of the page.  A page on loopback is open by default; elsewhere TLS and known readers are required.

The setting ``listen_insecure`` waives this requirement.
"""

import base64
import hashlib
import hmac
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError

_NOBODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Access:
    """Access control of one page.  ``users`` maps names to the SHA-256 of passwords; None means that no password is needed.

    Python's standard library has no bcrypt, and a slow hash at every scrape would use the measured machine's CPU time.  A slow
    hash protects short passwords; passwords of the page are long and random (docs/decisions/0035).
    """

    tls: ssl.SSLContext | None
    users: Mapping[str, str] | None
    expiry_s: float | None = None  # wall time at which the first certificate of the current chain expires

    def admits(self, authorization: str | None) -> bool:
        """Return True if a header ``Authorization: Basic …`` has a known user and password, or if no password is needed."""
        if self.users is None:
            return True
        scheme, _, coded = (authorization or "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            user, colon, password = base64.b64decode(coded.strip(), validate=True).decode().partition(":")
        except ValueError:  # not base64, ASCII or UTF-8
            return False
        digest = hashlib.sha256(password.encode()).hexdigest()
        # An unknown name takes as long as a wrong password.
        return hmac.compare_digest(digest, self.users.get(user, _NOBODY)) and bool(colon and password) and user in self.users


def access(settings: Settings) -> Access:
    """Build the access control from the settings and the files named in the settings.

    Raises UsageError: for missing or invalid settings and files.
    """
    certificate, key, authorities = settings.exporter_certificate, settings.exporter_key, settings.exporter_client_ca
    if bool(certificate) != bool(key):
        raise UsageError("exporter.certificate and exporter.key: expected both or neither, found one; set the other")
    if authorities and not certificate:
        raise UsageError("exporter.client_ca: expected also exporter.certificate and exporter.key, found neither; set both")
    users = _users(Path(settings.exporter_users)) if settings.exporter_users else None
    if not settings.listen_insecure and not _stays_here(settings.listen):
        if not certificate:
            missing = "exporter.certificate and exporter.key"
        elif users is None and not authorities:
            missing = "exporter.users or exporter.client_ca"
        else:
            missing = ""
        if missing:
            raise UsageError(
                f"listen: {settings.listen} is reachable from other machines; expected also {missing}, found none; "
                "listen on 127.0.0.1, or pass --listen-insecure if the network is protected"
            )
    if not certificate:
        return Access(None, users)
    return Access(_tls(certificate, key, authorities), users, _expiry_s(Path(certificate)))


def address(listen: str) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Resolve ``HOST:PORT``.

    Raises UsageError: for a name without an address.
    """
    host, _, port = listen.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"listen: expected a name or an address of this machine, found {host!r}: {_why(error)}") from error
    family, _, _, _, bound = found[0]
    return family, (str(bound[0]), int(bound[1]))


def own_names(listen: str) -> frozenset[str] | None:
    """Return the Host names allowed for a page on loopback; None for other pages, which allow any name.

    Without this check, a web page could point its DNS name to 127.0.0.1 and read the metrics through a local browser.
    """
    if not _stays_here(listen):
        return None
    machine = socket.gethostname().lower()
    return frozenset({"localhost", machine, machine.partition(".")[0], listen.rpartition(":")[0].strip("[]").lower()})


def is_ours(host: str | None, names: frozenset[str]) -> bool:
    """Return True for a Host header among ``names``, below .localhost or on loopback, and without one: browsers always send one."""
    if host is None:
        return True
    name = host.strip().lower()
    bare = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return bare.removesuffix(".") in names or bare.removesuffix(".").endswith(".localhost")


def _stays_here(listen: str) -> bool:
    return ipaddress.ip_address(address(listen)[1][0].partition("%")[0]).is_loopback


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _tls(certificate: str, key: str, authorities: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")  # never prompt on the terminal
    except (OSError, ValueError) as error:
        raise UsageError(f"{certificate}, {key}: expected a certificate and its private key, found: {_why(error)}") from error
    if authorities:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(authorities)
        except (OSError, ValueError) as error:
            raise UsageError(f"{authorities}: expected certificates of authorities, found: {_why(error)}") from error
    return context


def _expiry_s(path: Path) -> float | None:
    """Return the earliest expiry of a chain's certificates as wall time; None if the file cannot be read or parsed."""
    from cryptography import x509  # imported late: a page without TLS does not need it

    try:
        chain = x509.load_pem_x509_certificates(path.read_bytes())
        return min(certificate.not_valid_after_utc.timestamp() for certificate in chain)
    except (OSError, ValueError):  # OpenSSL accepted the file, so the page is served anyway
        return None


def _users(path: Path) -> Mapping[str, str]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: expected a file of lines NAME:SHA256, found: {_why(error)}") from error
    users: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, _, digest = line.strip().partition(":")
        if not line.strip() or line.startswith("#"):
            continue
        if not name or len(digest) != 64 or not set(digest.lower()) <= set("0123456789abcdef") or digest.lower() == _NOBODY:
            # The message does not quote the line, which may contain a password.
            raise UsageError(
                f'{path}:{number}: expected NAME:SHA256, found another line; make SHA256 with: printf %s "$PASSWORD" | sha256sum'
            )
        users[name] = digest.lower()
    if not users:
        raise UsageError(f"{path}: expected at least one line NAME:SHA256, found none")
    return users
