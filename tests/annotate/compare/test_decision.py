"""The decision on two variants: from interleaved pairs, and from runs that were recorded one after the other."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

from annotate.amount_words import duration_text
from annotate.compare.decision import Comparison, Decision
from annotate.compare.quad_decision import correct_for_many, decide
from annotate.compare.two_runs import of_runs
from annotate.evidence import Evidence, Host, Timings, Values
from annotate.stats.intervals import Interval
from annotate.user_policy import Policy
from tests.annotate.builders import BEGIN_NS, DEVICE, evidence
from tests.annotate.occurrences.comparison import times
from tests.gpuwatch.comparing.recorded import SCENARIOS, dealt, halves
from tests.gpuwatch.comparing.simulated import COPY, GEMM, Kernel, quads_of, trials


def pairs(change: float, *, sd: float = 0.004, count: int = 500, seed: int = 0) -> Values:
    return np.asarray(np.log1p(change) + sd * np.random.default_rng(seed).standard_normal(count))


def even(change: float, *, sd: float, count: int) -> Values:
    """Return the exact quantiles of normal log ratios in a shuffled order, without sampling noise."""
    shares = (np.arange(count) + 0.5) / count
    return np.asarray(np.random.default_rng(0).permutation(np.log1p(change) + sd * ndtri(shares)))


def decided(change: float, *, sd: float = 0.004, count: int = 500, floor_ratio: float = 0.003) -> Comparison:
    return decide("a", "b", quads_of(pairs(change, sd=sd, count=count)), floor_ratio=floor_ratio)


class TestDecision:
    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            (-0.01, Decision.FASTER),
            (0.01, Decision.SLOWER),
            (0.0, Decision.SAME),
            (0.002, Decision.SAME),  # a real difference below this GPU's noise floor
            (0.02, Decision.SLOWER),
        ],
    )
    def test_decide_by_floor_and_interval(self, change: float, expected: Decision) -> None:
        assert decided(change).decision is expected

    def test_decide_noise_is_inconclusive_and_counts_pairs(self) -> None:
        """Noise makes the decision inconclusive, and the result states how many more pairs may decide."""
        found = decide("a", "b", quads_of(even(0.02, sd=0.1, count=60)))
        assert found.decision is Decision.INCONCLUSIVE
        assert found.needed_pairs_count is not None
        assert 60 < found.needed_pairs_count < 600
        assert f"{found.needed_pairs_count} more pairs" in str(found)
        half = decide("a", "b", quads_of(even(0.02, sd=0.1, count=60 + found.needed_pairs_count // 3)))
        enough = decide("a", "b", quads_of(even(0.02, sd=0.1, count=60 + round(1.2 * found.needed_pairs_count))))
        assert (half.decision, enough.decision) == (Decision.INCONCLUSIVE, Decision.SLOWER)

    def test_fewer_than_thirty_pairs_are_inconclusive(self) -> None:
        found = decided(0.1, count=20)
        assert (found.decision, found.needed_pairs_count) == (Decision.INCONCLUSIVE, 10)
        assert found.ratio is None

    def test_decide_between_margin_and_floor_needs_no_more_pairs(self) -> None:
        """More pairs cannot decide on a difference between margin and floor."""
        found = decided(0.01, floor_ratio=0.02)
        assert (found.decision, found.needed_pairs_count) == (Decision.INCONCLUSIVE, None)
        assert "do not help" in str(found)

    def test_mean_beyond_the_margin_is_named_as_the_cause(self) -> None:
        """Blocks that vary to both sides leave the median at 0 and move the mean beyond the margin of equality."""
        rng = np.random.default_rng(10)
        logs, place = 1e-4 * rng.standard_normal(140), rng.random(140)
        logs[place < 0.28] -= 0.12 * rng.random((place < 0.28).sum())
        logs[place > 0.8] += 0.12 * rng.random((place > 0.8).sum())
        found = decide("a", "b", quads_of(logs))
        assert (found.decision, found.needed_pairs_count) == (Decision.INCONCLUSIVE, None)
        assert "more pairs do not help: the mean differs by -0.88 %, the median by -0.01 %" in str(found)

    def test_uncertain_change_is_called_not_significant(self) -> None:
        assert "], not significant" in str(decided(0.002))
        assert "not significant" not in str(decided(0.02))

    def test_times_by_the_hosts_clock_mention_no_gpu_clock(self) -> None:
        by_events = replace(
            decide("a", "b", quads_of(np.full(200, 0.01))), timer="events", own_ratio=Interval(1.0, 0.9, 1.1, 0.95, 4)
        )
        assert "  time at the same clock: +1.01 %" in str(by_events)
        assert "  each at its own clock: +0.00 %" in str(by_events)
        by_host = replace(by_events, timer="host")
        assert "  time in turns: +1.01 %" in str(by_host)
        assert "  each alone: +0.00 %" in str(by_host)
        assert "clock" not in str(by_host)

    @pytest.mark.parametrize(
        ("took_s", "said"), [(12.345e-6, "12.35 µs"), (0.99999e-3, "1 ms"), (2.5e-3, "2.5 ms"), (1.5, "1.5 s"), (3e-8, "30 ns")]
    )
    def test_duration_has_at_most_four_digits_and_a_unit(self, took_s: float, said: str) -> None:
        assert duration_text(took_s) == said

    def test_swapped_variants_reverse_the_decision(self) -> None:
        row = pairs(0.01)
        there, back = decide("a", "b", quads_of(row)), decide("b", "a", quads_of(-row))
        assert (there.decision, back.decision) == (Decision.SLOWER, Decision.FASTER)
        assert there.ratio is not None
        assert back.ratio is not None
        assert there.ratio.centre * back.ratio.centre == pytest.approx(1.0)

    @given(st.lists(st.floats(-0.2, 0.2), min_size=0, max_size=60), st.floats(1e-5, 0.05))
    def test_any_pairs_give_an_answer_as_text_and_plain_data(self, logs: list[float], floor_ratio: float) -> None:
        found = decide("a", "b", quads_of(np.array(logs, np.float64)), floor_ratio=floor_ratio)
        assert found.decision.value.upper() in str(found)
        assert found.to_dict()["decision"] == found.decision.value
        if found.decision in (Decision.FASTER, Decision.SLOWER):
            assert found.ratio is not None
            assert abs(math.log(found.ratio.centre)) > math.log1p(floor_ratio)


class TestManyArms:
    def test_corrected_keeps_only_clear_differences(self) -> None:
        """Holm's correction keeps a clear difference among many and drops a doubtful one."""
        rows = {"clear": pairs(0.02), **{f"equal{n}": pairs(0.0, seed=n + 5) for n in range(18)}}
        doubtful = next(
            row
            for seed in range(200)
            if decide("a", "x", quads_of(row := pairs(0.008, sd=0.03, count=60, seed=seed))).decision is Decision.SLOWER
        )
        rows["doubtful"] = doubtful
        given = {name: quads_of(row) for name, row in rows.items()}
        found = {each.b: each for each in correct_for_many([decide("a", name, quads) for name, quads in given.items()], given)}
        assert found["clear"].decision is Decision.SLOWER
        assert found["doubtful"].decision is Decision.INCONCLUSIVE
        assert "Holm" in str(found["doubtful"])

    def test_one_comparison_is_not_corrected(self) -> None:
        one = decided(0.01)
        assert correct_for_many([one], {"b": quads_of(pairs(0.01))}) == (one,)


@pytest.mark.parametrize("kernel", [GEMM, COPY], ids=["capped GEMM", "copy"])
class TestOnASimulatedCappedGpu:
    """Three seconds of blocks of 3 ms; under the cap the clock swings and dips as on an H200.  `make bench` runs more."""

    def test_decide_finds_half_a_percent_on_a_simulated_gpu(self, kernel: Kernel) -> None:
        """A change of 0.5 % is FASTER or SLOWER and no change is SAME, in at least 58 of 60 trials."""
        for change, expected in ((-0.005, Decision.FASTER), (0.005, Decision.SLOWER), (0.0, Decision.SAME)):
            other = replace(kernel, took_s=kernel.took_s * (1 + change))
            found = [decide("a", "b", quads_of(row)).decision for row in trials(kernel, other, 60, seed=7)]
            assert found.count(expected) >= 58

    def test_decide_equal_variants_with_a_measured_floor(self, kernel: Kernel) -> None:
        """With a measured floor, at most 5 of 50 trials find a difference between identical variants."""
        rows = trials(kernel, kernel, 100, seed=11)
        floor_ratio = float(np.percentile(np.abs(np.median(rows[:50], axis=1)), 95))
        found = [decide("a", "b", quads_of(row), floor_ratio=floor_ratio) for row in rows[50:]]
        assert sum(not each.within_noise for each in found) <= 5


@pytest.mark.parametrize("scenario", SCENARIOS)
class TestOnRecordedKernels:
    """Iterations of an H200, clean, under the power cap or after a cold start, dealt out to two variants."""

    def test_decide_finds_half_a_percent_in_recordings(self, scenario: str) -> None:
        """A change of 0.5 % is FASTER or SLOWER and no change is SAME, in at least 19 of 20 deals."""
        for change, expected in ((-0.005, Decision.FASTER), (0.005, Decision.SLOWER), (0.0, Decision.SAME)):
            found = [decide("a", "b", quads_of(row)).decision for row in dealt(scenario, change, 20)]
            assert found.count(expected) >= 19


@pytest.mark.parametrize("kernel", ["gemm4k_bf16", "gemm16k_bf16", "conv3x3"])
def test_two_runs_agree_at_a_common_clock(kernel: str) -> None:
    """Halves of a recording agree at one clock although their raw medians differ."""
    first, second = halves(kernel)
    found = of_runs(evidence(timings=first), evidence(timings=second))
    assert found.design.startswith("sequential, corrected to")
    assert found.decision in (Decision.SAME, Decision.INCONCLUSIVE)
    raw = abs(float(np.median(second.took_s) / np.median(first.took_s)) - 1.0)
    assert found.ratio is not None
    assert raw > 0.004
    assert abs(found.ratio.centre - 1.0) < 0.0015


class TestRecordedRuns:
    def later(self, about: Evidence) -> Evidence:
        shift_ns = 60_000_000_000
        window = replace(about.window, begin_ns=about.window.begin_ns + shift_ns, end_ns=about.window.end_ns + shift_ns)
        columns = {name: replace(column, at_ns=column.at_ns + shift_ns) for name, column in about.trace.columns.items()}
        process_lists = tuple(
            replace(process_list, at_ns=process_list.at_ns + shift_ns) for process_list in about.trace.process_lists
        )
        timings = None if about.timings is None else replace(about.timings, at_ns=about.timings.at_ns + shift_ns)
        trace = replace(about.trace, columns=columns, process_lists=process_lists)
        return replace(about, window=window, trace=trace, timings=timings)

    @pytest.mark.parametrize(
        ("change", "expected"),
        [(-0.1, Decision.FASTER), (0.1, Decision.SLOWER), (0.01, Decision.INCONCLUSIVE), (0.0, Decision.INCONCLUSIVE)],
    )
    def test_sequential_runs_differ_only_beyond_their_drift(self, change: float, expected: Decision) -> None:
        a, b = evidence(timings=times(2e-3)), self.later(evidence(timings=times(2e-3 * (1 + change), seed=1)))
        found = of_runs(a, b)
        assert found.decision is expected
        assert any("order-bias" in reason for reason in found.reasons)

    def test_stamped_runs_are_compared_at_one_clock(self) -> None:
        slow = stamped(2e-3, 1360.0, seed=2)
        found = of_runs(evidence(timings=stamped(2e-3, 1390.0)), self.later(evidence(timings=slow)))
        assert found.design.startswith("sequential, corrected to")
        assert found.decision is Decision.SAME
        assert found.ratio is not None
        assert found.ratio.centre == pytest.approx(1.0, abs=0.002)
        faster = of_runs(
            evidence(timings=stamped(2e-3, 1390.0)), self.later(evidence(timings=stamped(1.97e-3, 1360.0, seed=2)))
        )
        assert faster.decision is Decision.FASTER

    @pytest.mark.parametrize(("change", "expected"), [(0.0, Decision.SAME), (0.01, Decision.SLOWER), (-0.01, Decision.FASTER)])
    def test_constant_equal_clocks_are_one_clock(self, change: float, expected: Decision) -> None:
        """At one constant true clock, times as measured have the floor of 0.5 %, and no reason names the drift of other clocks."""
        a, b = (constant(took_s, 1980.0, seed=seed) for seed, took_s in enumerate((2e-3, 2e-3 * (1 + change))))
        found = of_runs(evidence(timings=a), self.later(evidence(timings=b)))
        assert found.design == "sequential, both at 1980 MHz"
        assert found.decision is expected
        assert not [reason for reason in found.reasons if "order-bias" in reason]

    def test_distant_constant_clocks_keep_the_floor_of_drift(self) -> None:
        a, b = constant(2e-3, 1980.0), constant(2.02e-3, 1960.0, seed=1)
        found = of_runs(evidence(timings=a), self.later(evidence(timings=b)))
        assert (found.design, found.decision) == ("sequential", Decision.INCONCLUSIVE)

    @pytest.mark.parametrize(
        ("other", "differs"),
        [
            (evidence(device=replace(DEVICE, power_limit_w=500.0)), "power limit"),
            (evidence(device=replace(DEVICE, uuid="GPU-2")), "GPU"),
            (evidence(device=replace(DEVICE, driver_version="570.1")), "driver"),
            (evidence(host=Host(boot_id="later")), "boot"),
            (evidence(declared={"cudnn_tf32": True}), "cuDNN's TF32"),
        ],
    )
    def test_runs_under_other_conditions_are_incomparable(self, other: Evidence, differs: str) -> None:
        """Different conditions make runs incomparable and are printed before times."""
        a = evidence(timings=times(2e-3), declared={"cudnn_tf32": False} if differs == "cuDNN's TF32" else None)
        found = of_runs(a, self.later(replace(other, timings=times(1e-3))))
        assert found.decision is Decision.INCOMPARABLE
        assert differs in [condition.name for condition in found.conditions if condition.differs]
        lines = str(found).splitlines()
        where = [number for number, line in enumerate(lines) if line.startswith(f"  differs: {differs}")]
        assert where
        assert where[0] < next(number for number, line in enumerate(lines) if "time " in line)

    def test_accepted_hazard_does_not_end_a_comparison(self) -> None:
        a, b = evidence(timings=times(2e-3)), evidence(timings=times(1e-3), host=Host(boot_id="later"))
        policy = Policy(accept=frozenset({"boot-changed"}))
        assert of_runs(a, self.later(b), policy).decision is Decision.FASTER

    def test_rejected_run_is_incomparable(self) -> None:
        hot = evidence(
            timings=times(2e-3), signals={"event_reasons_mask": 0x40, "hw_thermal_ns": lambda t: int(max(0, t) * 1e9)}
        )
        found = of_runs(evidence(timings=times(2e-3)), self.later(hot))
        assert found.decision is Decision.INCOMPARABLE
        assert any(reason.startswith("the second run is rejected") for reason in found.reasons)

    def test_two_runs_without_times_compare_conditions(self) -> None:
        """Without times, the conditions are compared and the missing times are a reason."""
        found = of_runs(evidence(), self.later(evidence(timings=times(2e-3))), names=("one", "two"))
        assert found.decision is Decision.INCONCLUSIVE
        assert any(reason.startswith("one recorded no times") for reason in found.reasons)
        assert ("GPU", False) in [(condition.name, condition.differs) for condition in found.conditions]


def constant(took_s: float, mhz: float, *, seed: int = 0) -> Timings:
    """Return the iterations of ``times`` with stamps of a constant clock."""
    found = times(took_s, seed=seed)
    return replace(found, sm_clock_mhz=np.full(len(found.took_s), mhz))


def stamped(took_s: float, mhz: float, *, seed: int = 0, length_s: float = 6.0) -> Timings:
    """Return iterations that take ``took_s`` at 1375 MHz, fill the window and follow a clock that swings around ``mhz``."""
    rng = np.random.default_rng(seed)
    usual_s = took_s * (1375.0 / mhz) ** 0.95
    count = int(length_s / usual_s)
    about_s = usual_s * np.arange(count)
    clock = mhz * (1 + 0.03 * np.sin(2 * np.pi * about_s / 1.03)) * np.exp(0.0005 * rng.standard_normal(count))
    took = took_s * (1375.0 / clock) ** 0.95 * np.exp(0.001 * rng.standard_normal(count))
    at_ns = BEGIN_NS + np.concatenate([[0], np.cumsum(took)[:-1] * 1e9]).astype(np.int64)
    return Timings(at_ns, took, clock)
