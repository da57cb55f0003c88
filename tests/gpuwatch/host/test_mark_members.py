"""Tests of a window's own processes: a tree's, a session's, a user's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpuwatch.host.mark_members import KinMembers, TreeMembers, session_of, user_of


def processes(root: Path, table: Mapping[int, tuple[int, int, int]], *, start: int = 100) -> Path:
    """Write a /proc with these processes: parent, session and user of each, and the same start tick for all."""
    for pid, (parent, session, uid) in table.items():
        folder = root / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(f"{pid} (a) (b) S {parent} {session} {session} 0 -1{' 0' * 13} {start} 0\n")
        (folder / "status").write_text(f"Name:\ta\nUid:\t{uid}\t0\t0\t0\n")
        children = " ".join(str(each) for each, (above, _, _) in table.items() if above == pid)
        (folder / "task" / str(pid)).mkdir(parents=True, exist_ok=True)
        (folder / "task" / str(pid) / "children").write_text(children)
    (root / "self").mkdir(exist_ok=True)
    return root


# A shell (10) with two commands, one of which started its own session, and another terminal (20) of the same user.
# Two users (30, 31) entered from outside, with session 0.
TABLE = {1: (0, 1, 0), 10: (1, 10, 7), 11: (10, 10, 7), 12: (10, 12, 7), 13: (12, 12, 7), 20: (1, 20, 7), 21: (20, 20, 8)}
TABLE |= {30: (0, 0, 9), 31: (0, 0, 6), 32: (30, 0, 9), 33: (1, 0, 9)}


@pytest.mark.parametrize(
    ("own", "pids"),
    [
        ({"session": 10}, {10, 11, 12, 13}),
        ({"session": 12}, {12, 13}),
        ({"uid": 7}, {10, 11, 12, 13, 20, 21}),
        ({"uid": 8}, {21}),
        ({"session": 0, "uid": 9}, {30, 32, 33}),
    ],
)
def test_members_are_kin_and_their_descendants(tmp_path: Path, own: dict[str, int], pids: set[int]) -> None:
    """Detached workers are members; another terminal of the same user is another session."""
    members = KinMembers(**own, proc=processes(tmp_path, TABLE))
    assert members.everyone() == pids
    assert {pid for pid in TABLE if members.includes(pid)} == pids


def test_members_exclude_a_process_with_a_reused_pid(tmp_path: Path) -> None:
    """A process with a reused PID is not a member, and neither are its children."""
    held = TreeMembers.held((10, 20, 99), proc=processes(tmp_path, TABLE))
    assert held.everyone() == {10, 11, 12, 13, 20, 21}
    processes(tmp_path, {10: (1, 10, 7), 11: (10, 10, 7)}, start=900)
    assert held.reused() == (10,)
    assert held.everyone() == {20, 21}
    assert [held.includes(pid) for pid in (10, 11, 21)] == [False, False, True]
    (tmp_path / "10" / "stat").unlink()  # the later process ended as well
    assert held.reused() == (10,)


def test_members_survive_a_loop_and_gone_processes(tmp_path: Path) -> None:
    """A loop of parents, which a PID reused during the read can form, ends the search."""
    proc = processes(tmp_path, {30: (31, 30, 7), 31: (30, 31, 7), 40: (99, 40, 7)})
    assert KinMembers(session=77, proc=proc).everyone() == frozenset()
    assert KinMembers(session=40, proc=proc).everyone() == {40}
    assert not KinMembers(session=40, proc=proc).includes(99)
    assert (session_of(99, proc=proc), user_of(99, proc=proc)) == (None, None)


def test_members_of_a_real_session() -> None:
    """A child in a new session is the session's only member; the user and the tree include parent and child."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        me = os.getpid()
        session = KinMembers(session=child.pid)
        assert (session_of(child.pid), user_of(child.pid)) == (child.pid, os.getuid())
        assert session.includes(child.pid)
        assert not session.includes(me)
        assert session.everyone() == {child.pid}
        assert {me, child.pid} <= KinMembers(uid=os.getuid()).everyone()
        assert TreeMembers((me,)).includes(child.pid)
        assert TreeMembers((me,)).everyone() >= {me, child.pid}
    finally:
        child.communicate(b"\n")
