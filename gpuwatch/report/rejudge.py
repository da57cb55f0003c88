"""Rejudging of a report's window, and comparison of the page's verdict with the new one."""

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from math import isclose
from typing import Any

from annotate import __version__
from annotate.errors import AnnotateError
from annotate.judge import judge
from annotate.user_policy import Policy
from annotate.verdict import Answered, Finding, Status, Verdict
from gpuwatch.report.record import ReportedWindow
from gpuwatch.wire import run_ids

_EXACT = ("kind", "answered", "severity", "span_ns", "basis", "required", "accepted", "failure", "limits_overridden")
_WORDS = ("says", "remedy")  # wording, which changes between versions
_REPEATED = "findings: the report repeats one, or their order differs from the judge's"
# Rules new in version 0.2: only these may be missing from a verdict of 0.1.
_NEW_RULES = frozenset({
    "no-work", "idle-stretch", "unaccounted-time", "clock-levels", "lock-unproven", "dark-time", "overlapping-window",
    "iteration-growth", "iteration-levels", "record-shift", "work-levels", "claimed-work",
})  # fmt: skip
REVISED_RULES = frozenset({"regime-change"})  # 0.2 finds more changes: a capped clock's swing has a limit (decision 0115)
_EARLIER_RATIO = 3e-3  # tolerance for mean clocks, which 0.1 weighted differently
_LAST_BITS_RATIO = 1e-7  # below any digit that a page shows
_CLOCK_S = 2  # the id is made just before the window starts, and both times are truncated to seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The comparison of a verdict with its evidence; ``again`` is None without evidence or an applicable policy."""

    window: ReportedWindow
    again: Verdict | None
    differs: tuple[str, ...]  # in words; empty if verdict and evidence agree

    @property
    def agrees(self) -> bool:
        return not self.differs


def agreement(window: ReportedWindow, *, is_trusted: bool = False) -> Agreement:
    """Judge the window again and compare.

    Of an earlier judge's verdict, words, severities, retired rules, numbers and proofs are not compared, nor the answers of
    revised rules.  If a trusted key signed the verdict (``is_trusted``), an earlier judge's status is not compared either.
    """
    reported = window.verdict
    differs = [f"begun: the report shows {window.begun}, the run's id another time"] if begun_fits(window) is False else []
    if window.evidence is None:
        if reported.status is not Status.UNPROVEN:
            differs.append(f"status: the report shows {reported.status.value} but holds no evidence")
        return Agreement(window=window, again=None, differs=tuple(differs))
    try:
        policy = Policy.from_dict(reported.policy)
    except AnnotateError as error:
        differs.append(f"policy: this version cannot apply the report's policy: {error}")
        return Agreement(window=window, again=None, differs=tuple(differs))
    again = judge(window.evidence, policy)
    is_earlier = earlier_judge(reported) is not None
    differs += _head_differences(reported, again, has_status=not (is_earlier and is_trusted))
    differs += _earlier_differences(reported, again) if is_earlier else _finding_differences(reported, again)
    if not is_earlier and not _is_same_data(_other_parts(reported), _other_parts(again)):
        differs.append("numbers, bounds, labels or proofs: report and evidence differ")
    return Agreement(window=window, again=again, differs=tuple(differs))


def earlier_judge(verdict: Verdict) -> str | None:
    """Return the judge's version, such as ``0.1``, if it is an earlier one with other rules; else None."""
    then, now = (_release(version) for version in (verdict.judge_version, __version__))
    return f"{then[0]}.{then[1]}" if then is not None and now is not None and then < now else None


def _release(version: str) -> tuple[int, int] | None:
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return (
        (int(major), int(minor))
        if all(each.isascii() and each.isdigit() and len(each) < 9 for each in (major, minor))
        else None
    )


def _head_differences(reported: Verdict, again: Verdict, *, has_status: bool) -> Iterator[str]:
    for name, ours, theirs in (
        *((("status", reported.status.value, again.status.value),) if has_status else ()),
        ("label", reported.label, again.label),
        ("claim", reported.claim, again.claim),
        ("GPU", reported.device_uuid, again.device_uuid),
        ("GPU's name", reported.device_name, again.device_name),
        ("simulated", reported.simulated, again.simulated),
        ("start", reported.begin_ns, again.begin_ns),
        ("end", reported.end_ns, again.end_ns),
    ):
        if ours != theirs:
            yield f"{name}: the report shows {ours!r}, the evidence {theirs!r}"


def _finding_differences(reported: Verdict, again: Verdict) -> Iterator[str]:
    """Yield every difference between two verdicts' findings; compare words and order only for verdicts of this version."""
    has_same_words = reported.judge_version == __version__
    if has_same_words and reported.why != again.why:
        yield f"why: the report shows {reported.why!r}, the evidence {again.why!r}"
    ours, theirs = (_by_rule(verdict) for verdict in (reported, again))
    if not _has_each_rule_once(reported) or (has_same_words and [*ours] != [*theirs] and ours.keys() == theirs.keys()):
        yield _REPEATED
    for rule in dict.fromkeys((*ours, *theirs)):
        yield from _differences(rule, ours.get(rule), theirs.get(rule), _EXACT + _WORDS if has_same_words else _EXACT)


def _earlier_differences(reported: Verdict, again: Verdict) -> Iterator[str]:
    """Yield differences from an earlier judge's rules and figures and, except for revised rules, from the answers."""
    from annotate.rules import RETIRED

    ours, theirs = (_by_rule(verdict) for verdict in (reported, again))
    if not _has_each_rule_once(reported):
        yield _REPEATED
    for rule in dict.fromkeys((*ours, *theirs)):
        then, now = ours.get(rule), theirs.get(rule)
        if then is None or now is None:
            if rule not in RETIRED and rule not in _NEW_RULES:
                yield f"{rule}: the report shows {_words(then)}, the evidence {_words(now)}"
        elif {then.answered, now.answered} == {Answered.FOUND, Answered.CLEAR}:
            if rule not in REVISED_RULES:
                yield f"{rule}: the report shows {then.answered.value}, the evidence {now.answered.value}"
        else:
            names = [
                name for name, value in then.facts.items() if not _is_text(value) and not _is_near(value, now.facts.get(name))
            ]
            yield from _fact_differences(rule, then, now, names)


def _is_text(value: object) -> bool:
    """Return True for a sentence or a phrase, which another version words differently."""
    return isinstance(value, str) and " " in value


def _is_near(then: object, now: object) -> bool:
    """Return True if the figures agree within the two versions' averaging, or if one figure is unknown."""
    if then is None or now is None:
        return True
    if isinstance(then, float) and isinstance(now, float):
        return isclose(then, now, rel_tol=_EARLIER_RATIO, abs_tol=1e-12)
    return type(then) is type(now) and then == now


def _by_rule(verdict: Verdict) -> dict[str, Finding]:
    return {finding.rule: finding for finding in verdict.findings}


def _has_each_rule_once(verdict: Verdict) -> bool:
    return len(_by_rule(verdict)) == len(verdict.findings)


def _other_parts(verdict: Verdict) -> dict[str, Any]:
    data = verdict.to_dict()
    return {name: data[name] for name in ("claim_facts", "labels", "budget", "proofs")}


def _is_same_data(ours: Any, theirs: Any) -> bool:
    """Return True if plain data is equal, apart from the last bits of numbers."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_is_same_data(ours[name], theirs[name]) for name in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_is_same_data, ours, theirs))
    return _is_same(ours, theirs)


def begun_fits(window: ReportedWindow) -> bool | None:
    """Return True if the shown wall time matches the run's id; None if time or id is missing or invalid, or without a zone."""
    begun_s = run_ids.begun_s(window.run_id or "")
    if begun_s is None or window.begun is None:
        return None
    try:
        shown = dt.datetime.fromisoformat(window.begun)
    except ValueError:
        return None
    return None if shown.tzinfo is None else abs(shown.timestamp() - begun_s) <= _CLOCK_S


def _differences(rule: str, ours: Finding | None, theirs: Finding | None, exact: tuple[str, ...]) -> Iterator[str]:
    """Yield every difference between two findings in words; a page shows all parts of a finding."""
    if ours is None or theirs is None or any(getattr(ours, name) != getattr(theirs, name) for name in exact):
        yield f"{rule}: the report shows {_words(ours)}, the evidence {_words(theirs)}"
        return
    if not _is_same(ours.effect_ratio, theirs.effect_ratio):
        yield f"{rule}: the report shows an effect of {ours.effect_ratio!r}, the evidence {theirs.effect_ratio!r}"
    causes = [None if each.cause is None else asdict(each.cause) for each in (ours, theirs)]
    if not _is_same_data(*causes):
        yield f"{rule}: the report shows cause {causes[0]}, the evidence {causes[1]}"
    yield from _fact_differences(rule, ours, theirs, dict.fromkeys((*ours.facts, *theirs.facts)))


def _fact_differences(rule: str, ours: Finding, theirs: Finding, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        of_report, of_evidence = (f"{each.facts[name]!r}" if name in each.facts else "nothing" for each in (ours, theirs))
        if of_report != of_evidence and not _is_same(ours.facts.get(name), theirs.facts.get(name)):
            yield f"{rule}.{name}: the report shows {of_report}, the evidence {of_evidence}"


def _is_same(ours: object, theirs: object) -> bool:
    """Return True if two values have one type and are equal; floats may differ in their last bits."""
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
