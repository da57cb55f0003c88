"""What a witness keeps of who was on a GPU: for screens with how busy each was, for windows as the driver gave it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from annotate.evidence import Lane, Process, ProcessList
from gpuwatch.daemon.watched_gpus import WatchedGpus
from gpuwatch.interfaces import Lost, Observed, Sweep
from gpuwatch.store import Store
from tests.gpuwatch.live import settings

UUID = "GPU-1"


def census(at_s: int, *processes: Process, use_asked: bool = False) -> ProcessList:
    return ProcessList(uuid=UUID, at_ns=at_s * 1_000_000_000, took_ns=1, processes=processes, use_asked=use_asked)


def test_screens_keep_how_busy_a_process_was_and_windows_hear_only_what_the_driver_said_last(tmp_path: Path) -> None:
    hidden = Process(pid=9, utilization_ratio=0.5, listed=False)
    store = Store(tmp_path, source="simulated", boot_id="boot")
    with ThreadPoolExecutor(1) as threads:
        witness = WatchedGpus(settings(tmp_path), store, sinks=(), threads=threads)

        def taken(observed: Observed) -> tuple[ProcessList | None, Observed]:
            witness.take(Sweep(UUID, Lane.PROCESSES, due_ns=0, late_ns=0, missed_count=0, observed=observed))
            return witness.census(UUID), witness.latest()[(UUID, Lane.PROCESSES)].observed

        asked, plain, nobody = census(1, hidden, use_asked=True), census(2), census(3, use_asked=True)
        assert taken(asked) == (asked, asked)
        raw, shown = taken(plain)
        assert raw == plain
        assert isinstance(shown, ProcessList)
        assert shown.processes == (hidden,)
        assert taken(nobody) == (nobody, nobody)
        lost = Lost(4_000_000_000, "it fell off the bus")
        assert taken(lost) == (None, lost)
    store.close()
