"""Tests of windows of other processes on the same GPU, in the evidence of a stored run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from annotate.evidence import OtherWindow
from gpuwatch.interfaces import Run
from gpuwatch.store import Reader
from tests.gpuwatch.store.stored import a_run, opened
from tests.gpuwatch.store.streams import BEGIN_NS, UUID
from tests.waiting import PATIENCE_S

SECOND_NS = 1_000_000_000
RUN = a_run()  # of process 4242 from second 5 to second 9
BESIDE = a_run(
    id="0ca7f00d02", label="theirs", pid=5000, pids=frozenset({5000, 5001}), begin_ns=BEGIN_NS + 6 * SECOND_NS,
    end_ns=BEGIN_NS + 20 * SECOND_NS,
)  # fmt: skip


def overlapping(folder: Path, run: Run, *others: Run) -> tuple[OtherWindow, ...]:
    store = opened(folder)
    for each in (run, *others):
        store.put_run(each)
    assert store.flush(PATIENCE_S)
    store.close()
    with Reader(folder) as reader:
        return reader.evidence(run, UUID).overlapping


def test_overlapping_window_of_another_process_is_evidence(tmp_path: Path) -> None:
    found = overlapping(tmp_path, RUN, BESIDE)
    assert found == (OtherWindow(BESIDE.begin_ns, BEGIN_NS + 20 * SECOND_NS, pid=5000, label="theirs"),)


def test_open_window_ends_with_the_judged_window(tmp_path: Path) -> None:
    found = overlapping(tmp_path, RUN, replace(BESIDE, status="open", end_ns=None))
    assert [(each.begin_ns, each.end_ns) for each in found] == [(BESIDE.begin_ns, RUN.end_ns)]


def test_overlapping_window_of_another_user_has_no_label(tmp_path: Path) -> None:
    """Evidence shows another user's overlapping window without its label, which is private."""
    (found,) = overlapping(tmp_path, RUN, replace(BESIDE, uid=1001))
    assert (found.pid, found.label) == (5000, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"begin_ns": BEGIN_NS, "end_ns": RUN.begin_ns},
        {"begin_ns": RUN.end_ns},
        {"uuids": ("GPU-another",)},
        {"uuids": ()},
        {"boot_id": "another"},
        {"pid": 4242, "pids": frozenset({4242})},
        {"pid": 4243, "pids": frozenset({4243})},
        {"pids": frozenset({5000, 4242})},
        {"parent": RUN.id},
    ],
    ids=["before", "after", "other-gpu", "no-gpu", "other-boot", "own", "child", "parent", "nested"],
)
def test_unrelated_or_nested_window_is_not_overlapping(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Windows of another time, boot or GPU, without a GPU, of the same process tree, or nested in the run do not overlap."""
    assert overlapping(tmp_path, RUN, replace(BESIDE, **changes)) == ()


def test_declared_parent_windows_are_not_overlapping(tmp_path: Path) -> None:
    """Windows of invisible processes are nested by the declared parents alone."""
    unseen: dict[str, Any] = {"pid": 0, "pids": frozenset(), "begin_ns": BEGIN_NS, "end_ns": BEGIN_NS + 30 * SECOND_NS}
    outer, middle = replace(BESIDE, **unseen), replace(BESIDE, **{**unseen, "id": "0ca7f00d03", "parent": BESIDE.id})
    inner = replace(RUN, pid=0, pids=frozenset(), parent=middle.id)
    assert overlapping(tmp_path, inner, outer, middle) == ()
    with Reader(tmp_path) as reader:
        assert reader.evidence(outer, UUID).overlapping == ()
        stranger = replace(inner, parent=None)
        assert len(reader.overlapping(stranger, UUID)) == 2
