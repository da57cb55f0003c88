"""Verdicts of copies on each of two GPUs, alone and with a neighbour on the second GPU.

python -m tests.hardware.two_gpus OUT.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gpuwatch
from gpuwatch.client.connection import connect
from gpuwatch.config import settings as config

_BODY = """
import sys
import gpuwatch
from gpuwatch.config import settings as config
from tests.hardware.workloads import copy, loop
call = copy()
loop(call, 1.0)
with gpuwatch.window(sys.argv[1], settings=config.load(dict(state=sys.argv[2], socket=sys.argv[3]))) as w:
    loop(call, 4.0)
import json
print(json.dumps(w.to_dict()))
"""


def measured(label: str, device: str, settings: config.Settings) -> dict[str, object]:
    """Measure a copy in a process with one visible GPU, by CUDA's number."""
    done = subprocess.run(
        [sys.executable, "-c", _BODY, label, str(settings.state), str(settings.socket)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": device}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(out: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="gw2"))
    settings = config.load({"state": str(folder / "state"), "socket": str(folder / "s")})
    with gpuwatch.window("starts the daemon", settings=settings):
        pass
    with connect(settings) as client:
        uuids = [gpu["uuid"] for gpu in client.status()["gpus"]]
    rows = [measured("alone on the first", "0", settings), measured("alone on the second", "1", settings)]
    neighbour = subprocess.Popen(
        [sys.executable, "-m", "tests.hardware.workloads", "vector-adds"],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "1"}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert neighbour.stdout is not None
        neighbour.stdout.readline()
        time.sleep(2.0)
        rows += [measured("neighbour on the other", "0", settings), measured("neighbour on the same", "1", settings)]
    finally:
        neighbour.kill()
        neighbour.wait()
    seen = []
    for row in rows:
        for verdict in row["verdicts"]:  # type: ignore[attr-defined]  # JSON
            gpu = uuids.index(verdict["device"]["uuid"])
            hazards = [f["rule"] for f in verdict["findings"] if f["answered"] == "found"]
            seen.append(
                {"window": row["label"], "gpu": gpu, "status": verdict["status"], "hazards": hazards, "why": verdict["why"]}
            )
            print(seen[-1])
    out.write_text(json.dumps({"date": time.strftime("%Y-%m-%d"), "gpus": len(uuids), "windows": seen}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
