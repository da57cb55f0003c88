"""The cost of the store: bytes per GPU and day, microseconds per sweep, and CPU time including the synthetic stream's."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from annotate.evidence import Lane
from gpuwatch.clock import VirtualClock
from gpuwatch.interfaces import Sweep
from gpuwatch.store import Reader, Store, StoreLimits
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, UUID, stream

_MINUTES = 60
_COMMIT_NS = 500_000_000


def readings_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("readings-*"))


def unwatched(sweeps: Iterable[Sweep]) -> Iterator[Sweep]:
    """Return the sweeps without pulses, as without an open window."""
    return (sweep for sweep in sweeps if sweep.lane is not Lane.PULSE)


def stored(folder: Path, *, loaded: bool, open_window: bool = False) -> dict[str, float]:
    """Store an hour of a stream with a commit every half second; return the costs."""
    Store(folder / "empty", source="synthetic", boot_id=BOOT).close()
    empty_bytes = readings_bytes(folder / "empty")
    clock, never = VirtualClock(BEGIN_NS), threading.Event()
    store = Store(folder, source="synthetic", boot_id=BOOT, limits=StoreLimits(commit_s=60.0), clock=clock)
    took_ns: list[int] = []
    due_ns = BEGIN_NS + _COMMIT_NS
    seconds = _MINUTES * 60.0
    cpu_s = time.process_time()
    sweeps = stream(seconds, loaded=loaded, slow_s=1.0) if open_window else unwatched(stream(seconds, loaded=loaded))
    for sweep in sweeps:
        before_ns = time.perf_counter_ns()
        store.take(sweep)
        took_ns.append(time.perf_counter_ns() - before_ns)
        if sweep.due_ns >= due_ns:
            due_ns += _COMMIT_NS
            clock.wait_until(sweep.due_ns, never)
            store.flush(10.0)
    cpu_s = time.process_time() - cpu_s
    rows_count = store.statistics()["rows_count"]
    with Reader(folder) as reader:
        before_ns = time.perf_counter_ns()
        trace = reader.trace(UUID, BOOT, BEGIN_NS + 100_000_000_000, BEGIN_NS + 111_500_000_000)
        read_ms = (time.perf_counter_ns() - before_ns) / 1e6
        assert trace.observes("power_w")
    store.close()
    grown_bytes = readings_bytes(folder) - empty_bytes
    return {
        "MB/day": grown_bytes / seconds * 86_400 / 1e6,
        "rows/s": rows_count / seconds,
        "take us": statistics.median(took_ns) / 1e3,
        "take p99.9 us": sorted(took_ns)[int(len(took_ns) * 0.999)] / 1e3,
        "cpu %": 100 * cpu_s / seconds,
        "read 11.5 s, ms": read_ms,
    }


def main() -> dict[str, float]:
    figures: dict[str, float] = {}
    cases = {
        "idle, 20 Hz": {"loaded": False},
        "loaded, 20 Hz": {"loaded": True},
        "loaded, window always open": {"loaded": True, "open_window": True},
    }
    first = True
    for name, case in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            result = stored(Path(folder), **case)
        figures |= {f"{name}, {key}": value for key, value in result.items()}
        if first:
            print(f"{'storing one GPU':30}" + "".join(f"{key:>17}" for key in result))
            first = False
        print(f"{name:30}" + "".join(f"{value:17.2f}" for value in result.values()))
    print("cpu % includes making the synthetic stream; flushed every half second, as by the writer")
    return figures


if __name__ == "__main__":
    main()
