"""What scraping a machine costs, and keeping it: series, page, and bytes a sample in VictoriaMetrics."""

from __future__ import annotations

import gzip
import re
import tempfile
import time
import urllib.request
from pathlib import Path

from tests.gpuwatch.fleet.servers import machines, victoria

_GPUS_COUNT, _SCRAPES_COUNT, _INTERVAL_S = 8, 480, 15
_LEFT_OUT = "gpuwatch_gpu_field_supported"  # as the configuration on the fleet's page does


def main() -> None:
    begun_s = time.time() - _SCRAPES_COUNT * _INTERVAL_S
    with (
        tempfile.TemporaryDirectory() as folder,
        machines(1, _GPUS_COUNT, period_s=0.1) as (target,),
        victoria(Path(folder) / "v") as server,
    ):
        time.sleep(2.0)
        for i in range(_SCRAPES_COUNT):
            page = _got(f"http://{target}/metrics")
            kept = b"\n".join(line for line in page.splitlines() if not line.startswith(_LEFT_OUT.encode()))
            at_ms = round((begun_s + i * _INTERVAL_S) * 1e3)
            put = urllib.request.Request(f"{server.url}/api/v1/import/prometheus?timestamp={at_ms}", data=kept)
            urllib.request.urlopen(put, timeout=10).close()
        for step in ("force_flush", "force_merge"):
            _got(f"{server.url}/internal/{step}")
        time.sleep(3.0)
        own = _got(f"{server.url}/metrics").decode()
    series_count = sum(1 for line in kept.splitlines() if line and not line.startswith(b"#"))
    data_bytes = sum(float(value) for value in re.findall(r'^vm_data_size_bytes\{type="storage/.*?\} (\S+)', own, re.M))
    index_bytes = sum(float(value) for value in re.findall(r'^vm_data_size_bytes\{type="indexdb.*?\} (\S+)', own, re.M))
    text = page.decode()
    took_s = _value(text, "gpuwatch_scrape_seconds_sum") / _value(text, "gpuwatch_scrape_seconds_count")
    figures = {
        "GPUs": _GPUS_COUNT,
        "series": series_count,
        "page kB": len(page) / 1e3,
        "zipped kB": len(gzip.compress(page, 1)) / 1e3,
        "ms a page": 1e3 * took_s,
        "bytes a sample": data_bytes / (series_count * _SCRAPES_COUNT),
        "index B a series": index_bytes / series_count,
    }
    print(f"\n{'scraping a machine':24}" + "".join(f"{name:>18}" for name in figures))
    print(" " * 24 + "".join(f"{value:18.2f}" for value in figures.values()))


def _got(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        found: bytes = answer.read()
        return found


def _value(page: str, name: str) -> float:
    return float(re.findall(rf"^{name} (\S+)", page, re.M)[0])


if __name__ == "__main__":
    main()
