"""Tests of the rules about the L2 cache: inputs that fit the cache, and insufficient flushes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from annotate.budget import Bound, Number
from annotate.evidence import Evidence, Fact
from annotate.rule import Clear, Found, Rule, Severity, Unobserved
from annotate.rules.caches import flush_insufficient, warm_cache_unintended
from annotate.rules.plausibility import impossible_time
from tests.annotate.builders import DEVICE, UUID, evidence
from tests.annotate.occurrences.caches import L2_BYTES
from tests.annotate.occurrences.harness import calls
from tests.annotate.rules.asking import ask

PEAKED = replace(DEVICE, memory_bus_bits_count=6144)  # 4.92 TB/s at 3201 MHz


def severity(rule: Rule, about: Evidence) -> Severity:
    answer = ask(rule, about)
    assert isinstance(answer, Found), answer
    return answer.severity


def label(rule: Rule, about: Evidence) -> str:
    answer = ask(rule, about)
    assert isinstance(answer, Found), answer
    assert (answer.severity, answer.bounds) == (Severity.NOTE, ())
    return rule.says.format(**answer.facts)


def bounds(about: Evidence) -> tuple[Bound, ...]:
    answer = ask(flush_insufficient, about)
    assert isinstance(answer, Found), answer
    assert {bound.number for bound in answer.bounds} == {Number.MEAN, Number.MEDIAN, Number.MEDIAN_AT_CLOCK}
    return answer.bounds


def declared(**facts: Fact) -> Evidence:
    return evidence(declared=facts)


class TestWarmCacheUnintended:
    @pytest.mark.parametrize("known", ["working_set_bytes", "input_bytes"])
    def test_warm_cache_unlabelled_fit_is_a_label(self, known: str) -> None:
        """Inputs that fit the cache, without a flush or a declared cache, are a label."""
        about = declared(**{known: 16_000_000, "l2_bytes": L2_BYTES})
        assert label(warm_cache_unintended, about).startswith("cache: not declared; ")

    def test_cold_cache_without_a_flush_is_rejected(self) -> None:
        about = declared(working_set_bytes=16_000_000, l2_bytes=L2_BYTES, cache="cold")
        assert severity(warm_cache_unintended, about) is Severity.REJECT

    @pytest.mark.parametrize(
        "facts", [{"cache": "warm"}, {"flush_bytes": 134_217_728}, {"working_set_bytes": 60_000_000}], ids=str
    )
    def test_declared_warm_flushed_or_large_inputs_are_clear(self, facts: dict[str, Fact]) -> None:
        about = declared(**{"working_set_bytes": 16_000_000, "l2_bytes": L2_BYTES, **facts})
        assert isinstance(ask(warm_cache_unintended, about), Clear)

    def test_single_call_is_clear(self) -> None:
        about = replace(declared(working_set_bytes=16_000_000, l2_bytes=L2_BYTES), timings=calls(1e-3, count=1))
        assert isinstance(ask(warm_cache_unintended, about), Clear)

    def test_rate_above_the_memory_peak_is_rejected(self) -> None:
        about = evidence(device=PEAKED, declared={"call_bytes": 100_000_000, "flush_bytes": 1e9}, timings=calls(18e-6))
        assert severity(warm_cache_unintended, about) is Severity.REJECT
        assert isinstance(ask(warm_cache_unintended, replace(about, timings=calls(22e-6))), Clear)

    def test_warm_cache_leaves_impossible_times_alone(self) -> None:
        """A rate that even the whole cache could not serve belongs to ``impossible-time``."""
        about = evidence(device=PEAKED, declared={"call_bytes": 2 << 30, "l2_bytes": L2_BYTES}, timings=calls(18e-6))
        assert isinstance(ask(warm_cache_unintended, about), Clear)
        assert severity(impossible_time, about) is Severity.REJECT
        # If the calls may have run on another GPU, impossible-time does not judge, so this rule reports the rate.
        both = replace(about, declared={**about.declared, "cuda_uuids": f"{UUID},GPU-2"})
        assert severity(warm_cache_unintended, both) is Severity.REJECT

    def test_unknown_sizes_are_unobserved(self) -> None:
        assert isinstance(ask(warm_cache_unintended, evidence()), Unobserved)
        assert isinstance(ask(warm_cache_unintended, declared(working_set_bytes=16_000_000)), Unobserved)


class TestFlushInsufficient:
    def test_flush_of_twice_the_cache_is_clear(self) -> None:
        assert isinstance(
            ask(flush_insufficient, declared(flush_bytes=2 * L2_BYTES, l2_bytes=L2_BYTES, flush_timed=False)), Clear
        )

    def test_small_flush_has_bounds_of_unknown_size(self) -> None:
        """The share of the inputs that stays in the cache is not known, so the bounds have no size."""
        about = declared(flush_bytes=8_000_000, l2_bytes=L2_BYTES, working_set_bytes=16_000_000)
        assert {bound.ratio for bound in bounds(about)} == {None}

    def test_call_beyond_the_cache_needs_no_flush(self) -> None:
        about = declared(flush_bytes=8_000_000, l2_bytes=L2_BYTES, working_set_bytes=2 * L2_BYTES)
        assert isinstance(ask(flush_insufficient, about), Clear)

    def test_timed_flush_is_bounded_by_twice_its_bytes(self) -> None:
        """A flush of 126 MB at 4.92 TB/s takes 25.6 µs, 2.6 % of a call of 1 ms; the bound is twice that."""
        facts: dict[str, Fact] = {"flush_bytes": 2 * L2_BYTES, "l2_bytes": L2_BYTES, "flush_timed": True}
        for each in bounds(evidence(device=PEAKED, declared=facts, timings=calls(1e-3))):
            assert each.ratio == pytest.approx(0.0512, abs=0.0005)
            assert each.estimate is not None
            assert (each.estimate.low_ratio, each.estimate.value_ratio) == pytest.approx((0.0, 0.0256), abs=0.0003)

    def test_timed_flush_without_peak_or_times_has_unsized_bounds(self) -> None:
        facts: dict[str, Fact] = {"flush_bytes": 2 * L2_BYTES, "l2_bytes": L2_BYTES, "flush_timed": True}
        assert {bound.ratio for bound in bounds(evidence(declared=facts, timings=calls(1e-3)))} == {None}
        assert {bound.ratio for bound in bounds(evidence(device=PEAKED, declared=facts))} == {None}

    def test_no_flush_or_an_unknown_cache_is_unobserved(self) -> None:
        assert isinstance(ask(flush_insufficient, declared(l2_bytes=L2_BYTES)), Unobserved)
        assert isinstance(ask(flush_insufficient, declared(flush_bytes=8_000_000)), Unobserved)
