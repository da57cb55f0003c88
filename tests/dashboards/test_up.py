"""Tests of `up.sh`, which runs daemon, windows and Prometheus for a demonstration."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from dashboards.asking import Prometheus
from tests.dashboards.watched import free_port, until
from tests.gpuwatch.programs import program
from tests.waiting import PATIENCE_S

FOLDER = Path(__file__).parents[2] / "dashboards"


def test_up_starts_daemon_and_prometheus_and_cleans_up(tmp_path: Path) -> None:
    """The script starts a daemon and Prometheus, and after SIGTERM leaves neither processes nor files."""
    program("prometheus")
    ports = {name: free_port() for name in ("DAEMON_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")}
    environment = {
        **os.environ, **{name: str(port) for name, port in ports.items()}, "TMPDIR": str(tmp_path),
        "SOURCE": "simulated:steady-copy", "SCRAPE": "1s", "GPUWATCH": f"{sys.executable} -m gpuwatch",
    }  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([str(FOLDER / "up.sh")], env=environment, stdout=log, stderr=log, start_new_session=True)
    prometheus = Prometheus(f"http://127.0.0.1:{ports['PROMETHEUS_PORT']}")
    try:
        until(lambda: bool(prometheus.now('gpuwatch_gpu_up{job="gpuwatch"} == 1')), "the daemon is scraped")
        until(lambda: bool(prometheus.get("rules")["groups"]), "the rules are loaded")
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE_S)
    output = (tmp_path / "log").read_text()
    assert code == 0, output
    assert f"prometheus  http://127.0.0.1:{ports['PROMETHEUS_PORT']}/alerts" in output
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in running
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_occupied_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        environment = {**os.environ, "DAEMON_PORT": str(port), "TMPDIR": str(tmp_path)}
        found = subprocess.run(
            [str(FOLDER / "up.sh")], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    assert found.returncode == 1
    assert f"port {port} is taken: set DAEMON_PORT" in found.stderr


def test_files_of_the_compose_file_exist() -> None:
    text = (FOLDER / "compose.yml").read_text()
    for mounted in re.findall(r'"(\.[^":]*):/', text):
        assert (FOLDER / mounted).exists(), mounted
    assert (FOLDER.parent / "requirements.txt").is_file()
    assert os.access(FOLDER / "up.sh", os.X_OK)
    assert "grafana/grafana:11.6" in text
