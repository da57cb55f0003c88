"""Hosts of a long run, which a story restarts, kills and breaks: real daemons on mock drivers, Prometheus and Alertmanager."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from dashboards.asking import Prometheus
from gpuwatch.client.connection import connect
from tests.dashboards.watched import free_port, until
from tests.fake_nvml.scene import Client, Gpu, Scene, create
from tests.gpuwatch.forked import ForkedPopen
from tests.gpuwatch.live import AS_STARTED, settings, wait_for
from tests.gpuwatch.programs import program
from tests.waiting import PATIENCE_S, sample_for

ROOT = Path(__file__).parents[2]
WORKER = 4242  # a PID in the mock driver's lists, without a real process


@dataclass
class RunHost:
    """One host: the daemon, the state of the mock driver, and the address for scrapes."""

    name: str
    folder: Path
    source: str = "nvml"
    scene: Scene | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    job: str = "gpuwatch"
    address: str = ""
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        found = settings(self.folder, self.source)
        command = [sys.executable, "-m", "gpuwatch", *found.flags(), "daemon"]
        environment = {**os.environ, **AS_STARTED, "GPUWATCH_LISTEN": self.address, **self.environment}
        with (self.folder / "log").open("ab") as log:
            self.process = ForkedPopen(command, stderr=log, env=environment)
        wait_for(found, self.process, self.folder / "log")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
            self.process.wait(PATIENCE_S)

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.stop(number)
        self.start()

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return self.scene.gpus if self.scene is not None else ()

    def gpu(self, index: int) -> Gpu:
        return self.gpus[index]

    def windows(self, count: int, index: int = 0, declared: Mapping[str, float] | None = None) -> None:
        """Measure ``count`` short windows, opened by this process."""
        with connect(settings(self.folder, self.source), start=False) as client:
            uuid = client.status()["gpus"][index]["uuid"]
            for _ in range(count):
                opened = client.open(label="run", gpus=[uuid])
                begin_ns = time.monotonic_ns()
                sample_for(0.4)
                client.close_window(opened.run, begin_ns, time.monotonic_ns(), dict(declared or {}))
                client.verdicts(opened.run)


def working(gpu: Gpu, clock_mhz: int = 1980, power_w: int = 560) -> None:
    """Add a process that keeps a GPU busy below its power limit."""
    gpu.clients = [Client(pid=WORKER, memory_bytes=4 << 30, sm_percent=99, mem_percent=40)]
    gpu.set(
        sm_clock_mhz=clock_mhz, power_mw=power_w * 1000, power_average_mw=power_w * 1000, temperature_c=58, event_reasons_mask=0,
        utilization_percent=100, mem_utilization_percent=40, sm_activity_percent=99, memory_temperature_c=66,
        tensor_activity_percent=10, dram_activity_percent=40,
    )  # fmt: skip
    gpu.moves("energy_mj", power_w * 1000)


def capped(gpu: Gpu, clock_mhz: int) -> None:
    """Add a process that keeps a healthy GPU at its power limit with tensor work, at a lower clock."""
    working(gpu, clock_mhz, 699)
    gpu.set(event_reasons_mask=0x4, tensor_activity_percent=89, dram_activity_percent=11)
    gpu.moves("power_cap_ns", 1e9)


class RunFleet:
    """All hosts, and the programs that scrape them and send alerts."""

    def __init__(self, folder: Path, library: Path, rules: Path) -> None:
        self.folder, self.library, self.rules = folder, library, rules
        self.hosts: dict[str, RunHost] = {}
        self.notifications: list[dict[str, Any]] = []  # from Alertmanager (JSON, hence Any)
        self.programs: dict[str, subprocess.Popen[bytes]] = {}
        self.ports = {name: free_port() for name in ("prometheus", "alertmanager", "cluster", "webhook")}
        self.prometheus = Prometheus(f"http://127.0.0.1:{self.ports['prometheus']}")

    def add(self, name: str, gpus: int = 2, **more: Any) -> RunHost:
        """Add a host with working GPUs; ``begin`` starts the daemon."""
        place = self.folder / name
        place.mkdir()
        host = RunHost(name, place, address=f"127.0.0.1:{free_port()}", **more)
        if host.source == "nvml":
            host.scene = create(place / "scene", gpus=gpus)
            host.environment = {**host.environment, **host.scene.environment(self.library)}
            for gpu in host.scene.gpus:
                working(gpu)
        self.hosts[name] = host
        return host

    def discover(self, *, without: frozenset[str] = frozenset()) -> None:
        """Write the targets file for Prometheus's service discovery."""
        targets = [
            {"targets": [host.address], "labels": {"instance": name, "job": host.job, "__scheme__": "https" if host.job != "gpuwatch" else "http"}}
            for name, host in self.hosts.items()
            if name not in without
        ]  # fmt: skip
        (self.folder / "targets.new").write_text(json.dumps(targets))
        (self.folder / "targets.new").rename(self.folder / "targets.json")

    def begin(self) -> None:
        """Start every daemon, then Alertmanager and Prometheus."""
        for host in self.hosts.values():
            host.start()
        self.discover()
        self._listen()
        self.start_alertmanager()
        self.start_prometheus()

    def start_prometheus(self) -> None:
        config = {
            "global": {"scrape_interval": "5s", "scrape_timeout": "4s", "evaluation_interval": "5s"},
            "rule_files": [str(self.rules)],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{self.ports['alertmanager']}"]}]}]},
            "scrape_configs": [{
                "job_name": "gpuwatch", "tls_config": {"insecure_skip_verify": True},
                "file_sd_configs": [{"files": [str(self.folder / "targets.json")], "refresh_interval": "5s"}],
            }],
        }  # fmt: skip
        (self.folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        self._run(
            "prometheus", f"--config.file={self.folder / 'prometheus.yml'}", f"--storage.tsdb.path={self.folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{self.ports['prometheus']}", "--log.level=warn"
        )  # fmt: skip
        until(lambda: bool(self.prometheus.now("vector(1)")), "Prometheus answers")

    def start_alertmanager(self) -> None:
        """Start Alertmanager with the example's routes and inhibitions, but shorter waits and local receivers."""
        text = (ROOT / "dashboards" / "alertmanager.yml").read_text()
        text = text.replace("127.0.0.1:9999", f"127.0.0.1:{self.ports['webhook']}")
        for long, short in (("group_wait: 1m", "group_wait: 20s"), ("group_interval: 10m", "group_interval: 1m")):
            assert long in text, long
            text = text.replace(long, short)
        (self.folder / "alertmanager.yml").write_text(text)
        self._run(
            "prometheus-alertmanager", f"--config.file={self.folder / 'alertmanager.yml'}",
            f"--storage.path={self.folder / 'alertmanager'}", f"--web.listen-address=127.0.0.1:{self.ports['alertmanager']}",
            f"--cluster.listen-address=127.0.0.1:{self.ports['cluster']}", "--log.level=warn",
        )  # fmt: skip

    def stop(self, name: str) -> None:
        process = self.programs.pop(name)
        process.terminate()
        process.wait(PATIENCE_S)

    def end(self) -> None:
        for host in self.hosts.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                host.stop()
        for name in tuple(self.programs):
            self.stop(name)
        self._server.shutdown()

    def _run(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.programs[name.removeprefix("prometheus-")] = subprocess.Popen(
                [program(name), *arguments], stdout=log, stderr=log
            )

    def _listen(self) -> None:
        """Receive Alertmanager's notifications."""
        notifications = self.notifications

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                notifications.append({"at_s": time.time(), "receiver": self.path.strip("/"), "alerts": body["alerts"]})
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Discard log messages."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.ports["webhook"]), Receiver)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()


def late_clock(folder: Path, behind_s: float) -> dict[str, str]:
    """Build a preloaded library that sets a daemon's wall clock back; return the daemon's environment."""
    library, clocks = folder / "clocks.so", folder / "clocks"
    source = ROOT / "tests" / "faults" / "clocks.c"
    subprocess.run([program("gcc"), "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    clocks.write_bytes(struct.pack("=2q", round(-behind_s * 1e9), 0))
    return {"LD_PRELOAD": str(library), "TEST_CLOCKS": str(clocks)}


def certificate(folder: Path, days: int) -> dict[str, str]:
    """Make a certificate that expires after ``days`` days; return the daemon's environment."""
    files = {name: folder / f"tls.{name}" for name in ("pem", "key")}
    subprocess.run(
        [program("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", str(files["key"]), "-out", str(files["pem"]), "-days", str(days), "-subj", "/CN=localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    return {"GPUWATCH_EXPORTER_CERTIFICATE": str(files["pem"]), "GPUWATCH_EXPORTER_KEY": str(files["key"])}
