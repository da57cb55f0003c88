"""Cold iterations: slow ones at the start and after pauses, and no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import Times, Values
from annotate.times.cold import cold, cold_prefix_count
from tests.examples import share_of

TRACES = Path(__file__).parents[2] / "traces"


def steady(count: int, *, seed: int = 1) -> Values:
    return 1e-3 * (1.0 + 0.005 * np.random.default_rng(seed).normal(size=count))


def begun(took_s: Values, gaps_s: Values | None = None) -> Times:
    gaps = np.full(len(took_s), 5e-6) if gaps_s is None else gaps_s
    return np.asarray((np.cumsum(gaps) + np.cumsum(took_s) - took_s) * 1e9, np.int64)


class TestPrefix:
    @given(st.integers(1, 40), st.integers(0, 500))
    @settings(max_examples=share_of(40))
    def test_cold_prefix_counts_a_decaying_start(self, count: int, seed: int) -> None:
        took_s = steady(300, seed=seed)
        took_s[:count] *= np.linspace(3.0, 1.1, count) if count > 1 else 3.0
        # By chance an early warm call may exceed three deviations, which restarts the run of five.
        assert count <= cold_prefix_count(took_s) <= count + 12

    def test_cold_prefix_counts_a_slow_first_call(self) -> None:
        assert cold_prefix_count(np.array([70e-3, 0.2e-3, 0.2e-3, 0.2e-3])) == 1

    @given(st.integers(0, 2000))
    @settings(max_examples=share_of(60))
    def test_cold_prefix_of_steady_times_is_empty(self, seed: int) -> None:
        assert cold_prefix_count(steady(200, seed=seed)) == 0

    def test_cold_prefix_of_a_later_capped_card_is_empty(self) -> None:
        took_s = steady(2000)
        took_s[500:] *= 1.18
        assert cold_prefix_count(took_s) == 0

    def test_cold_prefix_counts_a_first_call_before_a_cap(self) -> None:
        took_s = steady(2000)
        took_s[500:] *= 1.18
        took_s[0] *= 1.25
        assert cold_prefix_count(took_s) == 1

    def test_cold_prefix_of_a_slow_drift_is_empty(self) -> None:
        assert cold_prefix_count(np.linspace(2e-3, 1e-3, 400)) == 0

    def test_cold_prefix_ignores_a_later_stall(self) -> None:
        took_s = steady(200)
        took_s[:3] *= 4.0
        took_s[20] *= 4.0
        assert cold_prefix_count(took_s) == 3

    @pytest.mark.parametrize("took_s", [[], [1.0]])
    def test_cold_prefix_of_too_few_times_is_empty(self, took_s: list[float]) -> None:
        assert cold_prefix_count(np.array(took_s)) == 0


class TestCold:
    def test_cold_finds_only_the_slow_first_calls(self) -> None:
        """Slow first calls after a pause are cold, and usual ones are not."""
        took_s = steady(300)
        gaps_s = np.full(300, 5e-6)
        gaps_s[[100, 200]] = 0.3
        took_s[100:102] *= 1.4
        assert np.flatnonzero(cold(begun(took_s, gaps_s), took_s)).tolist() == [100, 101]

    def test_slow_call_without_a_pause_is_not_cold(self) -> None:
        took_s = steady(300)
        took_s[100] *= 1.4
        assert not cold(begun(took_s), took_s).any()

    def test_slow_call_among_regular_pauses_is_not_cold(self) -> None:
        took_s = steady(300)
        took_s[100] *= 1.4
        assert not cold(begun(took_s, np.full(300, 0.02)), took_s).any()

    def test_cold_includes_the_cold_prefix(self) -> None:
        took_s = steady(300)
        took_s[:4] *= [9.0, 4.0, 2.0, 1.5]
        assert np.flatnonzero(cold(begun(took_s), took_s)).tolist() == [0, 1, 2, 3]

    @pytest.mark.parametrize("count", [0, 1])
    def test_too_few_times_have_no_cold_calls(self, count: int) -> None:
        took_s = np.full(count, 1.0)
        assert not cold(begun(took_s), took_s).any()


class TestRecordings:
    @pytest.mark.parametrize("name", ["gemm4k_bf16", "attention", "copy1g"])
    def test_recorded_first_call_is_cold(self, name: str) -> None:
        with np.load(TRACES / f"beta_{name}.npz") as archive:
            took_s = archive["ms"] / 1e3
        assert cold_prefix_count(took_s) == 1

    @pytest.mark.parametrize("name", ["gemm4k_bf16", "gemm16k_bf16", "attention", "conv3x3", "gemm4k_fp32"])
    def test_warmed_up_recording_has_no_cold_calls(self, name: str) -> None:
        with np.load(TRACES / f"natural_{name}.npz") as archive:
            took_s, at_ns = archive["ms"] / 1e3, np.asarray((archive["t_s"] - archive["t_s"][0]) * 1e9, np.int64)
        assert not cold(at_ns, took_s.astype(np.float64)).any()
