from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from annotate.evidence import Host
from gpuwatch.daemon.tracked_window import EDGE_SLACK_NS, TrackedWindow
from gpuwatch.daemon.window_scope import WindowGpus, WindowHost
from gpuwatch.errors import UsageError
from tests.gpuwatch.store.stored import a_run

OPENED_NS, MARKED_NS, NOW_NS = 1_000_000_000, 1_002_000_000, 9_000_000_000
UNUSED: Any = None  # parts of the daemon that no test here uses


def tracked(**changes: Any) -> TrackedWindow:
    host = WindowHost(0, OPENED_NS, Host(boot_id="boot"), in_thread=UNUSED)
    window = TrackedWindow(a_run(begin_ns=OPENED_NS, end_ns=None, pid=0, **changes), WindowGpus(), host, UNUSED)
    window.run = replace(window.run, begin_ns=MARKED_NS)
    return window


def test_tracked_window_takes_marks_close_to_the_daemons() -> None:
    """A client's edge times count if close to the daemon's; others are limited to the slack."""
    assert tracked().settled(MARKED_NS + 5, NOW_NS - 5, NOW_NS) == (MARKED_NS + 5, NOW_NS - 5)
    assert tracked().settled(MARKED_NS + 10**9, NOW_NS - 10**9, NOW_NS) == (MARKED_NS + EDGE_SLACK_NS, NOW_NS - EDGE_SLACK_NS)


@pytest.mark.parametrize(
    ("begin_ns", "end_ns"), [(OPENED_NS - 1, NOW_NS), (MARKED_NS, NOW_NS + 1), (NOW_NS, MARKED_NS)], ids=["before", "after", "swapped"]
)  # fmt: skip
def test_tracked_window_refuses_impossible_marks(begin_ns: int, end_ns: int) -> None:
    with pytest.raises(UsageError, match="expected begin and end between"):
        tracked().settled(begin_ns, end_ns, NOW_NS)


def test_tracked_window_adds_facts_declared_at_its_end() -> None:
    """Facts declared at the end complete the earlier facts, and override them."""
    window = tracked(declared={"a": "1", "b": "1"})
    assert not window.closed.is_set()
    window.close({"b": "2"})
    assert window.closed.is_set()
    assert window.run == replace(window.run, declared={"a": "1", "b": "2"})
