"""Tests of the record of one program's work on one card, over windows of a real daemon."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from annotate.output.budget_words import shown_line
from annotate.verdict import Verdict
from gpuwatch.cli import rejudge
from gpuwatch.store import Reader
from tests.gpuwatch import forked
from tests.gpuwatch.live import Live, judged_run, running
from tests.waiting import PATIENCE_S

# The simulated GPU copies without end, so the recorded times fill the window too.
PROGRAM = """
import sys, time
import numpy as np
import gpuwatch
from annotate.evidence import Timings
from gpuwatch.config import settings as config
from tests.busy_machine import BUSY_MACHINE
from tests.waiting import sample_for
# A pause of this process before ``record`` is idle time without declared work.
policy = gpuwatch.Policy(accept=BUSY_MACHINE.accept | {{"idle-stretch", "unaccounted-time"}})
found = config.load({flags!r})
for label in sys.argv[1:]:
    with gpuwatch.window(label, settings=found, policy=policy) as w:
        sample_for(1.5)
        at_ns = np.arange(w.begin_ns, time.monotonic_ns() - 1_000_000, 1_000_000)
        took_s = 0.996e-3 * (1.0 + 1e-4 * np.random.default_rng(len(at_ns)).standard_normal(len(at_ns)))
        w.record(Timings(at_ns, took_s, np.full(len(at_ns), 1980.0)))
    print(w.run_id, w.verdict.status.value, flush=True)
"""


def measured(daemon: Live, *labels: str) -> list[str]:
    """Measure one window per label in one process, and return the run IDs; every window must be valid."""
    flags = dict(flag.lstrip("-").split("=", 1) for flag in daemon.settings.flags())
    command = [sys.executable, "-c", PROGRAM.format(flags=flags), *labels]
    done = forked.run(command, timeout_s=4 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    spoiled = [run_id for run_id, status in lines if status != "valid"]
    assert [str(each) for each in verdicts(Path(daemon.settings.state), spoiled)] == []
    return [run_id for run_id, _ in lines]


def verdicts(state: Path, run_ids: list[str]) -> list[Verdict]:
    """Return the verdicts of windows once the store has them."""
    return [Verdict.from_dict(judged_run(state, run_id).verdicts[0]) for run_id in run_ids]


def test_sixth_equal_window_is_compared_with_a_record(tmp_path: Path) -> None:
    """The sixth equal window is compared with a record of the five earlier windows; rejudging gives the same verdict."""
    with running(tmp_path) as daemon:
        labels = ["gemm"] * 6
        run_ids = measured(daemon, *labels, "other")
        state = Path(daemon.settings.state)
        found = verdicts(state, run_ids)
        scopes = [(each.budget.scope.kind, each.budget.scope.windows_count) for each in found if each.budget]
        assert scopes == [("itself", 0)] * 5 + [("record", 5), ("itself", 0)]
        assert shown_line(found[5]).endswith("against this card's record of 5 windows")
        assert shown_line(found[6]).endswith("against itself only")
        sixth = found[5].to_dict()
        repeats: list[Any] = [each["repeatability"] for each in sixth["budget"]["numbers"] if each["number"] == "mean"]
        assert [(each["windows_count"], each["kind"]) for each in repeats] == [(5, "within and between")]
        with Reader(state) as reader:
            again = rejudge.again(reader, reader.run(run_ids[5]), None)
            assert [json.dumps(each.to_dict()) for each in again] == [json.dumps(sixth)]
