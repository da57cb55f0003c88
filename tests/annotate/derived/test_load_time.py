"""Tests of the start times of load and of the excess speed after them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.derived.idle_gaps import Span
from annotate.derived.load_time import EXCESS, LoadTime, excess_of, load_time, unknown_excess
from annotate.evidence import Column, Evidence
from tests.annotate.builders import BEGIN_NS, evidence
from tests.examples import share_of

TRACES = Path(__file__).parents[2] / "traces"
few = settings(max_examples=share_of(60))
H200 = EXCESS["NVIDIA H200"]


def after_pause(end_s: float, length_s: float = 0.5, *, window_s: float = 4.0) -> Evidence:
    return evidence(length_s=window_s, signals={"power_w": lambda t: 122.0 if end_s - length_s <= t < end_s else 690.0})


def seconds(*stretches: tuple[float, float]) -> list[Span]:
    return [(BEGIN_NS + round(begin * 1e9), BEGIN_NS + round(end * 1e9)) for begin, end in stretches]


def load(pauses: Sequence[tuple[float, float]] = (), *, before_s: float = 5.0, window_s: float = 4.0) -> LoadTime:
    """Return the load of a window after a pause that ended ``before_s`` before the window, or without a pause from 5 s on."""
    about = evidence(length_s=window_s) if before_s >= 5.0 else after_pause(-before_s, window_s=window_s)
    return load_time(about, seconds(*pauses))


def test_warm_window_is_steady_throughout() -> None:
    """Five seconds of load before a window leave no excess, and the whole window is steady."""
    found = load()
    assert found.before_known
    assert found.excess_ratio(H200) == 0.0
    assert found.steady_span_ns() == (BEGIN_NS, BEGIN_NS + 4_000_000_000)


@pytest.mark.parametrize(("before_s", "least", "most"), [(0.0, 0.0061, 0.0067), (0.5, 0.0053, 0.0056), (2.5, 0.0004, 0.0007)])
def test_pause_before_the_window_is_the_models_excess(before_s: float, least: float, most: float) -> None:
    """The excess of a window of 4 s falls with the time since the pause.

    The power record ends a pause one sample early, hence the ranges.
    """
    assert least <= load(before_s=before_s).excess_ratio(H200) <= most


def test_pause_inside_restarts_the_load() -> None:
    """A stall of 0.3 s in warm work gives the window the excess of a pause right before the window."""
    found = load([(1.0, 1.3)])
    assert len(found.began_ns) == 2
    assert found.excess_ratio(H200) == pytest.approx(0.0266 / 4.0, rel=1e-6)
    assert found.steady_span_ns() == tuple(seconds((0.0, 1.0))[0])


def test_load_is_unbroken_by_a_gap_of_20_ms() -> None:
    assert len(load([(1.0, 1.02)]).began_ns) == 1
    assert len(load([(1.0, 1.021)]).began_ns) == 2


def test_steady_part_is_at_least_a_cycle() -> None:
    """Work is steady after 3 s of load.  Steady work of 0.9 s is less than a cycle and does not count; 2 s count."""
    assert load(before_s=0.9, window_s=3.0).steady_span_ns() is None
    span = load(before_s=1.0).steady_span_ns()
    assert span is not None
    assert (span[1] - span[0]) / 1e9 == pytest.approx(2.0, abs=0.05)


def test_unseen_time_before_the_window_is_no_load() -> None:
    """If the time before the window was not observed, load begins with the window."""
    about = evidence(length_s=4.0, signals={"power_w": None, "utilization_ratio": None})
    blind = replace(about, trace=replace(about.trace, dense_power=Column(np.empty(0, np.int64), np.empty(0))))
    found = load_time(blind, ())
    assert not found.before_known
    assert found.excess_ratio(H200) == pytest.approx(0.0066, abs=1e-4)
    span = found.steady_span_ns()
    assert span == tuple(seconds((3.0, 4.0))[0])


def test_excess_is_known_for_measured_models_only() -> None:
    assert excess_of("NVIDIA H200") == H200
    assert excess_of("SIMULATED NVIDIA H200") == H200
    assert excess_of("NVIDIA A100") is None
    assert excess_of(None) is None
    assert load(before_s=0.0).excess_ratio(unknown_excess(1500.0, 1800.0)) == pytest.approx(0.2 * 3.0 / 4.0, rel=0.02)


pauses = st.lists(st.tuples(st.floats(0.0, 4.0), st.floats(0.0, 1.0)).map(lambda each: (each[0], sum(each))), max_size=5)


@few
@given(pauses=pauses)
def test_pauses_keep_loads_in_order_and_excess_in_range(pauses: list[tuple[float, float]]) -> None:
    """Loads are in order and do not end before their start, and the excess lies between 0 and the model's largest."""
    found = load(pauses)
    assert (np.diff(found.began_ns) >= 0).all()
    assert (found.ended_ns >= found.began_ns).all()
    assert 0.0 <= found.excess_ratio(H200) <= H200.most_ratio


RUNS = json.loads((TRACES / "h200-excess.json").read_text(encoding="utf-8"))
CAPPED = [row for row in RUNS["rows"] if row["kernel"] != "copy"]


@pytest.mark.parametrize("length_s", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("since_s", [0.0, 0.05, 0.1, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5])
def test_recorded_runs_stay_within_the_models_excess(since_s: float, length_s: float) -> None:
    """In 95 % of 24 capped runs after a pause, the gain or loss from this time on is within the model's excess."""
    edges_s = np.array(RUNS["edges_s"])
    gains = [np.concatenate([[0.0], np.cumsum(np.array(row["excess_percent"]) / 100.0 * np.diff(edges_s))]) for row in CAPPED]
    ends_s = since_s, min(since_s + length_s, edges_s[-1])
    true_s = [float(np.diff(np.interp(ends_s, edges_s, gain))[0]) for gain in gains]
    (most_s,) = H200.gained_s(np.array([since_s]), np.array([since_s + length_s]))
    assert len(CAPPED) == 24
    assert np.percentile(np.abs(true_s), 95.0) <= most_s
