"""What the signature under a report's window is worth: broken, of an unknown signer, of a trusted one, or not there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gpuwatch.config import paths
from gpuwatch.errors import UsageError
from gpuwatch.report.record import ReportedWindow
from gpuwatch.report.rejudge import begun_fits
from gpuwatch.signing import fingerprint, holds, read_public, statement

_FIELDS = {"run": "run_id"}
SYSTEM_TRUSTED = paths.SYSTEM_CONFIG.parent / "trusted"


class Worth(StrEnum):
    """Best first."""

    TRUSTED = "trusted"
    UNKNOWN = "unknown signer"
    UNSIGNED = "unsigned"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Signed:
    """``name`` is that of the trusted key's file; ``key`` the public key's fingerprint, None where nothing is signed."""

    worth: Worth
    key: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        match self.worth:
            case Worth.UNSIGNED:
                return "unsigned: nothing proves who recorded the evidence"
            case Worth.UNKNOWN:
                return f"signed by {self.key} (unknown signer)"
            case Worth.TRUSTED:
                return f"signed by {self.name} (trusted), {self.key}"
        return f"BROKEN: {self.key} did not sign this verdict with this evidence"


def signed(window: ReportedWindow, trusted: Mapping[bytes, str]) -> Signed:
    """The signature asked of the window as it lies here: run, user, process, verdict, and the evidence byte for byte."""
    signature = window.signature
    if signature is None:
        return Signed(Worth.UNSIGNED)
    key = fingerprint(signature.public_key)
    if not holds(signature, said(window)):
        return Signed(Worth.BROKEN, key)
    name = trusted.get(signature.public_key)
    return Signed(Worth.UNKNOWN, key) if name is None else Signed(Worth.TRUSTED, key, name)


def said(window: ReportedWindow) -> bytes:
    """What a daemon would have signed of this window."""
    return statement(window.verdict.to_dict(), window.packed, run=window.run_id, user=window.user, process=window.process)


def not_signed(window: ReportedWindow) -> tuple[str, ...]:
    """Name what a page shows of this window though neither a signature nor evidence judged again bears it out."""
    names = []
    if window.signature is None:
        names += [name for name in ("run", "user", "process") if getattr(window, _FIELDS.get(name, name)) is not None]
    if window.begun is not None and (window.signature is None or begun_fits(window) is None):
        names.append("begun")
    if window.evidence is None:
        names += ["GPU's name", "why", "findings"]
    return tuple(names)


def folders(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Where trusted keys lie, each NAME.pub: the user's and the system's."""
    return (paths.user_config(environment).parent / "trusted", SYSTEM_TRUSTED)


def trusted_keys(files: Iterable[Path], within: Iterable[Path], warn: Callable[[str], None]) -> dict[bytes, str]:
    """Names by key.  A file that was named must hold a key, or UsageError; one that only lies in a folder is warned about."""
    found: dict[bytes, str] = {}
    for file in files:
        found.setdefault(read_public(file), file.stem)
    for folder in within:
        for file in sorted(folder.glob("*.pub")):
            if not file.is_file():  # nobody named it, and a pipe would be waited for
                warn(f"not trusted: {file}: expected a public key, found no file")
                continue
            try:
                found.setdefault(read_public(file), file.stem)
            except UsageError as error:
                warn(f"not trusted: {error}")
    return found
