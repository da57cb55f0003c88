"""Ways to cheat a GPU benchmark, as programs: ``python -m tests.hardware.cheats NAME CLAIM.json``.

``python -m tests.hardware.cheats all FOLDER`` runs each in a forked child, with the parent's untrusted window around the child.
Most programs run a leaderboard's harness (events around every call, one synchronisation per batch) on one submission.  Each
program writes a claimed number to a file.  Docstrings name the source of published cheats; none was written to match a rule.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

import gpuwatch
from gpuwatch import clock
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import load
from gpuwatch.errors import DaemonError

SIZE = 4096  # bf16 products, 0.2 ms each on an H200
FLOPS = 2 * SIZE**3
SECONDS, WARM_UP_S, BATCH = float(os.environ.get("CHEAT_S", "1.2")), float(os.environ.get("CHEAT_WARM_UP_S", "0")), 250
Kernel = Callable[[], Any]
_elapsed, _counter = torch.cuda.Event.elapsed_time, time.perf_counter


@dataclass(frozen=True, slots=True)
class Claimed:
    """The number that would rank a submission, and the times recorded in both windows."""

    calls: int
    call_s: float
    times: list[float]

    @staticmethod
    def of(times: list[float]) -> Claimed:
        return Claimed(len(times), mean(times), times)


class Work:
    """The honest work: one product of random matrices."""

    def __init__(self) -> None:
        self.a = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
        self.b = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
        self.out = torch.empty_like(self.a)
        self()
        torch.cuda.synchronize()
        end_ns = clock.now_ns() + round(WARM_UP_S * 1e9)
        while clock.now_ns() < end_ns:
            for _ in range(BATCH):
                self()
            torch.cuda.synchronize()

    def __call__(self) -> torch.Tensor:
        return torch.mm(self.a, self.b, out=self.out)


def evaluate(kernel: Kernel) -> list[float]:
    times: list[float] = []
    end_ns = clock.now_ns() + round(SECONDS * 1e9)
    while clock.now_ns() < end_ns:
        pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(BATCH)]
        for begin, end in pairs:
            begin.record()
            kernel()
            end.record()
        torch.cuda.synchronize()
        times += [max(begin.elapsed_time(end) / 1e3, 1e-9) for begin, end in pairs]
    return times


def evaluate_by_host(kernel: Kernel) -> list[float]:
    """Time calls by the host's clock, with a synchronisation after each."""
    times: list[float] = []
    end_ns = clock.now_ns() + round(SECONDS * 1e9)
    while clock.now_ns() < end_ns:
        begin_s = time.perf_counter()
        kernel()
        torch.cuda.synchronize()
        times.append(max(time.perf_counter() - begin_s, 1e-9))
    return times


def honest(work: Work) -> Claimed:
    return Claimed.of(evaluate(work))


def patched_events(work: Work) -> Claimed:
    """Return a hundredth from ``Event.elapsed_time`` around an honest kernel: reference-kernels#162."""
    torch.cuda.Event.elapsed_time = lambda begin, end: _elapsed(begin, end) / 100
    return Claimed.of(evaluate(work))


def patched_statistics(work: Work) -> Claimed:
    """Divide the measured times by a hundred, as replaced statistics of the harness do: reference-kernels#162."""
    return Claimed.of([each / 100 for each in evaluate(work)])


def patched_counter(work: Work) -> Claimed:
    """Slow ``time.perf_counter`` by a factor of a hundred, against a harness that reads the host's clock."""
    time.perf_counter = lambda: _counter() / 100
    return Claimed.of(evaluate_by_host(work))


def other_stream(work: Work) -> Claimed:
    """Run the work on another stream, between events that do not wait for that stream: KernelBench#82."""
    side = torch.cuda.Stream()

    def kernel() -> None:
        with torch.cuda.stream(side):
            work()

    return Claimed.of(evaluate(kernel))


def cached_result(work: Work) -> Claimed:
    """Compute once, then return the same result: reference-kernels#142, #162, kernelbot#501."""
    return Claimed.of(evaluate(lambda: work.out))


def copied_result(work: Work) -> Claimed:
    """Compute once, then copy the kept bytes into the output: tensara#238."""
    kept = work().clone()
    return Claimed.of(evaluate(lambda: work.out.copy_(kept)))


def batch_and_skip(work: Work) -> Claimed:
    """Do the work of fifteen calls in one and none in the next fourteen, and claim the median: reference-kernels#104."""
    called = 0

    def kernel() -> None:
        nonlocal called
        if called % 15 == 0:
            for _ in range(15):
                work()
        called += 1

    times = evaluate(kernel)
    return Claimed(len(times), median(times), times)


def fewer_calls(work: Work) -> Claimed:
    """Hand over the times of one batch, and claim 40 such batches per second: pygpubench#7."""
    times = evaluate(work)[:BATCH]
    return Claimed(40 * len(times) * round(SECONDS), mean(times), times)


def scaled_calls(work: Work) -> Claimed:
    """Claim 30 times the calls at a thirtieth of the time: their product is the GPU's working time."""
    times = evaluate(work)
    return Claimed(30 * len(times), mean(times) / 30, [each / 30 for each in times for _ in range(30)])


def no_work(work: Work) -> Claimed:
    """Do no work, and claim 3.3 µs per call: pygpubench#7."""
    time.sleep(SECONDS)
    return Claimed(10_000, 3.3e-6, [3.3e-6] * 10_000)


def invented(work: Work) -> Claimed:
    """Run nothing, and claim a plausible time."""
    time.sleep(SECONDS)
    return Claimed(8_000, 0.19e-3, [0.19e-3] * 8_000)


def lazy_output(work: Work) -> Claimed:
    """Return placeholders, and do the work in the untimed checker: reference-kernels#162."""
    waiting = 0

    def kernel() -> None:
        nonlocal waiting
        waiting += 1

    times = evaluate(kernel)
    end_windows(times)
    for _ in range(min(waiting, 8_000)):
        work()
    torch.cuda.synchronize()
    return Claimed.of(times)


def unfinished_work(work: Work) -> Claimed:
    """End the window while the GPU still works through its queue, without waiting: KernelBench#82."""
    torch.cuda.synchronize = lambda device=None: None
    begin_ns, count = clock.now_ns(), round(SECONDS / 0.2e-3)
    for _ in range(count):
        work()
    call_s = (clock.now_ns() - begin_ns) / 1e9 / count
    times = [call_s] * count
    end_windows(times)
    return Claimed(count, call_s, times)


def spinning(work: Work) -> Claimed:
    """Compute no product, and let one thread of the GPU spin for the claimed time."""
    count = round(SECONDS / 0.2e-3)
    for _ in range(count):
        torch.cuda._sleep(round(0.2e-3 * 1.9e9))
    torch.cuda.synchronize()
    return Claimed(count, 0.2e-3, [0.2e-3] * count)


def window_closed(work: Work) -> Claimed:
    """Try to end the surrounding window through the daemon's socket after honest work, then cheat."""
    run = os.environ.get("GPUWATCH_PARENT", "")
    evaluate(work)
    try:
        with connect(load(), start=False) as client:
            client.close_window(run, clock.now_ns() - 1_000_000_000, clock.now_ns(), {"busy_ratio": 1.0})
    except DaemonError as error:
        print(f"refused: {error}", file=sys.stderr)
    return patched_events(work)


CHEATS: dict[str, Callable[[Work], Claimed]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        honest, patched_events, patched_statistics, patched_counter, other_stream, cached_result, copied_result, batch_and_skip,
        fewer_calls, scaled_calls, no_work, invented, lazy_output, unfinished_work, spinning, window_closed,
    )
}  # fmt: skip
_inner: list[gpuwatch.Window] = []


def end_windows(times: list[float]) -> None:
    """End the windows around the timed part with these times, once: a cheat may end the windows itself."""
    while _inner:
        ending = _inner.pop()
        ending.record(times)
        ending.__exit__(None, None, None)


def run(name: str, claim: Path) -> None:
    """Run one cheat in a trusted and an untrusted window, and write the claim."""
    work = Work()
    windows = {
        "untrusted": gpuwatch.window(f"inside-{name}", untrusted=True),
        "trusted": gpuwatch.window(f"trusted-{name}"),
    }
    for each in windows.values():
        each.__enter__()
        _inner.append(each)
    claimed = CHEATS[name](work)
    end_windows(claimed.times)
    data = {"calls": claimed.calls, "call_s": claimed.call_s}
    claim.write_text(json.dumps(data | {kind: summary(each) for kind, each in windows.items()}))


def summary(window: gpuwatch.Window) -> dict[str, Any]:
    verdict = window.verdict
    return {
        "status": verdict.status.value,
        "by": [each.rule for each in verdict.findings if each.severity in ("flag", "reject") and not each.accepted],
        "why": verdict.why,
        "claim": next((each.says for each in verdict.findings if each.rule == "claimed-work"), ""),
    }


def run_all(folder: Path) -> None:
    """Run every cheat in a child, as ``gpuwatch run --untrusted`` does, and write one table."""
    rows = []
    for name in CHEATS:
        claim = folder / f"{name}.json"
        around = gpuwatch.window(f"around-{name}", untrusted=True, sync=False)
        around.declare(whole_program=True, call_flops_count=FLOPS, dtype="bf16")
        with around:
            os.environ["GPUWATCH_PARENT"] = around.run_id or ""
            if (pid := os.fork()) == 0:
                code = 1
                try:
                    run(name, claim)
                    code = 0
                except BaseException:  # noqa: BLE001 - the parent shows it as a row without a claim
                    traceback.print_exc()
                finally:
                    os._exit(code)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            data = json.loads(claim.read_text()) if code == 0 else {}
            if data:
                around.declare(claimed_calls_count=data["calls"], claimed_call_s=data["call_s"])
        rows.append({"cheat": name, "exit_code": code, **data, "around": summary(around)})
        print(
            name, code, *(data.get(kind, {}).get("status") for kind in ("trusted", "untrusted")), rows[-1]["around"]["status"]
        )
        (folder / "cheats.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    if sys.argv[1] == "all":
        run_all(Path(sys.argv[2]))
    else:
        run(sys.argv[1], Path(sys.argv[2]))
