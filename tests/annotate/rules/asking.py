"""A rule's answer, as tests ask for it."""

from __future__ import annotations

from annotate.claims import Claim
from annotate.evidence import Evidence
from annotate.rule import Answer, Found, Rule


def ask(rule: Rule, about: Evidence, claim: Claim = Claim.SUSTAINED) -> Answer:
    return rule.ask(about, claim)


def found(answer: Answer) -> Found:
    assert isinstance(answer, Found), answer
    return answer
