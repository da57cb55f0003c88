"""The record of a report, which determines the whole page: the windows with verdicts and evidence, and the maker."""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from annotate import __version__
from annotate.capsule import pack
from annotate.errors import AnnotateError, CapsuleError
from annotate.evidence import Evidence
from annotate.verdict import Verdict
from gpuwatch.signing import Signature

_FACTS = ("run_id", "begun", "user", "process")
SCHEMA = 2  # 2: each window's evidence separately, byte for byte as stored, with its signature


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedWindow:
    """One window on one GPU; ``evidence`` is None if none was stored, and then the verdict can only be unproven.

    ``packed`` is the evidence byte for byte as stored, which the signature covers.
    """

    verdict: Verdict
    evidence: Evidence | None
    run_id: str | None = None
    begun: str | None = None  # wall time as text
    user: str | None = None
    process: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    packed: bytes | None = None
    signature: Signature | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The windows in the order shown, and the maker of their report."""

    windows: tuple[ReportedWindow, ...]
    redacted: tuple[str, ...] = ()
    maker: str = ""  # versions of gpuwatch and plotly, and a digest of the renderer: equal makers write equal pages

    @property
    def simulated(self) -> bool:
        return any(window.verdict.simulated for window in self.windows)


@cache  # the digest reads more than a hundred files
def maker() -> str:
    """Return versions and a digest of this package and the judge: a page of other code then does not look forged."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted((*here.rglob("*.*"), *(here.parents[1] / "annotate").rglob("*.py"))):
        if path.suffix in (".py", ".j2", ".css", ".js"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"gpuwatch {__version__}, plotly {version('plotly')}, {digest.hexdigest()[:16]}"


def to_data(record: Record, *, decimate: bool = False) -> tuple[dict[str, Any], str]:
    """Return plain data for JSON, and each window's evidence as a line of base64; ``decimate`` as for capsules.

    Already packed evidence stays unchanged, so that its signature holds.
    """
    lines, windows = [], []
    for window in record.windows:
        if window.evidence is not None:
            packed = window.packed if window.packed is not None else pack.pack([window.evidence], decimate=decimate)
            lines.append(base64.b64encode(packed).decode())
        parts = {
            "verdict": window.verdict.to_dict(),
            "has_evidence": window.evidence is not None,
            "signature": None if window.signature is None else base64.b64encode(window.signature.packed).decode(),
        }
        if window.tags:
            parts["tags"] = dict(window.tags)
        windows.append({name: getattr(window, name) for name in _FACTS} | parts)
    whole = {"schema": SCHEMA, "maker": record.maker, "redacted": list(record.redacted), "windows": windows}
    return whole, "\n".join(lines)


def from_data(data: Mapping[str, Any], evidence: str) -> Record:
    """Build the record from a page's data.

    Raises CapsuleError: for data that is not a report's.
    """
    try:
        if data["schema"] > SCHEMA:
            raise CapsuleError(f"expected a report of schema {SCHEMA} or older, found {data['schema']}; use a newer gpuwatch")
        pieces = _pieces(data["schema"], evidence)
        windows = tuple(_window(each, pieces) for each in data["windows"])
        if pieces:
            raise CapsuleError(f"expected a window for each piece of evidence, found {len(pieces)} more pieces")
        if data["redacted"] and any(window.signature is not None for window in windows):
            raise CapsuleError("expected no signature in a redacted report, found one: redaction removes signatures")
        return Record(windows=windows, redacted=tuple(map(str, data["redacted"])), maker=str(data["maker"]))
    except CapsuleError:
        raise
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        binascii.Error,
        AnnotateError,
        msgspec.ValidationError,
    ) as error:
        raise CapsuleError(f"expected a gpuwatch report, found a damaged one ({type(error).__name__}: {error})") from error


def _pieces(schema: int, evidence: str) -> list[tuple[bytes | None, Evidence]]:
    packed = [base64.b64decode(line, validate=True) for line in evidence.split()]
    if schema == 1:  # schema 1: all evidence in one piece, unsigned
        return [(None, piece) for part in packed for piece in pack.unpack(part)]
    out: list[tuple[bytes | None, Evidence]] = []
    for part in packed:
        (piece,) = pack.unpack(part)
        out.append((part, piece))
    return out


def _window(each: Mapping[str, Any], pieces: list[tuple[bytes | None, Evidence]]) -> ReportedWindow:
    facts = {name: None if each[name] is None else str(each[name]) for name in _FACTS}
    tags = {str(name): str(text) for name, text in dict(each.get("tags") or {}).items()}
    packed, evidence = pieces.pop(0) if each["has_evidence"] else (None, None)
    return ReportedWindow(
        verdict=_verdict(each["verdict"]), evidence=evidence, packed=packed, signature=_signature(each), tags=tags, **facts
    )


def _verdict(data: Mapping[str, Any]) -> Verdict:
    """Build the verdict.  Raises InvalidValueError, ValidationError or TypeError: for a value of a wrong type."""
    verdict = Verdict.from_dict(data)
    for finding in verdict.findings:
        for name, value in finding.facts.items():
            if not isinstance(value, str | int | float | None):
                raise TypeError(f"{finding.rule}.{name}: expected a text, a number or nothing, found {type(value).__name__}")
    return msgspec.convert(msgspec.to_builtins(verdict), Verdict)


def _signature(each: Mapping[str, Any]) -> Signature | None:
    """Return the signature, if any.  Raises CapsuleError: for a damaged one."""
    if each.get("signature") is None:
        return None
    signature = Signature.unpacked(base64.b64decode(each["signature"], validate=True))
    if signature is None:
        raise CapsuleError("expected a public key and a signature, 96 bytes together, found another length")
    return signature


def as_json(data: object) -> str:
    """Return JSON that no HTML parser mistakes for markup."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def make_record(windows: Sequence[ReportedWindow], redacted: Sequence[str] = ()) -> Record:
    """Make the record of these windows with this version as its maker."""
    return Record(windows=tuple(windows), redacted=tuple(redacted), maker=maker())
