"""A verdict as a small piece of HTML for notebooks: no script, no style sheet, everything from users escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from annotate.verdict import Finding, Status, Verdict

_BORDER = {Status.VALID: "#2e7d32", Status.UNPROVEN: "#6b7280", Status.FLAGGED: "#b45309", Status.REJECTED: "#b91c1c"}


def html(verdicts: Sequence[Verdict]) -> str:
    """One card a GPU, worst first as given."""
    return "".join(map(_card, verdicts))


def _card(verdict: Verdict) -> str:
    title = [
        f"<b>{verdict.status.value.upper()}</b>",
        *(["<b>SIMULATED</b>"] if verdict.simulated else []),
        *(escape(text) for text in (verdict.label, verdict.device_name) if text),
        f"{verdict.length_s:.3g} s",
    ]
    why = f"<div>{escape(verdict.why)}</div>" if verdict.why else ""
    rows = "".join(map(_row, verdict.hazards))
    blind = len(verdict.unobserved)
    rest = f"<div>not checked: {blind} rule{'s' * (blind != 1)}</div>" if blind else ""
    return (
        f'<div style="border-left:4px solid {_BORDER[verdict.status]};padding:4px 10px;margin:4px 0">'
        f"<div>{' &nbsp; '.join(title)}</div>{why}<table>{rows}</table>{rest}</div>"
    )


def _row(finding: Finding) -> str:
    severity = f"{finding.severity}{', accepted' if finding.accepted else ''}"
    cells = (finding.rule, severity, f"{finding.says}: {finding.remedy}")
    return "<tr>" + "".join(f'<td style="text-align:left;vertical-align:top">{escape(cell)}</td>' for cell in cells) + "</tr>"
