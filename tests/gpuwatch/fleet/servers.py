"""Real servers, Prometheus and VictoriaMetrics, and pages of simulated machines to scrape."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import textwrap
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.gpuwatch.fleet.warehouse import PAGE
from tests.gpuwatch.programs import program
from tests.waiting import PATIENCE_S, wait_until

START_S = 30.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running server that answers PromQL at ``url``."""

    url: str
    log: Path

    def ask(self, query: str, at_s: float) -> dict[str, float]:
        """Return the values of an instant query, by labels without the metric's name."""
        asked = urllib.parse.urlencode({"query": query, "time": f"{at_s:.3f}", "nocache": 1})
        answer = json.loads(_got(f"{self.url}/api/v1/query?{asked}"))
        assert answer["status"] == "success", answer
        return {
            json.dumps({k: v for k, v in sorted(each["metric"].items()) if k != "__name__"}): float(each["value"][1])
            for each in answer["data"]["result"]
        }


def blocks() -> Mapping[str, str]:
    """Return the YAML files in docs/FLEET.md, by name."""
    return dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", PAGE.read_text(), re.S))


def rules(text: str) -> dict[str, str]:
    """Return the expressions of a rule file in gpuwatch's layout, by recorded name."""
    found = re.findall(r"- record: (\S+)\n( *)expr: (.*\n(?:\2 +.*\n)*)", text)
    return {name: textwrap.dedent(expr.removeprefix("|-\n")).strip() for name, _, expr in found}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextlib.contextmanager
def machines(count: int, gpus_count: int, *, period_s: float) -> Iterator[list[str]]:
    """Serve pages of ``count`` simulated machines, read every ``period_s``; yield HOST:PORT of each page."""
    command = [sys.executable, "-m", "tests.gpuwatch.fleet.nodes", str(count), str(gpus_count), str(period_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PAGE.parents[1]) as process:
        assert process.stdout is not None
        try:
            yield [urllib.parse.urlsplit(process.stdout.readline().strip()).netloc for _ in range(count)]
        finally:
            process.terminate()


@contextlib.contextmanager
def prometheus(folder: Path, files: Mapping[str, str]) -> Iterator[Server]:
    """Run a Prometheus with these files, of which ``prometheus.yml`` is the configuration."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    checked = subprocess.run(
        [program("promtool"), "check", "config", folder / "prometheus.yml"], capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    port = free_port()
    arguments = (
        f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}",
    )  # fmt: skip
    with _running(folder, [program("prometheus"), *arguments], f"http://127.0.0.1:{port}", "/-/ready") as server:
        yield server


@contextlib.contextmanager
def victoria(folder: Path, *, scrape_config: str | None = None) -> Iterator[Server]:
    folder.mkdir()
    port = free_port()
    arguments = [f"-storageDataPath={folder}/data", f"-httpListenAddr=127.0.0.1:{port}", "-search.latencyOffset=0s"]
    if scrape_config is not None:
        (folder / "scrape.yml").write_text(scrape_config)
        arguments.append(f"-promscrape.config={folder}/scrape.yml")
    with _running(folder, [program("victoria-metrics"), *arguments], f"http://127.0.0.1:{port}", "/health") as server:
        yield server


@contextlib.contextmanager
def _running(folder: Path, command: Sequence[str], url: str, ready: str) -> Iterator[Server]:
    log = folder / "log"
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            wait_until(lambda: _is_ready(process, url + ready, log), what=log.read_text)
            yield Server(url, log)
        finally:
            process.terminate()


def _is_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    with contextlib.suppress(OSError, AssertionError):  # the server does not listen yet, or is not ready
        _got(url)
        return True
    return False


def _got(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            found: bytes = answer.read()
            return found
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from error
