"""The cost of a window to its benchmark, compared with the minimum: an echo over the same kind of socket.

A close with 10 000 iterations timed by the host's clock sends the times before the block returns.  A separate thread reads and
sends more than 500 stamped times (``tests/hardware/costs.py``).
"""

from __future__ import annotations

import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path

import gpuwatch
from gpuwatch.config.settings import Settings
from tests.gpuwatch.live import running

_COUNT = 200
_TIMED_COUNT, _CLOSED_COUNT = 10_000, 20


def echo(path: Path) -> float:
    """Return the median milliseconds to connect, exchange one line, and close."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        for _ in range(_COUNT):
            connection, _ = server.accept()
            connection.sendall(connection.recv(4096))
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    took = []
    for _ in range(_COUNT):
        t0 = time.perf_counter()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"x" * 200 + b"\n")
            client.recv(4096)
        took.append(time.perf_counter() - t0)
    thread.join()
    server.close()
    return statistics.median(took) * 1e3


def enter_and_exit(settings: Settings, count: int = _COUNT) -> tuple[list[float], list[float]]:
    """Return the benchmark's seconds to open and to close windows, each sorted."""
    enter, leave = [], []
    for _ in range(count):
        t0 = time.perf_counter()
        w = gpuwatch.window("cost", settings=settings).__enter__()
        t1 = time.perf_counter()
        time.sleep(0.005)
        t2 = time.perf_counter()
        w.__exit__(None, None, None)
        enter.append(t1 - t0)
        leave.append(time.perf_counter() - t2)
    return sorted(enter), sorted(leave)


def close_timed(settings: Settings) -> list[float]:
    """Return the benchmark's seconds to close a window with many timed iterations, sorted."""
    leave = []
    for _ in range(_CLOSED_COUNT):
        w = gpuwatch.window("timed", settings=settings).__enter__()
        for _ in w.iterations(_TIMED_COUNT):
            pass
        t0 = time.perf_counter()
        w.__exit__(None, None, None)
        leave.append(time.perf_counter() - t0)
    return sorted(leave)


def main() -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="gw") as folder, running(Path(folder)) as live:
        enter, leave = enter_and_exit(live.settings)
        print("a window, simulated GPU      enter ms    exit ms    echo ms")
        print(
            f"median of {_COUNT}                {statistics.median(enter) * 1e3:8.2f} {statistics.median(leave) * 1e3:10.2f} "
            f"{echo(Path(folder) / 'echo'):10.2f}"
        )
        timed = close_timed(live.settings)
        print(f"\nclosing {_TIMED_COUNT} timed iterations    least ms  median ms")
        print(f"{'host clock':32} {timed[0] * 1e3:11.2f} {statistics.median(timed) * 1e3:10.2f}")
        edges = {"enter_ms": statistics.median(enter) * 1e3, "exit_ms": statistics.median(leave) * 1e3}
        return {**edges, "close_timed_ms": timed[0] * 1e3}


if __name__ == "__main__":
    main()
