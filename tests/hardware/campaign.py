"""Windows around real work with their expected verdicts: evidence, figures and costs, saved as data.

    python -m tests.hardware.campaign OUT_FOLDER

writes ``h200.json`` (tables), ``h200.capsule`` (every window's evidence), ``smi.csv`` (nvidia-smi's log) and ``run.json``.
The campaign changes no setting of the card.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import gpuwatch
from annotate.capsule.pack import pack
from annotate.evidence import Evidence, Lane, signals
from annotate.output import report
from gpuwatch.client.connection import connect
from gpuwatch.config import settings
from gpuwatch.sources.nvml import Nvml
from gpuwatch.store import Reader
from tests.bench.bench_window import enter_and_exit
from tests.hardware.workloads import beside, copy, gemm, loop

SMI_COLUMNS = (
    "timestamp,uuid,name,clocks.sm,clocks.mem,power.draw,utilization.gpu,memory.used,temperature.gpu,"
    "clocks_event_reasons.active,enforced.power.limit"
)


@dataclass(frozen=True)
class Scenario:
    """One window: the work before and in the window, and the expected verdict and rules."""

    name: str
    body: Callable[[], object]
    status: str  # the expected status; alternatives separated by |
    rules: tuple[str, ...] = ()
    before: Callable[[], object] = lambda: None


def scenarios() -> list[Scenario]:
    copy_1g, gemm4k, gemm16k, fp32 = copy(), gemm(4096), gemm(16384), gemm(4096, dtype=torch.float32)
    zeros = gemm(16384, zeros=True)

    return [
        Scenario("clean-copy-1g", lambda: loop(copy_1g, 4.0), "valid", before=lambda: loop(copy_1g, 1.0)),
        Scenario("steady-gemm-4096", lambda: loop(gemm4k, 6.0), "valid", ("power-limited",), lambda: loop(gemm4k, 4.0)),
        Scenario("steady-gemm-16384", lambda: loop(gemm16k, 6.0), "valid", ("power-limited",), lambda: loop(gemm16k, 4.0)),
        Scenario("steady-gemm-4096-fp32", lambda: loop(fp32, 4.0), "valid", (), lambda: loop(fp32, 3.0)),
        Scenario("zeros-gemm-16384", lambda: loop(zeros, 5.0), "valid", ("power-limited",), lambda: loop(zeros, 4.0)),
        Scenario("from-idle-gemm-4096-1s", lambda: loop(gemm4k, 1.0), "flagged", ("regime-change",), lambda: time.sleep(4.0)),
        Scenario("from-idle-gemm-4096-0.4s", lambda: loop(gemm4k, 0.4), "unproven", ("power-limited",), lambda: time.sleep(4.0)),
        Scenario("sleeps-100ms-gemm-16384", lambda: loop(gemm16k, 6.0, pause_s=0.1), "flagged|rejected", ("bursty-duty-cycle",),
                 lambda: loop(gemm16k, 2.0, pause_s=0.1)),
        Scenario("sleeps-20ms-gemm-16384", lambda: loop(gemm16k, 6.0, pause_s=0.02), "flagged|rejected", ("bursty-duty-cycle",),
                 lambda: loop(gemm16k, 2.0, pause_s=0.02)),
        Scenario("short-50ms", lambda: loop(gemm4k, 0.05), "unproven", ("power-limited",), lambda: loop(gemm4k, 3.0)),
    ]  # fmt: skip


def neighbours() -> list[tuple[Scenario, tuple[str, ...], int]]:
    gemm4k = gemm(4096)
    six = lambda: loop(gemm4k, 6.0)  # noqa: E731 - one body for three windows
    warm = lambda: loop(gemm4k, 4.0)  # noqa: E731
    return [
        (Scenario("neighbour-gemm-4096", six, "rejected", ("contention-process",), warm), ("vector-adds",), 1),
        (
            Scenario("burst-neighbour-gemm-4096", six, "flagged|rejected", ("contention-process",), warm),
            ("vector-adds", "0.05"),
            1,
        ),
        (Scenario("cpu-hogs-gemm-4096", six, "flagged|rejected", ("idle-stretch",), warm), ("hog",), os.cpu_count() or 1),
    ]


def readings_bytes(state: Path) -> int:
    """Return the size of the stored readings without free pages, counted in a copy with the write-ahead log."""
    import shutil
    import sqlite3
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for path in state.glob("readings-*"):
            shutil.copy(path, folder)
        total = 0
        for path in Path(folder).glob("readings-*.db"):
            connection = sqlite3.connect(path)
            pages, free, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
            )
            total += (pages - free) * size
            connection.close()
        return total


def thread_cpu_ns(pid: int) -> dict[str, int]:
    return {task.name: int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()}


def shares(before: dict[str, int], after: dict[str, int], span_s: float) -> list[float]:
    """Return the threads' shares of one CPU, largest first."""
    return sorted(((after[name] - ns) / 1e9 / span_s for name, ns in before.items() if name in after), reverse=True)


def rss_bytes(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def fast_row() -> dict[str, float]:
    """Measure reading the fast lane's signals on a loaded GPU, back to back and after the sampler's pauses."""
    names = signals(Lane.FAST)
    source = Nvml()
    uuid = source.devices()[0].uuid

    def median_us(pause_s: float, count: int) -> float:
        took = []
        for _ in range(count):
            time.sleep(pause_s)
            took.append(source.read(uuid, Lane.FAST, names).took_ns / 1e3)
        return statistics.median(took)

    with beside("vector-adds"):
        found = {"back_to_back_us": median_us(0, 2000), "at_100hz_us": median_us(0.01, 300), "at_20hz_us": median_us(0.05, 100)}
    source.close()
    return {"signals_count": len(names), **found}


class Campaign:
    """A run of windows against one daemon, with the results of each."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.settings = settings.load({"state": str(out / "state"), "socket": "/tmp/gpuwatch-campaign/s.sock"})
        self.rows: list[dict[str, Any]] = []
        self.evidence: list[Evidence] = []

    def window(self, scenario: Scenario) -> None:
        scenario.before()
        t0 = time.perf_counter()
        w = gpuwatch.window(scenario.name, settings=self.settings)
        w.__enter__()
        t1 = time.perf_counter()
        wall_begin = time.time()
        scenario.body()
        wall_end = time.time()
        t2 = time.perf_counter()
        w.__exit__(None, None, None)
        t3 = time.perf_counter()
        verdicts = w.verdicts
        t4 = time.perf_counter()
        self.keep(scenario, w.run_id, verdicts, {
            "enter_ms": (t1 - t0) * 1e3, "exit_ms": (t3 - t2) * 1e3, "verdict_ms": (t4 - t3) * 1e3,
            "wall_begin_s": wall_begin, "wall_end_s": wall_end,
        })  # fmt: skip

    def keep(
        self, scenario: Scenario, run_id: str | None, verdicts: tuple[gpuwatch.Verdict, ...], figures: dict[str, Any]
    ) -> None:
        found = [hazard.rule for hazard in verdicts[0].hazards]
        right = verdicts[0].status.value in scenario.status.split("|") and set(scenario.rules) <= set(found)
        self.rows.append({
            "scenario": scenario.name, "expected": {"status": scenario.status, "rules": scenario.rules}, "right": right,
            "verdicts": [verdict.to_dict() for verdict in verdicts], **figures,
        })  # fmt: skip
        if run_id is not None:
            with Reader(self.settings.state) as reader:
                run = reader.run(run_id)
                self.evidence += [reader.evidence(run, uuid) for uuid in run.uuids]
        print(f"{'ok   ' if right else 'WRONG'} {report.text(verdicts[0])}\n", flush=True)

    def save(self, figures: dict[str, Any]) -> None:
        """Save all results so far, so that a later failure loses nothing."""
        with connect(self.settings) as client:
            status = client.status()
        data = {
            "date": time.strftime("%Y-%m-%d"),
            "torch": torch.__version__,
            "status": status,
            "figures": figures,
            "rows": self.rows,
        }
        (self.out / "h200.json").write_text(json.dumps(data, indent=1))
        (self.out / "h200.capsule").write_bytes(pack(self.evidence))

    def run_command(self) -> None:
        """Run the work through `gpuwatch run -- python …`, in a program without gpuwatch."""
        verdict = self.out / "run.json"
        command = [sys.executable, "-m", "gpuwatch", *self.settings.flags(), "run", "--name", "plain-run", "--json", str(verdict), "--",
                   sys.executable, "-m", "tests.hardware.workloads", "plain"]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print("run:", done.returncode, done.stdout, done.stderr, flush=True)
        data = json.loads(verdict.read_text())
        verdicts = tuple(gpuwatch.Verdict.from_dict(each) for each in data["verdicts"])
        self.keep(Scenario("plain-run", lambda: None, "rejected", ("idle-stretch", "regime-change")), data["run"], verdicts, {})

    def enter_exit(self, count: int = 200) -> dict[str, float]:
        """Measure the cost of opening and closing a window in a process with torch's context and with a running daemon."""
        enter, leave = enter_and_exit(self.settings, count)
        return {
            f"{name}_{rank}_ms": took[at] * 1e3
            for name, took in (("enter", enter), ("exit", leave))
            for rank, at in (("p50", count // 2), ("p99", count * 99 // 100))
        }

    def cost(self, seconds: float = 62.0) -> dict[str, Any]:
        """Measure the daemon's CPU time, memory and stored bytes on a busy GPU, without and with an open window."""
        out: dict[str, Any] = {}
        call = gemm(4096)
        with gpuwatch.window("starts the daemon", settings=self.settings):
            pass
        for name in ("20hz", "100hz"):
            with connect(self.settings) as client:
                opened = client.open(label="cost").run if name == "100hz" else None
                loop(call, 2.0)
                before = client.status()
                begin = time.perf_counter()
                threads = thread_cpu_ns(before["pid"])
                stored = readings_bytes(self.settings.state)
                loop(call, seconds)
                after = client.status()
                span_s = time.perf_counter() - begin
                out[name] = {
                    "cpu_ratio": (after["cpu_s"] - before["cpu_s"]) / span_s,
                    "stored_bytes_a_minute": (readings_bytes(self.settings.state) - stored) / span_s * 60,
                    "rows_a_second": (after["store"]["rows_count"] - before["store"]["rows_count"]) / span_s,
                    "threads": shares(threads, thread_cpu_ns(before["pid"]), span_s),
                    "rss_bytes": rss_bytes(before["pid"]),
                    "gpus": after["gpus"],
                }
                if opened:
                    client.close()
        return out


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(out)
    # First, because a context of this process would be a neighbour, which the judge flags correctly.
    campaign.run_command()
    figures = {"daemon": campaign.cost(), "window": campaign.enter_exit(), "fast_row": fast_row()}
    log = (out / "smi.csv").open("w")
    smi = subprocess.Popen(["nvidia-smi", f"--query-gpu={SMI_COLUMNS}", "--format=csv", "-lms", "20"], stdout=log)
    for scenario in scenarios():
        campaign.window(scenario)
    campaign.save(figures)
    for scenario, what, count in neighbours():
        with beside(*what, count=count):
            campaign.window(scenario)
    smi.terminate()
    smi.wait()
    log.close()
    print(
        json.dumps(
            {
                "window": figures["window"],
                "daemon": {k: {n: v for n, v in d.items() if n != "gpus"} for k, d in figures["daemon"].items()},
            },
            indent=1,
        )
    )
    campaign.save(figures)
    wrong = [row["scenario"] for row in campaign.rows if not row["right"]]
    print(
        "wrong:",
        wrong or "none",
        [f"{row['scenario']} {row['enter_ms']:.1f}/{row['exit_ms']:.1f}" for row in campaign.rows if "enter_ms" in row],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
