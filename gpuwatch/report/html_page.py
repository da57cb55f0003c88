"""The HTML page of a record: one file that needs no network.

Jinja escapes text, ``as_json`` escapes data, and the page's security policy allows only scripts with its nonce.
"""

import base64
import gzip
import itertools
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from annotate.amount_words import duration_text
from annotate.compare.decision import change_text
from annotate.output.budget_words import has_times
from annotate.output.fact_words import bare_phrase
from annotate.output.report import first_lines, plain
from annotate.output.rule_pages import Words, words
from annotate.rules import RULES
from annotate.verdict import Answered, Status, Verdict
from gpuwatch.errors import ExportError
from gpuwatch.report import comparisons, conditions, histograms, timeline
from gpuwatch.report.record import Record, ReportedWindow, as_json, to_data
from gpuwatch.signing import fingerprint

MOST_BYTES = 6_000_000  # small enough to attach to an email


def render(record: Record, nonce: str) -> str:
    """Render the record's page.

    Raises ExportError: when the page is too large.
    """
    for decimate in (False, True):
        data, evidence = to_data(record, decimate=decimate)
        html = write_page(record, data, evidence, nonce)
        if len(html.encode()) <= MOST_BYTES:
            return html
    raise ExportError(
        f"expected a report of at most {MOST_BYTES / 1e6:.0f} MB, found {len(html.encode()) / 1e6:.1f} MB; report fewer runs"
    )


def write_page(record: Record, data: Mapping[str, Any], evidence: str, nonce: str) -> str:
    """Render the page around a record's embedded data and evidence; equal arguments give equal pages."""
    labels = comparisons.names(record.windows)
    pieces = itertools.count()
    shown = [
        _shown(window, label, next(pieces) if window.evidence is not None else None)
        for window, label in zip(record.windows, labels, strict=True)
    ]
    several = len(shown) > 1
    known = [(label, window.evidence) for label, window in zip(labels, record.windows, strict=True) if window.evidence]
    overlaid = histograms.overlay(known) if several else None
    html: str = _template().render(
        nonce=nonce,
        title=" · ".join(labels),
        simulated=record.simulated,
        windows=shown,
        differences=conditions.differences(record.windows) if several else [],
        comparisons=comparisons.comparisons(record.windows) if several else [],
        overlaid=overlaid,
        redacted=record.redacted,
        maker=record.maker,
        record=as_json(data),
        evidence=evidence,
        drawn=as_json({"windows": [each["drawn"] for each in shown], "overlaid": overlaid}),
        plotly=packed_plotly(),
    )
    return html


@cache
def packed_plotly() -> str:
    """Return the installed package's Plotly JavaScript, compressed with gzip and encoded as base64."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def sentence(verdict: Verdict) -> str:
    """Return one sentence on the verdict's consequence for the number."""
    counting = [finding for finding in verdict.causes if not finding.accepted and finding.severity != "note"]
    if verdict.status is Status.UNPROVEN:
        return f"Nobody can say whether this number may be trusted: {verdict.why.rstrip('.')}."
    if verdict.status is Status.VALID:
        return f"Everything that {'the claim' if has_times(verdict) else 'a claim without times'} requires was shown."
    if not counting:
        is_asked = verdict.budget is not None and verdict.budget.precision_ratio is not None
        limits = "it repeats less well than requested" if is_asked else "an earlier judge flagged it and stored no cause"
        return f"Quote this number with its limits: {limits}."
    more = len(counting) - 1
    rest = f" ({more} more below)" if more else ""
    means = "Do not use this number" if verdict.status is Status.REJECTED else "Quote this number with its hazard"
    return f"{means}: {counting[0].says.rstrip('.')}{rest}."


def _shown(window: ReportedWindow, label: str, piece: int | None) -> dict[str, Any]:
    verdict, evidence = window.verdict, window.evidence
    return {
        "label": label,
        "piece": piece,
        "verdict": verdict,
        "sentence": sentence(verdict),
        "said": first_lines(verdict),
        "conditions": conditions.conditions(window),
        "findings": [{"found": finding, "words": _words().get(finding.rule)} for finding in verdict.causes],
        "environment": conditions.environment(window),
        "declared": conditions.declared(window),
        "reasons": conditions.reasons_seen(evidence) if evidence is not None else [],
        "cleared": [finding.rule for finding in verdict.findings if finding.answered is Answered.CLEAR],
        "signer": fingerprint(window.signature.public_key) if window.signature is not None else None,
        "drawn": {
            "timeline": timeline.timeline(verdict, evidence) if evidence is not None else None,
            "times": histograms.times(evidence) if evidence is not None else None,
        },
    }


@cache
def _words() -> dict[str, Words]:
    return {rule.name: words(rule) for rule in RULES}


@cache
def _template() -> Any:  # jinja2's Template, whose stubs lack its undefined type
    environment = Environment(
        loader=PackageLoader("gpuwatch.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "plain": lambda text: plain(str(text)),
        "fact": _fact,
        "change": change_text,
        "duration": duration_text,
        "typeset": _typeset,
    }
    return environment.get_template("report.html.j2")


def _fact(value: object) -> str:
    if value is None:
        return "not observed"
    return f"{value:.6g}" if isinstance(value, float) else bare_phrase(plain(str(value)))


def _typeset(words: str) -> Markup:
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(words))))  # noqa: S704 - escaped just before
