"""Proofs 1 and 2 on evidence of every shape: both always give a result, with finite bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import ProofState
from annotate.claims import Claim
from annotate.evidence import Evidence, Fact, OtherWork, Pause, Timings
from annotate.rule import Found
from tests.annotate.builders import BEGIN_NS
from tests.annotate.proofs.idle_and_books import RULES, shown
from tests.annotate.strategies import declarations, evidences, timings
from tests.examples import share_of

spans = st.lists(st.tuples(st.floats(-1, 5), st.floats(0, 3)), max_size=5)


@settings(max_examples=share_of(150))
@given(
    about=evidences(),
    given_times=st.none() | timings(),
    facts=declarations,
    other=spans,
    paused=spans,
    claim=st.sampled_from(Claim),
)
def test_proofs_answer_odd_windows(
    about: Evidence,
    given_times: Timings | None,
    facts: dict[str, Fact],
    other: list[tuple[float, float]],
    paused: list[tuple[float, float]],
    claim: Claim,
) -> None:
    """No proof raises, sentences fit their facts, bounds are finite, and an unproven proof lists missing evidence."""
    begins_ns = np.array([BEGIN_NS + round(begin_s * 1e9) for begin_s, _ in other], np.int64)
    work = OtherWork(begins_ns, np.array([took_s for _, took_s in other], np.float64), ("flush",) * len(other))
    pauses = tuple(
        Pause(BEGIN_NS + round(begin_s * 1e9), BEGIN_NS + round((begin_s + took_s) * 1e9), "collector")
        for begin_s, took_s in paused
    )
    found = shown(replace(about, timings=given_times, declared=facts, other_work=work, pauses=pauses), claim)
    for rule in RULES:
        answer = found.answers[rule.name]
        if isinstance(answer, Found):
            assert rule.says.format(**answer.facts)
            assert rule.remedy.format(**answer.facts)
    for bound in found.causes:
        assert bound.ratio is not None
        assert np.isfinite(bound.ratio)
    for proof in (found.work, found.books):
        assert bool(proof.missing) is (proof.state is ProofState.UNPROVEN)
        assert bool(proof.broken_by) is (proof.state is ProofState.BROKEN)
        assert proof.says
