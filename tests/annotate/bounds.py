"""Bounds, grounds and policies of every shape, for property tests of budgets."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from annotate.budget import (
    Bound,
    Estimate,
    Group,
    Number,
    NumberBudget,
    Proof,
    ProofShown,
    ProofState,
    Repeatability,
    Replaces,
)
from annotate.combine import Grounds
from annotate.rule import Severity
from annotate.user_policy import Policy

# Names of real rules, which a policy may accept.
RULES = ("throttle-thermal", "clock-drift", "regime-change", "contention-process", "outliers", "cold-start", "bimodal")
SHOWN = tuple(ProofShown(proof=proof, state=ProofState.SHOWN) for proof in Proof)

ratios = st.sampled_from([0.0, 0.0005, 0.004, 0.011, 0.049, 0.06, 0.3]) | st.floats(0.0, 0.5)


@st.composite
def estimates(draw: st.DrawFn, most_ratio: float) -> Estimate:
    low, value, high = sorted(draw(st.floats(-most_ratio, most_ratio)) for _ in range(3))
    return Estimate(low, value, high)


@st.composite
def bounds(draw: st.DrawFn) -> Bound:
    ratio = draw(st.none() | ratios)
    return Bound(
        number=draw(st.sampled_from(Number)),
        rule=draw(st.sampled_from(RULES)),
        group=draw(st.sampled_from(Group)),
        ratio=ratio,
        estimate=draw(st.none() | estimates(0.3 if ratio is None else ratio)),
        can_reject=draw(st.booleans()),
        seen_ratio=draw(st.none() | st.floats(0.0, 0.3 if ratio is None else ratio)),
        span_ns=draw(st.none() | st.tuples(st.integers(0, 99), st.integers(100, 200))),
        replaces=draw(st.sampled_from(Replaces)),
    )


causes = st.lists(bounds(), max_size=8).map(tuple)
repeatabilities = st.builds(
    Repeatability, st.none() | st.floats(0.0, 0.1), st.sampled_from(["within this window", "too short"])
)
measured = st.builds(
    NumberBudget,
    number=st.sampled_from(Number),
    value=st.none() | st.floats(0, 1e9),
    unit=st.sampled_from(["s", "1/s"]),
    repeatability=repeatabilities,
)
proofs = st.lists(
    st.builds(
        ProofShown,
        proof=st.sampled_from(Proof),
        state=st.sampled_from(ProofState),
        says=st.text(max_size=9),
        missing=st.lists(st.sampled_from(["power_limit_w", "6 entries"]), max_size=2).map(tuple),
        broken_by=st.lists(st.sampled_from(RULES), max_size=2).map(tuple),
        facts=st.dictionaries(st.sampled_from(["busy_ratio", "witness"]), st.none() | st.floats(0, 1) | st.text(max_size=5)),
    ),
    max_size=5,
    unique_by=lambda proof: proof.proof,
).map(tuple)
grounds = st.builds(
    Grounds,
    numbers=st.lists(measured, max_size=4, unique_by=lambda number: number.number).map(tuple),
    causes=causes,
    integrity=st.dictionaries(st.sampled_from(["result-cached", "setting-changed"]), st.sampled_from(Severity), max_size=2),
    proofs=st.just(SHOWN) | proofs,
    missing=st.just({}) | st.just({"stale-daemon": "no sample near the window"}),
    is_stamped=st.booleans(),
    has_times=st.booleans(),
)
policies = st.builds(
    Policy,
    claim=st.sampled_from(["sustained", "burst", "fixed-clock"]),
    accept=st.frozensets(st.sampled_from([*RULES, "result-cached"]), max_size=3),
    tolerance_ratio=st.sampled_from([0.001, 0.01, 0.05]),
    precision_ratio=st.none() | st.sampled_from([0.001, 0.02]),
)


def clean(*given_causes: Bound, has_times: bool = True) -> Grounds:
    """Return the grounds of a window with these causes and all proofs shown."""
    return Grounds(causes=given_causes, proofs=SHOWN, is_stamped=True, has_times=has_times)


def cause(rule: str, group: Group, ratio: float | None, value_ratio: float | None = None) -> Bound:
    """Return a bound on throughput; a given estimate is exact."""
    estimate = None if value_ratio is None else Estimate(value_ratio, value_ratio, value_ratio)
    return Bound(number=Number.THROUGHPUT, rule=rule, group=group, ratio=ratio, estimate=estimate)


def without_rejection(bound: Bound) -> Bound:
    return replace(bound, can_reject=False)
