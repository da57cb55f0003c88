"""Daemons killed with SIGKILL at random moments, under load and with open windows.

Run ``python -m tests.faults.kills --count 200``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpuwatch
from annotate.verdict import Status
from gpuwatch import clock
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DaemonError
from tests.faults import results, stores
from tests.gpuwatch import live
from tests.gpuwatch.forked import ForkedPopen
from tests.waiting import let_pass, wait_until

EIGHT = "simulated:" + ",".join(["steady-gemm", "steady-copy"] * 4)
ROUNDS_A_STORE = 20  # then a new folder, because each check reads the whole store
MOST_LOST_NS = 1_000_000_000


@dataclass
class Seen:
    """The results of all rounds."""

    rounds: Counter[str] = field(default_factory=Counter)  # by the moment of the kill
    lost_ns: list[int] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)
    stored: Counter[str] = field(default_factory=Counter)
    most_lost_ns: int | None = MOST_LOST_NS  # None on a busy machine: only committed rows are checked

    def plain(self) -> dict[str, Any]:
        lost = sorted(self.lost_ns)
        return {
            "rounds_count": sum(self.rounds.values()),
            "moments": dict(sorted(self.rounds.items())),
            "gpus_compared_count": len(lost),
            "lost_p50_s": round(lost[len(lost) // 2] / 1e9, 3) if lost else None,
            "lost_max_s": round(lost[-1] / 1e9, 3) if lost else None,
            "windows_in_clients": dict(sorted(self.verdicts.items())),
            "windows_in_store": dict(sorted(self.stored.items())),
        }


def campaign(
    count: int, *, seed: int = 0, longest_s: float = 4.0, most_lost_ns: int | None = MOST_LOST_NS, progress: bool = False
) -> Seen:
    """Run the rounds.  Raises AssertionError or stores.BrokenError: at the first loss."""
    dice, seen = random.Random(seed), Seen(most_lost_ns=most_lost_ns)
    for first in range(0, count, ROUNDS_A_STORE):
        folder = Path(tempfile.mkdtemp(prefix="gw-kill-"))
        try:
            for number in range(first, min(first + ROUNDS_A_STORE, count)):
                one(folder, dice, seen, longest_s)
                if progress:
                    print(number + 1, seen.plain(), flush=True)
            with live.running(folder, EIGHT):  # clean up after the last kill as well
                pass
            check(folder, seen, at_rest=True)
            for run in stores.check_runs(folder / "state"):
                seen.stored[f"unproven: {run.why}" if run.status == Status.UNPROVEN else "judged"] += 1
        except BaseException:
            print(f"kept for inspection: {folder}", file=sys.stderr)
            raise
        shutil.rmtree(folder)
    return seen


def one(folder: Path, dice: random.Random, seen: Seen, longest_s: float) -> None:
    """Run one daemon, and kill it at a random moment of its start, its work or its shutdown."""
    moment = dice.choices(("start", "work", "stop"), (1, 8, 1))[0]
    seen.rounds[moment] += 1
    settings = live.settings(folder, EIGHT)
    log = folder / "log"
    log.write_bytes(b"")
    with log.open("ab") as file:
        process = ForkedPopen([sys.executable, "-m", "gpuwatch", *settings.flags(), "daemon"], stderr=file)
    try:
        if moment == "start":
            let_pass(dice.uniform(0.0, 2.5), "the moment of the kill is random")
        else:
            live.wait_for(settings, process, log)
            assert "ERROR" not in log.read_text(), log.read_text()
            assert "Traceback" not in log.read_text(), log.read_text()
            _under_load(settings, process, dice, seen, dice.uniform(0.3, longest_s), stop=moment == "stop")
    finally:
        process.kill()
        process.wait()
        _kill_successor(settings)
    check(folder, seen, at_rest=False)


def _under_load(
    settings: Settings, process: subprocess.Popen[bytes], dice: random.Random, seen: Seen, after_s: float, *, stop: bool
) -> None:
    """Kill a daemon under load, and check its windows and the stored readings."""
    over = threading.Event()
    failures: list[BaseException] = []
    short: list[gpuwatch.Window] = []

    def come_and_go() -> None:
        try:
            while not over.is_set():
                with gpuwatch.window("short", settings=settings) as w:
                    over.wait(0.05)
                short.append(w)
        except Exception as error:  # noqa: BLE001 - no exception may reach the benchmark
            failures.append(error)

    open_ones = [gpuwatch.window(f"open {i}", settings=settings) for i in range(4)]
    for w in open_ones:
        w.__enter__()
    other = threading.Thread(target=come_and_go)
    if dice.random() < 0.5:  # each close writes the store to disk; without closes more readings can be lost
        other.start()
    let_pass(after_s, "the moment of the kill is random")
    known, committed = _last_read(settings), stores.committed_ns(settings.state)
    if stop:
        process.terminate()
        let_pass(dice.uniform(0.0, 0.5), "the moment of the kill is random")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    over.set()
    if other.ident is not None:
        other.join()
    assert not failures, failures
    for w in open_ones:
        w.__exit__(None, None, None)
        verdict = w.verdict
        assert verdict.status is Status.UNPROVEN, verdict
        assert verdict.why, "unproven without a reason"
        seen.verdicts[f"open: {verdict.status}"] += 1
    seen.verdicts["short, opened"] += sum(w.run_id is not None for w in short)
    seen.verdicts["short, not opened any more"] += sum(w.run_id is None for w in short)
    stored = stores.last_ns(settings.state)
    for uuid, at_ns in known.items():
        lost_ns = max(0, at_ns - stored.get(uuid, 0))
        seen.lost_ns.append(lost_ns)
        assert seen.most_lost_ns is None or lost_ns <= seen.most_lost_ns, f"{uuid}: the last {lost_ns / 1e9:.2f} s are lost"
        assert stored.get(uuid, 0) >= committed.get(uuid, 0), f"{uuid}: committed rows are lost"


def _last_read(settings: Settings) -> dict[str, int]:
    """Return the time of each GPU's last reading as reported just before the daemon's end, or nothing without an answer."""
    with contextlib.suppress(DaemonError), connect(settings, start=False) as client:
        gpus = client.readings().gpus
        return {gpu.device["uuid"]: max((row["at_ns"] for row in gpu.rows if row["lane"] == "fast"), default=0) for gpu in gpus}
    return {}


def _kill_successor(settings: Settings) -> None:
    """Kill the daemon that a window after the kill may have started for the user."""
    with contextlib.suppress(DaemonError), connect(settings, start=False) as client:
        os.kill(client.welcome.pid, signal.SIGKILL)
        wait_until(lambda: not _lives(client.welcome.pid), what="the successor is gone")


def _lives(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def check(folder: Path, seen: Seen, *, at_rest: bool) -> None:
    """Check the files of a store, and at rest also the rows.  Raises stores.BrokenError: for a damaged store."""
    state = folder / "state"
    if not (state / "gpuwatch.db").exists():
        return  # killed before the store existed
    stores.check_files(state)
    if at_rest:
        stores.check_rows(state)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    begun_ns = clock.now_ns()
    seen = campaign(asked.count, seed=asked.seed, progress=True)
    results.keep("kills", {**seen.plain(), "seed": asked.seed, "took_s": round((clock.now_ns() - begun_ns) / 1e9)})


if __name__ == "__main__":
    main()
