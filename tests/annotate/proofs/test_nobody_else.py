"""Proof 4 on made evidence: who was there, as far as lists can tell, and how much the neighbour can have taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from annotate.budget import Group, Number, ProofShown, ProofState
from annotate.case import Case
from annotate.claims import Claim
from annotate.derived.foreign_bounds import own_work_bounds
from annotate.evidence import Evidence, Gap, Lane, OtherWindow, Visibility
from annotate.passes import AskingPass, merge_passes
from annotate.proofs import nobody_else
from annotate.rule import Clear, Found
from annotate.rules.sharing import overlapping_window
from annotate.verdict import Status
from tests.annotate.builders import BEGIN_NS, OWN, OWN_PID, evidence
from tests.annotate.proofs.company_builders import FOREIGN_PID, joined_by, process, record, sizes, status, times, with_lists

NAMESPACE = Visibility.NAMESPACE
OUTSIDE = replace(OWN, pid=99_001, ownership=process().ownership, listed=False)  # as the record names it from outside
SECOND = replace(OUTSIDE, pid=99_002, utilization_ratio=0.3)


def proof(of: Evidence) -> ProofShown:
    return nobody_else.prove(Case(of), {})


def bound_of(of: Evidence) -> dict[Number, float]:
    return sizes(nobody_else.bounds(Case(of)))


# Who was there


def test_nobody_else_is_shown_by_whole_lists() -> None:
    """Lists of the whole machine from edge to edge that name nobody else clear everybody, and no number has a bound for it."""
    found = proof(evidence())
    assert (found.state, found.says, found.missing) == (ProofState.SHOWN, "nobody else", ())
    assert nobody_else.bounds(Case(evidence())) == ()


def test_nobody_else_is_unproven_in_a_namespace() -> None:
    """A container's list that names the window's own process may leave others out."""
    found = proof(evidence(visibility=NAMESPACE))
    assert found.state is ProofState.UNPROVEN
    assert found.missing == ("process lists that show the whole machine",)


def test_nobody_else_is_unproven_with_visibility_unknown() -> None:
    assert proof(evidence(visibility=Visibility.UNKNOWN)).state is ProofState.UNPROVEN


def test_nobody_else_is_unproven_with_an_empty_list() -> None:
    """In a container whose own process has another PID outside, the list is empty."""
    found = proof(evidence(visibility=NAMESPACE, processes=()))
    assert (found.state, nobody_else.bounds(Case(evidence(visibility=NAMESPACE, processes=())))) == (ProofState.UNPROVEN, ())


def test_nobody_else_lets_one_unknown_pid_be_its_own() -> None:
    """The one PID that only the utilisation record names may be the measured process, seen from outside its namespace."""
    seen = evidence(visibility=NAMESPACE, processes=(OUTSIDE,))
    assert proof(seen).state is ProofState.UNPROVEN
    assert nobody_else.bounds(Case(seen)) == ()


def test_nobody_else_is_broken_by_a_second_unknown_pid() -> None:
    """Of two PIDs one is foreign; without times nobody can say what it took, so the window is flagged."""
    seen = evidence(visibility=NAMESPACE, processes=(OUTSIDE, SECOND))
    found = proof(seen)
    assert (found.state, found.broken_by) == (ProofState.BROKEN, ("contention-residual",))
    assert status(seen, tolerance_ratio=0.05) is Status.FLAGGED


def test_nobody_else_sizes_a_second_unknown_pid_by_times() -> None:
    """With times the second PID has a bound, and what remains is that the list may leave others out."""
    seen = evidence(visibility=NAMESPACE, processes=(OUTSIDE, replace(SECOND, utilization_ratio=0.03)), timings=times())
    assert proof(seen).state is ProofState.UNPROVEN
    assert 0.06 < bound_of(seen)[Number.THROUGHPUT] < 0.07


def test_nobody_else_takes_others_as_foreign_where_own_is_listed() -> None:
    """In a namespace that lists the window's own process every other PID is foreign."""
    found = proof(joined_by(evidence(visibility=NAMESPACE), process()))
    assert (found.state, found.broken_by, found.facts["pid"]) == (ProofState.BROKEN, ("contention-process",), FOREIGN_PID)


def test_nobody_else_needs_own_on_a_whole_list() -> None:
    """A whole list that never names a window's known processes is not to be trusted."""
    found = proof(evidence(processes=()))
    assert (found.state, found.missing) == (ProofState.UNPROVEN, ("the window's own processes on a list",))


def test_nobody_else_takes_the_only_process_of_an_interval() -> None:
    """In an interval nobody wrapped, the only process of a whole list is the measured one."""
    seen = evidence()
    interval = replace(seen, window=replace(seen.window, pids=frozenset()))
    unknown = with_lists(interval, lambda _, each: replace(each, processes=(replace(OWN, ownership=process().ownership),)))
    assert proof(unknown).state is ProofState.SHOWN
    assert proof(joined_by(unknown, process())).broken_by == ("contention-residual",)


def test_nobody_else_is_unproven_without_a_list() -> None:
    assert proof(evidence(processes=None)).missing == ("a process list",)


@pytest.mark.parametrize(("first", "last"), [(32, 60), (0, 43)])
def test_nobody_else_needs_lists_at_both_edges(first: int, last: int) -> None:
    """Lists that begin 1.4 s after the window or end 2.4 s before its end leave an edge unseen."""
    seen = with_lists(evidence(), lambda i, each: each if first <= i < last else None)
    found = proof(seen)
    assert found.state is ProofState.UNPROVEN
    assert "a process list at both edges of the window" in found.missing


def test_nobody_else_bounds_a_silence_by_its_share() -> None:
    """Two seconds without a list in force are a third of the throughput, and a third of 3 % of the time at one clock."""
    silence = Gap(begin_ns=BEGIN_NS + 2 * 10**9, end_ns=BEGIN_NS + 4 * 10**9, lane=Lane.PROCESSES)
    seen = evidence(gaps=(silence,))
    assert proof(seen).state is ProofState.SHOWN
    assert bound_of(seen)[Number.THROUGHPUT] == pytest.approx(1 / 3)
    assert bound_of(seen)[Number.MEDIAN_AT_CLOCK] == pytest.approx(0.01)


# What it took


def test_nobody_else_bounds_nothing_without_times() -> None:
    """A real neighbour of 669 MB, whose use the driver recorded now and then, took 5.7 %: flagged at every tolerance."""
    now_and_then = process(memory_bytes=669_000_000)
    seen = with_lists(
        evidence(length_s=5.0, signals={"memory_used_bytes": 3_669_000_000}),
        lambda i, each: replace(
            each, processes=(*each.processes, replace(now_and_then, utilization_ratio=0.3 if i % 11 == 0 else 0.0))
        ),
    )
    assert proof(seen).broken_by == ("contention-process",)
    assert bound_of(seen)[Number.THROUGHPUT] == float("inf")
    assert {status(seen, tolerance_ratio=tolerance) for tolerance in (0.001, 0.01, 0.2)} <= {Status.FLAGGED, Status.REJECTED}


def test_nobody_else_bounds_the_same_neighbour_with_times() -> None:
    """One iteration in 200 late by 2.4 ms is 5.9 %: proof shown, bound above it, and flagged or rejected."""
    seen = joined_by(evidence(timings=times(late_every=200)), process(memory_bytes=669_000_000))
    found, bounds = proof(seen), bound_of(seen)
    assert (found.state, found.says) == (ProofState.SHOWN, "1 other process")
    assert found.facts["late_ratio"] == pytest.approx(0.059, abs=0.01)
    assert 0.059 < bounds[Number.MEAN] < 0.12
    assert 0.055 < bounds[Number.THROUGHPUT] < 0.12
    assert status(seen) in {Status.FLAGGED, Status.REJECTED}


@pytest.mark.parametrize("holds_bytes", [0, 10**6, 70 * 10**9])
def test_nobody_else_clears_nobody_by_memory(holds_bytes: int) -> None:
    """Whoever is listed and seen doing nothing flags below tolerances of 3 %, whatever it holds."""
    seen = joined_by(
        evidence(timings=times(), signals={"memory_used_bytes": 3_000_000_000 + holds_bytes}),
        process(memory_bytes=holds_bytes, utilization_ratio=0.0),
    )
    assert status(seen) is Status.FLAGGED
    assert status(seen, tolerance_ratio=0.05) is Status.VALID


def test_nobody_else_takes_the_record_in_place_of_the_floor() -> None:
    """With this card's record the shift of the median stands for what all iterations alike lost."""
    seen = joined_by(replace(evidence(timings=times(slower_ratio=0.02)), record=record()), process())
    bounds = bound_of(seen)
    assert 0.02 < bounds[Number.MEDIAN] < 0.03
    assert bound_of(replace(seen, record=record(windows_count=4)))[Number.MEDIAN] == float("inf")


def test_nobody_else_has_no_median_without_a_record() -> None:
    """A raw median moved by 10 % beside a neighbour, since the clock rose: a burst window is flagged at any tolerance."""
    seen = joined_by(evidence(timings=times()), process())
    assert proof(seen).state is ProofState.SHOWN
    assert status(seen, tolerance_ratio=0.2, claim=Claim.BURST) is Status.FLAGGED


def test_nobody_else_sees_no_turns_in_long_iterations() -> None:
    """Every iteration of 13 ms can hold turns of another process alike, so late ones say nothing: no bound."""
    seen = joined_by(evidence(timings=times(kernel_s=13e-3)), process())
    assert proof(seen).broken_by == ("contention-process",)
    shifted = replace(seen, record=record(13e-3))
    assert proof(shifted).state is ProofState.SHOWN
    assert bound_of(shifted)[Number.MEAN] < 0.01


def test_nobody_else_convicts_by_utilisation() -> None:
    """A process that the driver gives a tenth of the time takes a tenth of the throughput at most seen, late ones or not."""
    busy = process(utilization_ratio=0.1)
    idle, used = (bound_of(joined_by(evidence(timings=times()), each)) for each in (process(utilization_ratio=0.0), busy))
    assert used[Number.THROUGHPUT] - idle[Number.THROUGHPUT] == pytest.approx(0.1, abs=0.01)
    assert used[Number.MEAN] == idle[Number.MEAN]


def test_nobody_else_rejects_a_busy_neighbour_without_times() -> None:
    """A process to which the driver gives half of the GPU costs more than a sixth: the nearer end rejects."""
    assert status(joined_by(evidence(), process(utilization_ratio=0.5))) is Status.REJECTED


def test_nobody_else_counts_memory_of_nobody() -> None:
    """A gigabyte that no listed process explains may be anybody's: seen, without a bound, with times as without."""
    hidden = {"memory_used_bytes": 4_000_000_000}
    for seen in (evidence(signals=hidden), evidence(signals=hidden, timings=times())):
        assert proof(seen).broken_by == ("contention-residual",)
        assert proof(seen).says == "1000 MB of unlisted processes with an unknown share"


def test_nobody_else_lets_an_idle_display_be() -> None:
    """A display server that drew nothing is a label; one that draws, or whose use nobody asked, is a neighbour."""
    rests = joined_by(evidence(), process(graphics=True, utilization_ratio=0.0))
    draws = joined_by(evidence(), process(graphics=True, utilization_ratio=0.2))
    assert proof(rests).says == "nobody else"
    assert proof(draws).broken_by == ("display-active",)


def test_nobody_else_is_sharpened_by_times_over_the_passes() -> None:
    """What witnesses saw without a bound gets one from times; the part that the driver gave to others stays."""
    seen = joined_by(evidence(timings=times(late_every=200)), process(utilization_ratio=0.3))
    passes = {
        AskingPass.WITNESSED: nobody_else.bounds(Case(replace(seen, timings=None))),
        AskingPass.TIMED: nobody_else.bounds(Case(seen)),
    }
    merged = merge_passes(passes)
    inside = next(each for each in merged if (each.number, each.group) == (Number.THROUGHPUT, Group.INSIDE))
    assert inside.ratio is not None
    assert inside.ratio >= 0.1 - 1e-9  # a third of what the driver gave to it
    assert sizes(merged)[Number.THROUGHPUT] < 0.5


def test_nobody_else_keeps_no_bound_where_times_stand_alone() -> None:
    """In a window of half a second no utilisation stands beside the times: what was seen without a bound stays so."""
    seen = joined_by(evidence(length_s=0.5, timings=times(length_s=0.5)), process())
    passes = {
        AskingPass.WITNESSED: nobody_else.bounds(Case(replace(seen, timings=None))),
        AskingPass.TIMED: nobody_else.bounds(Case(seen)),
    }
    assert sizes(merge_passes(passes))[Number.THROUGHPUT] == float("inf")


# Other windows


def test_overlapping_window_is_foreign() -> None:
    """A window of another process that overlaps this one is named, flags, and counts as foreign though no list names it."""
    other = OtherWindow(BEGIN_NS + 10**9, BEGIN_NS + 9 * 10**9, pid=FOREIGN_PID, label="theirs")
    seen = replace(evidence(), overlapping=(other,))
    answer = overlapping_window.ask(seen, Claim.SUSTAINED)
    assert isinstance(answer, Found)
    assert overlapping_window.says.format_map(answer.facts) == (
        "another process measured on this GPU at the same time (theirs of process 7777)"
    )
    assert [bound.ratio for bound in answer.bounds] == [None]
    assert proof(seen).broken_by == ("overlapping-window",)
    assert proof(replace(seen, timings=times())).says == "1 other window"


@pytest.mark.parametrize(
    "other",
    [
        OtherWindow(BEGIN_NS, BEGIN_NS + 10**9, pid=OWN_PID),
        OtherWindow(BEGIN_NS - 10**9, BEGIN_NS, pid=FOREIGN_PID),
        OtherWindow(BEGIN_NS + 6 * 10**9, BEGIN_NS + 7 * 10**9, pid=FOREIGN_PID),
    ],
)
def test_overlapping_window_is_not_nested_nor_beside(other: OtherWindow) -> None:
    """Windows of the same process, and windows before and after, are nobody else's work in this one."""
    seen = replace(evidence(), overlapping=(other,))
    assert isinstance(overlapping_window.ask(seen, Claim.SUSTAINED), Clear)
    assert proof(seen).says == "nobody else"


# The process's own other work


def test_own_work_bounds_take_late_iterations() -> None:
    """A second stream of the same process is sized like a neighbour, under its own name."""
    work = Case(evidence(timings=times(late_every=200))).foreign_work
    found = own_work_bounds("contention-self", work, met=True)
    assert {bound.rule for bound in found} == {"contention-self"}
    assert 0.05 < sizes([bound for bound in found if bound.group is Group.INSIDE])[Number.MEAN] < 0.08


def test_own_work_bounds_know_none_for_stamps_alone() -> None:
    """Where only the stamps met it, nobody can say how much it took."""
    work = Case(evidence(timings=times())).foreign_work
    assert {bound.ratio for bound in own_work_bounds("contention-self", work, met=True)} == {None}
