"""A report's window judged again: everything that a page shows of it, compared with its evidence."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose
from typing import Any

from annotate import __version__
from annotate.errors import AnnotateError
from annotate.judge import judge
from annotate.policy import Policy
from annotate.verdict import Finding, Status, Verdict
from gpuwatch.report.record import ReportedWindow
from gpuwatch.wire import run_ids

_EXACT = ("answered", "severity", "span_ns", "basis", "required", "accepted", "failure")
_WORDS = ("says", "remedy")  # of the version that judged: another one has its own
_LAST_BITS_RATIO = 1e-7  # less than any digit that a page shows
_CLOCK_S = 2  # the id is made just before the window's beginning is noted, and each is cut to its second


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The comparison of a verdict with its evidence; ``again`` is None without evidence."""

    window: ReportedWindow
    again: Verdict | None
    differs: tuple[str, ...]  # in words; empty where verdict and evidence agree

    @property
    def agrees(self) -> bool:
        return not self.differs


def agreement(window: ReportedWindow) -> Agreement:
    """Judge the window again and compare."""
    reported = window.verdict
    differs = [f"begun: the report says {window.begun}, its run's id another time"] if begun_fits(window) is False else []
    if window.evidence is None:
        if reported.status is not Status.UNPROVEN:
            differs.append(f"it says {reported.status.value} and holds no evidence")
        return Agreement(window=window, again=None, differs=tuple(differs))
    try:
        policy = Policy.from_dict(reported.policy)
    except AnnotateError as error:
        differs.append(f"its policy is not one this version has: {error}")
        return Agreement(window=window, again=None, differs=tuple(differs))
    again = judge(window.evidence, policy)
    differs += [
        f"{name}: the report says {ours!r}, the evidence {theirs!r}"
        for name, ours, theirs in (
            ("status", reported.status.value, again.status.value),
            ("label", reported.label, again.label),
            ("claim", reported.claim, again.claim),
            ("GPU", reported.device_uuid, again.device_uuid),
            ("GPU's name", reported.device_name, again.device_name),
            ("simulated", reported.simulated, again.simulated),
            ("beginning", reported.begin_ns, again.begin_ns),
            ("end", reported.end_ns, again.end_ns),
        )
        if ours != theirs
    ]
    has_same_words = reported.judge_version == __version__
    if has_same_words and reported.why != again.why:
        differs.append(f"why: the report says {reported.why!r}, the evidence {again.why!r}")
    ours, theirs = ({finding.rule: finding for finding in verdict.findings} for verdict in (reported, again))
    named, named_again = ([finding.rule for finding in verdict.findings] for verdict in (reported, again))
    if len(named) != len(ours) or (has_same_words and named != named_again and ours.keys() == theirs.keys()):
        differs.append("findings: the report says them more than once or in another order than the judge")
    for rule in dict.fromkeys((*ours, *theirs)):
        differs += _differences(rule, ours.get(rule), theirs.get(rule), _EXACT + _WORDS if has_same_words else _EXACT)
    if reported.budget is not None and not _is_same_data(_said_of(reported), _said_of(again)):
        differs.append("numbers, bounds, labels or proofs: the report says others than the evidence")
    return Agreement(window=window, again=again, differs=tuple(differs))


def _said_of(verdict: Verdict) -> dict[str, Any]:
    """The parts of a verdict that are neither its head nor findings."""
    data = verdict.to_dict()
    return {name: data[name] for name in ("claim_facts", "labels", "budget", "proofs")}


def _is_same_data(ours: Any, theirs: Any) -> bool:
    """Return whether plain data is the same, numbers up to their last bits."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_is_same_data(ours[name], theirs[name]) for name in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_is_same_data, ours, theirs))
    return _is_same(ours, theirs)


def begun_fits(window: ReportedWindow) -> bool | None:
    """Return True if the wall time shown is that in the run's id; None where one is missing, or the time has no zone."""
    begun_s = run_ids.begun_s(window.run_id or "")
    if begun_s is None or window.begun is None:
        return None
    try:
        shown = dt.datetime.fromisoformat(window.begun)
    except ValueError:
        return None
    return None if shown.tzinfo is None else abs(shown.timestamp() - begun_s) <= _CLOCK_S


def _differences(rule: str, ours: Finding | None, theirs: Finding | None, exact: tuple[str, ...]) -> Iterator[str]:
    """Yield in words every part of a finding in which the two disagree: a page shows all of them."""
    if ours is None or theirs is None or any(getattr(ours, name) != getattr(theirs, name) for name in exact):
        yield f"{rule}: the report says {_words(ours)}, the evidence {_words(theirs)}"
        return
    if not _is_same(ours.effect_ratio, theirs.effect_ratio):
        yield f"{rule}: the report says an effect of {ours.effect_ratio!r}, the evidence {theirs.effect_ratio!r}"
    for name in dict.fromkeys((*ours.facts, *theirs.facts)):
        of_report, of_evidence = (f"{each.facts[name]!r}" if name in each.facts else "nothing" for each in (ours, theirs))
        if of_report != of_evidence and not _is_same(ours.facts.get(name), theirs.facts.get(name)):
            yield f"{rule}.{name}: the report says {of_report}, the evidence {of_evidence}"


def _is_same(ours: object, theirs: object) -> bool:
    """Return True for equal texts and integers, and for other numbers that differ in their last bits only."""
    if isinstance(ours, float) and isinstance(theirs, float):
        return isclose(ours, theirs, rel_tol=_LAST_BITS_RATIO, abs_tol=1e-12)
    return type(ours) is type(theirs) and ours == theirs


def _words(finding: Finding | None) -> str:
    if finding is None:
        return "nothing"
    words = (finding.severity, finding.answered.value, f"({finding.says})" if finding.says else "")
    more = {name: getattr(finding, name) for name in ("remedy", "span_ns", "basis", "required", "accepted", "failure")}
    rest = ", ".join(f"{name} {value!r}" for name, value in more.items() if value not in (None, "", False))
    return " ".join([*(word for word in words if word), *([f"[{rest}]"] if rest else [])])
