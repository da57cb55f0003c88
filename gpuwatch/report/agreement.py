"""Whether a verdict is what today's judge says of the evidence that lies beside it."""

from __future__ import annotations

from dataclasses import dataclass

from annotate.errors import AnnotateError
from annotate.judge import judge
from annotate.policy import Policy
from annotate.verdict import Finding, Status, Verdict
from gpuwatch.report.record import Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """``again`` is None where there is no evidence to judge."""

    window: Judged
    again: Verdict | None
    differs: tuple[str, ...]  # in words; empty where verdict and evidence agree

    @property
    def agrees(self) -> bool:
        return not self.differs


def agreement(window: Judged) -> Agreement:
    said = window.verdict
    if window.evidence is None:
        alone = () if said.status is Status.UNPROVEN else (f"it says {said.status.value} and holds no evidence",)
        return Agreement(window=window, again=None, differs=alone)
    try:
        policy = Policy.from_dict(said.policy)
    except AnnotateError as error:
        return Agreement(window=window, again=None, differs=(f"its policy is not one this version has: {error}",))
    again = judge(window.evidence, policy)
    differs = [
        f"{name}: the report says {ours!r}, the evidence {theirs!r}"
        for name, ours, theirs in (
            ("status", said.status.value, again.status.value),
            ("label", said.label, again.label),
            ("claim", said.claim, again.claim),
            ("GPU", said.device_uuid, again.device_uuid),
            ("GPU's name", said.device_name, again.device_name),
            ("simulated", said.simulated, again.simulated),
            ("why", said.why, again.why),
            ("beginning", said.begin_ns, again.begin_ns),
            ("end", said.end_ns, again.end_ns),
        )
        if ours != theirs
    ]
    ours, theirs = ({finding.rule: finding for finding in verdict.findings} for verdict in (said, again))
    differs += [
        f"{rule}: the report says {_words(ours.get(rule))}, the evidence {_words(theirs.get(rule))}"
        for rule in dict.fromkeys((*ours, *theirs))
        if not _same(ours.get(rule), theirs.get(rule))
    ]
    return Agreement(window=window, again=again, differs=tuple(differs))


def _same(ours: Finding | None, theirs: Finding | None) -> bool:
    """All that a reader acts on.  Facts' last bits may be another processor's."""
    if ours is None or theirs is None:
        return ours is theirs
    names = ("answered", "severity", "says", "remedy", "span_ns", "required", "accepted")
    return all(getattr(ours, name) == getattr(theirs, name) for name in names)


def _words(finding: Finding | None) -> str:
    if finding is None:
        return "nothing"
    return " ".join(
        word for word in (finding.severity, finding.answered.value, f"({finding.says})" if finding.says else "") if word
    )
