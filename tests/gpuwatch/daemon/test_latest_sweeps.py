from __future__ import annotations

from annotate.evidence import Lane, Process, ProcessList
from gpuwatch.daemon.watched_gpus import LatestSweeps
from gpuwatch.interfaces import Lost, Observed, Sweep

UUID = "GPU-1"


def listed(at_s: int, *processes: Process, use_asked: bool = False) -> ProcessList:
    return ProcessList(uuid=UUID, at_ns=at_s * 1_000_000_000, took_ns=1, processes=processes, use_asked=use_asked)


def test_latest_sweeps_keep_use_for_screens_only() -> None:
    """Screens show each process's last known use; windows get the driver's last list unchanged."""
    latest = LatestSweeps()

    def taken(observed: Observed) -> tuple[ProcessList | None, Observed]:
        latest.take(Sweep(UUID, Lane.PROCESSES, due_ns=0, late_ns=0, missed_count=0, observed=observed))
        return latest.process_list(UUID), latest.by_lane()[(UUID, Lane.PROCESSES)].observed

    hidden = Process(pid=9, utilization_ratio=0.5, listed=False)
    with_use, plain, nobody = listed(1, hidden, use_asked=True), listed(2), listed(3, use_asked=True)
    assert taken(with_use) == (with_use, with_use)
    raw, shown = taken(plain)
    assert raw == plain
    assert isinstance(shown, ProcessList)
    assert shown.processes == (hidden,)
    assert taken(nobody) == (nobody, nobody)
    lost = Lost(4_000_000_000, "it fell off the bus")
    assert taken(lost) == (None, lost)


def test_latest_sweeps_report_changed_lists_at_once() -> None:
    """A list with other processes is news at once; an unchanged list is news after a second."""
    latest = LatestSweeps()
    known = Process(pid=9, started_s=1.0)
    assert latest.is_news(listed(5, known))
    assert not latest.is_news(ProcessList(uuid=UUID, at_ns=5_900_000_000, took_ns=1, processes=(known,)))
    assert latest.is_news(ProcessList(uuid=UUID, at_ns=5_950_000_000, took_ns=1, processes=(Process(pid=9, started_s=5.9),)))
    assert latest.is_news(listed(7, Process(pid=9, started_s=5.9)))
