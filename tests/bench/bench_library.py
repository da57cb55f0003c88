"""The cost of the C library to a program: a range that matches no pattern, and a window's opening and ending."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from gpuwatch.libgpuwatch import LIBRARY
from tests.gpuwatch.libgpuwatch import built
from tests.gpuwatch.live import running

_WINDOWS_COUNT = 200
_CONFIDENT = 1.96


def _highest_median(values: list[float]) -> tuple[float, float]:
    """Return the median and the upper end of its interval, by order statistics."""
    ordered = sorted(values)
    rank = round(len(ordered) / 2 + _CONFIDENT * len(ordered) ** 0.5 / 2)
    return statistics.median(ordered), ordered[min(rank, len(ordered) - 1)]


def _run(program: Path, *arguments: str, **environment: str) -> list[list[float]]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("GPUWATCH_", "NVTX_"))}
    done = subprocess.run([program, *arguments], env={**clean, **environment}, capture_output=True, text=True, check=True)
    return [[float(each) for each in line.split()] for line in done.stdout.splitlines()]


def main() -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="gw") as name, running(Path(name)) as live:
        folder = Path(name)
        ranges, api = built.with_ranges(folder), built.with_api(folder)
        injected = {
            "NVTX_INJECTION64_PATH": str(LIBRARY),
            "GPUWATCH_NVTX": "timed\nNCCL:*",
            "GPUWATCH_SOCKET": str(live.settings.socket),
        }
        bare_ns, _ = _highest_median([row[0] for row in _run(ranges)])
        range_ns, range_high_ns = _highest_median([row[0] for row in _run(ranges, **injected)])
        edges = _run(api, str(_WINDOWS_COUNT), GPUWATCH_SOCKET=str(live.settings.socket))
        open_us, open_high_us = _highest_median([row[0] for row in edges])
        end_us, end_high_us = _highest_median([row[1] for row in edges])
    print("a program's own time                                 median   upper end of 95 %")
    print(
        f"push and pop of a range that no pattern fits     {range_ns:7.1f} ns {range_high_ns:13.1f} ns   ({bare_ns:.1f} ns without the library)"
    )
    print(f"gw_begin, daemon running, of {len(edges)} windows          {open_us:7.1f} us {open_high_us:13.1f} us")
    print(f"gw_end                                           {end_us:7.1f} us {end_high_us:13.1f} us")
    return {"range_ns": range_high_ns, "open_us": open_high_us, "end_us": end_high_us}


if __name__ == "__main__":
    main()
