"""The cost of `gpuwatch top`: imports, the time to the first picture, and the share of a core at 4 Hz with eight busy GPUs.

The last figure is of the real program in a terminal, with a real daemon of eight simulated GPUs.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from gpuwatch.config.settings import Settings
from tests.gpuwatch.live import running

SCENES = "simulated:" + ",".join(["steady-gemm", "neighbour", "bursty", "thermal"] * 2)
FIRST = """
import sys, time
t0 = time.perf_counter()
from gpuwatch.view.live import Looker
from gpuwatch.tui.app import TopApp
t1 = time.perf_counter()
from gpuwatch.config import settings as loaded
from gpuwatch.tui.widgets.gpu_list import GpuList
settings = loaded.load(dict(zip(("source", "state", "socket"), sys.argv[1:])))

class Timed(TopApp):
    def draw(self):
        super().draw()
        if self.feed.live is not None:
            self.call_after_refresh(lambda: self.exit(time.perf_counter() - t1))

took = Timed(Looker(settings)).run()
open(sys.argv[4], "w").write(f"{(t1 - t0) * 1e3:.1f} {took * 1e3:.1f}")
"""


@contextmanager
def in_terminal(command: list[str], columns: int, rows: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run the command in a terminal of this size; yield the process and the descriptor to read from."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        command, stdin=there, stdout=there, stderr=there, env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
    )  # fmt: skip
    os.close(there)
    try:
        yield process, here
    finally:
        process.kill()
        process.wait()
        os.close(here)


def drained(here: int, seconds: float) -> int:
    """Read for ``seconds``; return the number of bytes."""
    count, until = 0, time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([here], [], [], min(left, 0.1))[0]:
            try:
                count += len(os.read(here, 1 << 16))
            except OSError:  # the program has ended
                return count
    return count


def first_ms(settings: Settings) -> tuple[float, float]:
    """Return the milliseconds of the imports, and from the imports to the first picture with GPUs."""
    times_file = settings.state / "took"
    command = [sys.executable, "-c", FIRST, settings.source, str(settings.state), str(settings.socket), str(times_file)]
    with in_terminal(command, 120, 40) as (process, here):
        while process.poll() is None:
            drained(here, 0.05)
    imports, first = times_file.read_text().split()
    return float(imports), float(first)


def running_ratio(settings: Settings, columns: int, rows: int, seconds: float = 20.0) -> tuple[float, float]:
    """Return the share of a core after the start, and the bytes per second to the terminal."""
    with in_terminal([sys.executable, "-m", "gpuwatch", *settings.flags(), "top"], columns, rows) as (process, here):
        drained(here, 4.0)
        program = psutil.Process(process.pid)
        before, t0 = program.cpu_times(), time.monotonic()
        count = drained(here, seconds)
        after, took_s = program.cpu_times(), time.monotonic() - t0
    return (after.user + after.system - before.user - before.system) / took_s, count / took_s


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), SCENES) as live:
        starts = [first_ms(live.settings) for _ in range(5)]
        imports, first = (statistics.median(column) for column in zip(*starts, strict=True))
        print(f"the monitor of 8 GPUs: imports {imports:.0f} ms, first picture after them {first:.0f} ms (median of 5)")
        for columns, rows in ((80, 24), (120, 40), (200, 60)):
            ratio, bytes_count = running_ratio(live.settings, columns, rows)
            print(f"at 4 Hz on {columns} × {rows}: {ratio:.1%} of a core, {bytes_count / 1e3:.1f} kB/s to the terminal")


if __name__ == "__main__":
    main()
