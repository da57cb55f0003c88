"""Tests of the rules about profilers, allocations, cheap input data, and background threads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import Group, Number
from annotate.claims import Claim
from annotate.declared import FACTS
from annotate.evidence import Evidence, Fact, Host, Ownership, Process
from annotate.judge import judge
from annotate.passes import AskingPass, merge_passes
from annotate.rule import Answer, Clear, Rule, Severity, Unobserved
from annotate.rules.harness import RULES, allocator_churn, background_thread, data_dependent_power, profiler_attached
from tests.annotate.builders import OWN, capped_ns, evidence
from tests.annotate.occurrences.harness import RANDOM, UNMOVED, ZEROS, beside, calls, churning, profiled
from tests.annotate.proofs.company_builders import record, times
from tests.annotate.rules.asking import ask, found
from tests.examples import share_of

CAPPED = {"power_cap_ns": capped_ns(), "power_violation_ns": capped_ns()}
FOREIGN = Process(pid=77, name="python", user="bob", memory_bytes=4_000_000_000, ownership=Ownership.FOREIGN)


def severity(rule: Rule, about: Evidence, claim: Claim = Claim.SUSTAINED) -> Severity:
    return found(ask(rule, about, claim)).severity


def sizes(answer: Answer) -> dict[tuple[Number, Group], float | None]:
    assert found(answer).severity is Severity.NOTE
    return {(bound.number, bound.group): bound.ratio for bound in found(answer).bounds}


nonsense = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=5),
    st.integers(),
    st.floats(),
    st.just(10**400),
    st.just("float32"),
    st.just("cold"),
)


@given(st.dictionaries(st.sampled_from(sorted(FACTS)), nonsense, max_size=12))
@settings(max_examples=share_of(60))
def test_harness_accepts_nonsense_declarations(facts: dict[str, Fact]) -> None:
    about = evidence(length_s=1.0, declared=facts, timings=calls(1e-3))
    for rule in RULES:
        ask(rule, about)


class TestProfilerAttached:
    def test_process_without_profilers_is_clear(self) -> None:
        assert isinstance(ask(profiler_attached, profiled("")), Clear)

    def test_mapped_cupti_alone_is_clear(self) -> None:
        answer = ask(profiler_attached, profiled("idle:libcupti.so.12"))
        assert isinstance(answer, Clear)
        assert answer.facts["mapped"] == "libcupti.so.12"

    def test_profiler_unseen_process_is_unobserved(self) -> None:
        """A process that the daemon could not inspect is unobserved despite declared facts."""
        about = replace(profiled(None), declared={"launch_blocking": False, "profiler_used": False})
        assert isinstance(ask(profiler_attached, about), Unobserved)

    def test_injection_with_a_busy_gpu_is_flagged_and_named(self) -> None:
        answer = found(ask(profiler_attached, profiled("library:libToolsInjection64.so")))
        assert answer.severity is Severity.FLAG
        assert answer.facts["what"] == "libToolsInjection64.so"

    @pytest.mark.parametrize("utilization", [0.5, None])
    def test_injection_without_a_busy_gpu_is_rejected(self, utilization: float | None) -> None:
        about = profiled("variable:NVTX_INJECTION64_PATH", utilization_ratio=utilization)
        assert severity(profiler_attached, about) is Severity.REJECT

    def test_profiler_severity_follows_call_length(self) -> None:
        """The rule rejects windows of short calls and flags windows of long calls."""
        about = profiled("variable:CUDA_INJECTION64_PATH")
        assert severity(profiler_attached, replace(about, timings=calls(50e-6))) is Severity.REJECT
        assert severity(profiler_attached, replace(about, timings=calls(5e-3))) is Severity.FLAG

    @pytest.mark.parametrize("name", ["library:libsanitizer-collection.so", "tracer:cuda-gdb", "variable:TRITON_INTERPRET"])
    def test_tools_that_slow_kernels_are_rejected(self, name: str) -> None:
        assert severity(profiler_attached, profiled(name)) is Severity.REJECT

    @pytest.mark.parametrize("name", ["launch_blocking", "profiler_used"])
    def test_declared_profilers_count(self, name: str) -> None:
        assert severity(profiler_attached, replace(profiled(""), declared={name: True})) is Severity.FLAG
        assert isinstance(ask(profiler_attached, replace(profiled(""), declared={name: "yes"})), Clear)

    def test_long_lists_are_cut(self) -> None:
        answer = found(ask(profiler_attached, profiled(",".join(f"variable:NSYS_{i}" for i in range(9)))))
        assert answer.facts["what"] == "NSYS_0, NSYS_1, NSYS_2 and 6 more"

    @given(st.text(max_size=80))
    def test_profilers_of_any_text_raise_nothing(self, text: str) -> None:
        ask(profiler_attached, evidence(length_s=0.3, host=Host(profilers=text)))


class TestAllocatorChurn:
    def test_constant_memory_is_clear(self) -> None:
        assert isinstance(ask(allocator_churn, evidence()), Clear)
        assert isinstance(ask(allocator_churn, evidence(declared=UNMOVED)), Clear)

    def test_each_request_counts_a_millisecond(self) -> None:
        """600 requests in 6 s bound throughput and mean by a tenth, 6 requests by a thousandth."""
        for count, ratio in ((600, 0.1), (6, 0.001), (60_000, 1.0)):
            shares = sizes(ask(allocator_churn, evidence(declared={**UNMOVED, "alloc_count": count})))
            due = {(Number.THROUGHPUT, Group.INSIDE): ratio, (Number.MEAN, Group.INSIDE): ratio}
            assert shares == pytest.approx(due)

    def test_allocator_retry_has_no_size_without_times(self) -> None:
        again = {**UNMOVED, "alloc_retry_count": 1}
        assert sizes(ask(allocator_churn, evidence(declared=again))) == {(Number.THROUGHPUT, Group.INSIDE): None}

    def test_late_iterations_bound_allocator_retries(self) -> None:
        """After a retry, late iterations that add about 6 % give the bounds, and no gap is irregular."""
        about = evidence(declared={**UNMOVED, "alloc_retry_count": 1}, timings=times(late_every=200))
        shares = sizes(ask(allocator_churn, about))
        assert 0.05 < (shares[Number.MEAN, Group.INSIDE] or 0.0) < 0.08
        assert 0.05 < (shares[Number.THROUGHPUT, Group.INSIDE] or 0.0) < 0.08
        assert shares[Number.THROUGHPUT, Group.IDLE] == pytest.approx(0.0, abs=0.002)

    def test_changing_memory_has_no_size_without_times(self) -> None:
        """Changing memory is found without declarations, and the declared allocator statistics do not clear it."""
        assert sizes(ask(allocator_churn, churning())) == {(Number.THROUGHPUT, Group.INSIDE): None}
        assert sizes(ask(allocator_churn, replace(churning(), declared=UNMOVED))) == {(Number.THROUGHPUT, Group.INSIDE): None}

    def test_times_replace_a_bound_of_unknown_size(self) -> None:
        """Uniform times that fill the window replace the unknown size by a bound below 0.2 %."""
        open_ended = found(ask(allocator_churn, churning())).bounds
        timed = found(ask(allocator_churn, replace(churning(), timings=times()))).bounds
        merged = merge_passes({AskingPass.WITNESSED: open_ended, AskingPass.TIMED: timed})
        assert all((bound.ratio or 0.0) < 0.002 and bound.ratio is not None for bound in merged)

    def test_single_growth_of_memory_is_clear(self) -> None:
        grown = {"memory_used_bytes": lambda t: 3_000_000_000 if t < 1 else 9_000_000_000}
        assert isinstance(ask(allocator_churn, evidence(signals=grown)), Clear)

    def test_memory_with_a_neighbour_is_unobserved(self) -> None:
        both = evidence(processes=[OWN, FOREIGN], signals={"memory_used_bytes": lambda t: 3_000_000_000 + int(t * 10)})
        assert isinstance(ask(allocator_churn, both), Unobserved)

    def test_memory_never_read_is_unobserved(self) -> None:
        assert isinstance(ask(allocator_churn, evidence(signals={"memory_used_bytes": None})), Unobserved)


class TestDataDependentPower:
    def test_random_inputs_are_clear_and_undeclared_unobserved(self) -> None:
        assert isinstance(ask(data_dependent_power, evidence(declared=RANDOM)), Clear)
        assert isinstance(ask(data_dependent_power, evidence()), Unobserved)

    @pytest.mark.parametrize("inputs", [ZEROS, {**RANDOM, "input_unique_ratio": 1.5e-5}])
    @pytest.mark.parametrize("claim", [Claim.SUSTAINED, Claim.BURST])
    def test_cheap_inputs_of_a_capped_board_have_no_bound(self, inputs: dict[str, Fact], claim: Claim) -> None:
        """The gain of zeros or constants under a cap is not known, so the bounds have no size."""
        shares = sizes(ask(data_dependent_power, evidence(declared=inputs, signals=CAPPED, timings=times()), claim))
        assert shares == {(number, Group.RECORD): None for number in (Number.THROUGHPUT, Number.MEAN, Number.MEDIAN)}

    def test_work_record_bounds_cheap_inputs(self) -> None:
        """Times 5 % below a record of windows within ±0.1 % have a bound of about 5.2 %."""
        about = replace(evidence(declared=ZEROS, signals=CAPPED, timings=times(slower_ratio=-0.05)), record=record())
        assert sizes(ask(data_dependent_power, about))[Number.MEAN, Group.RECORD] == pytest.approx(0.052, abs=0.002)

    def test_cheap_inputs_uncapped_or_at_fixed_clock_are_a_label(self) -> None:
        for about, claim in (
            (evidence(declared=ZEROS), Claim.SUSTAINED),
            (evidence(declared=ZEROS, signals=CAPPED), Claim.FIXED_CLOCK),
        ):
            answer = found(ask(data_dependent_power, about, claim))
            assert (answer.severity, answer.bounds) == (Severity.NOTE, ())
            assert "100% of the inputs are zeros" in str(answer.facts["what"])

    def test_half_zeros_are_clear(self) -> None:
        assert isinstance(ask(data_dependent_power, evidence(declared={**RANDOM, "input_zero_ratio": 0.502})), Clear)

    def test_integer_zeros_are_unobserved(self) -> None:
        assert isinstance(ask(data_dependent_power, evidence(declared={**ZEROS, "input_dtype": "int64"})), Unobserved)

    def test_cheap_data_by_a_low_cap_is_noted(self) -> None:
        """Without declared inputs, a cap far below the board's limit is noted, and one near the limit is unobserved."""
        assert sizes(ask(data_dependent_power, evidence(signals={**CAPPED, "power_w": 415.0}))) == {}
        assert isinstance(ask(data_dependent_power, evidence(signals={**CAPPED, "power_w": 691.0})), Unobserved)


class TestBackgroundThread:
    def test_no_new_threads_are_clear(self) -> None:
        assert isinstance(ask(background_thread, beside(0, 0, 0.0)), Clear)

    def test_computing_thread_is_flagged(self) -> None:
        answer = found(ask(background_thread, beside(1, 0, 2.0)))
        assert answer.severity is Severity.FLAG
        assert answer.facts["what"] == "1 thread"

    def test_background_sleeping_threads_are_clear_or_noted(self) -> None:
        """A few sleeping threads are clear; a sleeping pool or process is noted."""
        assert isinstance(ask(background_thread, beside(3, 0, 0.01)), Clear)
        assert severity(background_thread, beside(16, 0, 0.01)) is Severity.NOTE
        assert severity(background_thread, beside(0, 2, 0.01)) is Severity.NOTE

    def test_new_threads_of_unknown_time_are_flagged(self) -> None:
        assert severity(background_thread, beside(1, 1, None)) is Severity.FLAG

    def test_uninspected_process_tree_is_unobserved(self) -> None:
        assert isinstance(ask(background_thread, evidence()), Unobserved)


def test_observed_profiler_outweighs_declared_facts() -> None:
    """A declaration without a profiler does not clear a profiler that the daemon observed."""
    about = replace(
        profiled("library:libcuinj64.so", utilization_ratio=0.3), timings=calls(5e-3), declared={"profiler_used": False}
    )
    finding = judge(about).finding("profiler-attached")
    assert finding.severity == Severity.REJECT
