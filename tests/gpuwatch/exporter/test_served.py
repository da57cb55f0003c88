"""Tests of a real daemon's page with promtool, curl and the parsers of Prometheus' client library."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import gpuwatch
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import load
from gpuwatch.store.files import DATABASE
from tests.gpuwatch import forked
from tests.gpuwatch.exporter.fleet import Series, names, of, openmetrics_names, series
from tests.gpuwatch.forked import daemons_of_windows
from tests.gpuwatch.live import Live, running
from tests.gpuwatch.programs import program
from tests.waiting import PATIENCE_S, sample_for, wait_until

LISTEN = {"GPUWATCH_LISTEN": "127.0.0.1:0"}


def url(live: Live) -> str:
    with connect(live.settings, start=False) as client:
        return str(client.status()["metrics"])


def read(address: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=PATIENCE_S) as answer:
        text: str = answer.read().decode()
        return text


def until(address: str, holds: Callable[[Series], bool], *, having: str = "") -> Series:
    """Return the first page for which the condition holds; only pages with a match of ``having`` are parsed."""
    found: list[Series] = []

    def said() -> bool:
        if not re.search(having, page := read(address)):
            return False
        found.append(series(page))
        return holds(found[-1])

    wait_until(said, what="the page has the expected series", every_s=0.1)
    return found[-1]


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with (
        tempfile.TemporaryDirectory(prefix="gw") as folder,
        running(Path(folder), "simulated:gpu-lost,steady-gemm,mig", environment=LISTEN) as found,
    ):
        yield found


def test_served_page_passes_promtool(live: Live) -> None:
    checked = subprocess.run(
        [program("promtool"), "check", "metrics"], input=read(url(live)), capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_served_page_passes_the_openmetrics_parser(live: Live) -> None:
    text = read(url(live), Accept="application/openmetrics-text; version=1.0.0")
    assert "gpuwatch_up" in set(openmetrics_names(text))


def test_curl_reads_page_and_probes(live: Live) -> None:
    address = url(live)
    for path, said in (("/metrics", "gpuwatch_up 1.0"), ("/-/healthy", "healthy"), ("/-/ready", "ready")):
        done = subprocess.run(
            [program("curl"), "--silent", "--show-error", "--fail", "--compressed", address.replace("/metrics", path)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert said in done.stdout


def test_served_page_drops_readings_of_a_lost_gpu(live: Live) -> None:
    """The page has the identity and no clock of a lost GPU; later the GPU is up, with a count of the loss."""
    address = url(live)
    with connect(live.settings, start=False) as client:
        uuid = client.status()["gpus"][0]["uuid"]
    gone = until(address, lambda found: of(found, "gpuwatch_gpu_up", uuid=uuid) == 0)
    assert "gpuwatch_gpu_clock_hertz" not in names(gone, uuid=uuid)
    assert "gpuwatch_device_info" in names(gone, uuid=uuid)
    assert of(gone, "gpuwatch_up") == 1
    back = until(address, lambda found: of(found, "gpuwatch_gpu_up", uuid=uuid) == 1)
    assert (of(back, "gpuwatch_losses_total", uuid=uuid, lane="fast") or 0) >= 1


def test_served_page_counts_a_window_and_its_findings(live: Live) -> None:
    address = url(live)
    with connect(live.settings, start=False) as client:
        uuid = client.status()["gpus"][1]["uuid"]
    with gpuwatch.window("of a secret project", gpus=[uuid], settings=live.settings) as w:
        sample_for(1.0)
    status = w.verdict.status.value
    found = until(address, lambda page: of(page, "gpuwatch_windows_total", status=status) == 1)
    hazards = {hazard.rule for hazard in w.verdict.hazards}
    assert {dict(has)["rule"] for (name, has), count in found.items() if name == "gpuwatch_findings_total" and count} == hazards
    assert (of(found, "gpuwatch_judging_seconds_count") or 0) == 1
    assert "secret" not in read(address)


def test_served_page_shows_the_daemons_cpu_and_memory(live: Live) -> None:
    daemon = psutil.Process(live.process.pid)
    least_s = sum(daemon.cpu_times()[:2])
    found = series(read(url(live)))
    shown_s = of(found, "gpuwatch_daemon_cpu_seconds_total") or 0
    assert shown_s > 0
    assert least_s - 0.02 <= shown_s <= sum(daemon.cpu_times()[:2]) + 0.02  # the kernel counts ticks of 10 ms
    assert 10e6 < (of(found, "gpuwatch_daemon_resident_memory_bytes") or 0) < 1e9
    assert (of(found, "gpuwatch_store_bytes", part="ledger") or 0) > 0
    assert of(found, "gpuwatch_simulated") == 1
    assert of(found, "gpuwatch_source_info", source="simulated") == 1


def test_served_page_works_without_a_driver(tmp_path: Path) -> None:
    with running(tmp_path, "nvml", environment=LISTEN) as live:
        with connect(live.settings, start=False) as client:
            if client.status()["absence"] is None:
                pytest.skip("this machine has a driver; test_page_without_a_driver_has_up_zero covers the other case")
        address = url(live)
        found = series(read(address))
        assert of(found, "gpuwatch_simulated") == 0
        assert of(found, "gpuwatch_source_info", source="nvml") == 1
        assert of(found, "gpuwatch_up") == 0
        assert of(found, "gpuwatch_gpus", state="answering") == 0
        assert read(address.replace("/metrics", "/-/ready")) == "ready\n"


def test_daemon_does_not_listen_by_default(tmp_path: Path) -> None:
    with running(tmp_path) as live, connect(live.settings, start=False) as client:
        assert client.status()["metrics"] is None


def test_daemon_started_on_demand_does_not_listen(tmp_path: Path) -> None:
    flags = {
        "source": "simulated:idle",
        "state": str(tmp_path / "state"),
        "socket": str(tmp_path / "s"),
        "listen": "127.0.0.1:0",
    }
    with daemons_of_windows(), connect(load(flags, environment={"HOME": "/"})) as client:
        status = client.status()
    os.kill(status["pid"], signal.SIGTERM)
    assert (status["on_demand"], status["metrics"]) == (True, None)


def test_daemon_refuses_an_unprotected_public_page(tmp_path: Path) -> None:
    flags = ["--source", "simulated", "--state", str(tmp_path / "state"), "--socket", str(tmp_path / "s")]
    command = [sys.executable, "-m", "gpuwatch", *flags, "daemon", "--listen", "0.0.0.0:0"]
    done = forked.run(command, timeout_s=PATIENCE_S)
    assert done.returncode == 2
    assert "--listen-insecure" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "state" / DATABASE).exists()
