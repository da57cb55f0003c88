"""Proof 4 on simulated evidence: other processes on lists, bounds on a neighbour's share, other windows and other own work."""

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
OUTSIDE = replace(
    OWN, pid=99_001, ownership=process().ownership, listed=False
)  # the window's process as the utilisation record names it outside the container
SECOND = replace(OUTSIDE, pid=99_002, utilization_ratio=0.3)


def proof(of: Evidence) -> ProofShown:
    return nobody_else.prove(Case(of), {})


def bound_of(of: Evidence) -> dict[Number, float]:
    return sizes(nobody_else.bounds(Case(of)))


# Process lists


def test_nobody_else_is_shown_by_whole_lists() -> None:
    """Lists of the whole machine from edge to edge without another process show the proof, without bounds."""
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
    """An empty list in a container does not show the proof: the measured process has another PID outside."""
    found = proof(evidence(visibility=NAMESPACE, processes=()))
    assert (found.state, nobody_else.bounds(Case(evidence(visibility=NAMESPACE, processes=())))) == (ProofState.UNPROVEN, ())


def test_nobody_else_accepts_one_unknown_pid_as_own() -> None:
    """A single PID that only the utilisation record names may be the measured process: unproven, without bounds."""
    seen = evidence(visibility=NAMESPACE, processes=(OUTSIDE,))
    assert proof(seen).state is ProofState.UNPROVEN
    assert nobody_else.bounds(Case(seen)) == ()


def test_nobody_else_is_broken_by_a_second_unknown_pid() -> None:
    """One of two unknown PIDs is foreign; without times its share has no bound, so the window is flagged."""
    seen = evidence(visibility=NAMESPACE, processes=(OUTSIDE, SECOND))
    found = proof(seen)
    assert (found.state, found.broken_by) == (ProofState.BROKEN, ("contention-residual",))
    assert status(seen, tolerance_ratio=0.05) is Status.FLAGGED


def test_nobody_else_sizes_a_second_unknown_pid_by_times() -> None:
    """With times the second PID has a bound; the proof stays unproven because the list may leave others out."""
    seen = evidence(visibility=NAMESPACE, processes=(OUTSIDE, replace(SECOND, utilization_ratio=0.03)), timings=times())
    assert proof(seen).state is ProofState.UNPROVEN
    assert 0.06 < bound_of(seen)[Number.THROUGHPUT] < 0.07


def test_nobody_else_counts_others_as_foreign_if_own_is_listed() -> None:
    """In a namespace that lists the window's process, every other PID is foreign."""
    found = proof(joined_by(evidence(visibility=NAMESPACE), process()))
    assert (found.state, found.broken_by, found.facts["pid"]) == (ProofState.BROKEN, ("contention-process",), FOREIGN_PID)


def test_nobody_else_needs_own_on_a_whole_list() -> None:
    """A list of the whole machine that never names the window's processes does not show the proof."""
    found = proof(evidence(processes=()))
    assert (found.state, found.missing) == (ProofState.UNPROVEN, ("the window's own processes on a list",))


def test_nobody_else_accepts_the_only_process_of_an_interval() -> None:
    """In an interval without known PIDs, the only process of a complete list counts as the measured one."""
    seen = evidence()
    interval = replace(seen, window=replace(seen.window, pids=frozenset()))
    unknown = with_lists(interval, lambda _, each: replace(each, processes=(replace(OWN, ownership=process().ownership),)))
    assert proof(unknown).state is ProofState.SHOWN
    assert proof(joined_by(unknown, process())).broken_by == ("contention-residual",)


def test_nobody_else_is_unproven_without_a_list() -> None:
    assert proof(evidence(processes=None)).missing == ("a process list",)


@pytest.mark.parametrize(("first", "last"), [(32, 60), (0, 43)])
def test_nobody_else_needs_lists_at_both_edges(first: int, last: int) -> None:
    """Lists that begin after the window's start or end before its end do not show the proof."""
    seen = with_lists(evidence(), lambda i, each: each if first <= i < last else None)
    found = proof(seen)
    assert found.state is ProofState.UNPROVEN
    assert "a process list at both edges of the window" in found.missing


def test_nobody_else_bounds_a_silence_by_its_share() -> None:
    """Two of six seconds without lists bound throughput by a third, and the median at one clock by 1 %."""
    silence = Gap(begin_ns=BEGIN_NS + 2 * 10**9, end_ns=BEGIN_NS + 4 * 10**9, lane=Lane.PROCESSES)
    seen = evidence(gaps=(silence,))
    assert proof(seen).state is ProofState.SHOWN
    assert bound_of(seen)[Number.THROUGHPUT] == pytest.approx(1 / 3)
    assert bound_of(seen)[Number.MEDIAN_AT_CLOCK] == pytest.approx(0.01)


# The neighbour's share


def test_nobody_else_bounds_nothing_without_times() -> None:
    """A neighbour with occasional utilisation has no bound without times, and flags or rejects at tolerances up to 20 %."""
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
    """Times show a neighbour that costs 5.9 %: the proof is shown, and the larger bound flags or rejects."""
    seen = joined_by(evidence(timings=times(late_every=200)), process(memory_bytes=669_000_000))
    found, bounds = proof(seen), bound_of(seen)
    assert (found.state, found.says) == (ProofState.SHOWN, "1 other process")
    assert found.facts["late_ratio"] == pytest.approx(0.059, abs=0.01)
    assert 0.059 < bounds[Number.MEAN] < 0.12
    assert 0.055 < bounds[Number.THROUGHPUT] < 0.12
    assert status(seen) in {Status.FLAGGED, Status.REJECTED}


@pytest.mark.parametrize("holds_bytes", [0, 10**6, 70 * 10**9])
def test_nobody_else_excludes_no_process_by_memory(holds_bytes: int) -> None:
    """A listed idle process flags at a tolerance of 1 % but not of 5 %, for any amount of memory."""
    seen = joined_by(
        evidence(timings=times(), signals={"memory_used_bytes": 3_000_000_000 + holds_bytes}),
        process(memory_bytes=holds_bytes, utilization_ratio=0.0),
    )
    assert status(seen) is Status.FLAGGED
    assert status(seen, tolerance_ratio=0.05) is Status.VALID


def test_nobody_else_uses_the_record_for_the_median() -> None:
    """With a record, the shift of the median bounds the loss that all iterations share; four windows are too few."""
    seen = joined_by(replace(evidence(timings=times(slower_ratio=0.02)), record=record()), process())
    bounds = bound_of(seen)
    assert 0.02 < bounds[Number.MEDIAN] < 0.03
    assert bound_of(replace(seen, record=record(windows_count=4)))[Number.MEDIAN] == float("inf")


def test_nobody_else_has_no_median_without_a_record() -> None:
    """Next to a neighbour the raw median has no bound without a record: a burst window is flagged even at 20 % tolerance."""
    seen = joined_by(evidence(timings=times()), process())
    assert proof(seen).state is ProofState.SHOWN
    assert status(seen, tolerance_ratio=0.2, claim=Claim.BURST) is Status.FLAGGED


def test_nobody_else_has_no_bound_from_long_iterations() -> None:
    """Every iteration of 13 ms can include time slices of a neighbour, so only a record gives a bound."""
    seen = joined_by(evidence(timings=times(kernel_s=13e-3)), process())
    assert proof(seen).broken_by == ("contention-process",)
    shifted = replace(seen, record=record(13e-3))
    assert proof(shifted).state is ProofState.SHOWN
    assert bound_of(shifted)[Number.MEAN] < 0.01


def test_nobody_else_bounds_include_utilisation() -> None:
    """A neighbour's utilisation of 10 % adds 10 percentage points to the bound of throughput, and nothing to that of the mean."""
    busy = process(utilization_ratio=0.1)
    idle, used = (bound_of(joined_by(evidence(timings=times()), each)) for each in (process(utilization_ratio=0.0), busy))
    assert used[Number.THROUGHPUT] - idle[Number.THROUGHPUT] == pytest.approx(0.1, abs=0.01)
    assert used[Number.MEAN] == idle[Number.MEAN]


def test_nobody_else_rejects_a_busy_neighbour_without_times() -> None:
    """A window without times is rejected next to a neighbour with a utilisation of 50 %."""
    assert status(joined_by(evidence(), process(utilization_ratio=0.5))) is Status.REJECTED


def test_nobody_else_is_broken_by_unlisted_memory() -> None:
    """A gigabyte that no listed process explains breaks the proof, with times and without."""
    hidden = {"memory_used_bytes": 4_000_000_000}
    for seen in (evidence(signals=hidden), evidence(signals=hidden, timings=times())):
        assert proof(seen).broken_by == ("contention-residual",)
        assert proof(seen).says == "1000 MB of unlisted processes with an unknown share"


def test_nobody_else_ignores_an_idle_display() -> None:
    """An idle display server is not a neighbour; a drawing one is."""
    rests = joined_by(evidence(), process(graphics=True, utilization_ratio=0.0))
    draws = joined_by(evidence(), process(graphics=True, utilization_ratio=0.2))
    assert proof(rests).says == "nobody else"
    assert proof(draws).broken_by == ("display-active",)


def test_nobody_else_gets_bounds_from_times_over_the_passes() -> None:
    """Times bound a neighbour without a witnessed bound; the part from utilisation stays."""
    seen = joined_by(evidence(timings=times(late_every=200)), process(utilization_ratio=0.3))
    passes = {
        AskingPass.WITNESSED: nobody_else.bounds(Case(replace(seen, timings=None))),
        AskingPass.TIMED: nobody_else.bounds(Case(seen)),
    }
    merged = merge_passes(passes)
    inside = next(each for each in merged if (each.number, each.group) == (Number.THROUGHPUT, Group.INSIDE))
    assert inside.ratio is not None
    assert inside.ratio >= 0.1 - 1e-9  # a third of the neighbour's utilisation
    assert sizes(merged)[Number.THROUGHPUT] < 0.5


def test_nobody_else_has_no_bound_from_times_alone() -> None:
    """In a window of 0.5 s utilisation is too coarse, and times alone give no bound."""
    seen = joined_by(evidence(length_s=0.5, timings=times(length_s=0.5)), process())
    passes = {
        AskingPass.WITNESSED: nobody_else.bounds(Case(replace(seen, timings=None))),
        AskingPass.TIMED: nobody_else.bounds(Case(seen)),
    }
    assert sizes(merge_passes(passes))[Number.THROUGHPUT] == float("inf")


# Other windows


def test_overlapping_window_is_foreign() -> None:
    """An overlapping window of another process is named and breaks the proof, although no list names the process."""
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
def test_overlapping_window_excludes_nested_and_adjacent_windows(other: OtherWindow) -> None:
    """Windows of the same process, and windows before or after, do not count as overlapping."""
    seen = replace(evidence(), overlapping=(other,))
    assert isinstance(overlapping_window.ask(seen, Claim.SUSTAINED), Clear)
    assert proof(seen).says == "nobody else"


# Other work of the measured process


def test_own_work_bounds_include_late_iterations() -> None:
    """A second stream of the same process has bounds like those of a neighbour, under the rule contention-self."""
    work = Case(evidence(timings=times(late_every=200))).foreign_work
    found = own_work_bounds("contention-self", work, met=True)
    assert {bound.rule for bound in found} == {"contention-self"}
    assert 0.05 < sizes([bound for bound in found if bound.group is Group.INSIDE])[Number.MEAN] < 0.08


def test_own_work_bounds_are_unknown_for_stamps_alone() -> None:
    """Other work that only stamps show has no bound."""
    work = Case(evidence(timings=times())).foreign_work
    assert {bound.ratio for bound in own_work_bounds("contention-self", work, met=True)} == {None}
