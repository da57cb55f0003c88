"""The daemon's limits on waiting for the judge's worker.

The limits depend on the worker's CPU time, because a busy machine may give the worker little CPU time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from gpuwatch import clock

_LOOK_S = 0.5  # interval between reads of the worker's CPU time

_T = TypeVar("_T")


def used_cpu_s(pid: int) -> float | None:
    """Return the CPU time of a process, user and system, or None if the process cannot be read."""
    import psutil  # imported late: not needed before a worker has begun

    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return None
    return float(times.user + times.system)


@dataclass(frozen=True)
class WorkerPatience:
    """The limits on waiting for one answer of the worker."""

    answer_s: float = 20.0  # limit of CPU time, and of time without CPU time; judging a window takes tens of milliseconds
    window_ratio: float = 1 / 300  # CPU time added per second of the window
    starved_ratio: float = 15.0  # wall-clock time over the CPU time allowed: a client waits for the verdict
    cpu_s: Callable[[int], float | None] = used_cpu_s

    async def wait_for(self, answer: asyncio.Task[_T], pid: int, length_s: float) -> _T:
        """Wait for a worker's answer on a window of this length, while the worker makes progress.

        Raises TimeoutError: when the worker uses too much CPU time, uses none for too long, or gets too small a share.
        """
        most_s = self.answer_s + length_s * self.window_ratio
        begun_ns = progress_ns = clock.now_ns()
        first_s = last_s = self.cpu_s(pid) or 0.0
        while not (await asyncio.wait({answer}, timeout=min(_LOOK_S, most_s)))[0]:
            now_ns, now_s = clock.now_ns(), self.cpu_s(pid) or 0.0
            if now_s > last_s:
                progress_ns, last_s = now_ns, now_s
            if last_s - first_s > most_s:
                raise TimeoutError(
                    f"expected an answer within {most_s:.1f} s of CPU time, found none after {last_s - first_s:.1f} s"
                )
            if now_ns - progress_ns >= most_s * 1e9:
                raise TimeoutError(f"expected progress, found no CPU time used for {most_s:.1f} s")
            if now_ns - begun_ns >= most_s * self.starved_ratio * 1e9:
                raise TimeoutError(
                    f"expected an answer, found {last_s - first_s:.1f} s of CPU time used in {(now_ns - begun_ns) / 1e9:.0f} s"
                )
        return answer.result()
