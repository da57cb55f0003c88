"""Generated nvidia-smi logs for tests."""

from __future__ import annotations

from pathlib import Path

TRACES = Path(__file__).parents[2] / "traces"

HEADER = (
    "timestamp, name, uuid, clocks.current.sm [MHz], clocks.current.memory [MHz], power.draw [W], power.draw.instant [W], "
    "temperature.gpu, utilization.gpu [%], memory.used [MiB], clocks_event_reasons.active, enforced.power.limit [W]"
)
_UUIDS = ("GPU-0e1f2a3b-0000-0000-0000-000000000001", "GPU-0e1f2a3b-0000-0000-0000-000000000002")


def row(number: int, gpu: int = 0, *, period_ms: int = 20) -> str:
    """Return one row of a capped GPU, ``period_ms`` after the previous one."""
    second, milli = divmod(number * period_ms, 1000)
    minute, second = divmod(second, 60)
    return (
        f"2026/11/21 08:{15 + minute:02d}:{second:02d}.{milli:03d}, NVIDIA H200, {_UUIDS[gpu]}, "
        f"{1455 + 15 * (number % 3)} MHz, 3201 MHz, 691.{number % 100:02d} W, 702.10 W, 58, 100 %, 3012 MiB, "
        "0x0000000000000004, 700.00 W"
    )


def log_of(*, gpus: int = 1, rows: int = 50) -> str:
    lines = [HEADER, *(row(number, gpu) for number in range(rows) for gpu in range(gpus))]
    return "\n".join(lines) + "\n"
