"""Tests of two processes that measure on one GPU at the same time, watched by one daemon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from annotate.evidence import OtherWindow
from gpuwatch.store import Reader
from tests.gpuwatch.forked import ForkedPopen
from tests.gpuwatch.live import Live, judged_run, running
from tests.waiting import PATIENCE_S, sample_for

PROGRAM = """
import contextlib, sys
import gpuwatch
from gpuwatch.config import settings as config
labels, found = sys.argv[1:], config.load({flags!r})
with contextlib.ExitStack() as stack:
    windows = [stack.enter_context(gpuwatch.window(label, settings=found)) for label in labels]
    print(*(each.run_id for each in windows), flush=True)
    sys.stdin.readline()
print(*(each.verdict.status.value for each in windows), flush=True)
"""


class Measuring:
    """A process with nested windows of these labels, which are open until ``close``."""

    def __init__(self, daemon: Live, *labels: str) -> None:
        flags = dict(flag.lstrip("-").split("=", 1) for flag in daemon.settings.flags())
        self.process = ForkedPopen(
            [sys.executable, "-c", PROGRAM.format(flags=flags), *labels],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.run_ids = self._line()

    def close(self) -> None:
        """Close the windows and wait for their verdicts."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self._line()
        assert self.process.wait(PATIENCE_S) == 0

    def _line(self) -> list[str]:
        assert self.process.stdout is not None
        line: str = self.process.stdout.readline()
        return line.split()


def judged_with(state: Path, run_id: str) -> list[OtherWindow]:
    """Return the other windows in the judge's evidence."""
    run = judged_run(state, run_id)
    with Reader(state) as reader:
        (uuid,) = run.uuids
        assert reader.packed(run, uuid) is not None
        return list(reader.evidence(run, uuid).overlapping)


def test_windows_of_two_processes_list_each_other(tmp_path: Path) -> None:
    """A window's evidence lists the other process's windows, even open ones, and no window of the same process."""
    with running(tmp_path) as daemon:
        theirs, mine = Measuring(daemon, "theirs"), Measuring(daemon, "outer", "inner")
        sample_for(1.0)
        mine.close()
        theirs.close()
        state = Path(str(daemon.settings.state))
        for run_id in mine.run_ids:
            assert [(each.pid, each.label) for each in judged_with(state, run_id)] == [(theirs.process.pid, "theirs")]
        (their_id,) = theirs.run_ids
        assert {(each.pid, each.label) for each in judged_with(state, their_id)} == {
            (mine.process.pid, "outer"),
            (mine.process.pid, "inner"),
        }


def test_windows_one_after_the_other_do_not_overlap(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        first = Measuring(daemon, "first")
        sample_for(0.5)
        first.close()
        second = Measuring(daemon, "second")
        sample_for(0.5)
        second.close()
        state = Path(str(daemon.settings.state))
        assert [judged_with(state, run_id) for run_id in (*first.run_ids, *second.run_ids)] == [[], []]
