"""Neighbours of a measured process: forks of a process that imported torch and uses no GPU.

    python -m tests.hardware.paired_neighbours [torch]     reads one ``Request`` per line, answers ``forked PID``, and ``ready PID`` or ``failed PID why``

Importing torch takes seconds, too long for a window; a fork of a process with torch has a context after a second.
Each fork ends with the requesting process, or after its lifetime.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from tests.hardware.paired_disturbances import Disturbance
from tests.waiting import wait_until

READY_S = 20.0  # a context and a graph take 1 to 2 s
_PR_SET_PDEATHSIG = 1
_HELD_BYTES = 100e9  # memory held at a depth of 1
_COPIED_COUNT = 1 << 24  # numbers per copy
_GRAPH_COUNT = 20  # products per launch
_BUSY_S = 0.5  # warm-up of a neighbour's kernels before it is ready


class Request(msgspec.Struct, frozen=True):
    """One process to start, and its lifetime."""

    kind: str  # of the disturbance
    depth: float
    period_s: float
    life_s: float
    delay_s: float = 0.0  # pause before the work
    works_s: float = 1e9  # duration of the work


def request(of: Disturbance, life_s: float) -> Request:
    late = of.pieces[0] if of.family == "neighbour-late" and of.pieces else None
    if late is None:
        return Request(of.kind, of.depth, of.period_s, life_s)
    return Request(of.kind, of.depth, of.period_s, life_s, late.begin_s, late.end_s - late.begin_s)


class Lines:
    """A process's lines of input and output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._queue: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._queue.put(line.strip())
        self._queue.put("")

    def send(self, line: str) -> None:
        """Send one line.  Raises RuntimeError: when the process has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise RuntimeError(f"the process has ended: {error}") from error

    def next(self, within_s: float) -> str:
        """Return the next line.  Raises RuntimeError: when none comes in time, or the process has ended."""
        try:
            line = self._queue.get(timeout=within_s)
        except queue.Empty:
            raise RuntimeError(f"no answer within {within_s:.0f} s") from None
        if not line:
            raise RuntimeError(f"the process ended with {self._process.poll()}")
        return line

    def drop(self) -> None:
        while not self._queue.empty():
            self._queue.get()


class Neighbours:
    """A process that forks neighbours on request."""

    def __init__(self, *, has_gpu: bool) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hardware.paired_neighbours", *(["torch"] if has_gpu else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._lines = Lines(self._process)

    @contextlib.contextmanager
    def beside(self, of: Disturbance, life_s: float) -> Iterator[set[int]]:
        """Run a disturbance's processes during the body, and yield the PIDs.  Raises RuntimeError: when one cannot start."""
        pids: set[int] = set()
        ready_count, asked_count = 0, max(1, of.count)
        self._lines.drop()
        try:
            for _ in range(asked_count):
                self._lines.send(msgspec.json.encode(request(of, life_s)).decode())
            while ready_count < asked_count or len(pids) < asked_count:
                word, pid, *why = self._lines.next(READY_S).split(" ", 2)
                pids.add(int(pid))
                if word == "failed":
                    raise RuntimeError(f"the neighbour failed: {' '.join(why)}")
                ready_count += word == "ready"
            yield pids
        finally:
            for each in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            wait_until(lambda: not any(Path(f"/proc/{each}").exists() for each in pids), what="the neighbours are gone")

    def close(self) -> None:
        """End the process, and with it every neighbour."""
        self._process.kill()
        self._process.wait()


def _serve(has_gpu: bool) -> int:
    if has_gpu:
        import torch  # noqa: F401 - for the forks
    _end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps ended forks
    while line := sys.stdin.readline():
        asked = msgspec.json.decode(line, type=Request)
        pid = os.fork()
        if pid == 0:
            _live(asked, has_gpu=has_gpu)
        _tell("forked", pid)  # also for forks that are never ready
    return 0


def _live(asked: Request, *, has_gpu: bool) -> None:
    """Run as a neighbour, then end the process."""
    _end_with_parent()
    signal.setitimer(signal.ITIMER_REAL, asked.life_s)  # the signal's default action ends the process, even inside the driver
    code = 0
    try:
        if not has_gpu and asked.kind != "hog":
            raise RuntimeError("expected a GPU for the neighbour, found none")
        if asked.delay_s:
            _tell("ready")
            time.sleep(asked.delay_s)
        _work(asked, (lambda: None) if asked.delay_s else (lambda: _tell("ready")))
    except BaseException as error:  # noqa: BLE001 - the requesting process waits for a line
        _tell("failed", why=f"{type(error).__name__}: {error}".replace("\n", " ")[:200])
        code = 1
    os._exit(code)


def _work(asked: Request, ready: Callable[[], None]) -> None:
    if asked.kind == "hog":
        ready()
        while True:
            pass
    if asked.kind == "holds":
        import torch

        held = torch.empty(int(asked.depth * _HELD_BYTES), dtype=torch.uint8, device="cuda")
        ready()
        time.sleep(asked.life_s)
        del held
        return
    call, synchronize = _copies(asked.kind) if asked.kind in ("h2d", "d2h", "d2d") else _products(int(asked.kind.split("-")[1]))
    if not asked.delay_s:
        _busy(call, synchronize, _BUSY_S)
    ready()
    until_s = time.monotonic() + asked.works_s
    while time.monotonic() < until_s:
        _busy(call, synchronize, asked.depth * asked.period_s)
        time.sleep((1.0 - asked.depth) * asked.period_s)


def _busy(call: Callable[[], object], synchronize: Callable[[], None], seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        call()
        synchronize()


def _products(size: int) -> tuple[Callable[[], object], Callable[[], None]]:
    import torch

    from tests.hardware.workloads import gemm

    call = gemm(size)
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_GRAPH_COUNT):
            call()
    return graph.replay, torch.cuda.synchronize


def _copies(kind: str) -> tuple[Callable[[], object], Callable[[], None]]:
    import torch

    there = torch.empty(_COPIED_COUNT, device="cuda")
    here = torch.empty(_COPIED_COUNT, device="cuda") if kind == "d2d" else torch.empty(_COPIED_COUNT, pin_memory=True)
    target, source = (here, there) if kind == "d2h" else (there, here)
    return lambda: target.copy_(source, non_blocking=True), torch.cuda.synchronize


def _tell(word: str, pid: int | None = None, why: str = "") -> None:
    """Write one line at once, so that lines of many processes on one pipe stay whole."""
    os.write(1, f"{word} {pid or os.getpid()} {why}".strip().encode() + b"\n")


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(_serve(has_gpu=sys.argv[1:] == ["torch"]))
