"""Checks of a window's signature: broken, of an unknown signer, of a trusted signer, or missing."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from annotate import __version__
from gpuwatch.config import paths
from gpuwatch.errors import UsageError
from gpuwatch.report.record import ReportedWindow
from gpuwatch.report.rejudge import begun_fits, earlier_judge
from gpuwatch.signing import fingerprint, holds, read_public, statement

SYSTEM_TRUSTED = paths.SYSTEM_CONFIG.parent / "trusted"


class Worth(StrEnum):
    """The worth of a signature, best first."""

    TRUSTED = "trusted"
    UNKNOWN = "unknown signer"
    UNSIGNED = "unsigned"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class CheckedSignature:
    """A checked signature.  ``key`` is the public key's fingerprint, None if unsigned; ``name`` is a trusted key's file stem."""

    worth: Worth
    key: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        texts = {
            Worth.UNSIGNED: "unsigned: nothing proves who recorded the evidence",
            Worth.UNKNOWN: f"signed by {self.key} (unknown signer)",
            Worth.TRUSTED: f"signed by {self.name} (trusted), {self.key}",
            Worth.BROKEN: f"BROKEN: {self.key} did not sign this verdict with this evidence",
        }
        return texts[self.worth]


def check_signature(window: ReportedWindow, trusted: Mapping[bytes, str]) -> CheckedSignature:
    """Check the signature against run, user, process, the verdict without findings, and the evidence byte for byte."""
    signature = window.signature
    if signature is None:
        return CheckedSignature(Worth.UNSIGNED)
    key = fingerprint(signature.public_key)
    if not holds(signature, signed_statement(window)):
        return CheckedSignature(Worth.BROKEN, key)
    name = trusted.get(signature.public_key)
    return CheckedSignature(Worth.UNKNOWN, key) if name is None else CheckedSignature(Worth.TRUSTED, key, name)


def signed_statement(window: ReportedWindow) -> bytes:
    """Return the bytes that a daemon signs for this window."""
    return statement(window.verdict.to_dict(), window.packed, run=window.run_id, user=window.user, process=window.process)


def unsigned_names(window: ReportedWindow) -> tuple[str, ...]:
    """Return the names of the page's parts that neither a signature nor the rejudged evidence confirms."""
    names = []
    if window.signature is None:
        shown = {"run": window.run_id, "user": window.user, "process": window.process}
        names += [name for name, value in shown.items() if value is not None]
    if window.begun is not None and (window.signature is None or begun_fits(window) is None):
        names.append("begun")
    if window.evidence is None:
        names += ["GPU's name", "why", "findings"]
    elif earlier_judge(window.verdict) is not None:
        names += ["words of findings", "severities", "retired rules"]
    elif window.verdict.judge_version != __version__:
        names.append("words of findings")
    return tuple(names)


def key_folders(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the user's and the system's folder of trusted keys; each key is a file NAME.pub."""
    return (paths.user_config(environment).parent / "trusted", SYSTEM_TRUSTED)


def trusted_keys(files: Iterable[Path], within: Iterable[Path], warn: Callable[[str], None]) -> dict[bytes, str]:
    """Return the name of each trusted key, by key, and warn about invalid NAME.pub files in the folders.

    Raises UsageError: when a file in ``files`` holds no key.
    """
    found: dict[bytes, str] = {}
    for file in files:
        found.setdefault(read_public(file), file.stem)
    for folder in within:
        for file in sorted(folder.glob("*.pub")):
            if not file.is_file():  # opening a pipe would block
                warn(f"not trusted: {file}: expected a public key, found no regular file")
                continue
            try:
                found.setdefault(read_public(file), file.stem)
            except UsageError as error:
                warn(f"not trusted: {error}")
    return found
