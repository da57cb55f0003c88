"""One of others' watchers at a rate of its own, for bench_peers: run by the interpreter that has them, with nothing of ours.

    python peer.py nvitop|gpustat|zeus HZ

Says "ready" once it has looked for the first time, and at SIGTERM how often it looked and how late, as JSON.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable


def nvitop() -> Callable[[], object]:
    from nvitop import Device  # type: ignore[import-untyped]  # it has no annotations for others

    devices = Device.all()
    return lambda: [(device.as_snapshot(), device.processes()) for device in devices]


def gpustat() -> Callable[[], object]:
    import gpustat  # type: ignore[import-untyped]  # it has neither stubs nor annotations for others

    query: Callable[[], object] = gpustat.new_query
    return query


def zeus() -> Callable[[], object]:
    """Its monitor of power polls in processes of its own; what is asked here is what they found."""
    from zeus.monitor import PowerMonitor  # type: ignore[import-not-found]  # only the peers' environment has it

    hz = float(sys.argv[2])
    monitor = PowerMonitor(update_period=1 / hz, max_samples_per_gpu=1000)
    return lambda: monitor


def main() -> None:
    look, period_ns = {"nvitop": nvitop, "gpustat": gpustat, "zeus": zeus}[sys.argv[1]](), round(1e9 / float(sys.argv[2]))
    look()
    late_ns: list[int] = []

    def tell(*_: object) -> None:
        late_ns.sort()
        print(json.dumps({"asked_count": len(late_ns), "late_p50_ns": late_ns[len(late_ns) // 2] if late_ns else 0}), flush=True)
        raise SystemExit

    signal.signal(signal.SIGTERM, tell)
    print("ready", flush=True)
    due_ns = time.monotonic_ns()
    while True:
        time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
        late = time.monotonic_ns() - due_ns
        late_ns.append(late)
        look()
        due_ns += period_ns * max(1, -(-(time.monotonic_ns() - due_ns) // period_ns))


if __name__ == "__main__":
    main()
