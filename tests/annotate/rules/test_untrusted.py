"""Tests of the rule about code that may cheat: the witness bounds the code's numbers, and no declaration improves the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.claims import Claim
from annotate.declared import FACTS
from annotate.evidence import Evidence, Fact, OtherWork, Timings
from annotate.judge import judge
from annotate.rule import Answer, Clear, Found, Severity, Unobserved
from annotate.rules.untrusted import RULES, claimed_work
from annotate.verdict import Status
from annotate.work_record import recorded_window
from tests.annotate.builders import BEGIN_NS, evidence
from tests.annotate.occurrences.timing import every
from tests.annotate.occurrences.untrusted import CHEATS, HONEST, WORK, Cheat
from tests.examples import share_of
from tests.proof.untrusted_page import UNTRUSTED, judged

BAD = {Status.FLAGGED, Status.REJECTED, Status.UNPROVEN}
CLAIM: Mapping[str, Fact] = {"untrusted": True, "claimed_calls_count": 6000, "claimed_call_s": 0.97e-3}


def ask(about: Evidence) -> Answer:
    return claimed_work.ask(about, Claim.SUSTAINED)


def found(about: Evidence) -> tuple[Severity, str]:
    answer = ask(about)
    assert isinstance(answer, Found), answer
    return answer.severity, str(answer.facts["what"])


def test_untrusted_family_has_one_rule() -> None:
    assert (claimed_work,) == RULES


def test_claimed_work_is_clear_for_trusted_code() -> None:
    assert isinstance(ask(evidence(declared={"claimed_calls_count": 1, "claimed_call_s": 9.0})), Clear)


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_cheats_are_found_or_named_limits(cheat: Cheat) -> None:
    """Every cheat without a known limit is found from outside; the other cheats are found if the work is stated."""
    held, worked = judged(cheat, *UNTRUSTED), judged(cheat, *UNTRUSTED, *WORK.items())
    if cheat.name == "honest":
        assert (held.status, worked.status) == (Status.VALID, Status.VALID)
        assert "right to 3.1%" in held.finding("claimed-work").says
        assert any("right to 3.1%" in label for label in held.labels)
        return
    assert worked.status in BAD
    assert (held.status is Status.VALID) is bool(cheat.limit)
    assert held.status.badness >= judged(cheat).status.badness


@pytest.mark.parametrize(
    ("declared", "severity", "says"),
    [
        (CLAIM, Severity.NOTE, "right to 3.1%"),
        ({**CLAIM, "claimed_call_s": 0.93e-3}, Severity.FLAG, "at least 952 µs each"),
        ({**CLAIM, "claimed_call_s": 0.5e-3}, Severity.REJECT, "at least 952 µs each"),
        ({**CLAIM, "claimed_call_s": 1.005e-3}, Severity.FLAG, "the rest may be launching"),
        ({**CLAIM, "claimed_call_s": 1.2e-3}, Severity.REJECT, "at most 1 ms each"),
        ({"untrusted": True, "claimed_calls_count": 6000}, Severity.NOTE, "952 µs to 1 ms"),
        ({"untrusted": True}, Severity.NOTE, "no number was claimed"),
    ],
)
def test_claimed_work_compares_calls_with_busy_time(declared: dict[str, Fact], severity: Severity, says: str) -> None:
    assert found(evidence(declared=declared))[0] is severity
    assert says in found(evidence(declared=declared))[1]


def test_claimed_work_flags_wide_bounds() -> None:
    """A number with wide bounds, because the GPU was busy for a tenth of the window, is flagged."""
    sparse = evidence(signals={"utilization_ratio": 0.1}, declared={**CLAIM, "claimed_call_s": 0.1e-3})
    assert found(sparse) == (Severity.FLAG, found(sparse)[1])
    assert "bounds them only to 35%" in found(sparse)[1]


@pytest.mark.parametrize(
    "declared",
    [
        {**CLAIM, "claimed_calls_count": 0},
        {**CLAIM, "claimed_calls_count": "many"},
        {**CLAIM, "claimed_call_s": -1.0},
        {**CLAIM, "claimed_call_s": float("inf")},
        {**CLAIM, "claimed_calls_count": 0.5},
        {"untrusted": True, "claimed_call_s": 1e-3},
    ],
)
def test_invalid_claim_is_unproven(declared: dict[str, Fact]) -> None:
    about = evidence(declared=declared)
    assert isinstance(ask(about), Unobserved)
    assert judge(about).status is Status.UNPROVEN


@pytest.mark.parametrize(
    "about", [evidence(length_s=0.9, declared=CLAIM), evidence(signals={"utilization_ratio": None}, declared=CLAIM)]
)
def test_claim_without_bounds_is_unproven(about: Evidence) -> None:
    """A window below a second, or one without utilisation, leaves a number of untrusted code unproven at best."""
    assert isinstance(ask(about), Unobserved)
    assert judge(about).status.badness >= Status.UNPROVEN.badness
    assert "claimed-work" in judge(about).why


def test_neighbour_bounds_a_claim_less() -> None:
    """Busy time that may have been a neighbour's lowers the certain time of the calls."""
    from tests.annotate.strategies import FOREIGN

    answer = ask(evidence(declared=CLAIM, processes=[FOREIGN]))
    assert isinstance(answer, Found)
    assert float(str(answer.facts["least_call_s"])) < 0.9e-3


def test_untrusted_window_adds_nothing_to_a_record() -> None:
    honest, trusted = CHEATS[0].make(), judged(CHEATS[0])
    assert recorded_window(honest, trusted) is not None
    assert recorded_window(replace(honest, declared={"untrusted": True}), judged(CHEATS[0], *UNTRUSTED)) is None


@st.composite
def _said(draw: st.DrawFn) -> tuple[dict[str, Fact], Timings | None, OtherWork | None]:
    """Draw facts, times and other work that untrusted code may declare."""
    names = sorted(set(FACTS) - {"untrusted", "abandoned", "exception", "whole_program", "every_s", "varies", "locked_mhz"})
    amounts = st.sampled_from(
        [None, True, False, 0, 1, 0.0, 1e-9, 1e-3, 0.5, 1.0, 1500.0, 1e9, 1e15, "", "events", "host", "cold"]
    )
    facts = draw(st.dictionaries(st.sampled_from(names), amounts, max_size=6))
    times = draw(st.none() | st.floats(1e-6, 2e-3).map(lambda took_s: every(1e-3, took_s=took_s, length_s=4.0)))
    count = draw(st.integers(0, 200))
    other = OtherWork(BEGIN_NS + np.arange(count, dtype=np.int64) * 20_000_000, np.full(count, 5e-3), ("flush",) * count)
    return facts, times, other if count else None


_SEEN = [evidence(length_s=4.0), *(replace(cheat.make(), timings=None, declared={}) for cheat in CHEATS[5:8])]
_ALONE = [judge(replace(each, declared={"untrusted": True})).status for each in _SEEN]


@settings(max_examples=share_of(45))
@given(st.sampled_from(range(len(_SEEN))), _said())
def test_untrusted_declarations_never_improve_the_verdict(
    which: int, said: tuple[dict[str, Fact], Timings | None, OtherWork | None]
) -> None:
    """Declared facts, times and other work never improve the verdict on the witness's evidence."""
    facts, times, other = said
    verdict = judge(replace(_SEEN[which], declared={**facts, "untrusted": True}, timings=times, other_work=other))
    assert verdict.status.badness >= _ALONE[which].badness


def test_untrusted_other_work_does_not_explain_busy_time() -> None:
    """A declared flush explains busy time in a trusted window, but not in an untrusted one."""
    half = replace(HONEST, took_s=HONEST.took_s / 2)
    flush = OtherWork(HONEST.at_ns + 500_000, np.full(len(HONEST.at_ns), 0.47e-3), ("flush",) * len(HONEST.at_ns))
    about = replace(CHEATS[0].make(), timings=half, other_work=flush)
    assert judge(about).status is not Status.REJECTED
    assert judge(replace(about, declared={"untrusted": True})).status is Status.REJECTED
