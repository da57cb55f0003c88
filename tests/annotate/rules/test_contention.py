"""Neighbours seen, and neighbours hidden: what they are called, and how far off each number can be for them."""

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
from tests.examples import share_of

NAMESPACE = Visibility.NAMESPACE
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
    process_lists = tuple(
        ProcessList(
            uuid=UUID, at_ns=BEGIN_NS + round(t * 1e9), took_ns=10_000, processes=tuple(who(round(t, 3))), visibility=visibility
        )
        for t in times
        if not skip(t)
    )
    return replace(about, trace=replace(about.trace, process_lists=process_lists))


def found(answer: Answer) -> Found:
    """The finding: of a bias rule, whose severity the judge makes of its bounds."""
    assert isinstance(answer, Found), answer
    assert answer.severity is Severity.NOTE
    return answer


def bound(answer: Answer, number: Number, group: Group) -> Bound:
    """The one bound of this number and group."""
    (only,) = (each for each in found(answer).bounds if (each.number, each.group) == (number, group))
    return only


def throughput(answer: Answer) -> Bound:
    """The bound of throughput for late iterations, which is open where nobody timed them."""
    return bound(answer, Number.THROUGHPUT, Group.INSIDE)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("claim", Claim)
def test_a_clean_copy_of_four_seconds_is_clear(rule: Rule, claim: Claim) -> None:
    assert isinstance(ask(rule, evidence(length_s=4.0), claim), Clear)


class TestContentionProcess:
    def test_a_busy_neighbour_is_named_and_has_an_estimate(self) -> None:
        """The driver gives it half of the time: without times throughput lost a sixth at least, and nobody can say how much."""
        answer = found(ask(contention_process, evidence(processes=[OWN, FOREIGN])))
        assert (answer.facts["pid"], answer.facts["name"], answer.facts["user"]) == (77, "python", "bob")
        assert answer.facts["busy_ratio"] == pytest.approx(0.5, abs=0.05)
        assert answer.span_ns is not None
        only = throughput(answer)
        assert (only.ratio, only.rule) == (None, "contention-process")
        assert only.estimate is not None
        assert only.estimate.nearer_ratio == pytest.approx(0.5 / 3, abs=0.02)

    def test_late_iterations_give_the_size_of_a_neighbour(self) -> None:
        """About one iteration in 200 is late by 2.4 ms: what these add is the deviation of mean and throughput."""
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
    def test_memory_of_a_neighbour_clears_nobody(self, idle: Process) -> None:
        """A process that was not seen computing has no bound, however much or little memory it holds."""
        only = throughput(ask(contention_process, evidence(processes=[OWN, idle])))
        assert (only.ratio, only.estimate) == (None, None)

    def test_a_display_server_is_a_hazard_of_its_own(self) -> None:
        drawing = replace(XORG, utilization_ratio=0.4, graphics=True)
        assert isinstance(ask(contention_process, evidence(processes=[OWN, drawing])), Clear)

    def test_a_small_process_of_unknown_activity_has_no_bound(self) -> None:
        quiet = [replace(OWN, utilization_ratio=None), replace(XORG, utilization_ratio=None)]
        assert throughput(ask(contention_process, evidence(processes=quiet))).ratio is None

    def test_neighbour_that_arrives_is_found_from_then_on(self) -> None:
        """A process that came during the window is found however small."""
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

    def test_a_process_that_had_gone_before_the_window_is_no_hazard(self) -> None:
        about = with_lists(evidence(), lambda t: [OWN, FOREIGN] if t < -0.5 else [OWN])
        assert isinstance(ask(contention_process, about), Clear)

    def test_work_done_before_the_window_is_not_charged_to_it(self) -> None:
        # Asked once a second; the record at 0.1 s speaks of 0.9 s before the window and 0.1 s of it.
        def who(t: float) -> list[Process]:
            share = None if round(t * 10) % 10 != 1 else (0.9 if t < 0.2 else 0.0)
            return [replace(OWN, utilization_ratio=share), replace(FOREIGN, utilization_ratio=share)]

        answer = found(ask(contention_process, with_lists(evidence(), who, step_s=0.1)))
        assert throughput(answer).estimate is None  # resident, and busy around the window; not proven busy in it
        assert answer.facts["busy_ratio"] == pytest.approx(0.0, abs=0.01)

    def test_a_neighbour_stays_found_where_the_list_is_not_whole(self) -> None:
        about = evidence(processes=[OWN, FOREIGN], visibility=NAMESPACE)
        assert throughput(ask(contention_process, about)).estimate is not None

    @pytest.mark.parametrize("visibility", [Visibility.NAMESPACE, Visibility.UNKNOWN])
    def test_a_list_that_may_not_be_whole_cannot_clear(self, visibility: Visibility) -> None:
        assert isinstance(ask(contention_process, evidence(visibility=visibility)), Unobserved)

    def test_an_idle_resident_of_a_partial_list_is_found(self) -> None:
        """The list names the window's own process, so that every other PID on it is foreign."""
        assert throughput(ask(contention_process, evidence(processes=[OWN, XORG], visibility=NAMESPACE))).ratio is None

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
        assert throughput(ask(contention_process, evidence(processes=[OWN, stranger]))).ratio is None

    def test_a_child_of_the_window_is_known_by_its_ownership(self) -> None:
        assert isinstance(ask(contention_process, evidence(processes=[OWN, replace(OWN, pid=4243)])), Clear)

    def test_busiest_process_of_an_unwrapped_interval_is_own(self) -> None:
        """In an interval nobody wrapped the busiest counts as the measured one."""

        def unwrapped(*processes: Process) -> Evidence:
            about = evidence(processes=[replace(p, ownership=Ownership.UNKNOWN) for p in processes])
            return replace(about, window=replace(about.window, pids=frozenset()))

        assert isinstance(ask(contention_process, unwrapped(OWN)), Clear)
        assert isinstance(ask(contention_process, unwrapped(OWN, FOREIGN)), Unobserved)
        answer = found(ask(contention_residual, unwrapped(OWN, FOREIGN)))
        assert answer.facts["pid"] == FOREIGN.pid
        assert "may not be the measured one" in str(answer.facts["sign"])

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
        def nearer(share: float) -> float:
            about = evidence(length_s=2.0, processes=[OWN, replace(XORG, utilization_ratio=share)])
            estimate = throughput(ask(contention_process, about)).estimate
            return estimate.nearer_ratio if estimate else 0.0

        low, high = sorted((one, other))
        assert nearer(low) <= nearer(high)


class TestContentionResidual:
    def test_a_busy_process_only_the_record_names_is_found(self) -> None:
        """To PID 99 the driver gives 54 % of the time: throughput lost a third of that at least."""
        answer = ask(contention_residual, evidence(processes=[OWN, HIDDEN], visibility=NAMESPACE))
        assert "PID 99, which is not on the process list, used up to 54%" in str(found(answer).facts["sign"])
        only = throughput(answer)
        assert only.ratio is None
        assert only.estimate is not None
        assert only.estimate.nearer_ratio == pytest.approx(0.18, abs=0.02)

    def test_a_lightly_busy_one_is_sized_by_times(self) -> None:
        light = replace(HIDDEN, utilization_ratio=0.08)
        assert throughput(ask(contention_residual, evidence(processes=[OWN, light]))).ratio is None
        timed = evidence(processes=[OWN, light], timings=times(late_every=200))
        assert 0.05 < (throughput(ask(contention_residual, timed)).ratio or 0.0) < 0.08

    def test_memory_of_nobody_has_no_bound_beside_a_hidden_pid(self) -> None:
        """Memory may be anybody's: times that bound the hidden PID do not bound it, and its estimate stays."""
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

    def test_memory_the_driver_takes_is_no_neighbour(self) -> None:
        """The few megabytes a driver takes more when in use are not."""
        about = evidence(signals={"memory_used_bytes": 3_015_000_000})
        assert isinstance(ask(contention_residual, about), Clear)

    def test_memory_grown_between_readings_is_no_neighbour(self) -> None:
        """Memory allocated between two readings is not a neighbour."""
        about = evidence(signals={"memory_used_bytes": lambda t: 5_000_000_000 if 1.0 < t < 1.2 else 3_000_000_000})
        assert isinstance(ask(contention_residual, about), Clear)

    def test_of_two_strangers_one_at_most_is_ourselves(self) -> None:
        """The busier of two unknown PIDs may be the window's own; the other is foreign, with its 45 %."""
        other = replace(HIDDEN, pid=100, utilization_ratio=0.45)
        answer = found(ask(contention_residual, evidence(processes=[HIDDEN, other], visibility=NAMESPACE)))
        assert answer.facts["pid"] == 100
        estimate = throughput(answer).estimate
        assert estimate is not None
        assert estimate.nearer_ratio == pytest.approx(0.15, abs=0.02)

    def test_a_whole_list_hides_nobody(self) -> None:
        """Whoever was there is on it, whatever the sum of the memory and the harness's own account say."""
        quiet = [replace(OWN, utilization_ratio=None)]
        assert isinstance(ask(contention_residual, evidence(processes=quiet, declared={"busy_ratio": 0.42})), Clear)
        less = evidence(processes=quiet, signals={"memory_used_bytes": 2_355_000_000})
        assert isinstance(ask(contention_residual, less), Clear)

    def test_a_whole_list_without_the_own_process_is_no_witness(self) -> None:
        assert isinstance(ask(contention_residual, evidence(processes=[])), Unobserved)
        assert isinstance(ask(contention_residual, evidence(processes=None)), Unobserved)


class TestContentionResidualInAContainer:
    """Where nobody can be seen, the books say how much of the GPU's time is open."""

    def test_where_the_list_hides_even_ourselves_nothing_is_known(self) -> None:
        about = evidence(processes=[], visibility=NAMESPACE)
        assert isinstance(ask(contention_residual, about), Unobserved)
        # A harness that says it kept the GPU busy clears nobody.
        assert isinstance(ask(contention_residual, replace(about, declared={"busy_ratio": 0.97})), Unobserved)

    def test_a_lone_unknown_pid_that_explains_everything_is_clear(self) -> None:
        """It may be the window's own, seen from outside its namespace."""
        alone = replace(HIDDEN, utilization_ratio=0.97)
        assert isinstance(ask(contention_residual, evidence(processes=[alone], visibility=NAMESPACE)), Clear)

    @pytest.mark.parametrize("seen", [HIDDEN, replace(OWN, utilization_ratio=0.54)])
    def test_work_beyond_those_that_may_be_own_is_open(self, seen: Process) -> None:
        """The GPU was busy 97 % of the time and the record explains 54: 43 points are open, and may be lost throughput."""
        answer = ask(contention_residual, evidence(processes=[seen], visibility=NAMESPACE))
        only = bound(answer, Number.THROUGHPUT, Group.BOOKS)
        assert 0.43 <= (only.ratio or 0.0) < 0.48
        assert only.estimate is None  # it may be work of the process itself

    def test_times_that_explain_everything_are_clear(self) -> None:
        """Entries of 203 µs, 4 µs apart, fill 98 % of the window."""
        about = evidence(processes=[], visibility=NAMESPACE, timings=times())
        assert isinstance(ask(contention_residual, about), Clear)

    def test_times_that_leave_busy_time_open_are_a_sign(self) -> None:
        """Of 97 points the times explain 30, so that a neighbour may have had up to 67."""
        about = evidence(processes=[], visibility=NAMESPACE, timings=every(10e-3, took_s=3e-3))
        answer = ask(contention_residual, about)
        assert found(answer).facts["beyond_ratio"] == pytest.approx(0.67, abs=0.01)
        assert 0.67 <= (bound(answer, Number.THROUGHPUT, Group.BOOKS).ratio or 0.0) < 0.73
        # A whole list that names nobody else leaves it to the books alone.
        assert isinstance(ask(contention_residual, evidence(timings=every(10e-3, took_s=3e-3))), Clear)

    def test_late_iterations_join_what_the_books_leave_open(self) -> None:
        late = times(late_every=200)
        half = replace(late, at_ns=late.at_ns[::2], took_s=late.took_s[::2])
        answer = ask(contention_residual, evidence(processes=[], visibility=NAMESPACE, timings=half))
        assert 0.04 < (bound(answer, Number.MEAN, Group.INSIDE).ratio or 0.0) < 0.1

    @pytest.mark.parametrize("busy", [0.90, 0.42])
    def test_utilisation_beyond_the_told_busy_time_is_open(self, busy: float) -> None:
        about = evidence(processes=[], declared={"busy_ratio": busy}, visibility=NAMESPACE)
        only = bound(ask(contention_residual, about), Number.THROUGHPUT, Group.BOOKS)
        assert only.ratio == pytest.approx(0.97 - busy + 0.013)
        unlisted = evidence(processes=None, declared={"busy_ratio": busy})
        assert bound(ask(contention_residual, unlisted), Number.THROUGHPUT, Group.BOOKS).ratio == only.ratio

    @pytest.mark.parametrize("nonsense", ["0.5", True, float("nan"), float("inf"), None, 10**400])
    def test_a_told_busy_time_that_is_no_share_is_ignored(self, nonsense: object) -> None:
        about = replace(evidence(processes=[], visibility=NAMESPACE), declared={"busy_ratio": nonsense})  # type: ignore[dict-item]  # what a client may send
        assert isinstance(ask(contention_residual, about), Unobserved)


def test_starvation_is_a_cause_and_no_measure() -> None:
    """What threads waited for names idle stretches and outliers, which have the sizes."""
    assert "cpu-starvation" not in {rule.name for rule in RULES}
    assert "idle-stretch" in RETIRED["cpu-starvation"]


def every(period_s: float, *, took_s: float, length_s: float = 6.0) -> Timings:
    count = int(length_s / period_s)
    return Timings(BEGIN_NS + (np.arange(count) * period_s * 1e9).astype(np.int64), np.full(count, took_s))
