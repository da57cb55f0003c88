"""A small fleet for a test: real daemons on simulated GPUs with windows, and a real Prometheus with the rules."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError

import gpuwatch
from dashboards.asking import Prometheus, PrometheusError
from gpuwatch.config.settings import Settings
from tests.gpuwatch.live import Live, running
from tests.gpuwatch.programs import program
from tests.waiting import PATIENCE_S, sample_for, wait_until

ROOT = Path(__file__).parents[2]
RULES = tuple(ROOT / "dashboards" / name for name in ("alerts.yml", "recording.yml", "dcgm-names.yml"))
# GPUs of "busy": capped, shared, slowed by heat, partitioned, idle, healthy.  GPUs of "faulty": lost for two seconds, failing.
# "bare" has no driver.  The simulation derives a UUID from the GPU's position, so two hosts have equal UUIDs.
HOSTS: Mapping[str, str] = {
    "busy": "simulated:steady-gemm,neighbour,thermal,mig,idle,steady-copy",
    "faulty": "simulated:gpu-lost,ecc-error",
    "bare": "nvml",
}


@dataclass(frozen=True)
class Fleet:
    """A Prometheus, the time of its start, and the daemons' settings by host, which is the label ``instance``."""

    prometheus: Prometheus
    begun_s: float
    hosts: Mapping[str, Settings]


@contextlib.contextmanager
def watched(folder: Path, hosts: Mapping[str, str] = HOSTS) -> Iterator[Fleet]:
    """Run a fleet in which the simulated events have happened; stop everything afterwards."""
    program("prometheus")
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as threads:
        addresses = {name: f"127.0.0.1:{free_port()}" for name in hosts}
        prometheus = stack.enter_context(scraping(folder, addresses))
        begun_s = time.time()

        def start(name: str) -> Live:
            (folder / name).mkdir()
            listen = {"GPUWATCH_LISTEN": addresses[name], "GPUWATCH_EXPORTER_PROCESSES": "4"}
            return stack.enter_context(running(folder / name, hosts[name], environment=listen))

        lives = dict(zip(hosts, threads.map(start, hosts), strict=True))
        # PromQL's increase() needs a scrape before the count rises.
        await_all(prometheus, f'count(gpuwatch_windows_total{{status="valid"}}) == {len(hosts)}')
        list(threads.map(lambda position: measured(lives["busy"].settings, position), range(3)))
        await_all(prometheus, "min_over_time(gpuwatch_gpu_up[1m]) == 0", "gpuwatch_gpu_xid_errors_total")
        measured(lives["faulty"].settings, 1)  # a window speeds up the slow lane, which reads memory errors
        await_all(
            prometheus, "sum(gpuwatch_windows_total) == 4", "gpuwatch_findings_total", "max_over_time(gpuwatch_windows_in_hand[1m]) > 0",
            "rate(gpuwatch_gpu_energy_joules_total[4s])", "gpuwatch:windows:increase1d", "DCGM_FI_DEV_SM_CLOCK",
            'sum_over_time(gpuwatch:findings:rate5m{severity!="note"}[8s:4s])',
            'ALERTS{alertname="GpuwatchXid"}', 'ALERTS{alertname="GpuwatchEccUncorrected"}',
        )  # fmt: skip
        yield Fleet(prometheus, begun_s, {name: live.settings for name, live in lives.items()})


def await_all(prometheus: Prometheus, *exprs: str) -> None:
    for expr in exprs:
        until(functools.partial(_answers, prometheus, expr), expr)


def _answers(prometheus: Prometheus, expr: str) -> bool:
    return bool(prometheus.now(expr))


def measured(settings: Settings, position: int, length_s: float = 1.2) -> None:
    """Measure one window on the GPU at this position of the machine, and wait for its verdict."""
    with gpuwatch.window(f"w{position}", settings=settings, gpus=[f"GPU-51301a7e-0000-0000-0000-{position:012d}"]) as window:
        sample_for(length_s)
    assert window.verdict


@contextlib.contextmanager
def scraping(folder: Path, addresses: Mapping[str, str]) -> Iterator[Prometheus]:
    """Run Debian's Prometheus with the rules, and scrape these hosts every second."""
    port = free_port()
    targets = [{"targets": [address], "labels": {"instance": name}} for name, address in addresses.items()]
    for path in RULES:  # without the groups' intervals of one and five minutes
        (folder / path.name).write_text(re.sub("^    interval: .*\n", "", path.read_text(), flags=re.MULTILINE))
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / path.name) for path in RULES],
        "scrape_configs": [{"job_name": "gpuwatch", "static_configs": targets}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    arguments = [
        program("prometheus"), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log)
    found = Prometheus(f"http://127.0.0.1:{port}")
    try:
        until(lambda: bool(found.now("vector(1)")), "Prometheus answers")
        yield found
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for a condition.  Raises AssertionError: when the condition stays false."""

    def held() -> bool:
        with contextlib.suppress(URLError, ConnectionError, PrometheusError):
            return holds()
        return False

    wait_until(held, what=what, every_s=0.2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
