"""When the evidence itself is too thin to judge by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from annotate.claims import Claim
from annotate.evidence import Event, Evidence, Fact, Gap, Lane, Trace
from annotate.judge import judge
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.coverage import RULES, incomplete_body, sampler_gap, sampler_perturbs, stale_daemon, window_too_short
from annotate.verdict import Status
from tests.annotate.builders import BEGIN_NS, DEVICE, UUID, capped_ns, evidence


def ask(rule: Rule, about: Evidence, **limits: float) -> Answer:
    return rule.ask(about, Claim.SUSTAINED, limits)


def at_ns(t: float) -> int:
    return BEGIN_NS + round(t * 1e9)


def without_edges(about: Evidence) -> Evidence:
    """As after kill -9: not even the reading at the window's end was taken."""
    columns = {name: column for name, column in about.trace.columns.items() if "violation" not in name}
    return replace(about, trace=replace(about.trace, columns=columns))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("claim", Claim)
def test_a_clean_copy_of_four_seconds_is_clear(rule: Rule, claim: Claim) -> None:
    assert isinstance(rule.ask(evidence(length_s=4.0), claim), Clear)


class TestStaleDaemon:
    def test_nothing_observed_gives_the_reason_for_the_absence(self) -> None:
        nobody = replace(evidence(), trace=Trace(), absence="no daemon is running")
        assert ask(stale_daemon, nobody) == Unobserved("no daemon is running")

    def test_nothing_observed_and_no_reason_known_says_so(self) -> None:
        answer = ask(stale_daemon, replace(evidence(), trace=Trace()))
        assert answer == Unobserved("no reading of this GPU in the window")

    def test_readings_long_before_the_window_do_not_count(self) -> None:
        assert isinstance(ask(stale_daemon, evidence(skip=lambda t: t > -2.0)), Unobserved)

    def test_an_absence_outweighs_the_readings_that_came_before_it(self) -> None:
        answer = ask(stale_daemon, replace(evidence(), absence="the daemon was killed"))
        assert answer == Unobserved("the daemon was killed")

    @pytest.mark.parametrize("t", [-1.0, 0.0, 2.0])
    def test_a_gpu_lost_before_or_in_the_window_is_unobserved(self, t: float) -> None:
        lost = Event(uuid=UUID, at_ns=at_ns(t), kind="lost", text="GPU is lost")
        assert ask(stale_daemon, evidence(events=[lost])) == Unobserved("the GPU was lost: GPU is lost")

    def test_a_gpu_that_was_back_before_the_window_is_clear(self) -> None:
        events = [Event(uuid=UUID, at_ns=at_ns(-3), kind="lost"), Event(uuid=UUID, at_ns=at_ns(-2), kind="back")]
        assert isinstance(ask(stale_daemon, evidence(events=events)), Clear)

    def test_a_gpu_that_came_back_within_the_window_is_unobserved(self) -> None:
        events = [Event(uuid=UUID, at_ns=at_ns(1), kind="lost"), Event(uuid=UUID, at_ns=at_ns(2), kind="back")]
        assert isinstance(ask(stale_daemon, evidence(events=events)), Unobserved)

    def test_a_gpu_lost_after_the_window_does_not_matter(self) -> None:
        lost = Event(uuid=UUID, at_ns=at_ns(6.2), kind="lost")
        assert isinstance(ask(stale_daemon, evidence(events=[lost])), Clear)


class TestIncompleteBody:
    def test_a_body_that_ran_to_its_end_is_clear(self) -> None:
        assert isinstance(ask(incomplete_body, evidence(declared={"busy_ratio": 0.9})), Clear)

    @pytest.mark.parametrize("declared", [{"abandoned": True}, {"exception": "ValueError"}])
    def test_incomplete_body_is_unproven(self, declared: dict[str, Fact]) -> None:
        """Work that was cut off is unproven whatever the telemetry says."""
        assert isinstance(ask(incomplete_body, evidence(declared=declared)), Unobserved)
        verdict = judge(evidence(length_s=4.0, declared=declared))
        assert verdict.status is Status.UNPROVEN
        assert verdict.why.startswith("incomplete-body")


class TestSamplerGap:
    def test_unchanged_rows_kept_once_a_second_are_no_gap(self) -> None:
        assert isinstance(ask(sampler_gap, evidence(period_s=1.0)), Clear)

    def test_sampler_gap_is_flagged_with_its_place(self) -> None:
        """A reported gap longer than two refreshes is flagged with its place."""
        answer = ask(sampler_gap, evidence(gaps=[Gap(begin_ns=at_ns(1.0), end_ns=at_ns(1.3))]))
        assert isinstance(answer, Found)
        assert answer.severity is Severity.FLAG
        assert answer.span_ns == (at_ns(1.0), at_ns(1.3))
        assert answer.facts["longest_s"] == pytest.approx(0.3)

    def test_a_shorter_gap_is_clear(self) -> None:
        assert isinstance(ask(sampler_gap, evidence(gaps=[Gap(begin_ns=at_ns(1.0), end_ns=at_ns(1.2))])), Clear)

    def test_many_short_gaps_add_up(self) -> None:
        gaps = [Gap(begin_ns=at_ns(i * 0.5), end_ns=at_ns(i * 0.5 + 0.15)) for i in range(12)]
        answer = ask(sampler_gap, evidence(gaps=gaps))
        assert isinstance(answer, Found)
        assert answer.facts["dark_s"] == pytest.approx(1.8)

    def test_overlapping_gaps_count_once(self) -> None:
        gaps = [Gap(begin_ns=at_ns(1.0), end_ns=at_ns(1.2)), Gap(begin_ns=at_ns(1.1), end_ns=at_ns(1.24))]
        answer = ask(sampler_gap, evidence(gaps=gaps))
        assert isinstance(answer, Clear)
        assert answer.facts["dark_s"] == pytest.approx(0.24)

    def test_gaps_outside_the_window_and_of_other_lanes_do_not_count(self) -> None:
        gaps = [Gap(begin_ns=at_ns(-3), end_ns=at_ns(-1)), Gap(begin_ns=at_ns(1), end_ns=at_ns(4), lane=Lane.SLOW)]
        assert isinstance(ask(sampler_gap, evidence(gaps=gaps)), Clear)

    def test_silence_beyond_the_heartbeat_is_a_gap(self) -> None:
        answer = ask(sampler_gap, evidence(skip=lambda t: 1.0 < t < 2.9))
        assert isinstance(answer, Found)
        assert answer.facts["longest_s"] == pytest.approx(0.9, abs=0.1)

    def test_after_the_last_sign_of_life_nothing_counts_as_read(self) -> None:
        answer = ask(sampler_gap, without_edges(evidence(length_s=2.0, skip=lambda t: t > 1.2)))
        assert isinstance(answer, Found)
        assert answer.facts["dark_s"] == pytest.approx(0.8, abs=0.1)
        assert isinstance(ask(sampler_gap, without_edges(evidence(length_s=2.0, skip=lambda t: t > 0.9))), Unobserved)

    def test_sampler_gap_other_lanes_prove_life(self) -> None:
        """A row of another lane at the end proves that the witness lived."""
        assert isinstance(ask(sampler_gap, evidence(length_s=2.0, skip=lambda t: t > 1.2)), Clear)

    def test_sampler_gap_before_the_first_reading(self) -> None:
        """A window that began before the first reading is uncovered so far."""
        answer = ask(sampler_gap, evidence(skip=lambda t: t < 0.5))
        assert isinstance(answer, Found)
        assert answer.span_ns is not None
        assert answer.span_ns[0] == BEGIN_NS

    def test_rows_in_which_the_driver_said_nothing_do_not_cover(self) -> None:
        def silent(value: float) -> object:
            return lambda t: None if 1.0 <= t < 2.0 else value

        fast = ("sm_clock_mhz", "mem_clock_mhz", "power_w", "power_average_w", "temperature_c", "event_reasons_mask",
                "utilization_ratio", "mem_utilization_ratio", "memory_used_bytes", "power_cap_ns", "sync_boost_ns",
                "sw_thermal_ns")  # fmt: skip
        about = evidence(signals={name: silent(1) for name in fast if name != "power_w"} | {"power_w": None})
        answer = ask(sampler_gap, about)
        assert isinstance(answer, Found)
        assert answer.facts["longest_s"] == pytest.approx(1.0, abs=0.1)

    def test_a_window_mostly_unseen_is_unobserved(self) -> None:
        assert isinstance(ask(sampler_gap, evidence(gaps=[Gap(begin_ns=at_ns(1), end_ns=at_ns(4.5))])), Unobserved)

    def test_no_telemetry_is_unobserved(self) -> None:
        assert isinstance(ask(sampler_gap, replace(evidence(), trace=Trace())), Unobserved)

    def test_a_window_without_length_is_unobserved(self) -> None:
        assert isinstance(ask(sampler_gap, evidence(length_s=0.0)), Unobserved)


class TestWindowTooShort:
    def test_too_short_names_the_needed_length(self) -> None:
        """A tenth of a second is too short and the answer says what is needed."""
        answer = ask(window_too_short, evidence(length_s=0.1))
        assert isinstance(answer, Found)
        assert answer.severity is Severity.FLAG
        assert answer.facts["needed_s"] == 1.0

    def test_two_seconds_suffice_for_work_that_is_not_capped(self) -> None:
        assert isinstance(ask(window_too_short, evidence(length_s=2.0)), Clear)

    def test_two_seconds_are_too_short_for_work_that_ends_capped(self) -> None:
        answer = ask(window_too_short, evidence(length_s=2.0, signals={"power_cap_ns": capped_ns()}))
        assert isinstance(answer, Found)
        assert answer.facts["needed_s"] == 3.0

    def test_without_the_counter_the_flag_tells_that_it_was_capped(self) -> None:
        signals = {"power_cap_ns": None, "event_reasons_mask": 0x4}
        assert isinstance(ask(window_too_short, evidence(length_s=2.0, signals=signals)), Found)

    def test_without_counter_and_flag_two_seconds_cannot_be_cleared(self) -> None:
        signals = {"power_cap_ns": None, "event_reasons_mask": None}
        assert isinstance(ask(window_too_short, evidence(length_s=2.0, signals=signals)), Unobserved)
        assert isinstance(ask(window_too_short, evidence(length_s=4.0, signals=signals)), Clear)

    def test_a_board_with_a_slow_clock_reading_needs_a_longer_window(self) -> None:
        about = evidence(length_s=4.0)
        slow = replace(about, trace=replace(about.trace, refresh_ns={"sm_clock_mhz": 500_000_000}))
        answer = ask(window_too_short, slow)
        assert isinstance(answer, Found)
        assert answer.facts["needed_s"] == 5.0

    def test_an_overridden_limit_decides(self) -> None:
        assert isinstance(ask(window_too_short, evidence(length_s=4.0), shortest_s=10.0), Found)


class TestSamplerPerturbs:
    @staticmethod
    def watched(watcher_cpu_s: float | None, *, allowed_count: int | None = 16, span_s: float | None = 6.0) -> Evidence:
        about = evidence()
        host = replace(about.host, watcher_cpu_s=watcher_cpu_s, cpu_allowed_count=allowed_count, span_s=span_s)
        return replace(about, host=host)

    def test_perturbs_is_clear_on_sixteen_processors(self) -> None:
        """What a hundred readings a second take of sixteen processors is clear."""
        assert isinstance(ask(sampler_perturbs, self.watched(0.04 * 6)), Clear)

    @pytest.mark.parametrize(
        ("watcher_cpu_s", "allowed_count", "severity"),
        [(3.0, 16, Severity.NOTE), (5.9, 16, Severity.FLAG), (0.6, 1, Severity.FLAG)],
    )
    def test_a_load_weighs_by_what_it_leaves_the_benchmark(
        self, watcher_cpu_s: float, allowed_count: int, severity: Severity
    ) -> None:
        answer = ask(sampler_perturbs, self.watched(watcher_cpu_s, allowed_count=allowed_count))
        assert isinstance(answer, Found)
        assert answer.severity is severity

    def test_a_simulated_gpu_costs_what_watching_a_real_one_does_not(self) -> None:
        about = replace(self.watched(5.9), device=replace(DEVICE, simulated=True))
        assert isinstance(ask(sampler_perturbs, about), Unobserved)

    @pytest.mark.parametrize("about", [(None, 16, 6.0), (0.3, None, 6.0), (0.3, 16, None), (0.3, 16, 0.4)])
    def test_what_was_not_observed_or_too_short_is_said(self, about: tuple[float | None, int | None, float | None]) -> None:
        watcher_cpu_s, allowed_count, span_s = about
        answer = ask(sampler_perturbs, self.watched(watcher_cpu_s, allowed_count=allowed_count, span_s=span_s))
        assert isinstance(answer, Unobserved)
