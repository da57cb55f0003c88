"""Rules about profilers, allocations, cheap input data, and threads beside the work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.claims import Claim
from annotate.declared import FACTS
from annotate.evidence import Evidence, Fact, Host, Ownership, Process
from annotate.judge import judge
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.harness import (
    RULES,
    allocator_churn,
    background_thread,
    data_dependent_power,
    profiler_attached,
)
from tests.annotate.builders import OWN, capped_ns, evidence
from tests.annotate.occurrences.harness import RANDOM, UNMOVED, ZEROS, beside, calls, churning, profiled
from tests.examples import share_of

FOREIGN = Process(pid=77, name="python", user="bob", memory_bytes=4_000_000_000, ownership=Ownership.FOREIGN)


def ask(rule: Rule, about: Evidence, claim: Claim = Claim.SUSTAINED) -> Answer:
    return rule.ask(about, claim)


def found(answer: Answer) -> Found:
    assert isinstance(answer, Found), answer
    return answer


def severity(rule: Rule, about: Evidence, claim: Claim = Claim.SUSTAINED) -> Severity:
    return found(ask(rule, about, claim)).severity


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
def test_nonsense_told_raises_nothing(facts: dict[str, Fact]) -> None:
    about = evidence(length_s=1.0, declared=facts, timings=calls(1e-3))
    for rule in RULES:
        ask(rule, about)


class TestProfilerAttached:
    def test_a_quiet_process_is_clear(self) -> None:
        assert isinstance(ask(profiler_attached, profiled("")), Clear)

    def test_a_mapped_cupti_alone_proves_nothing(self) -> None:
        answer = ask(profiler_attached, profiled("idle:libcupti.so.12"))
        assert isinstance(answer, Clear)
        assert answer.facts["mapped"] == "libcupti.so.12"

    def test_profiler_unseen_process_is_unobserved(self) -> None:
        """One who could not be looked at is unobserved whatever is told."""
        about = replace(profiled(None), declared={"launch_blocking": False, "profiler_used": False})
        assert isinstance(ask(profiler_attached, about), Unobserved)

    def test_an_injection_beside_a_busy_gpu_is_flagged_and_named(self) -> None:
        answer = found(ask(profiler_attached, profiled("library:libToolsInjection64.so")))
        assert answer.severity is Severity.FLAG
        assert answer.facts["what"] == "libToolsInjection64.so"

    @pytest.mark.parametrize("utilization", [0.5, None])
    def test_it_is_rejected_where_the_gpu_waited_or_nobody_knows(self, utilization: float | None) -> None:
        about = profiled("variable:NVTX_INJECTION64_PATH", utilization_ratio=utilization)
        assert severity(profiler_attached, about) is Severity.REJECT

    def test_profiler_severity_follows_call_length(self) -> None:
        """It is rejected for short calls and flagged for long ones."""
        about = profiled("variable:CUDA_INJECTION64_PATH")
        assert severity(profiler_attached, replace(about, timings=calls(50e-6))) is Severity.REJECT
        assert severity(profiler_attached, replace(about, timings=calls(5e-3))) is Severity.FLAG

    @pytest.mark.parametrize("name", ["library:libsanitizer-collection.so", "tracer:cuda-gdb", "variable:TRITON_INTERPRET"])
    def test_what_slows_kernels_themselves_is_rejected(self, name: str) -> None:
        assert severity(profiler_attached, profiled(name)) is Severity.REJECT

    @pytest.mark.parametrize("name", ["launch_blocking", "profiler_used"])
    def test_what_only_the_process_knows_counts(self, name: str) -> None:
        assert severity(profiler_attached, replace(profiled(""), declared={name: True})) is Severity.FLAG
        assert isinstance(ask(profiler_attached, replace(profiled(""), declared={name: "yes"})), Clear)

    def test_long_lists_are_cut(self) -> None:
        answer = found(ask(profiler_attached, profiled(",".join(f"variable:NSYS_{i}" for i in range(9)))))
        assert answer.facts["what"] == "NSYS_0, NSYS_1, NSYS_2 and 6 more"

    @given(st.text(max_size=80))
    def test_any_list_is_read(self, text: str) -> None:
        ask(profiler_attached, evidence(length_s=0.3, host=Host(profilers=text)))


class TestAllocatorChurn:
    def test_memory_that_stands_still_is_clear(self) -> None:
        assert isinstance(ask(allocator_churn, evidence()), Clear)
        assert isinstance(ask(allocator_churn, evidence(declared=UNMOVED)), Clear)

    def test_an_allocator_that_started_over_is_rejected(self) -> None:
        assert severity(allocator_churn, evidence(declared={**UNMOVED, "alloc_retry_count": 1})) is Severity.REJECT

    def test_allocator_severity_follows_request_count(self) -> None:
        """Asking the driver in a loop is flagged and a few times noted."""
        assert severity(allocator_churn, evidence(declared={**UNMOVED, "alloc_count": 600})) is Severity.FLAG
        assert severity(allocator_churn, evidence(declared={**UNMOVED, "alloc_count": 6})) is Severity.NOTE

    def test_allocator_moving_memory_is_flagged(self) -> None:
        """Memory in use that keeps moving is flagged though nobody tells."""
        assert severity(allocator_churn, churning()) is Severity.FLAG
        assert severity(allocator_churn, replace(churning(), declared=UNMOVED)) is Severity.FLAG

    def test_memory_taken_once_is_no_churn(self) -> None:
        grown = {"memory_used_bytes": lambda t: 3_000_000_000 if t < 1 else 9_000_000_000}
        assert isinstance(ask(allocator_churn, evidence(signals=grown)), Clear)

    def test_beside_a_neighbour_memory_in_use_says_nothing(self) -> None:
        both = evidence(processes=[OWN, FOREIGN], signals={"memory_used_bytes": lambda t: 3_000_000_000 + int(t * 10)})
        assert isinstance(ask(allocator_churn, both), Unobserved)

    def test_memory_never_read_is_unobserved(self) -> None:
        assert isinstance(ask(allocator_churn, evidence(signals={"memory_used_bytes": None})), Unobserved)


class TestDataDependentPower:
    def test_random_inputs_are_clear_and_unshown_ones_unobserved(self) -> None:
        assert isinstance(ask(data_dependent_power, evidence(declared=RANDOM)), Clear)
        assert isinstance(ask(data_dependent_power, evidence()), Unobserved)

    @pytest.mark.parametrize(
        ("claim", "quoted", "expected"),
        [
            (Claim.SUSTAINED, False, Severity.FLAG),
            (Claim.SUSTAINED, True, Severity.REJECT),
            (Claim.BURST, True, Severity.FLAG),
            (Claim.FIXED_CLOCK, True, Severity.NOTE),
        ],
    )
    def test_zeros_count_most_where_sustained_flops_are_quoted(self, claim: Claim, quoted: bool, expected: Severity) -> None:
        about = evidence(declared={**ZEROS, **({"call_flops_count": 8.8e12} if quoted else {})})
        assert severity(data_dependent_power, about, claim) is expected

    def test_constants_are_found_and_rectified_values_are_data(self) -> None:
        assert severity(data_dependent_power, evidence(declared={**RANDOM, "input_unique_ratio": 1.5e-5})) is Severity.FLAG
        assert isinstance(ask(data_dependent_power, evidence(declared={**RANDOM, "input_zero_ratio": 0.502})), Clear)

    def test_zeros_of_integers_may_be_meant(self) -> None:
        assert isinstance(ask(data_dependent_power, evidence(declared={**ZEROS, "input_dtype": "int64"})), Unobserved)

    def test_cheap_data_by_a_low_cap_is_noted(self) -> None:
        """A board capped far below its limit is noted though nobody tells."""
        capped = {"power_cap_ns": capped_ns(), "power_violation_ns": capped_ns()}
        assert severity(data_dependent_power, evidence(signals={**capped, "power_w": 415.0})) is Severity.NOTE
        assert isinstance(ask(data_dependent_power, evidence(signals={**capped, "power_w": 691.0})), Unobserved)


class TestBackgroundThread:
    def test_nobody_new_is_clear(self) -> None:
        assert isinstance(ask(background_thread, beside(0, 0, 0.0)), Clear)

    def test_a_thread_that_computes_is_flagged(self) -> None:
        answer = found(ask(background_thread, beside(1, 0, 2.0)))
        assert answer.severity is Severity.FLAG
        assert answer.facts["what"] == "1 thread"

    def test_background_sleeping_threads_are_clear_or_noted(self) -> None:
        """A few that sleep are nobody and a pool or process that sleeps is noted."""
        assert isinstance(ask(background_thread, beside(3, 0, 0.01)), Clear)
        assert severity(background_thread, beside(16, 0, 0.01)) is Severity.NOTE
        assert severity(background_thread, beside(0, 2, 0.01)) is Severity.NOTE

    def test_where_their_time_is_unknown_they_are_flagged(self) -> None:
        assert severity(background_thread, beside(1, 1, None)) is Severity.FLAG

    def test_a_tree_nobody_looked_at_is_unobserved(self) -> None:
        assert isinstance(ask(background_thread, evidence()), Unobserved)


def test_profiler_seen_outweighs_declared_facts() -> None:
    """What the process tells does not talk the judge out of what was seen."""
    about = replace(
        profiled("library:libcuinj64.so", utilization_ratio=0.3), timings=calls(5e-3), declared={"profiler_used": False}
    )
    finding = judge(about).finding("profiler-attached")
    assert finding.severity == Severity.REJECT
