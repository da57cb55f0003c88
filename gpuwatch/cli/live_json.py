"""The JSON of `gpuwatch top --once`: every GPU and window now, as plain data."""

from __future__ import annotations

from typing import Any

from annotate.clock_reasons import REASONS
from annotate.evidence import SIGNALS, Lane
from gpuwatch.view.live import Live, LiveGpu
from gpuwatch.wire import messages


def plain(live: Live) -> dict[str, Any]:
    """Return plain data; ``None`` is what was not observed, times are CLOCK_MONOTONIC nanoseconds of the machine."""
    return {
        "at_ns": live.at_ns,
        "source": live.source,
        "simulated": live.simulated,
        "absence": live.absence,
        "gpus": [_gpu(position, gpu, live.at_ns) for position, gpu in enumerate(live.gpus)],
        "windows": [_window(window) for window in live.windows],
        "gpus_left_out_count": live.gpus_left_out_count,
        "windows_left_out_count": live.windows_left_out_count,
        "unanswered": list(live.unanswered),
    }


def _gpu(position: int, gpu: LiveGpu, at_ns: int) -> dict[str, Any]:
    device, mask = gpu.device, gpu.said("event_reasons_mask")
    row = gpu.rows.get(Lane.FAST)
    return {
        "position": position,
        "uuid": device.uuid,
        "name": device.name,
        "lost": gpu.lost,
        "age_s": None if row is None else max(0, at_ns - row.at_ns) / 1e9,
        "sm_clock_max_mhz": device.sm_clock_max_mhz,
        "temperature_slowdown_c": device.temperature_slowdown_c,
        "memory_total_bytes": device.memory_total_bytes,
        "reasons": None if mask is None else [explained.name for bit, explained in REASONS.items() if mask & bit],
        "said": {name: gpu.said(name) for name in SIGNALS},
        "visibility": gpu.census.visibility.value if gpu.census is not None else None,
        "processes": None
        if gpu.census is None
        else [
            {
                "pid": each.pid,
                "name": each.name,
                "user": each.user,
                "memory_bytes": each.memory_bytes,
                "utilization_ratio": each.utilization_ratio,
            }
            for each in gpu.census.processes
        ],
        "processes_left_out_count": gpu.processes_left_out_count,
    }


def _window(window: messages.Shown) -> dict[str, Any]:
    return {
        "run": window.run,
        "label": window.label,
        "claim": window.claim,
        "status": window.status,
        "why": window.why,
        "begin_ns": window.begin_ns,
        "end_ns": window.end_ns,
        "uuids": window.uuids,
        "pids": window.pids,
        "hazards": window.hazards,
        "simulated": window.simulated,
    }
