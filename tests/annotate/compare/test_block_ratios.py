"""Tests of ratios from balanced quads."""

from __future__ import annotations

import numpy as np
import pytest

from annotate.compare.block_ratios import block_ratios
from annotate.compare.decision import Comparison, Decision
from annotate.compare.quad_decision import decide
from annotate.compare.quads import Quads
from annotate.evidence import Values

QUADS_COUNT = 250  # 3 s of blocks of 3 ms


def quads(count: int = QUADS_COUNT, *, seed: int = 0, slow_ratio: float = 0.0, slow: float = 2.0, change: float = 0.0) -> Quads:
    """Return quads of blocks that scatter by 0.2 %.

    The share ``slow_ratio`` of b's blocks takes ``slow`` times as long; every block of b takes ``change`` longer.
    """
    rng = np.random.default_rng(seed)
    a, b = (np.exp(0.002 * rng.standard_normal((count, 2))) for _ in range(2))
    return Quads(a, b * (1 + change) * np.where(rng.random((count, 2)) < slow_ratio, slow, 1.0))


def decided(of: Quads) -> Comparison:
    return decide("a", "b", of)


def dependent(count: int, memory: float, seed: int) -> Quads:
    """Return quads whose log ratios follow a first-order autoregression with a standard deviation of 0.4 %."""
    kicks = np.random.default_rng(seed).standard_normal(count)
    logs = np.empty(count)
    logs[0] = kicks[0]
    for number in range(1, count):
        logs[number] = memory * logs[number - 1] + np.sqrt(1 - memory**2) * kicks[number]
    return Quads(np.ones((count, 2)), np.exp(0.004 * np.stack([logs, logs], axis=1)))


class TestMixtures:
    @pytest.mark.parametrize("seed", range(5))
    def test_slow_blocks_of_43_percent_are_inconclusive(self, seed: int) -> None:
        """A decision is inconclusive if 43 % of b's blocks take twice as long; mean and share show the slow blocks."""
        found = decided(quads(seed=seed, slow_ratio=0.43))
        assert found.decision is Decision.INCONCLUSIVE
        assert found.needed_pairs_count is None
        assert found.slower_blocks_ratio == pytest.approx(0.43, abs=0.08)
        assert found.mean_ratio is not None
        assert found.mean_ratio.centre == pytest.approx(1.43, abs=0.08)
        assert found.slower_blocks_ratio is not None
        share = round(100 * found.slower_blocks_ratio)
        assert f"b is slower in {share} % of its blocks" in str(found)

    def test_few_slow_blocks_are_not_the_same(self) -> None:
        found = decided(quads(slow_ratio=0.08))
        assert found.decision is Decision.INCONCLUSIVE
        assert found.mean_used == "plain"
        assert "of its blocks" in str(found)

    def test_slow_blocks_of_a_are_reported_as_faster_blocks_of_b(self) -> None:
        mixed = quads(slow_ratio=0.3)
        found = decided(Quads(mixed.b_s, mixed.a_s))
        assert found.decision is Decision.INCONCLUSIVE
        assert "b is faster in" in str(found)

    def test_mixture_does_not_hide_a_difference(self) -> None:
        """A few outlying blocks do not hide a difference between the usual blocks."""
        assert decided(quads(slow_ratio=0.05, change=0.02)).decision is Decision.SLOWER

    def test_median_and_mean_of_opposite_signs_are_inconclusive(self) -> None:
        found = decided(quads(slow_ratio=0.1, change=-0.02))
        assert found.decision is Decision.INCONCLUSIVE
        assert found.ratio is not None
        assert found.ratio.high < 1.0


class TestTails:
    def test_tails_of_both_variants_use_the_trimmed_mean(self) -> None:
        rng = np.random.default_rng(1)

        def tails() -> Values:
            return np.asarray(1 + (rng.random((QUADS_COUNT, 2)) < 0.02) * rng.pareto(1.5, (QUADS_COUNT, 2)))

        even = quads()
        found = decided(Quads(even.a_s * tails(), even.b_s * tails()))
        assert (found.decision, found.mean_used) == (Decision.SAME, "trimmed")
        assert "trimmed mean" in str(found)
        assert "tails are heavy" in str(found)

    def test_normal_noise_uses_the_plain_mean(self) -> None:
        found = decided(quads())
        assert (found.decision, found.mean_used) == (Decision.SAME, "plain")

    def test_effect_of_the_position_cancels(self) -> None:
        """A penalty of 2 % for the second variant of each pair changes neither the decision nor the median."""
        even = quads()
        second_b, second_a = np.array([1.02, 1.0]), np.array([1.0, 1.02])
        found = decided(Quads(even.a_s * second_a, even.b_s * second_b))
        assert found.decision is Decision.SAME
        assert found.ratio is not None
        assert found.ratio.centre == pytest.approx(1.0, abs=0.001)


class TestDependence:
    def test_dependence_widens_every_interval(self) -> None:
        """The mean width of each interval grows with the correlation of quads."""

        def widths(memory: float) -> Values:
            found = [block_ratios(dependent(QUADS_COUNT, memory, seed), least_ratio=0.005) for seed in range(40)]
            intervals = [
                (each.median(0.95), each.plain_mean.interval(0.95), each.trimmed_mean.interval(0.95)) for each in found
            ]
            return np.asarray(np.mean([[each.high - each.low for each in row] for row in intervals], axis=0))

        none, little, some, much = (widths(memory) for memory in (0.0, 0.1, 0.3, 0.6))
        assert (little > 1.05 * none).all()
        assert (some > 1.1 * little).all()
        assert (much > 1.2 * some).all()

    @pytest.mark.parametrize(("memory", "least"), [(0.0, 0.9), (0.3, 0.88), (0.6, 0.84)])
    @pytest.mark.parametrize("count", [60, QUADS_COUNT])
    def test_intervals_cover_under_dependence(self, memory: float, least: float, count: int) -> None:
        covered = []
        for seed in range(120):
            found = block_ratios(dependent(count, memory, seed), least_ratio=0.005)
            intervals = (found.median(0.95), found.plain_mean.interval(0.95), found.trimmed_mean.interval(0.95))
            covered.append([not each.excludes(1.0) for each in intervals])
        assert (np.mean(covered, axis=0) >= least).all()

    def test_alternating_quads_do_not_narrow_an_interval(self) -> None:
        """Alternating quads, as alternating buffers make them, do not narrow the interval of the mean."""
        even, turns = quads(), 1 + 0.004 * np.resize([1.0, -1.0], (QUADS_COUNT, 1))
        plain = block_ratios(even, least_ratio=0.005).plain_mean.interval(0.95)
        found = block_ratios(Quads(even.a_s, even.b_s * turns), least_ratio=0.005).plain_mean.interval(0.95)
        assert found.high - found.low > plain.high - plain.low


def test_quads_with_an_invalid_time_do_not_count() -> None:
    times = quads(20)
    times.b_s[3, 1], times.a_s[5, 0] = 0.0, np.nan
    assert len(times.usable) == 18
    assert decided(times).pairs_count == 36


def test_reference_ratio_is_speed_as_share_of_the_reference() -> None:
    found = decided(quads(change=1.0))
    assert found.reference_ratio is not None
    assert found.reference_ratio.centre == pytest.approx(0.5, abs=0.001)
    assert found.reference_ratio.low < found.reference_ratio.centre < found.reference_ratio.high
