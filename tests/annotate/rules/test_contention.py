"""Tests of the rules about listed and hidden neighbours: their facts and the bounds of each number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import Bound, Group, Number
from annotate.claims import Claim
from annotate.evidence import Evidence, Gap, Lane, Ownership, Process, ProcessList, Timings, Visibility
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.contention import RETIRED, RULES, contention_process, contention_residual
from tests.annotate.builders import BEGIN_NS, OWN, UUID, evidence
from tests.annotate.proofs.company_builders import times
from tests.annotate.rules.asking import ask
from tests.examples import share_of

NAMESPACE = Visibility.NAMESPACE
FOREIGN = Process(
    pid=77, name="python", user="bob", memory_bytes=4_000_000_000, utilization_ratio=0.5, ownership=Ownership.FOREIGN
)
HIDDEN = Process(pid=99, utilization_ratio=0.54, listed=False)
XORG = Process(pid=5, name="Xorg", user="root", memory_bytes=20_000_000, utilization_ratio=0.0, ownership=Ownership.FOREIGN)


def with_lists(
    about: Evidence,
    who: Callable[[float], Iterable[Process]],
    *,
    visibility: Visibility = Visibility.HOST,
    step_s: float = 0.2,
    skip: Callable[[float], bool] = lambda t: False,
) -> Evidence:
    """Return the evidence with process lists of ``who(t)`` at ``t`` seconds after the window began."""
    times = [-5.0 + step_s * i for i in range(int((about.window.length_s + 5.5) / step_s) + 1)]
    process_lists = tuple(
        ProcessList(
            uuid=UUID, at_ns=BEGIN_NS + round(t * 1e9), took_ns=10_000, processes=tuple(who(round(t, 3))), visibility=visibility
        )
        for t in times
        if not skip(t)
    )
    return replace(about, trace=replace(about.trace, process_lists=process_lists))


def found(answer: Answer) -> Found:
    """Return the finding of a bias rule: the judge derives the severity from the bounds."""
    assert isinstance(answer, Found), answer
    assert answer.severity is Severity.NOTE
    return answer


def bound(answer: Answer, number: Number, group: Group) -> Bound:
    (only,) = (each for each in found(answer).bounds if (each.number, each.group) == (number, group))
    return only


def throughput(answer: Answer) -> Bound:
    """Return the bound of throughput for late iterations, which has no size without times."""
    return bound(answer, Number.THROUGHPUT, Group.INSIDE)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("claim", Claim)
def test_unshared_copy_is_clear(rule: Rule, claim: Claim) -> None:
    assert isinstance(ask(rule, evidence(length_s=4.0), claim), Clear)


class TestContentionProcess:
    def test_busy_neighbour_is_named_and_has_an_estimate(self) -> None:
        """A neighbour with half of the GPU's time cost at least a sixth of throughput; without times there is no upper limit."""
        answer = found(ask(contention_process, evidence(processes=[OWN, FOREIGN])))
        assert (answer.facts["pid"], answer.facts["name"], answer.facts["user"]) == (77, "python", "bob")
        assert answer.facts["busy_ratio"] == pytest.approx(0.5, abs=0.05)
        assert answer.span_ns is not None
        only = throughput(answer)
        assert (only.ratio, only.rule) == (None, "contention-process")
        assert only.estimate is not None
        assert only.estimate.nearer_ratio == pytest.approx(0.5 / 3, abs=0.02)

    def test_late_iterations_give_the_size_of_a_neighbour(self) -> None:
        """If about one iteration in 200 is late by 2.4 ms, the estimates cover the true change of mean and throughput."""
        late = times(late_every=200)
        answer = ask(contention_process, evidence(processes=[OWN, replace(FOREIGN, utilization_ratio=None)], timings=late))
        added_s = 2.4e-3 * (late.took_s > 1e-3).sum()
        slower = float(added_s / (late.took_s.sum() - added_s))
        for number, truth in ((Number.MEAN, slower), (Number.THROUGHPUT, -slower / (1 + slower))):
            estimate = bound(answer, number, Group.INSIDE).estimate
            assert estimate is not None
            assert estimate.low_ratio < truth < estimate.high_ratio, number
            assert (bound(answer, number, Group.INSIDE).ratio or 0.0) < 0.1
        assert bound(answer, Number.MEDIAN_AT_CLOCK, Group.RECORD).ratio == pytest.approx(0.03)
        assert bound(answer, Number.MEDIAN, Group.RECORD).ratio is None

    @pytest.mark.parametrize("idle", [replace(FOREIGN, utilization_ratio=0.0), XORG])
    def test_memory_of_a_neighbour_does_not_clear_its_work(self, idle: Process) -> None:
        """A process that was not seen computing has a bound of unknown size, with little or much memory."""
        only = throughput(ask(contention_process, evidence(processes=[OWN, idle])))
        assert (only.ratio, only.estimate) == (None, None)

    def test_display_server_is_not_a_computing_neighbour(self) -> None:
        drawing = replace(XORG, utilization_ratio=0.4, graphics=True)
        assert isinstance(ask(contention_process, evidence(processes=[OWN, drawing])), Clear)

    def test_small_process_of_unknown_activity_has_no_bound(self) -> None:
        quiet = [replace(OWN, utilization_ratio=None), replace(XORG, utilization_ratio=None)]
        assert throughput(ask(contention_process, evidence(processes=quiet))).ratio is None

    def test_arriving_neighbour_is_found_from_its_arrival(self) -> None:
        """A small process that starts during the window is found from its first list on."""
        about = with_lists(evidence(), lambda t: [OWN, XORG] if t > 2 else [OWN])
        answer = found(ask(contention_process, about))
        assert answer.span_ns is not None
        assert answer.span_ns[0] == pytest.approx(BEGIN_NS + 2.2e9)

    def test_short_bursts_each_second_are_found(self) -> None:
        about = with_lists(evidence(), lambda t: [OWN, replace(FOREIGN, utilization_ratio=0.05)])
        assert throughput(ask(contention_process, about)).ratio is None

    def test_one_busy_second_in_a_long_window_is_found(self) -> None:
        about = with_lists(
            evidence(length_s=60.0), lambda t: [OWN, replace(XORG, utilization_ratio=1.0 if 10 < t <= 11 else 0.0)]
        )
        assert throughput(ask(contention_process, about)).ratio is None

    def test_process_ended_before_the_window_is_clear(self) -> None:
        about = with_lists(evidence(), lambda t: [OWN, FOREIGN] if t < -0.5 else [OWN])
        assert isinstance(ask(contention_process, about), Clear)

    def test_neighbours_work_before_the_window_has_no_cost(self) -> None:
        # The record is read once a second: the reading at 0.1 s covers 0.9 s before the window and 0.1 s inside.
        def who(t: float) -> list[Process]:
            share = None if round(t * 10) % 10 != 1 else (0.9 if t < 0.2 else 0.0)
            return [replace(OWN, utilization_ratio=share), replace(FOREIGN, utilization_ratio=share)]

        answer = found(ask(contention_process, with_lists(evidence(), who, step_s=0.1)))
        assert throughput(answer).estimate is None  # resident, and busy around the window; not proven busy in the window
        assert answer.facts["busy_ratio"] == pytest.approx(0.0, abs=0.01)

    def test_neighbour_on_a_partial_list_is_found(self) -> None:
        about = evidence(processes=[OWN, FOREIGN], visibility=NAMESPACE)
        assert throughput(ask(contention_process, about)).estimate is not None

    @pytest.mark.parametrize("visibility", [Visibility.NAMESPACE, Visibility.UNKNOWN])
    def test_possibly_incomplete_list_cannot_clear(self, visibility: Visibility) -> None:
        assert isinstance(ask(contention_process, evidence(visibility=visibility)), Unobserved)

    def test_idle_resident_of_a_partial_list_is_found(self) -> None:
        """If the list names the window's own process, every other PID on the list is foreign."""
        assert throughput(ask(contention_process, evidence(processes=[OWN, XORG], visibility=NAMESPACE))).ratio is None

    def test_own_process_in_a_container_is_not_a_neighbour(self) -> None:
        """In a container, the measured process under another PID does not count as a neighbour."""
        own_from_outside = replace(OWN, pid=31337, ownership=Ownership.UNKNOWN)
        about = evidence(processes=[own_from_outside], visibility=Visibility.UNKNOWN)
        answer = ask(contention_process, about)
        assert isinstance(answer, Unobserved)
        assert "list is incomplete" in answer.reason

    @pytest.mark.parametrize("visibility", Visibility)
    def test_busy_gpu_with_an_empty_list_is_unobserved(self, visibility: Visibility) -> None:
        assert isinstance(ask(contention_process, evidence(processes=[], visibility=visibility)), Unobserved)

    def test_idle_gpu_with_an_empty_complete_list_is_clear(self) -> None:
        assert isinstance(ask(contention_process, evidence(processes=[], signals={"utilization_ratio": 0.0})), Clear)

    def test_unknown_owner_on_a_whole_list_is_a_neighbour(self) -> None:
        stranger = replace(FOREIGN, ownership=Ownership.UNKNOWN)
        assert throughput(ask(contention_process, evidence(processes=[OWN, stranger]))).ratio is None

    def test_child_of_the_window_counts_as_own(self) -> None:
        assert isinstance(ask(contention_process, evidence(processes=[OWN, replace(OWN, pid=4243)])), Clear)

    def test_busiest_process_of_an_unwrapped_interval_is_own(self) -> None:
        """In an interval without a window, the busiest process counts as the measured one."""

        def unwrapped(*processes: Process) -> Evidence:
            about = evidence(processes=[replace(p, ownership=Ownership.UNKNOWN) for p in processes])
            return replace(about, window=replace(about.window, pids=frozenset()))

        assert isinstance(ask(contention_process, unwrapped(OWN)), Clear)
        assert isinstance(ask(contention_process, unwrapped(OWN, FOREIGN)), Unobserved)
        answer = found(ask(contention_residual, unwrapped(OWN, FOREIGN)))
        assert answer.facts["pid"] == FOREIGN.pid
        assert "may not be the measured one" in str(answer.facts["sign"])

    def test_contention_with_an_unread_list_is_unobserved(self) -> None:
        assert isinstance(ask(contention_process, evidence(processes=None)), Unobserved)

    def test_stale_process_list_cannot_clear(self) -> None:
        about = with_lists(evidence(), lambda t: [OWN], skip=lambda t: 1 < t < 4)
        assert isinstance(ask(contention_process, about), Unobserved)

    def test_reported_gap_of_the_process_lane_cannot_clear(self) -> None:
        gap = Gap(begin_ns=BEGIN_NS, end_ns=BEGIN_NS + 1_000_000_000, lane=Lane.PROCESSES)
        assert isinstance(ask(contention_process, evidence(gaps=[gap])), Unobserved)

    def test_unchanged_lists_once_a_second_are_clear(self) -> None:
        assert isinstance(ask(contention_process, with_lists(evidence(), lambda t: [OWN], step_s=1.0)), Clear)

    def test_short_window_between_process_lists_is_covered(self) -> None:
        about = with_lists(evidence(length_s=0.1), lambda t: [OWN], skip=lambda t: abs(t) < 0.15)
        assert isinstance(ask(contention_process, about), Clear)

    @given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
    @settings(max_examples=share_of(25))
    def test_busier_neighbour_is_never_judged_more_mildly(self, one: float, other: float) -> None:
        def nearer(share: float) -> float:
            about = evidence(length_s=2.0, processes=[OWN, replace(XORG, utilization_ratio=share)])
            estimate = throughput(ask(contention_process, about)).estimate
            return estimate.nearer_ratio if estimate else 0.0

        low, high = sorted((one, other))
        assert nearer(low) <= nearer(high)


class TestContentionResidual:
    def test_busy_process_only_in_the_record_is_found(self) -> None:
        """If PID 99 has 54 % of the GPU's time in the record, throughput lost at least a third of that."""
        answer = ask(contention_residual, evidence(processes=[OWN, HIDDEN], visibility=NAMESPACE))
        assert "PID 99, which is not on the process list, used up to 54%" in str(found(answer).facts["sign"])
        only = throughput(answer)
        assert only.ratio is None
        assert only.estimate is not None
        assert only.estimate.nearer_ratio == pytest.approx(0.18, abs=0.02)

    def test_times_bound_a_lightly_busy_hidden_process(self) -> None:
        light = replace(HIDDEN, utilization_ratio=0.08)
        assert throughput(ask(contention_residual, evidence(processes=[OWN, light]))).ratio is None
        timed = evidence(processes=[OWN, light], timings=times(late_every=200))
        assert 0.05 < (throughput(ask(contention_residual, timed)).ratio or 0.0) < 0.08

    def test_unexplained_memory_with_a_hidden_pid_has_no_size(self) -> None:
        """Times that bound a hidden PID do not bound unexplained memory; without times, the PID's estimate remains."""
        about = evidence(
            processes=[OWN, HIDDEN], signals={"memory_used_bytes": 4_000_000_000}, visibility=NAMESPACE, timings=times()
        )
        answer = ask(contention_residual, about)
        assert {throughput(answer).ratio, bound(answer, Number.MEAN, Group.INSIDE).ratio} == {None}
        untimed = throughput(ask(contention_residual, replace(about, timings=None)))
        assert untimed.estimate is not None
        assert untimed.estimate.nearer_ratio > 0.1

    def test_inside_a_container_a_record_of_own_work_alone_is_clear(self) -> None:
        about = evidence(visibility=NAMESPACE, signals={"memory_used_bytes": None})
        assert isinstance(ask(contention_residual, about), Clear)

    def test_unexplained_memory_has_no_bound(self) -> None:
        about = evidence(signals={"memory_used_bytes": 3_079_000_000}, visibility=NAMESPACE)
        answer = found(ask(contention_residual, about))
        assert throughput(answer).ratio is None
        assert answer.facts["unexplained_bytes"] == pytest.approx(79e6)
        assert isinstance(contention_residual.ask(about, Claim.SUSTAINED, {"memory_bytes": 100e6}), Clear)

    def test_memory_of_the_driver_is_not_a_neighbour(self) -> None:
        """15 MB of unexplained memory are clear: a driver in use can hold as much."""
        about = evidence(signals={"memory_used_bytes": 3_015_000_000})
        assert isinstance(ask(contention_residual, about), Clear)

    def test_short_growth_of_memory_is_not_a_neighbour(self) -> None:
        """Memory that grows for 0.2 s of 6 s is clear: growth counts from half of the window or a whole second on."""
        about = evidence(signals={"memory_used_bytes": lambda t: 5_000_000_000 if 1.0 < t < 1.2 else 3_000_000_000})
        assert isinstance(ask(contention_residual, about), Clear)

    def test_growth_that_later_lists_explain_is_clear(self) -> None:
        """The window's process allocates 2 GB/s for 1.5 s; the lists show each allocation 0.3 s later."""

        def grown_bytes(t: float) -> int:
            return round(2e9 * min(max(t - 1.0, 0.0), 1.5))

        about = evidence(signals={"memory_used_bytes": lambda t: 3_000_000_000 + grown_bytes(t)})
        lists = [
            replace(
                each, processes=(replace(OWN, memory_bytes=2_355_000_000 + grown_bytes((each.at_ns - BEGIN_NS) / 1e9 - 0.3)),)
            )
            for each in about.trace.process_lists
        ]
        about = replace(about, trace=replace(about.trace, process_lists=tuple(lists)))
        assert isinstance(ask(contention_residual, about), Clear)

    @pytest.mark.parametrize(("stayed_s", "kind"), [(1.3, Found), (0.8, Clear)])
    def test_memory_of_a_late_hidden_process_is_found(self, stayed_s: float, kind: type[Answer]) -> None:
        """Memory of a hidden process that came at the end of a window counts if it stayed for a second."""
        about = evidence(
            signals={"memory_used_bytes": lambda t: 5_000_000_000 if t > 6.0 - stayed_s else 3_000_000_000},
            visibility=NAMESPACE,
        )
        assert isinstance(ask(contention_residual, about), kind)

    def test_second_unknown_pid_counts_as_foreign(self) -> None:
        """The busier of two unknown PIDs may be the window's own; the other, with 45 %, counts as foreign."""
        other = replace(HIDDEN, pid=100, utilization_ratio=0.45)
        answer = found(ask(contention_residual, evidence(processes=[HIDDEN, other], visibility=NAMESPACE)))
        assert answer.facts["pid"] == 100
        estimate = throughput(answer).estimate
        assert estimate is not None
        assert estimate.nearer_ratio == pytest.approx(0.15, abs=0.02)

    def test_complete_list_clears_despite_other_signs(self) -> None:
        """Complete lists without other processes are clear, despite unread utilisation, little used memory or a low busy share."""
        quiet = [replace(OWN, utilization_ratio=None)]
        assert isinstance(ask(contention_residual, evidence(processes=quiet, declared={"busy_ratio": 0.42})), Clear)
        less = evidence(processes=quiet, signals={"memory_used_bytes": 2_355_000_000})
        assert isinstance(ask(contention_residual, less), Clear)

    def test_complete_list_without_own_process_is_unobserved(self) -> None:
        assert isinstance(ask(contention_residual, evidence(processes=[])), Unobserved)
        assert isinstance(ask(contention_residual, evidence(processes=None)), Unobserved)


class TestContentionResidualInAContainer:
    """Cases in a container, where only the books show the unaccounted time of the GPU."""

    def test_list_without_the_own_process_is_unobserved(self) -> None:
        about = evidence(processes=[], visibility=NAMESPACE)
        assert isinstance(ask(contention_residual, about), Unobserved)
        # A declared busy share does not clear the rule.
        assert isinstance(ask(contention_residual, replace(about, declared={"busy_ratio": 0.97})), Unobserved)

    def test_lone_unknown_pid_with_all_busy_time_is_clear(self) -> None:
        """A single unknown PID may be the window's own process, seen from outside its namespace."""
        alone = replace(HIDDEN, utilization_ratio=0.97)
        assert isinstance(ask(contention_residual, evidence(processes=[alone], visibility=NAMESPACE)), Clear)

    @pytest.mark.parametrize("seen", [HIDDEN, replace(OWN, utilization_ratio=0.54)])
    def test_work_beyond_possible_own_processes_is_bounded(self, seen: Process) -> None:
        """If the GPU was busy 97 % and the record explains 54 %, the bound of throughput is 43 to 48 %."""
        answer = ask(contention_residual, evidence(processes=[seen], visibility=NAMESPACE))
        only = bound(answer, Number.THROUGHPUT, Group.BOOKS)
        assert 0.43 <= (only.ratio or 0.0) < 0.48
        assert only.estimate is None  # the busy time may be work of the process itself

    def test_times_that_explain_all_busy_time_are_clear(self) -> None:
        """Entries of 203 µs, 4 µs apart, fill 98 % of the window and are clear."""
        about = evidence(processes=[], visibility=NAMESPACE, timings=times())
        assert isinstance(ask(contention_residual, about), Clear)

    def test_unaccounted_busy_time_is_a_sign(self) -> None:
        """If times explain 30 of 97 percentage points, the rule finds the other 67, and throughput's bound is 67 to 73 %."""
        about = evidence(processes=[], visibility=NAMESPACE, timings=every(10e-3, took_s=3e-3))
        answer = ask(contention_residual, about)
        assert found(answer).facts["beyond_ratio"] == pytest.approx(0.67, abs=0.01)
        assert 0.67 <= (bound(answer, Number.THROUGHPUT, Group.BOOKS).ratio or 0.0) < 0.73
        # If complete lists name no other process, only unaccounted-time reports this time.
        assert isinstance(ask(contention_residual, evidence(timings=every(10e-3, took_s=3e-3))), Clear)

    def test_late_iterations_add_to_unaccounted_time(self) -> None:
        late = times(late_every=200)
        half = replace(late, at_ns=late.at_ns[::2], took_s=late.took_s[::2])
        answer = ask(contention_residual, evidence(processes=[], visibility=NAMESPACE, timings=half))
        assert 0.04 < (bound(answer, Number.MEAN, Group.INSIDE).ratio or 0.0) < 0.1

    @pytest.mark.parametrize("busy", [0.90, 0.42])
    def test_utilisation_beyond_the_declared_busy_time_is_found(self, busy: float) -> None:
        about = evidence(processes=[], declared={"busy_ratio": busy}, visibility=NAMESPACE)
        only = bound(ask(contention_residual, about), Number.THROUGHPUT, Group.BOOKS)
        assert only.ratio == pytest.approx(0.97 - busy + 0.013)
        unlisted = evidence(processes=None, declared={"busy_ratio": busy})
        assert bound(ask(contention_residual, unlisted), Number.THROUGHPUT, Group.BOOKS).ratio == only.ratio

    @pytest.mark.parametrize("nonsense", ["0.5", True, float("nan"), float("inf"), None, 10**400])
    def test_invalid_declared_busy_time_is_ignored(self, nonsense: object) -> None:
        about = replace(evidence(processes=[], visibility=NAMESPACE), declared={"busy_ratio": nonsense})  # type: ignore[dict-item]  # as a client may send
        assert isinstance(ask(contention_residual, about), Unobserved)


def test_retired_starvation_names_its_replacement() -> None:
    """The retired ``cpu-starvation`` points to ``idle-stretch``, which names the run queue as a cause."""
    assert "cpu-starvation" not in {rule.name for rule in RULES}
    assert "idle-stretch" in RETIRED["cpu-starvation"]


def every(period_s: float, *, took_s: float, length_s: float = 6.0) -> Timings:
    count = int(length_s / period_s)
    return Timings(BEGIN_NS + (np.arange(count) * period_s * 1e9).astype(np.int64), np.full(count, took_s))
