"""The alerts as a rule file for Prometheus, and as the page they link to."""

from __future__ import annotations

import json
from collections.abc import Iterable

from dashboards.alerts import ALERTS, GROUPS, Alert

_HEAD = """\
# Alerts on gpuwatch's metrics. Written by python -m dashboards.build from dashboards/alerts.py; docs/ALERTS.md is their page.
# Scrape jobs are expected to be named gpuwatch, or to begin with it.
groups:
"""
_PAGE = """\
# Alerts

What each alert of `dashboards/alerts.yml` means and what to do. Written by `python -m dashboards.build`; tested with
`promtool test rules`, each alert through scrape gaps, restarts and driver reloads, and on targets that never answered.
Scrape jobs are expected to be named `gpuwatch`, or to begin with it.
"""


def rules() -> str:
    """The rule file's text."""
    return _HEAD + "".join(_group(name, group) for name, group in GROUPS.items())


def page() -> str:
    """The page that alerts link to."""
    parts = [_PAGE]
    for alert in ALERTS:
        same = f"\n\nOf a window, the same is said by [{alert.rule}](../annotate/RULES.md#{alert.rule})." if alert.rule else ""
        held = "at once" if alert.hold == "0m" else f"after {alert.hold}"
        parts.append(
            f"## {alert.name}\n\n{alert.severity}, {held}. {alert.why}\n\n**Do:** {alert.do}{same}\n\n```promql\n{alert.expr}\n```\n"
        )
    return "\n".join(parts)


def _group(name: str, alerts: Iterable[Alert]) -> str:
    return f"  - name: {name}\n    rules:\n" + "".join(_rule(alert) for alert in alerts)


def _rule(alert: Alert) -> str:
    expr = "\n".join(f"          {line}" for line in alert.expr.splitlines())
    return (
        f"      - alert: {alert.name}\n        expr: |-\n{expr}\n        for: {alert.hold}\n"
        f"        labels:\n          severity: {alert.severity}\n        annotations:\n"
        f"          summary: {_quoted(alert.says)}\n          description: {_quoted(f'{alert.why} {alert.do}')}\n"
        f"          runbook_url: {_quoted(f'docs/ALERTS.md#{alert.name.lower()}')}\n"
    )


def _quoted(text: str) -> str:
    """A string as YAML reads it: JSON's form is one of YAML's."""
    return json.dumps(text, ensure_ascii=False)
