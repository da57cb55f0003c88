"""All a report is made of: the windows with their verdicts and evidence, and what made it.  A page is a function of it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from annotate import __version__
from annotate.errors import AnnotateError
from annotate.evidence import Evidence
from annotate.verdict import Verdict
from gpuwatch import capsule
from gpuwatch.errors import CapsuleError

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One window on one GPU; ``evidence`` is None where nothing was kept, and then nothing but unproven can be true."""

    verdict: Verdict
    evidence: Evidence | None
    run_id: str | None = None
    begun: str | None = None  # wall time, as text
    user: str | None = None
    process: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The windows in the order shown, and what made their report."""

    windows: tuple[Judged, ...]
    redacted: tuple[str, ...] = ()
    maker: str = ""  # gpuwatch, plotly and the digest of what renders: equal makers write equal pages

    @property
    def simulated(self) -> bool:
        return any(window.verdict.simulated for window in self.windows)


def maker() -> str:
    """Who renders: versions, and a digest of this package and the judge, so that other code is never taken for tampering."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted((*here.rglob("*.*"), *(here.parents[1] / "annotate").rglob("*.py"))):
        if path.suffix in (".py", ".j2", ".css", ".js"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"gpuwatch {__version__}, plotly {version('plotly')}, {digest.hexdigest()[:16]}"


def to_data(record: Record, *, decimate: bool = False) -> tuple[dict[str, Any], str]:
    """Plain data for JSON, and the evidence as base64 text; ``decimate`` as for capsules."""
    kept = [window.evidence for window in record.windows if window.evidence is not None]
    windows = []
    for window in record.windows:
        facts = {name: getattr(window, name) for name in ("run_id", "begun", "user", "process")}
        windows.append({**facts, "verdict": window.verdict.to_dict(), "has_evidence": window.evidence is not None})
    data = {"schema": SCHEMA, "maker": record.maker, "redacted": list(record.redacted), "windows": windows}
    return data, base64.b64encode(capsule.pack(kept, decimate=decimate)).decode()


def from_data(data: Mapping[str, Any], evidence: str) -> Record:
    """Raises CapsuleError for what no report holds."""
    try:
        if data["schema"] > SCHEMA:
            raise CapsuleError(f"expected a report of schema {SCHEMA} or older, found {data['schema']}; use a newer gpuwatch")
        pieces = list(capsule.unpack(base64.b64decode(evidence, validate=True)))
        windows = tuple(_window(each, pieces) for each in data["windows"])
        if pieces:
            raise CapsuleError(f"expected a window for each piece of evidence, found {len(pieces)} more pieces")
        return Record(windows=windows, redacted=tuple(map(str, data["redacted"])), maker=str(data["maker"]))
    except CapsuleError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, binascii.Error, AnnotateError) as error:
        raise CapsuleError(f"expected a gpuwatch report, found a damaged one ({type(error).__name__}: {error})") from error


def _window(each: Mapping[str, Any], pieces: list[Evidence]) -> Judged:
    facts = {name: None if each[name] is None else str(each[name]) for name in ("run_id", "begun", "user", "process")}
    return Judged(verdict=Verdict.from_dict(each["verdict"]), evidence=pieces.pop(0) if each["has_evidence"] else None, **facts)


def as_json(data: object) -> str:
    """JSON that no HTML parser mistakes for markup, whatever its strings say."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def sequence(windows: Sequence[Judged], redacted: Sequence[str] = ()) -> Record:
    return Record(windows=tuple(windows), redacted=tuple(redacted), maker=maker())
