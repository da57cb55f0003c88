"""One window in hand: which interval and which GPUs it is judged by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from annotate.evidence import Host, ProcessList
from gpuwatch.daemon.tracked_window import EDGE_SLACK_NS, TrackedWindow, hinted, named
from gpuwatch.errors import UsageError
from tests.gpuwatch.store.stored import a_run

OPENED_NS, MARKED_NS, NOW_NS = 1_000_000_000, 1_002_000_000, 9_000_000_000
A, B = "GPU-aaaa", "GPU-bbbb"


def held(*, told: dict[str, str] | None = None, gpus: tuple[str, ...] | None = None) -> TrackedWindow:
    run = a_run(begin_ns=MARKED_NS, end_ns=None, pid=0, told=told or {})
    return TrackedWindow(run, gpus, Host(boot_id="boot"), opened_ns=OPENED_NS)


def test_its_own_marks_are_taken_where_they_lie_close_to_when_the_daemon_was_told() -> None:
    assert held().settled(MARKED_NS + 5, NOW_NS - 5, NOW_NS) == (MARKED_NS + 5, NOW_NS - 5)
    assert held().settled(MARKED_NS + 10**9, NOW_NS - 10**9, NOW_NS) == (MARKED_NS + EDGE_SLACK_NS, NOW_NS - EDGE_SLACK_NS)


@pytest.mark.parametrize(
    ("begin_ns", "end_ns"), [(OPENED_NS - 1, NOW_NS), (MARKED_NS, NOW_NS + 1), (NOW_NS, MARKED_NS)], ids=["before", "after", "swapped"]
)  # fmt: skip
def test_marks_that_cannot_be_are_refused(begin_ns: int, end_ns: int) -> None:
    with pytest.raises(UsageError, match="expected begin and end between"):
        held().settled(begin_ns, end_ns, NOW_NS)


def test_it_covers_the_gpus_it_was_seen_on_those_it_told_of_or_those_it_named() -> None:
    window = held(told={"cuda_uuids": B})
    window.seen.add(A)
    assert window.covered((A, B), None) == ((A, B), "")
    alone = held(gpus=(A,))
    alone.seen.add(B)
    assert alone.covered((A, B), None) == ((A,), f"also held a context on {B}, not judged")


def test_a_window_that_was_seen_nowhere_covers_nothing_unless_the_census_could_not_have_shown_it() -> None:
    window = held()
    assert window.covered((A,), None)[0] == ()
    window.note(ProcessList(uuid=A, at_ns=NOW_NS, took_ns=1, processes=()))
    assert window.covered((A,), None) == ((A,), "")
    assert window.covered((), "no driver") == ((), "no driver")


def test_names_are_uuids_or_their_unique_beginnings() -> None:
    assert named(None, (A, B)) == (None, None)
    assert named(["aa", A], (A, B)) == ((A,), None)
    found, warning = named(["0"], (A, B))
    assert (found, "known here: GPU-aaaa, GPU-bbbb" in (warning or "")) == ((), True)
    assert hinted({"cuda_uuids": B}, (A, B)) == (B,)
    assert hinted({}, (A, B)) == (A, B)


def test_what_is_told_at_the_end_adds_to_what_was_told_at_the_beginning() -> None:
    window = held(told={"a": "1", "b": "1"})
    window.tell_all({"b": "2"})
    assert window.told_all.is_set()
    assert window.run == replace(window.run, told={"a": "1", "b": "2"})
