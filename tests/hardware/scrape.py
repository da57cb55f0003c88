"""The metrics page of a daemon on real GPUs, scraped during a window around a GEMM under the first GPU's power cap.

    python -m tests.hardware.scrape OUT.om

The script masks UUIDs.  tests/traces/h200-scrape.om is a recorded page.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import gpuwatch
from gpuwatch.config.settings import load
from tests.hardware.workloads import gemm, loop

PORT = 9481


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="gw") as folder:
        settings = load({"source": "nvml", "state": f"{folder}/state", "socket": f"{folder}/s"})
        command = [sys.executable, "-m", "gpuwatch", *settings.flags(), "daemon", "--listen", f"127.0.0.1:{PORT}"]
        daemon = subprocess.Popen(command)
        try:
            call = gemm(4096)
            loop(call, 3.0)
            with gpuwatch.window("scraped", settings=settings):
                loop(call, 7.0)
                page()
                loop(call, 4.0)
                text, took_s = page()
        finally:
            daemon.terminate()
            daemon.wait(10)
    out.write_text(masked(text))
    print(f"scraped in {took_s * 1e3:.1f} ms, {len(text)} characters, {text.count(chr(10))} lines")


def page() -> tuple[str, float]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0"}
    )
    begin_s = time.perf_counter()
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode(), time.perf_counter() - begin_s


def masked(text: str) -> str:
    """Replace each card's UUID with a made-up UUID that ends in 200 plus the card's number."""
    for number, uuid in re.findall(r'gpuwatch_device_info\{.*?gpu="(\d+)".*?uuid="([^"]+)"', text):
        text = text.replace(uuid, f"GPU-00000000-0000-0000-0000-{200 + int(number):012d}")
    return text


if __name__ == "__main__":
    main(Path(sys.argv[1]))
