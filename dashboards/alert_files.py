"""The form of an alert, and the files made of alerts: a rule file for Prometheus and the runbook page."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# The runbooks' page, relative to the repository's root: users prepend an address, because there is no public site yet.
RUNBOOKS = "docs/ALERTS.md"

GPU_NAMED = "GPU {{ $labels.gpu }} of {{ $labels.instance }}"
HOST_NAMED = "{{ $labels.instance }}"

# Each severity, and the expected reaction.
SEVERITIES: Mapping[str, str] = {
    "critical": "a page at any hour: work is lost or wrong now, and a person can stop that",
    "warning": "a ticket for the next working day",
    "info": "a line in a weekly digest, and on the dashboards",
}

_HEAD = f"""\
# Alerts on gpuwatch's metrics. Written by python -m dashboards.build from dashboards/alerts.py; {RUNBOOKS} explains the alerts.
# The names of scrape jobs must begin with gpuwatch.
# The links to runbooks are relative to the repository. Prepend the address of your copy:
#   sed -i 's|{RUNBOOKS}|https://HOST/gpuwatch/blob/main/{RUNBOOKS}|' alerts.yml
groups:
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert; ``why`` is its meaning, ``do`` the action.  ``rule`` is the judge's rule for the same fact about a window."""

    name: str
    expr: str
    hold: str = "0m"
    severity: str = "warning"
    says: str
    why: str
    do: str
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """A series that later rules and dashboards query; ``why`` is a note for readers of the file."""

    record: str
    expr: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleGroup:
    """Rules evaluated in sequence; ``every`` is the interval if it differs from Prometheus' default."""

    name: str
    rules: Sequence[Alert | Recording]
    every: str | None = None

    @property
    def alerts(self) -> tuple[Alert, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Alert))


def rule_file(groups: Iterable[RuleGroup]) -> str:
    """Return the text of the rule file."""
    return _HEAD + "".join(map(_group_text, groups))


def runbook(alert: Alert) -> str:
    """Return an alert's section of the page."""
    same = f"\n\nThe rule for windows is [{alert.rule}](../annotate/RULES.md#{alert.rule})." if alert.rule else ""
    held = "at once" if alert.hold == "0m" else f"after {alert.hold}"
    return f"## {alert.name}\n\n{alert.severity}, {held}. {alert.why}\n\n**Do:** {alert.do}{same}\n\n```promql\n{alert.expr}\n```\n"


def recordings(recorded: Iterable[Recording]) -> str:
    """Return the page's section on the series that alerts query."""
    parts = ["## Recorded series\n\nThe rules of `alerts.yml` record these series for the alerts above.\n"]
    parts += [f"`{each.record}`: {each.why}\n\n```promql\n{each.expr}\n```\n" for each in recorded]
    return "\n".join(parts)


def rule_text(rule: Alert | Recording) -> str:
    """Return a rule as an entry of a rule file."""
    expr = "\n".join(f"          {line}" for line in rule.expr.splitlines())
    if isinstance(rule, Recording):
        why = f"      # {rule.why}\n" if rule.why else ""
        return f"{why}      - record: {rule.record}\n        expr: |-\n{expr}\n"
    return (
        f"      - alert: {rule.name}\n        expr: |-\n{expr}\n        for: {rule.hold}\n"
        f"        labels:\n          severity: {rule.severity}\n        annotations:\n"
        f"          summary: {_quoted(rule.says)}\n          description: {_quoted(f'{rule.why} {rule.do}')}\n"
        f"          runbook_url: {_quoted(f'{RUNBOOKS}#{rule.name.lower()}')}\n"
    )


def _group_text(group: RuleGroup) -> str:
    every = f"    interval: {group.every}\n" if group.every else ""
    return f"  - name: {group.name}\n{every}    rules:\n" + "".join(map(rule_text, group.rules))


def _quoted(text: str) -> str:
    """Quote a string for YAML: JSON's form is valid YAML."""
    return json.dumps(text, ensure_ascii=False)
