"""Tests of the rules about implausible numbers: peaks, cached results, checks against a reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.claims import Claim
from annotate.evidence import Evidence, Fact, Timings
from annotate.rule import Clear, Found, Rule, Severity, Unobserved
from annotate.rules.plausibility import RULES, impossible_time, result_cached, semantic_mismatch
from annotate.times.durations import usable
from tests.annotate.builders import BEGIN_NS, UUID, evidence
from tests.annotate.occurrences.plausibility import H200
from tests.annotate.occurrences.timing import every
from tests.annotate.rules.asking import ask, found
from tests.examples import share_of

GEMM_4K = 2 * 4096**3
PEAK_1333 = 132 * 4096 * 1333e6


def timed(took_s: float, declared: dict[str, Fact], *, clock_mhz: float | None = None, calls_count: int = 1) -> Evidence:
    loop = every(1.05 * took_s * calls_count, took_s=took_s, length_s=0.2, calls_count=calls_count)
    clock = None if clock_mhz is None else np.full(len(loop.at_ns), clock_mhz)
    return evidence(length_s=0.3, device=H200, declared=declared, timings=Timings(loop.at_ns, loop.took_s, clock, calls_count))


@pytest.mark.parametrize("claim", Claim)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_plausibility_rules_are_unobserved_without_facts(rule: Rule, claim: Claim) -> None:
    assert isinstance(ask(rule, evidence(), claim), Unobserved)


@pytest.mark.parametrize("nonsense", ["x", True, float("nan"), float("-inf"), -1.0, None, 10**400])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_plausibility_accepts_nonsense_declarations(rule: Rule, nonsense: object) -> None:
    names = (
        "call_flops_count", "call_bytes", "dtype", "l2_bytes", "working_set_bytes", "matmul_precision", "cudnn_tf32",
        "output_unchanged", "reference_limit_ratio", "cuda_uuids", "timer",
    )  # fmt: skip
    about = evidence(device=H200, timings=every(1e-3, took_s=0.9e-3, length_s=2.0))
    answer = ask(rule, replace(about, declared=dict.fromkeys(names, nonsense)))  # type: ignore[arg-type]  # what a client may send
    assert not isinstance(answer, Found) or answer.severity is Severity.NOTE or nonsense is True


class TestImpossibleTime:
    GEMM: dict[str, Fact] = {"dtype": "torch.bfloat16", "call_flops_count": GEMM_4K}  # noqa: RUF012 - read only

    def test_sustained_gemm_of_an_h200_is_possible(self) -> None:
        answer = ask(impossible_time, timed(0.2031e-3, self.GEMM, clock_mhz=1333))
        assert isinstance(answer, Clear)
        assert answer.facts["peak_ratio"] == pytest.approx(0.94, abs=0.01)

    @pytest.mark.parametrize("took_s", [0.0, -1e-3, 1e-12, float("nan"), float("inf"), 1e7])
    @pytest.mark.parametrize("declared", [{}, GEMM])
    def test_impossible_time_of_no_duration(self, took_s: float, declared: dict[str, Fact]) -> None:
        """A single invalid duration rejects the window, with or without declared work."""
        about = timed(0.2031e-3, declared, clock_mhz=1333)
        assert about.timings is not None
        taken_s = about.timings.took_s.copy()
        taken_s[3] = took_s
        given = usable(replace(about.timings, took_s=taken_s), about.window)
        answer = found(ask(impossible_time, replace(about, timings=given)))
        assert answer.severity is Severity.REJECT
        assert impossible_time.says.format(**answer.facts).startswith("1 of ")
        assert impossible_time.remedy.format(**answer.facts).startswith("Check that durations are in seconds")

    @pytest.mark.parametrize(("took_s", "hazard"), [(0.3, False), (0.304, False), (0.31, True), (200.0, True)])
    def test_impossible_time_longer_than_its_window(self, took_s: float, hazard: bool) -> None:
        about = evidence(length_s=0.3, timings=Timings(np.array([BEGIN_NS]), np.array([took_s])))
        assert isinstance(ask(impossible_time, about), Found) is hazard

    def test_count_ten_times_too_high_rejects_with_both_figures(self) -> None:
        about = timed(0.2031e-3, {**self.GEMM, "call_flops_count": 10 * GEMM_4K})
        answer = found(ask(impossible_time, about))
        assert answer.severity is Severity.REJECT
        assert (answer.facts["claimed"], answer.facts["peak"]) == ("6.77 PFLOP/s", "1.07 PFLOP/s in bf16 at 1980 MHz")
        assert answer.effect_ratio == pytest.approx(-0.84, abs=0.01)

    @pytest.mark.parametrize(("clock_mhz", "hazard"), [(None, False), (1333.0, True), (99_999.0, False), (float("nan"), False)])
    def test_stamped_clock_decides_the_peak(self, clock_mhz: float | None, hazard: bool) -> None:
        about = timed(GEMM_4K / PEAK_1333 / 1.1, self.GEMM, clock_mhz=clock_mhz)
        assert isinstance(ask(impossible_time, about), Found) is hazard

    def test_batch_counts_one_call(self) -> None:
        assert isinstance(ask(impossible_time, timed(0.2031e-3, self.GEMM, calls_count=20)), Clear)

    @pytest.mark.parametrize(
        ("declared", "hazard"),
        [
            ({}, False),
            ({"matmul_precision": "highest"}, False),
            ({"matmul_precision": "highest", "cudnn_tf32": False}, True),
            ({"matmul_precision": "medium", "cudnn_tf32": False}, False),
        ],
    )
    def test_float32_peak_follows_torchs_precision(self, declared: dict[str, Fact], hazard: bool) -> None:
        about = timed(GEMM_4K / 300e12, {"dtype": "float32", "call_flops_count": GEMM_4K, **declared})
        assert isinstance(ask(impossible_time, about), Found) is hazard

    def test_fastest_type_bounds_undeclared_types(self) -> None:
        assert isinstance(ask(impossible_time, timed(GEMM_4K / 1500e12, {"call_flops_count": GEMM_4K})), Clear)
        assert isinstance(ask(impossible_time, timed(GEMM_4K / 2500e12, {"call_flops_count": GEMM_4K})), Found)

    def test_impossible_time_of_a_recorded_copy(self) -> None:
        """A copy at its recorded rate is possible; at twice that rate it is not."""
        declared: dict[str, Fact] = {"call_bytes": 2 << 30}
        assert isinstance(ask(impossible_time, timed(0.5101e-3, declared)), Clear)
        answer = found(ask(impossible_time, timed(0.25e-3, declared)))
        assert answer.facts["peak"] == "4.92 TB/s of its memory"

    @pytest.mark.parametrize("declared", [{"call_bytes": 33 << 20}, {"call_bytes": 2 << 30, "working_set_bytes": 40 << 20}])
    def test_traffic_within_the_cache_is_never_impossible(self, declared: dict[str, Fact]) -> None:
        assert isinstance(ask(impossible_time, timed(2e-6, declared)), Clear)

    def test_declared_cache_replaces_the_largest_one(self) -> None:
        declared: dict[str, Fact] = {"call_bytes": 64 << 20, "l2_bytes": 1 << 20}
        assert isinstance(ask(impossible_time, timed(10e-6, declared)), Found)

    @pytest.mark.parametrize("device", [None, replace(H200, compute_capability="99.9", memory_bus_bits_count=None)])
    def test_impossible_time_of_an_unknown_gpu_is_unobserved(self, device: None) -> None:
        about = replace(timed(1e-6, {**self.GEMM, "call_bytes": 1 << 40}), device=device)
        assert isinstance(ask(impossible_time, about), Unobserved)

    def test_declared_work_without_a_known_peak_is_unobserved(self) -> None:
        declared: dict[str, Fact] = {**self.GEMM, "call_bytes": 1e6, "l2_bytes": 60 << 20}
        about = timed(0.2031e-3, declared)
        assert isinstance(ask(impossible_time, about), Clear)
        nameless = {
            "operations": replace(H200, cuda_cores_count=None),
            "bytes": replace(H200, memory_bus_bits_count=None),
        }
        for what, device in nameless.items():
            answer = ask(impossible_time, replace(about, device=device))
            assert answer == Unobserved(f"the peak {what} per second of this GPU are not known")

    def test_impossible_time_on_another_gpu_is_unobserved(self) -> None:
        about = timed(1e-6, {**self.GEMM, "cuda_uuids": f"{UUID},GPU-2"})
        assert isinstance(ask(impossible_time, about), Unobserved)

    @given(st.floats(1e-6, 1e-2), st.floats(300.0, 1980.0))
    @settings(max_examples=share_of(25))
    def test_impossible_time_is_found_exactly_beyond_the_limit(self, took_s: float, clock_mhz: float) -> None:
        about = timed(took_s, {"dtype": "bf16", "call_flops_count": GEMM_4K}, clock_mhz=clock_mhz)
        share = GEMM_4K / took_s / (132 * 4096 * clock_mhz * 1e6)
        assert isinstance(ask(impossible_time, about), Found) == (share > 1.02)


class TestForeignStamps:
    """Stamps against the driver's clock of this GPU."""

    @staticmethod
    def about(stamped_mhz: float, shown_mhz: float, *, length_s: float = 3.0) -> Evidence:
        timings = every(1e-3, took_s=0.97e-3, length_s=length_s)
        timings = replace(timings, sm_clock_mhz=np.full(len(timings.at_ns), stamped_mhz))
        return evidence(length_s=length_s, signals={"sm_clock_mhz": shown_mhz}, timings=timings)

    @pytest.mark.parametrize(("stamped_mhz", "shown_mhz"), [(1978.0, 1650.0), (1755.0, 1410.0), (1980.0, 1935.0)])
    def test_stamps_above_the_drivers_clock_flag(self, stamped_mhz: float, shown_mhz: float) -> None:
        answer = found(ask(impossible_time, self.about(stamped_mhz, shown_mhz)))
        assert answer.severity is Severity.FLAG
        assert f"{shown_mhz:.0f}" in str(answer.facts["what"])

    @pytest.mark.parametrize(("stamped_mhz", "shown_mhz"), [(1978.0, 1980.0), (1500.0, 1650.0), (1980.0, 1965.0)])
    def test_stamps_near_or_below_the_drivers_clock_are_clear(self, stamped_mhz: float, shown_mhz: float) -> None:
        """Stamps below the driver's clock or one step above are clear: under a cap the true clock is up to 12 % lower."""
        assert not isinstance(ask(impossible_time, self.about(stamped_mhz, shown_mhz)), Found)

    def test_stamps_need_a_second_of_the_drivers_clock(self) -> None:
        """Below a second, stamps are not compared: the lagging gauge may show the clock at rest."""
        assert not isinstance(ask(impossible_time, self.about(1980.0, 345.0, length_s=0.5)), Found)


class TestResultCached:
    def test_output_that_ignores_its_inputs_is_rejected(self) -> None:
        assert found(ask(result_cached, evidence(declared={"output_unchanged": True}))).severity is Severity.REJECT
        assert isinstance(ask(result_cached, evidence(declared={"output_unchanged": False})), Clear)

    @staticmethod
    def loop(busy: float, declared: dict[str, Fact]) -> Evidence:
        declared = {"cuda_uuids": UUID, **declared}
        return evidence(
            device=H200,
            signals={"utilization_ratio": busy},
            declared=declared,
            timings=every(1e-3, took_s=0.9e-3, length_s=3.0),
        )

    @pytest.mark.parametrize(("busy", "hazard"), [(0.03, True), (0.4, False), (0.97, False)])
    def test_gpu_too_idle_for_the_declared_work_is_rejected(self, busy: float, hazard: bool) -> None:
        about = self.loop(busy, {"dtype": "bf16", "call_flops_count": 4 * GEMM_4K})
        assert isinstance(ask(result_cached, about), Found) is hazard

    @staticmethod
    def resting(declared: dict[str, Fact], *, power_w: float = 118.0) -> Evidence:
        signals = {"utilization_ratio": 0.0, "energy_j": lambda t: 1000.0 + power_w * (t + 100)}
        about = evidence(device=H200, signals=signals, declared={"cuda_uuids": UUID, **declared})
        return replace(about, timings=every(1e-3, took_s=0.9e-3, length_s=3.0))

    def test_idle_gpu_during_event_times_is_rejected(self) -> None:
        assert isinstance(ask(result_cached, self.resting({"timer": "events"})), Found)
        assert isinstance(ask(result_cached, self.resting({"timer": "host"})), Unobserved)

    def test_energy_of_work_contradicts_utilisation_of_rest(self) -> None:
        """Utilisation may exclude copies, so the busy share is unknown if the energy is that of work."""
        assert isinstance(ask(result_cached, self.resting({"timer": "events"}, power_w=185.0)), Unobserved)

    def test_process_on_several_gpus_is_unobserved(self) -> None:
        for uuids in (f"{UUID},GPU-2", "GPU-2", ""):
            assert isinstance(ask(result_cached, self.loop(0.0, {"timer": "events", "cuda_uuids": uuids})), Unobserved)

    def test_times_laid_end_to_end_hide_their_gaps(self) -> None:
        about = self.loop(0.05, {"timer": "caller", "dtype": "bf16", "call_flops_count": 4 * GEMM_4K})
        laid = replace(about, timings=every(0.9e-3, took_s=0.9e-3, length_s=3.0))
        assert isinstance(ask(result_cached, laid), Unobserved)

    def test_cached_result_needs_an_idle_gpu(self) -> None:
        """Declared work above the available time is not a cached result if the GPU is busy."""
        about = self.loop(0.9, {"dtype": "bf16", "call_flops_count": 100 * GEMM_4K})
        assert isinstance(ask(result_cached, about), Clear)


class TestSemanticMismatch:
    def test_result_within_its_limit_is_clear(self) -> None:
        declared: dict[str, Fact] = {"reference_error_ratio": 0.004, "reference_limit_ratio": 0.02}
        assert isinstance(ask(semantic_mismatch, evidence(declared=declared)), Clear)

    @pytest.mark.parametrize("error", [0.3, float("nan"), float("inf")])
    def test_result_beyond_its_limit_rejects(self, error: float) -> None:
        declared: dict[str, Fact] = {"reference_error_ratio": error, "reference_limit_ratio": 0.02}
        assert found(ask(semantic_mismatch, evidence(declared=declared))).severity is Severity.REJECT

    def test_missing_reference_is_noted_only_for_bench(self) -> None:
        """A bench without a reference is noted; a window with times is not."""
        timings = every(1e-3, took_s=0.9e-3)
        benched = evidence(timings=timings, declared={"timer": "events", "timer_overhead_s": 2e-6})
        assert found(ask(semantic_mismatch, benched)).severity is Severity.NOTE
        # Plain windows accept no reference, and a comparison declares its own checks.
        assert isinstance(ask(semantic_mismatch, evidence(timings=timings, declared={"timer": "events"})), Unobserved)
        compared = replace(benched, declared={**benched.declared, "design": "interleaved"})
        assert isinstance(ask(semantic_mismatch, compared), Unobserved)
        assert isinstance(ask(semantic_mismatch, evidence()), Unobserved)

    def test_error_without_a_limit_is_unobserved(self) -> None:
        assert isinstance(ask(semantic_mismatch, evidence(declared={"reference_error_ratio": 0.3})), Unobserved)
