"""The judge's error rates on real GPUs: clean windows and injected hazards.  A run replaces the folder's earlier rows.

    python -m tests.hardware.verdicts OUT_FOLDER clean COUNT [FIRST]      COUNT clean windows on every GPU of the machine
    python -m tests.hardware.verdicts OUT_FOLDER injected ROUNDS [NAME …] every (or each named) hazard ROUNDS times on every GPU
    python -m tests.hardware.verdicts OUT_FOLDER all COUNT                COUNT clean windows, every hazard once, the figures
    python -m tests.hardware.verdicts OUT_FOLDER hogs ROUNDS              ROUNDS windows with two busy processes per CPU

One daemon watches all GPUs; one worker process per GPU runs its windows.  Each worker writes ``verdicts-N.jsonl`` (a row per
window) and ``verdicts-N-….capsule`` (their evidence, in the same order).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gpuwatch
from annotate import __version__
from annotate.capsule.pack import pack
from annotate.evidence import Evidence
from gpuwatch.config import settings as config
from gpuwatch.config.settings import Settings
from gpuwatch.store import Reader
from tests.hardware.workloads import hogging

WINDOW_S = 3.2


def settings(out: Path) -> Settings:
    # A short path for the socket, separate per folder, because each folder's store has its own daemon.
    return config.load({"state": str(out / "state"), "socket": f"/tmp/gpuwatch-{out.resolve().name}/s.sock"})


class Worker:
    """A run of windows on the one GPU of this process, with their results."""

    def __init__(self, out: Path, number: int) -> None:
        self.settings = settings(out)
        self.path = out / f"verdicts-{number}"
        self.number = number
        self.rows: list[dict[str, Any]] = []
        self.evidence: list[Evidence] = []
        self.waiting: list[tuple[gpuwatch.Window, dict[str, Any]]] = []

    def window(self, facts: dict[str, Any], run: Any) -> None:
        """Run one window; ``collect`` requests the verdict later, to save the wait."""
        begin = time.perf_counter()
        window = gpuwatch.window(facts["name"], settings=self.settings)
        window.__enter__()
        entered = time.perf_counter()
        try:
            run(window)
        except KeyError as error:
            left = time.perf_counter()
            window.__exit__(KeyError, error, None)
        else:
            left = time.perf_counter()
            window.__exit__(None, None, None)
        facts |= {"enter_ms": (entered - begin) * 1e3, "exit_ms": (time.perf_counter() - left) * 1e3}
        self.waiting.append((window, facts))

    def collect(self) -> None:
        for window, facts in self.waiting:
            verdict = window.verdict
            hazards = [[hazard.rule, hazard.severity] for hazard in verdict.hazards]
            row = {
                **facts, "gpu": self.number, "status": verdict.status.value, "why": verdict.why, "hazards": hazards,
                "window_s": verdict.length_s, "judge": __version__, "date": time.strftime("%Y-%m-%d"),
            }  # fmt: skip
            with Reader(self.settings.state) as reader:
                run = reader.run(window.run_id or "")
                evidence = [reader.evidence(run, uuid) for uuid in run.uuids]
            row["evidence"] = bool(evidence)
            self.evidence += evidence[:1]
            self.rows.append(row)
            caught = (
                not facts.get("rules")
                or {rule for rule, _ in hazards} & set(facts["rules"])
                or verdict.status.value in facts["status_due"]
            )
            mark = "ok   " if verdict.status.value in facts["status_due"].split("|") and caught else "WRONG"
            print(
                f"{mark} {self.number} {facts['kind']} {facts['name']}: {verdict.status.value} {hazards} {verdict.why[:150]}",
                flush=True,
            )
        self.waiting.clear()

    def save(self) -> None:
        """Save all rows, and the evidence since the last save in a new file."""
        self.path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        if self.evidence:
            self.path.with_name(f"{self.path.name}-{len(self.rows):04}.capsule").write_bytes(pack(self.evidence))
            self.evidence.clear()

    def clean(self, count: int, first: int) -> None:
        """Run clean windows of every kind of kernel in turn, warmed as the rules require, half with timed iterations.

        While iteration times are read, the GPU idles for longer than its clock stays at the cap's level.  A power-limited
        kernel is therefore warmed for 3.1 s before each window.
        """
        import torch

        from tests.hardware.injections import timed
        from tests.hardware.kernels import KERNELS
        from tests.hardware.workloads import loop

        a_kernel = -(-count // len(KERNELS))
        done = 0
        for turn in range(len(KERNELS)):
            kernel = KERNELS[(turn + self.number * 5) % len(KERNELS)]
            call = kernel.make()
            for number in range(min(a_kernel, count - done)):
                loop(call, 3.1 if kernel.capped else 0.5)
                length_s = WINDOW_S if kernel.capped else 1.3
                facts = {
                    "kind": "clean", "name": kernel.name, "recorded": kernel.recorded, "status_due": "valid",
                    "timed": (number + first) % 2 == 0,
                }  # fmt: skip
                self.window(facts, timed(call, length_s) if facts["timed"] else lambda _, call=call, s=length_s: loop(call, s))
                done += 1
            self.collect()
            self.save()
            del call
            torch.cuda.empty_cache()

    def injected(self, rounds: int, names: Sequence[str] = ()) -> None:
        from tests.hardware.injections import injections

        for _ in range(rounds):
            for injection in injections():
                if names and injection.name not in names:
                    continue
                injection.before()
                facts = {"kind": "injected", "name": injection.name, "rules": injection.rules, "status_due": injection.status}
                with injection.beside():
                    self.window(facts, injection.body)
                    self.collect()
                self.save()

    def everything(self, count: int, first: int, workers_count: int) -> None:
        """Run clean windows, every hazard once, and this worker's share of the figures, within a lent machine's minutes."""
        from tests.hardware import figures

        self.clean(count, first)
        figures.take(self.path.parent, ["corrections", "comparisons"], self.number, workers_count)
        self.injected(1)
        figures.take(self.path.parent, ["experiments", "methods"], self.number, workers_count)

    def hogs(self, rounds: int) -> None:
        from tests.hardware.workloads import gemm, loop

        call = gemm(4096)
        for _ in range(rounds):
            loop(call, 1.0)
            facts = {
                "kind": "injected",
                "name": "cpu-hogs",
                "rules": ("idle-stretch", "bursty-duty-cycle"),
                "status_due": "flagged|rejected",
            }
            self.window(facts, lambda _: loop(call, 3.0))
            self.collect()
        self.save()


def main(arguments: list[str]) -> int:
    out, what, amount, *rest = arguments
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    if rest[:1] == ["--worker"]:
        worker = Worker(folder, int(rest[1]))
        {"clean": lambda: worker.clean(int(amount), int(rest[2])), "injected": lambda: worker.injected(int(amount), rest[4:]),
         "hogs": lambda: worker.hogs(int(amount)), "all": lambda: worker.everything(int(amount), int(rest[2]), int(rest[3]))}[what]()  # fmt: skip
        return 0
    import torch

    count = torch.cuda.device_count()
    names = rest if what == "injected" else []
    first = rest[0] if rest and not names else "0"
    with gpuwatch.window("starts the daemon", settings=settings(folder)):
        pass
    # Twice the number of CPUs: with an equal number, some windows were not disturbed.
    with hogging(2 * (os.cpu_count() or 1) if what == "hogs" else 0):
        workers = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.hardware.verdicts",
                    out,
                    what,
                    amount,
                    "--worker",
                    str(number),
                    first,
                    str(count),
                    *names,
                ],
                env={**os.environ, "CUDA_VISIBLE_DEVICES": str(number)},
            )
            for number in range(count)
        ]
        codes = [worker.wait() for worker in workers]
    rows = list(read(folder))
    wrong = [row for row in rows if row["status"] not in row["status_due"].split("|")]
    print(f"{len(rows)} windows, {len(wrong)} wrong: {sorted({(row['name'], row['status']) for row in wrong})}")
    return max(codes, default=1)


def read(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("verdicts-*.jsonl")):
        yield from map(json.loads, path.read_text().splitlines())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
