"""Properties of proof 4: more neighbours never improve the proof, and fewer process lists never make the proof shown."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from hypothesis import given
from hypothesis import strategies as st

from annotate.budget import ProofState
from annotate.case import Case
from annotate.evidence import Evidence, OtherWindow, Process, Visibility
from annotate.proofs import nobody_else
from tests.annotate.builders import BEGIN_NS, OWN, evidence
from tests.annotate.proofs.company_builders import process, sizes, times, with_lists

_WORSE = (ProofState.SHOWN, ProofState.UNPROVEN, ProofState.BROKEN)


@lru_cache(maxsize=64)
def _base(visibility: Visibility, *, own: bool, timed: bool) -> Evidence:
    listed = (OWN,) if own else ()
    return evidence(
        length_s=2.0, period_s=0.1, visibility=visibility, processes=listed,
        timings=times(length_s=2.0, late_every=300) if timed else None,
    )  # fmt: skip


bases = st.builds(_base, st.sampled_from(Visibility), own=st.booleans(), timed=st.booleans())
# Every process has a utilisation, so that a further process does not make an unknown utilisation known.
others = st.builds(
    process,
    st.integers(5000, 5004),
    utilization_ratio=st.sampled_from([0.0, 0.01, 0.05, 0.5]),
    graphics=st.booleans(),
    listed=st.booleans(),
)
companies = st.lists(others, max_size=3, unique_by=lambda each: each.pid).map(tuple)
kept = st.frozensets(st.integers(0, 37))


def _in_company(of: Evidence, company: tuple[Process, ...]) -> Evidence:
    return with_lists(of, lambda _, each: replace(each, processes=(*each.processes, *company)))


def _state(of: Evidence) -> ProofState:
    return nobody_else.prove(Case(of), {}).state


@given(bases, companies, others.map(lambda each: replace(each, pid=6000)), st.booleans())
def test_more_neighbours_never_improve_the_proof(
    base: Evidence,
    company: tuple[Process, ...],
    joins: Process,
    late: bool,
) -> None:
    """A process that joins all or the later lists improves neither the state nor any bound."""
    before = _in_company(base, company)
    after = with_lists(
        before, lambda i, each: replace(each, processes=(*each.processes, joins)) if i > 30 or not late else each
    )
    assert _WORSE.index(_state(after)) >= _WORSE.index(_state(before))
    was, became = (sizes(nobody_else.bounds(Case(each))) for each in (before, after))
    assert all(became[number] >= was[number] - 1e-12 for number in was)


@given(bases, companies, kept, kept)
def test_dropped_lists_never_make_the_proof_shown(
    base: Evidence, company: tuple[Process, ...], some: frozenset[int], more: frozenset[int]
) -> None:
    """If the process lists leave the proof unshown, every subset of the lists does too."""
    whole = _in_company(base, company)
    part = with_lists(whole, lambda i, each: each if i in some | more else None)
    less = with_lists(whole, lambda i, each: each if i in some else None)
    shown = [_state(each) is ProofState.SHOWN for each in (whole, part, less)]
    assert shown == sorted(shown, reverse=True)


@given(bases, companies, st.integers(-3, 3), st.integers(1, 3))
def test_other_windows_never_improve_the_proof(
    base: Evidence, company: tuple[Process, ...], begin_s: int, length_s: int
) -> None:
    before = _in_company(base, company)
    other = OtherWindow(BEGIN_NS + begin_s * 10**9, BEGIN_NS + (begin_s + length_s) * 10**9, pid=6000)
    assert _WORSE.index(_state(replace(before, overlapping=(other,)))) >= _WORSE.index(_state(before))
