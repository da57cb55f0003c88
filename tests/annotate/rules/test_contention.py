"""Neighbours seen, neighbours hidden, and a benchmark short of processors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.claims import Claim
from annotate.evidence import Evidence, Gap, Host, Lane, Ownership, Process, ProcessList, Timings, Visibility
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.contention import RULES, contention_process, contention_residual, cpu_starvation
from tests.annotate.builders import BEGIN_NS, OWN, UUID, evidence
from tests.examples import share_of

FOREIGN = Process(
    pid=77, name="python", user="bob", memory_bytes=4_000_000_000, utilization_ratio=0.5, ownership=Ownership.FOREIGN
)
HIDDEN = Process(pid=99, utilization_ratio=0.54, listed=False)
XORG = Process(pid=5, name="Xorg", user="root", memory_bytes=20_000_000, utilization_ratio=0.0, ownership=Ownership.FOREIGN)


def ask(rule: Rule, about: Evidence, claim: Claim = Claim.SUSTAINED) -> Answer:
    return rule.ask(about, claim)


def with_lists(
    about: Evidence,
    who: Callable[[float], Iterable[Process]],
    *,
    visibility: Visibility = Visibility.HOST,
    step_s: float = 0.2,
    skip: Callable[[float], bool] = lambda t: False,
) -> Evidence:
    """The evidence with other process lists: ``who(t)`` at ``t`` seconds after the window began."""
    times = [-5.0 + step_s * i for i in range(int((about.window.length_s + 5.5) / step_s) + 1)]
    censuses = tuple(
        ProcessList(
            uuid=UUID, at_ns=BEGIN_NS + round(t * 1e9), took_ns=10_000, processes=tuple(who(round(t, 3))), visibility=visibility
        )
        for t in times
        if not skip(t)
    )
    return replace(about, trace=replace(about.trace, censuses=censuses))


def found(answer: Answer) -> Found:
    assert isinstance(answer, Found), answer
    return answer


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("claim", Claim)
def test_a_clean_copy_of_four_seconds_is_clear(rule: Rule, claim: Claim) -> None:
    assert isinstance(ask(rule, evidence(length_s=4.0), claim), Clear)


class TestContentionProcess:
    def test_a_busy_neighbour_rejects_and_is_named(self) -> None:
        answer = found(ask(contention_process, evidence(processes=[OWN, FOREIGN])))
        assert answer.severity is Severity.REJECT
        assert (answer.facts["pid"], answer.facts["name"], answer.facts["user"]) == (77, "python", "bob")
        assert answer.facts["busy_ratio"] == pytest.approx(0.5, abs=0.05)

    def test_a_neighbour_that_only_holds_memory_is_flagged(self) -> None:
        idle = replace(FOREIGN, utilization_ratio=0.0)
        assert found(ask(contention_process, evidence(processes=[OWN, idle]))).severity is Severity.FLAG

    def test_an_idle_display_server_is_only_noted(self) -> None:
        assert found(ask(contention_process, evidence(processes=[OWN, XORG]))).severity is Severity.NOTE

    def test_a_display_server_is_a_hazard_of_its_own(self) -> None:
        drawing = replace(XORG, utilization_ratio=0.4, graphics=True)
        assert isinstance(ask(contention_process, evidence(processes=[OWN, drawing])), Clear)

    def test_a_small_process_whose_activity_nobody_knows_is_flagged(self) -> None:
        quiet = [replace(OWN, utilization_ratio=None), replace(XORG, utilization_ratio=None)]
        assert found(ask(contention_process, evidence(processes=quiet))).severity is Severity.FLAG

    def test_neighbour_that_arrives_is_flagged(self) -> None:
        """A process that came during the window is flagged however small."""
        about = with_lists(evidence(), lambda t: [OWN, XORG] if t > 2 else [OWN])
        answer = found(ask(contention_process, about))
        assert answer.severity is Severity.FLAG
        assert answer.span_ns is not None
        assert answer.span_ns[0] == pytest.approx(BEGIN_NS + 2.2e9)

    def test_short_bursts_each_second_are_found(self) -> None:
        about = with_lists(evidence(), lambda t: [OWN, replace(FOREIGN, utilization_ratio=0.05)])
        assert found(ask(contention_process, about)).severity is not Severity.NOTE

    def test_one_busy_second_in_a_long_window_is_flagged(self) -> None:
        about = with_lists(
            evidence(length_s=60.0), lambda t: [OWN, replace(XORG, utilization_ratio=1.0 if 10 < t <= 11 else 0.0)]
        )
        assert found(ask(contention_process, about)).severity is Severity.FLAG

    def test_a_process_that_had_gone_before_the_window_is_no_hazard(self) -> None:
        about = with_lists(evidence(), lambda t: [OWN, FOREIGN] if t < -0.5 else [OWN])
        assert isinstance(ask(contention_process, about), Clear)

    def test_work_done_before_the_window_is_not_charged_to_it(self) -> None:
        # Asked once a second; the record at 0.1 s speaks of 0.9 s before the window and 0.1 s of it.
        def who(t: float) -> list[Process]:
            share = None if round(t * 10) % 10 != 1 else (0.9 if t < 0.2 else 0.0)
            return [replace(OWN, utilization_ratio=share), replace(FOREIGN, utilization_ratio=share)]

        answer = found(ask(contention_process, with_lists(evidence(), who, step_s=0.1)))
        assert answer.severity is Severity.FLAG  # resident, and busy around the window; not proven busy in it
        assert answer.facts["busy_ratio"] == pytest.approx(0.0, abs=0.01)

    def test_a_neighbour_stays_found_where_the_list_is_not_whole(self) -> None:
        about = evidence(processes=[OWN, FOREIGN], visibility=Visibility.NAMESPACE)
        assert found(ask(contention_process, about)).severity is Severity.REJECT

    @pytest.mark.parametrize("visibility", [Visibility.NAMESPACE, Visibility.UNKNOWN])
    def test_a_list_that_may_not_be_whole_cannot_clear(self, visibility: Visibility) -> None:
        assert isinstance(ask(contention_process, evidence(visibility=visibility)), Unobserved)

    def test_an_idle_resident_does_not_make_a_partial_list_an_answer(self) -> None:
        about = evidence(processes=[OWN, XORG], visibility=Visibility.NAMESPACE)
        assert isinstance(ask(contention_process, about), Unobserved)

    def test_own_process_in_a_container_is_no_neighbour(self) -> None:
        """In a container our own process is not taken for a neighbour."""
        own_from_outside = replace(OWN, pid=31337, ownership=Ownership.UNKNOWN)
        about = evidence(processes=[own_from_outside], visibility=Visibility.UNKNOWN)
        answer = ask(contention_process, about)
        assert isinstance(answer, Unobserved)
        assert "cannot be trusted" in answer.reason

    @pytest.mark.parametrize("visibility", Visibility)
    def test_a_busy_gpu_with_nobody_on_the_list_is_unobserved(self, visibility: Visibility) -> None:
        assert isinstance(ask(contention_process, evidence(processes=[], visibility=visibility)), Unobserved)

    def test_an_idle_gpu_with_nobody_on_a_whole_list_is_clear(self) -> None:
        assert isinstance(ask(contention_process, evidence(processes=[], signals={"utilization_ratio": 0.0})), Clear)

    def test_unknown_owner_on_a_whole_list_is_a_neighbour(self) -> None:
        """A process of unknown owner on a whole list is a neighbour."""
        stranger = replace(FOREIGN, ownership=Ownership.UNKNOWN)
        assert found(ask(contention_process, evidence(processes=[OWN, stranger]))).severity is Severity.REJECT

    def test_a_child_of_the_window_is_known_by_its_ownership(self) -> None:
        assert isinstance(ask(contention_process, evidence(processes=[OWN, replace(OWN, pid=4243)])), Clear)

    def test_busiest_process_of_an_unwrapped_interval_is_own(self) -> None:
        """In an interval nobody wrapped the busiest counts as the measured one."""

        def unwrapped(*processes: Process) -> Evidence:
            about = evidence(processes=[replace(p, ownership=Ownership.UNKNOWN) for p in processes])
            return replace(about, window=replace(about.window, pids=frozenset()))

        assert isinstance(ask(contention_process, unwrapped(OWN)), Clear)
        assert found(ask(contention_process, unwrapped(OWN, FOREIGN))).facts["pid"] == FOREIGN.pid

    def test_a_list_that_was_never_read_is_unobserved(self) -> None:
        assert isinstance(ask(contention_process, evidence(processes=None)), Unobserved)

    def test_a_list_not_read_for_a_while_cannot_clear(self) -> None:
        about = with_lists(evidence(), lambda t: [OWN], skip=lambda t: 1 < t < 4)
        assert isinstance(ask(contention_process, about), Unobserved)

    def test_a_reported_gap_of_the_process_lane_cannot_clear(self) -> None:
        gap = Gap(begin_ns=BEGIN_NS, end_ns=BEGIN_NS + 1_000_000_000, lane=Lane.PROCESSES)
        assert isinstance(ask(contention_process, evidence(gaps=[gap])), Unobserved)

    def test_unchanged_lists_kept_once_a_second_are_no_gap(self) -> None:
        assert isinstance(ask(contention_process, with_lists(evidence(), lambda t: [OWN], step_s=1.0)), Clear)

    def test_short_window_between_process_lists_is_covered(self) -> None:
        """A short window between two readings of the list is covered."""
        about = with_lists(evidence(length_s=0.1), lambda t: [OWN], skip=lambda t: abs(t) < 0.15)
        assert isinstance(ask(contention_process, about), Clear)

    @given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
    @settings(max_examples=share_of(25))
    def test_a_busier_neighbour_is_never_judged_more_mildly(self, one: float, other: float) -> None:
        def severity(share: float) -> int:
            about = evidence(length_s=2.0, processes=[OWN, replace(XORG, utilization_ratio=share)])
            return list(Severity).index(found(ask(contention_process, about)).severity)

        low, high = sorted((one, other))
        assert severity(low) <= severity(high)


class TestContentionResidual:
    def test_a_busy_process_only_the_record_names_rejects(self) -> None:
        answer = found(ask(contention_residual, evidence(processes=[OWN, HIDDEN], visibility=Visibility.NAMESPACE)))
        assert answer.severity is Severity.REJECT
        assert "99" in str(answer.facts["sign"])

    def test_a_lightly_busy_one_is_flagged(self) -> None:
        light = replace(HIDDEN, utilization_ratio=0.08)
        assert found(ask(contention_residual, evidence(processes=[OWN, light]))).severity is Severity.FLAG

    def test_inside_a_container_a_record_of_own_work_alone_is_clear(self) -> None:
        about = evidence(visibility=Visibility.NAMESPACE, signals={"memory_used_bytes": None})
        assert isinstance(ask(contention_residual, about), Clear)

    def test_memory_accounted_for_is_clear_where_no_record_exists(self) -> None:
        about = evidence(processes=[replace(OWN, utilization_ratio=None)], visibility=Visibility.NAMESPACE)
        assert isinstance(ask(contention_residual, about), Clear)

    def test_unexplained_memory_is_flagged(self) -> None:
        about = evidence(signals={"memory_used_bytes": 3_079_000_000}, visibility=Visibility.NAMESPACE)
        answer = found(ask(contention_residual, about))
        assert answer.severity is Severity.FLAG
        assert answer.facts["unexplained_bytes"] == pytest.approx(79e6)

    def test_memory_the_driver_takes_is_no_neighbour(self) -> None:
        """The few megabytes a driver takes more when in use are not."""
        about = evidence(signals={"memory_used_bytes": 3_015_000_000})
        assert isinstance(ask(contention_residual, about), Clear)

    def test_memory_grown_between_readings_is_no_neighbour(self) -> None:
        """Memory allocated between two readings is not a neighbour."""
        about = evidence(signals={"memory_used_bytes": lambda t: 5_000_000_000 if 1.0 < t < 1.2 else 3_000_000_000})
        assert isinstance(ask(contention_residual, about), Clear)

    def test_where_the_list_hides_even_ourselves_nothing_is_known(self) -> None:
        about = evidence(processes=[], visibility=Visibility.NAMESPACE)
        assert isinstance(ask(contention_residual, about), Unobserved)

    def test_lone_unknown_process_is_unobserved(self) -> None:
        """A lone stranger that may be ourselves seen from outside is unobserved."""
        about = evidence(processes=[HIDDEN], visibility=Visibility.NAMESPACE)
        assert isinstance(ask(contention_residual, about), Unobserved)

    def test_of_two_strangers_one_at_most_is_ourselves(self) -> None:
        other = replace(HIDDEN, pid=100, utilization_ratio=0.45)
        answer = found(ask(contention_residual, evidence(processes=[HIDDEN, other], visibility=Visibility.NAMESPACE)))
        assert answer.severity is Severity.REJECT

    def test_a_memory_sum_that_does_not_add_up_proves_nothing(self) -> None:
        about = evidence(processes=[replace(OWN, utilization_ratio=None)], signals={"memory_used_bytes": 2_355_000_000})
        assert isinstance(ask(contention_residual, about), Unobserved)

    def test_a_window_of_two_refreshes_cannot_use_the_memory_gauge(self) -> None:
        about = evidence(length_s=0.2, processes=[replace(OWN, utilization_ratio=None)])
        assert isinstance(ask(contention_residual, about), Unobserved)

    @pytest.mark.parametrize(("busy", "severity"), [(0.90, Severity.FLAG), (0.42, Severity.REJECT)])
    def test_utilisation_beyond_the_told_busy_time_is_found(self, busy: float, severity: Severity) -> None:
        about = evidence(declared={"busy_ratio": busy}, visibility=Visibility.NAMESPACE)
        assert found(ask(contention_residual, about)).severity is severity

    def test_uncounted_work_alone_is_contention_self(self) -> None:
        """Where nobody else can have been there it is the process's own and another hazard."""
        assert isinstance(ask(contention_residual, evidence(declared={"busy_ratio": 0.42})), Clear)
        beside = evidence(declared={"busy_ratio": 0.42}, processes=[OWN, replace(FOREIGN, utilization_ratio=0.0)])
        assert isinstance(ask(contention_residual, beside), Found)

    def test_told_busy_time_does_not_clear_what_telemetry_cannot(self) -> None:
        about = evidence(processes=[], visibility=Visibility.NAMESPACE, declared={"busy_ratio": 0.97})
        assert isinstance(ask(contention_residual, about), Unobserved)

    @pytest.mark.parametrize("nonsense", ["0.5", True, float("nan"), float("inf"), None, 10**400])
    def test_a_told_busy_time_that_is_no_share_is_ignored(self, nonsense: object) -> None:
        about = replace(evidence(), declared={"busy_ratio": nonsense})  # type: ignore[dict-item]  # what a client may send
        assert isinstance(ask(contention_residual, about), Clear)

    def test_gaps_are_no_sign_when_the_list_explains_all(self) -> None:
        """Gaps between timed iterations are no neighbour where the list explains all."""
        assert isinstance(ask(contention_residual, evidence(timings=every(10e-3, took_s=3e-3))), Clear)

    def test_gaps_are_a_sign_without_other_evidence(self) -> None:
        """Gaps between timed iterations are a sign where nothing else can tell."""
        about = evidence(processes=[], visibility=Visibility.NAMESPACE, timings=every(10e-3, took_s=3e-3))
        assert found(ask(contention_residual, about)).severity is Severity.REJECT


def every(period_s: float, *, took_s: float, length_s: float = 6.0) -> Timings:
    count = int(length_s / period_s)
    return Timings(BEGIN_NS + (np.arange(count) * period_s * 1e9).astype(np.int64), np.full(count, took_s))


class TestCpuStarvation:
    @staticmethod
    def host(**changes: float | None) -> Host:
        quiet = Host(span_s=6.0, cpu_s=6.0, run_wait_s=0.0, steal_ratio=0.0, cgroup_throttled_s=0.0, cpu_pressure_ratio=0.0)
        return replace(quiet, **changes)  # type: ignore[arg-type]  # only the float fields are named here

    def test_sixteen_busy_processes_reject(self) -> None:
        # As recorded on an H200 machine with 16 processors: utilisation fell to 6.9 %.
        about = evidence(host=self.host(cpu_s=3.0, run_wait_s=3.0), signals={"utilization_ratio": 0.069})
        assert found(ask(cpu_starvation, about)).severity is Severity.REJECT

    def test_some_waiting_is_flagged(self) -> None:
        about = evidence(host=self.host(run_wait_s=0.5), signals={"utilization_ratio": 0.7})
        assert found(ask(cpu_starvation, about)).severity is Severity.FLAG

    def test_starvation_with_an_idle_gpu_rejects(self) -> None:
        """Some waiting beside an idle GPU rejects unless idling is meant."""
        about = evidence(host=self.host(run_wait_s=0.6), signals={"utilization_ratio": 0.2})
        assert found(ask(cpu_starvation, about)).severity is Severity.REJECT
        assert found(ask(cpu_starvation, about, Claim.BURST)).severity is Severity.FLAG

    def test_waiting_data_loaders_beside_a_fed_gpu_are_only_noted(self) -> None:
        about = evidence(host=self.host(cpu_s=20.0, run_wait_s=3.0))
        assert found(ask(cpu_starvation, about)).severity is Severity.NOTE

    def test_many_threads_that_hardly_wait_are_clear(self) -> None:
        assert isinstance(ask(cpu_starvation, evidence(host=self.host(cpu_s=90.0, run_wait_s=1.0))), Clear)

    @pytest.mark.parametrize("changes", [{"cgroup_throttled_s": 0.1}, {"steal_ratio": 0.05}])
    def test_starvation_by_limit_or_hypervisor_is_flagged(self, changes: dict[str, float]) -> None:
        """A CPU limit or a hypervisor is flagged even when the GPU is fed."""
        assert found(ask(cpu_starvation, evidence(host=self.host(**changes)))).severity is Severity.FLAG

    def test_pressure_speaks_only_where_no_run_queue_times_exist(self) -> None:
        low = {"utilization_ratio": 0.6}
        known = evidence(host=self.host(cpu_pressure_ratio=0.8), signals=low)
        assert isinstance(ask(cpu_starvation, known), Clear)
        unknown = evidence(host=self.host(cpu_pressure_ratio=0.8, run_wait_s=None), signals=low)
        assert found(ask(cpu_starvation, unknown)).severity is Severity.FLAG

    def test_starvation_by_declared_busy_time(self) -> None:
        """More busy time declared than the GPU had is found without the host."""
        about = evidence(host=Host(), signals={"utilization_ratio": 0.07}, declared={"busy_ratio": 0.42})
        assert found(ask(cpu_starvation, about)).severity is Severity.REJECT

    def test_iterations_that_stretch_over_idle_time_are_found(self) -> None:
        timings = every(2.5e-3, took_s=0.17e-3)
        took_s = timings.took_s.copy()
        took_s[::40] = 63e-3
        about = evidence(host=Host(), signals={"utilization_ratio": 0.07}, timings=replace(timings, took_s=took_s))
        assert found(ask(cpu_starvation, about)).severity is Severity.REJECT

    def test_starvation_ignores_microsecond_iterations(self) -> None:
        """Iterations of microseconds contain launch gaps and prove nothing."""
        about = evidence(host=Host(), signals={"utilization_ratio": 0.7}, timings=every(20e-6, took_s=18e-6, length_s=3.0))
        assert isinstance(ask(cpu_starvation, about), Unobserved)

    def test_starvation_ignores_declared_time_of_short_calls(self) -> None:
        """What a harness tells of such calls contains the gaps too."""
        short = every(20e-6, took_s=18e-6, length_s=3.0)
        about = evidence(host=self.host(), signals={"utilization_ratio": 0.7}, declared={"busy_ratio": 0.97}, timings=short)
        assert isinstance(ask(cpu_starvation, about), Clear)

    def test_nothing_known_of_the_host_is_unobserved(self) -> None:
        assert isinstance(ask(cpu_starvation, evidence(host=Host())), Unobserved)
        assert isinstance(ask(cpu_starvation, evidence(host=Host(steal_ratio=0.0, span_s=6.0))), Unobserved)
