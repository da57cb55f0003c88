"""The cost of a scrape of eight GPUs, compared with a server of the same static bytes, and the cost of a sample."""

from __future__ import annotations

import http.server
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable

from annotate.evidence import Device, Lane, Reading
from gpuwatch.exporter.access import Access
from gpuwatch.exporter.counters import Tallies
from gpuwatch.exporter.http_server import HttpServer
from gpuwatch.interfaces import Sweep
from tests.gpuwatch.exporter.fleet import Fleet

_COUNT = 100
_SAMPLES = 20_000


def fetching(url: str) -> Callable[[], int]:
    def fetch() -> int:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return len(answer.read())

    return fetch


def times_ms(work: Callable[[], int], count: int = _COUNT) -> list[float]:
    """Return the sorted wall times of ``count`` calls."""
    took = []
    for _ in range(count):
        t0 = time.perf_counter()
        work()
        took.append((time.perf_counter() - t0) * 1e3)
    return sorted(took)


def making_ms(fleet: Fleet, count: int = 20) -> float:
    """Return the milliseconds of CPU time to make the page, the least of some rounds."""
    least = float("inf")
    for _ in range(count):
        t0 = time.thread_time()
        fleet.collector.page().text(is_openmetrics=False)
        least = min(least, time.thread_time() - t0)
    return least * 1e3


def sample_us(rounds: int = 5) -> float:
    """Return the microseconds of CPU time of one fast sample in the tally, the least of some rounds."""
    device = Device(uuid="GPU-1", name="x", sm_clock_max_mhz=1980, mem_clock_max_mhz=3201, power_limit_w=700.0)
    tallies = Tallies({"GPU-1": device}.get)
    sweeps = [
        Sweep("GPU-1", Lane.FAST, n * 10_000_000, 50_000, 0, Reading(
            uuid="GPU-1", lane=Lane.FAST, at_ns=n * 10_000_000, took_ns=10_000, sm_clock_mhz=1900 - n % 300,
            mem_clock_mhz=3201, power_w=600.0 + n % 90, event_reasons_mask=4,
        ))
        for n in range(_SAMPLES)
    ]  # fmt: skip
    least = float("inf")
    for _ in range(rounds):
        t0 = time.thread_time()
        for sweep in sweeps:
            tallies.take(sweep)
        least = min(least, time.thread_time() - t0)
    return least / _SAMPLES * 1e6


def static(body: bytes) -> http.server.ThreadingHTTPServer:
    """Return a running minimal HTTP server of these bytes."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def eight() -> Fleet:
    fleet = Fleet("fleet")
    fleet.play(2)
    return fleet


def main() -> dict[str, float]:
    fleet = eight()
    web = HttpServer("127.0.0.1:0", Access(None, None), fleet.collector, lambda: True)
    body = fleet.text().encode()
    server = static(body)
    ours = times_ms(fetching(web.url))
    theirs = times_ms(fetching(f"http://127.0.0.1:{server.server_address[1]}/"))
    series_count = sum(not line.startswith("#") for line in body.decode().splitlines())
    print(f"a scrape of 8 GPUs, {series_count} series, {len(body) / 1e3:.0f} kB     median ms    p99 ms")
    for name, took in (("gpuwatch", ours), ("the same bytes, static", theirs)):
        print(f"{name:<45} {statistics.median(took):9.2f} {took[int(len(took) * 0.99) - 1]:9.2f}")
    page_ms, page_sample_us = making_ms(fleet), sample_us()
    print(f"CPU time of the page {page_ms:.2f} ms; of a sample in the tally {page_sample_us:.2f} µs")
    web.close()
    server.shutdown()
    return {"page_ms": page_ms, "sample_us": page_sample_us, "scrape_ms": statistics.median(ours)}


if __name__ == "__main__":
    main()
