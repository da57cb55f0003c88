"""One other watcher at a given rate, for bench_peers, in an interpreter without gpuwatch.

    python peer.py nvitop|gpustat|zeus HZ

The program prints "ready" after the first query, and at SIGTERM the delays as JSON.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable

_KEPT: list[object] = []


def nvitop() -> Callable[[], object]:
    from nvitop import Device  # type: ignore[import-untyped]  # nvitop has no annotations for importers

    devices = Device.all()
    return lambda: [(device.as_snapshot(), device.processes()) for device in devices]


def gpustat() -> Callable[[], object]:
    import gpustat  # type: ignore[import-untyped]  # gpustat has neither stubs nor annotations

    query: Callable[[], object] = gpustat.new_query
    return query


def zeus() -> Callable[[], object] | None:
    """Start Zeus's power monitor, which polls in separate processes; return None, because this process queries nothing."""
    from zeus.monitor import PowerMonitor  # type: ignore[import-not-found]  # only the peers' environment has it

    _KEPT.append(PowerMonitor(update_period=1 / float(sys.argv[2]), max_samples_per_gpu=1000))
    return None


def main() -> None:
    looks: dict[str, Callable[[], Callable[[], object] | None]] = {"nvitop": nvitop, "gpustat": gpustat, "zeus": zeus}
    look, period_ns = looks[sys.argv[1]](), round(1e9 / float(sys.argv[2]))
    late_ns: list[int] = []

    def tell(*_: object) -> None:
        found = sorted(late_ns)
        p50_ns, p99_ns = (found[len(found) * each // 100] if found else None for each in (50, 99))
        print(json.dumps({"late_p50_ns": p50_ns, "late_p99_ns": p99_ns}), flush=True)
        raise SystemExit

    signal.signal(signal.SIGTERM, tell)
    if look is not None:
        look()
    print("ready", flush=True)
    due_ns = time.monotonic_ns()
    while look is not None:
        time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
        late_ns.append(time.monotonic_ns() - due_ns)
        look()
        due_ns += period_ns * max(1, -(-(time.monotonic_ns() - due_ns) // period_ns))  # skip missed ticks
    signal.pause()


if __name__ == "__main__":
    main()
