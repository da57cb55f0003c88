"""The record of one work on one card: the key, the numbers of each window, and the effect on bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import Bound, Group, Number
from annotate.case import Case
from annotate.derived.clock_shift import CLOCK_RULES, clock_bounds
from annotate.derived.idle_bounds import duty_bounds
from annotate.evidence import Evidence, Fact, RecordedWindow, WorkRecord
from annotate.inquiry import inquire
from annotate.judge import judge
from annotate.proofs import nobody_else
from annotate.rules import RULES
from annotate.user_policy import Policy
from annotate.verdict import Status
from annotate.work_record import recorded_window, work_key, work_record
from tests.annotate.builders import DEVICE, evidence
from tests.annotate.derived.test_clock_shift import capped
from tests.annotate.derived.test_measured_numbers import STEADY
from tests.annotate.derived.test_time_levels import timed
from tests.annotate.proofs.company_builders import joined_by, process, times
from tests.examples import share_of

POLICY = Policy().to_dict()


def named(of: Evidence, **changes: Any) -> Evidence:
    return replace(of, window=replace(of.window, **{"program": "1f" * 8, **changes}))


@cache
def clean() -> Evidence:
    """Return a VALID window of steady iterations at a constant clock."""
    return named(timed(np.concatenate([STEADY, STEADY]), mhz=1980.0))


def digest(of: Evidence, policy: Mapping[str, Any] = POLICY) -> str:
    key = work_key(of, policy)
    assert key is not None
    return key.digest


@cache
def usual() -> tuple[Evidence, str]:
    about = named(evidence())
    return about, digest(about)


def declaring(**facts: Fact) -> Evidence:
    return replace(usual()[0], declared=facts)


@pytest.mark.parametrize(
    "other",
    [
        named(evidence(), program="2e" * 8),
        named(evidence(label="another")),
        named(evidence(device=replace(DEVICE, uuid="GPU-another"))),
        named(evidence(device=replace(DEVICE, driver_version="580.200"))),
        named(evidence(signals={"power_limit_w": 500.0})),
        declaring(every_s=0.1),
        declaring(varies=True),
        declaring(locked_mhz=1500.0),
    ],
)
def test_record_key_differs_with_each_of_its_facts(other: Evidence) -> None:
    assert digest(other) != usual()[1]


@pytest.mark.parametrize(
    "policy", [{"claim": "burst"}, {"tolerance_ratio": 0.1}, {"accept": ["outliers"]}, {"limits": {"outliers": {}}}]
)
def test_record_key_differs_with_the_policy(policy: dict[str, Any]) -> None:
    """A window that is VALID at a wide tolerance cannot be the reference of a window judged at the default."""
    assert digest(usual()[0], {**POLICY, **policy}) != usual()[1]


def test_record_key_ignores_times_and_other_facts() -> None:
    assert digest(replace(declaring(flops=1e9), timings=times())) == usual()[1]


@pytest.mark.parametrize(
    "unknown",
    [
        evidence(),
        named(evidence(label=None)),
        named(evidence(device=None)),
        named(evidence(device=replace(DEVICE, driver_version=None))),
        named(evidence(signals={"power_limit_w": lambda t: 700.0 if t < 3.0 else 500.0})),
    ],
)
def test_window_with_an_unknown_fact_has_no_record_key(unknown: Evidence) -> None:
    """Two unknown labels, programs, GPUs, drivers or limits may differ."""
    assert work_key(unknown, POLICY) is None


def test_valid_window_adds_its_numbers() -> None:
    verdict = judge(clean())
    assert verdict.status is Status.VALID, str(verdict)
    found = recorded_window(clean(), verdict)
    assert found is not None
    assert verdict.budget is not None
    values = [
        verdict.budget.number(number) for number in (Number.THROUGHPUT, Number.MEAN, Number.MEDIAN, Number.MEDIAN_AT_CLOCK)
    ]
    assert [found.calls_rate_hz, found.mean_s, found.median_s, found.median_at_clock_s] == [
        each.value for each in values if each
    ]
    assert found.clock_mhz == pytest.approx(1980.0)
    assert found.steady_clock_mhz == pytest.approx(1980.0)
    assert found.power_w == 566.0


@pytest.mark.parametrize("status", [each for each in Status if each is not Status.VALID])
def test_window_that_is_not_valid_adds_nothing(status: Status) -> None:
    assert recorded_window(clean(), replace(judge(clean()), status=status)) is None


def test_window_without_any_number_adds_nothing() -> None:
    plain = named(evidence())
    assert recorded_window(plain, replace(judge(plain), status=Status.VALID)) is None


def test_unstamped_clock_is_not_recorded_as_steady() -> None:
    """A window without stamps adds no steady clock: under a cap the driver's clock reads too high."""
    unstamped = named(timed(np.concatenate([STEADY, STEADY]), mhz=None))
    found = recorded_window(unstamped, replace(judge(unstamped), status=Status.VALID))
    assert found is not None
    assert found.steady_clock_mhz is None
    assert found.median_at_clock_s is None


def windows(*clocks_mhz: float | None) -> list[RecordedWindow]:
    return [RecordedWindow(mean_s=1.0, median_at_clock_s=1.0, clock_mhz=mhz) for mhz in clocks_mhz]


def test_four_windows_make_no_record() -> None:
    assert work_record(windows(*[1500.0] * 4)) is None
    five = work_record(windows(*[1500.0] * 5))
    assert five is not None
    assert five.values("median_at_clock_s") == (1.0,) * 5


def test_record_has_the_clock_of_most_windows() -> None:
    """A median at another clock is dropped; the window still counts for the raw numbers."""
    found = work_record(windows(1500.0, 1500.1, 1980.0, 1500.0, None, 1499.9, 1500.0))
    assert found is not None
    assert found.clock_mhz == 1500.0
    assert len(found.values("mean_s")) == 7
    assert len(found.values("median_at_clock_s")) == 5


def test_record_without_one_clock_has_no_median_at_clock() -> None:
    found = work_record(windows(1400.0, 1450.0, 1500.0, 1550.0, 1600.0))
    assert found is not None
    assert found.clock_mhz == 1600.0
    assert found.values("median_at_clock_s") == ()


@cache
def _base(name: str) -> Evidence:
    match name:
        case "clean":
            return clean()
        case "capped":
            return capped()
        case "sleeping":
            loop = timed(STEADY, mhz=1400.0, capped=True)
            assert loop.timings is not None
            late_ns = loop.timings.at_ns + 100_000 * np.arange(len(STEADY))
            return replace(
                loop, timings=replace(loop.timings, at_ns=late_ns), window=replace(loop.window, end_ns=int(late_ns[-1]))
            )
        case "neighbour":
            return joined_by(evidence(timings=times(late_every=300)), process())
        case _:
            return joined_by(evidence(), process())


factors = st.sampled_from([1.0, 1.0, 0.999, 1.001, 0.97, 1.1])


@st.composite
def records(draw: st.DrawFn) -> WorkRecord:
    """Draw a record of five to eight windows, steady or not, near the judged window or far from it."""
    middle_s, mhz = draw(st.sampled_from([1e-3, 203e-6])) * draw(factors), draw(st.sampled_from([None, 1300.0, 1440.0, 1980.0]))
    each = [
        RecordedWindow(
            1.0 / (middle_s * factor),
            middle_s * factor,
            middle_s * factor,
            middle_s * factor,
            mhz,
            power_w=690.0,
            clock_mhz=1980.0,
        )
        for factor in draw(st.lists(factors, min_size=5, max_size=8))
    ]
    made = work_record(each)
    assert made is not None
    return made


def bounds(of: Evidence) -> dict[tuple[str, Number, Group], Bound]:
    """Return the bounds of all rules and of all readers of a record: the largest per rule, number and group."""
    case = Case(of)
    found = [*inquire(RULES, of, Policy()).causes, *nobody_else.bounds(case)]
    found += duty_bounds(of, case.gaps, case.timings) if case.gaps is not None else ()
    found += [each for rule in CLOCK_RULES if case.clock_shift for each in clock_bounds(case.clock_shift, rule)]
    return {(each.rule, each.number, each.group): each for each in sorted(found, key=lambda bound: bound.size_ratio)}


@settings(max_examples=share_of(60))
@given(st.sampled_from(["clean", "capped", "sleeping", "neighbour", "plain neighbour"]), records())
def test_record_lowers_no_bound_found_without_a_record(name: str, record: WorkRecord) -> None:
    """A record replaces only missing bounds, the steady reference, and the defaults for a missing record."""
    alone, beside = bounds(_base(name)), bounds(replace(_base(name), record=record))
    for key, bound in alone.items():
        if bound.ratio is None or bound.group is Group.RECORD or bound.rule in CLOCK_RULES:
            continue
        assert key in beside, key
        assert beside[key].size_ratio >= bound.size_ratio, key


def test_record_bounds_an_unbounded_median() -> None:
    """Nothing in the window bounds the raw median next to a neighbour; a record does."""
    key, median_s = ("contention-process", Number.MEDIAN, Group.RECORD), 203e-6
    record = work_record([RecordedWindow(median_s=median_s * factor) for factor in (0.999, 1.0, 1.001, 1.0, 1.0)])
    assert bounds(_base("neighbour"))[key].ratio is None
    assert 0.0 < bounds(replace(_base("neighbour"), record=record))[key].size_ratio < 0.1


def test_record_gives_the_steady_clock_of_a_short_window() -> None:
    """In the 2 s right after a pause, the model leaves 1.3 %; a record of five windows at the same true clock leaves nothing.

    Without stamps there is no true clock, and the model's excess remains.
    """
    record = work_record([RecordedWindow(steady_clock_mhz=1440.0)] * 5)
    alone, beside = Case(_base("capped")), Case(replace(_base("capped"), record=record))
    unstamped = Case(replace(_base("capped"), record=record, timings=None, declared={}))
    for case, ratio in ((alone, 0.0127), (beside, 0.0), (unstamped, 0.0127)):
        assert case.clock_shift is not None
        assert case.clock_shift.shifts[Number.MEAN].bound_ratio == pytest.approx(ratio, abs=1e-3)


@settings(max_examples=share_of(30))
@given(records())
def test_record_never_improves_a_status(record: WorkRecord) -> None:
    """A record never improves the status of a window whose bounds are all known."""
    order = (Status.VALID, Status.UNPROVEN, Status.FLAGGED, Status.REJECTED)
    for name in ("clean", "sleeping"):
        alone, beside = judge(_base(name)), judge(replace(_base(name), record=record))
        assert order.index(beside.status) >= order.index(alone.status)
        assert beside.budget is not None
        assert (beside.budget.scope.kind, beside.budget.scope.windows_count) == ("record", len(record.windows))


def test_wide_record_flags_under_a_precision() -> None:
    """The spread between windows adds to the repeatability, which then exceeds the precision."""
    policy = Policy(precision_ratio=0.005)
    assert judge(clean(), policy).status is Status.VALID
    wide = [RecordedWindow(1000.0 * factor, 1e-3 * factor, 1e-3 * factor) for factor in (1.0, 1.01, 0.99, 1.02, 0.98)]
    assert judge(replace(clean(), record=work_record(wide)), policy).status is Status.FLAGGED
