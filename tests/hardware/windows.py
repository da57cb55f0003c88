"""The cost of entering and leaving a window on a real GPU, with a CUDA context and stamps, alternating with Zeus (required).

python -m tests.hardware.windows OUT_FOLDER
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from gpuwatch.client.connection import connect
from tests.gpuwatch.live import running

WINDOWS_COUNT = 150


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory(prefix="gw") as folder, running(Path(folder), "nvml") as live:
        with connect(live.settings) as client:
            uuids = [gpu["uuid"] for gpu in client.status()["gpus"]]
        for count in sorted({1, len(uuids)}):
            asked = {
                "uuids": uuids[:count], "peers": "", "context": True,
                "state": str(live.settings.state), "socket": str(live.settings.socket),
            }  # fmt: skip
            command = [sys.executable, "-m", "tests.bench.two_windows", json.dumps(asked), str(WINDOWS_COUNT)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            row = {
                "table": "window",
                "date": time.strftime("%Y-%m-%d"),
                "gpus_count": count,
                "context": True,
                "count": WINDOWS_COUNT,
            }
            for name, *edges in json.loads(done.stdout.splitlines()[-1]):
                who = "" if name == "gpuwatch" else f"{name}_"
                for edge, took_s in zip(("enter", "exit"), edges, strict=True):
                    for quantile in (50, 99):
                        row[f"{who}{edge}_p{quantile}_ms"] = float(np.percentile(took_s, quantile)) * 1e3
            rows.append(row)
            print(json.dumps(row))
    (out / "figures-windows.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
