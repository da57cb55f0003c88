"""Tests of the rules about unwatched windows, interrupted work, and the load by the daemon."""

from __future__ import annotations

from dataclasses import replace

import pytest

from annotate.claims import Claim
from annotate.evidence import Event, Evidence, Fact, Trace
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.coverage import RULES, incomplete_body, sampler_perturbs, stale_daemon
from tests.annotate.builders import BEGIN_NS, DEVICE, UUID, evidence


def ask(rule: Rule, about: Evidence, **limits: float) -> Answer:
    return rule.ask(about, Claim.SUSTAINED, limits)


def at_ns(t: float) -> int:
    return BEGIN_NS + round(t * 1e9)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("claim", Claim)
def test_coverage_of_an_observed_copy_is_clear(rule: Rule, claim: Claim) -> None:
    assert isinstance(rule.ask(evidence(length_s=4.0), claim), Clear)


class TestStaleDaemon:
    def test_nothing_observed_gives_the_reason_for_the_absence(self) -> None:
        nobody = replace(evidence(), trace=Trace(), absence="no daemon is running")
        assert ask(stale_daemon, nobody) == Unobserved("no daemon is running")

    def test_missing_readings_have_a_default_reason(self) -> None:
        answer = ask(stale_daemon, replace(evidence(), trace=Trace()))
        assert answer == Unobserved("no reading of this GPU in the window")

    def test_readings_long_before_the_window_do_not_count(self) -> None:
        assert isinstance(ask(stale_daemon, evidence(skip=lambda t: t > -2.0)), Unobserved)

    def test_absence_outweighs_earlier_readings(self) -> None:
        answer = ask(stale_daemon, replace(evidence(), absence="the daemon was killed"))
        assert answer == Unobserved("the daemon was killed")

    @pytest.mark.parametrize("t", [-1.0, 0.0, 2.0])
    def test_gpu_lost_before_or_in_the_window_is_unobserved(self, t: float) -> None:
        lost = Event(uuid=UUID, at_ns=at_ns(t), kind="lost", text="GPU is lost")
        assert ask(stale_daemon, evidence(events=[lost])) == Unobserved("the GPU was lost: GPU is lost")

    def test_gpu_back_before_the_window_is_clear(self) -> None:
        events = [Event(uuid=UUID, at_ns=at_ns(-3), kind="lost"), Event(uuid=UUID, at_ns=at_ns(-2), kind="back")]
        assert isinstance(ask(stale_daemon, evidence(events=events)), Clear)

    def test_gpu_back_within_the_window_is_unobserved(self) -> None:
        events = [Event(uuid=UUID, at_ns=at_ns(1), kind="lost"), Event(uuid=UUID, at_ns=at_ns(2), kind="back")]
        assert isinstance(ask(stale_daemon, evidence(events=events)), Unobserved)

    def test_gpu_lost_after_the_window_is_clear(self) -> None:
        lost = Event(uuid=UUID, at_ns=at_ns(6.2), kind="lost")
        assert isinstance(ask(stale_daemon, evidence(events=[lost])), Clear)


class TestIncompleteBody:
    def test_completed_body_is_clear(self) -> None:
        assert isinstance(ask(incomplete_body, evidence(declared={"busy_ratio": 0.9})), Clear)

    @pytest.mark.parametrize("declared", [{"abandoned": True}, {"exception": "ValueError"}])
    def test_incomplete_body_is_unobserved(self, declared: dict[str, Fact]) -> None:
        """Interrupted work is unobserved: its deviation is unknown."""
        assert isinstance(ask(incomplete_body, evidence(declared=declared)), Unobserved)


class TestSamplerPerturbs:
    @staticmethod
    def watched(watcher_cpu_s: float | None, *, allowed_count: int | None = 16, span_s: float | None = 6.0) -> Evidence:
        about = evidence()
        host = replace(about.host, watcher_cpu_s=watcher_cpu_s, cpu_allowed_count=allowed_count, span_s=span_s)
        return replace(about, host=host)

    def test_small_load_on_sixteen_cores_is_clear(self) -> None:
        """A daemon that uses 4 % of a core on a machine with 16 cores is clear."""
        assert isinstance(ask(sampler_perturbs, self.watched(0.04 * 6)), Clear)

    @pytest.mark.parametrize(
        ("watcher_cpu_s", "allowed_count", "says"),
        [
            (3.0, 16, "watching used 50% of a CPU core"),
            (5.9, 16, "watching used 98% of a CPU core"),
            (0.6, 1, "watching used 10% of a CPU core"),
        ],
    )
    def test_load_of_the_watcher_is_a_label(self, watcher_cpu_s: float, allowed_count: int, says: str) -> None:
        """The load is a label above 40 % of one core, or above 5 % of the benchmark's cores."""
        answer = ask(sampler_perturbs, self.watched(watcher_cpu_s, allowed_count=allowed_count))
        assert isinstance(answer, Found)
        assert (answer.severity, answer.bounds) == (Severity.NOTE, ())
        assert sampler_perturbs.says.format(**answer.facts) == says

    def test_load_of_a_simulated_gpu_is_unobserved(self) -> None:
        about = replace(self.watched(5.9), device=replace(DEVICE, simulated=True))
        assert isinstance(ask(sampler_perturbs, about), Unobserved)

    @pytest.mark.parametrize("about", [(None, 16, 6.0), (0.3, None, 6.0), (0.3, 16, None), (0.3, 16, 0.4)])
    def test_unobserved_or_short_load_is_unobserved(self, about: tuple[float | None, int | None, float | None]) -> None:
        watcher_cpu_s, allowed_count, span_s = about
        answer = ask(sampler_perturbs, self.watched(watcher_cpu_s, allowed_count=allowed_count, span_s=span_s))
        assert isinstance(answer, Unobserved)
