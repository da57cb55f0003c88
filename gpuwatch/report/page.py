"""The page: a record rendered as one HTML file that asks no network.

Jinja escapes all that is text, ``as_json`` all that is data, and the page's own policy runs only scripts that carry its nonce.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from annotate.pages import Words, words
from annotate.report import plain
from annotate.rules import RULES
from annotate.verdict import Answered, Status, Verdict
from gpuwatch.errors import ExportError
from gpuwatch.report import conditions, pictures
from gpuwatch.report.record import Judged, Record, as_json, to_data

MOST_BYTES = 6_000_000  # what mail and pull requests still take


def render(record: Record, nonce: str) -> str:
    """The record's page.  Raises ExportError where there is more than fits."""
    for decimate in (False, True):
        data, evidence = to_data(record, decimate=decimate)
        html = written(record, data, evidence, nonce)
        if len(html.encode()) <= MOST_BYTES:
            return html
    raise ExportError(
        f"expected a report of at most {MOST_BYTES / 1e6:.0f} MB, found {len(html.encode()) / 1e6:.1f} MB; report fewer runs"
    )


def written(record: Record, data: Mapping[str, Any], evidence: str, nonce: str) -> str:
    """The page around a record's data and evidence as they are embedded: the same four give the same page."""
    shown = [_shown(window) for window in record.windows]
    html: str = _template().render(
        nonce=nonce,
        title=" · ".join(plain(each["label"]) for each in shown),
        simulated=record.simulated,
        windows=shown,
        differences=conditions.differences(record.windows) if len(shown) > 1 else [],
        redacted=record.redacted,
        maker=record.maker,
        record=as_json(data),
        evidence=evidence,
        drawn=as_json([each["drawn"] for each in shown]),
        plotly=packed_plotly(),
    )
    return html


@cache
def packed_plotly() -> str:
    """Plotly's JavaScript, as the installed package has it, packed: a third of its size."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def sentence(verdict: Verdict) -> str:
    """What the verdict means for the number, in one sentence."""
    counting = [finding for finding in verdict.hazards if not finding.accepted and finding.severity != "note"]
    if verdict.status is Status.UNPROVEN:
        return f"Nobody can say whether this number may be trusted: {verdict.why.rstrip('.')}."
    if not counting:
        return "Every check that the claim requires could look, and none found a hazard."
    more = len(counting) - 1
    rest = f" ({more} more below)" if more else ""
    means = "This number is one of something else" if verdict.status is Status.REJECTED else "Quote this number with its hazard"
    return f"{means}: {counting[0].says.rstrip('.')}{rest}."


def _shown(window: Judged) -> dict[str, Any]:
    verdict, evidence = window.verdict, window.evidence
    clear = [finding.rule for finding in verdict.findings if finding.answered is Answered.CLEAR]
    return {
        "label": verdict.label or "unnamed window",
        "verdict": verdict,
        "sentence": sentence(verdict),
        "conditions": conditions.conditions(window),
        "findings": [{"found": finding, "words": _words().get(finding.rule)} for finding in verdict.hazards],
        "environment": conditions.environment(window),
        "told": conditions.told(window),
        "cleared": clear,
        "drawn": {
            "timeline": pictures.timeline(verdict, evidence) if evidence is not None else None,
            "times": pictures.times(evidence) if evidence is not None else None,
        },
    }


@cache
def _words() -> dict[str, Words]:
    return {rule.name: words(rule) for rule in RULES}


@cache
def _template() -> Any:  # jinja2's Template, whose stubs do not know its undefined
    environment = Environment(
        loader=PackageLoader("gpuwatch.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"plain": lambda text: plain(str(text)), "fact": _fact, "percent": _percent, "digits": _digits}
    return environment.get_template("report.html.j2")


def _fact(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else plain(str(value))


def _percent(ratio: float) -> str:
    return f"{ratio:+.2%}"


def _digits(value: float, count: int) -> str:
    return f"{value:.{count}g}"
