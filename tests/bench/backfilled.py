"""A Prometheus with an hour of 250 hosts of eight GPUs each: clones of the exporter's page, backfilled."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dashboards.asking import HERE, Prometheus
from tests.bench import spent
from tests.dashboards.watched import free_port, until
from tests.gpuwatch.exporter.fleet import Fleet, Series, series
from tests.gpuwatch.programs import program
from tests.waiting import PATIENCE_S

HOSTS_COUNT, GPUS_COUNT = 250, 8
SCRAPE_S = 30
SPAN_S = 3600 + 600  # the dashboard's hour, and the range of rates before it
_BLOCK_S = 7200  # blocks of Prometheus' store begin at multiples of this time
_DOWN = frozenset({17, 101, 233})  # numbers of the hosts that stop answering half-way
_COUNTED = ("_total", "_sum", "_count", "_bucket")


@dataclass(frozen=True, slots=True)
class Served(Prometheus):
    """A Prometheus of known PID, whose CPU time can be measured."""

    pid: int = 0

    def asked(self, kind: str, what: Mapping[str, str]) -> Cost:
        """Query once; return the cost.  Raises PrometheusError: when the server refuses, is missing or is not a Prometheus."""
        cpu_s, begun_s = spent.cpu_s(self.pid), time.perf_counter()
        count = len(self.get(kind, **what)["result"])
        return Cost(count, time.perf_counter() - begun_s, spent.cpu_s(self.pid) - cpu_s)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one query: its series, its time, and Prometheus' CPU time."""

    series_count: int
    took_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Rule:
    """One recording rule of a rule file."""

    name: str
    expr: str


def end_s() -> int:
    """Return an instant shortly before the end of the last whole block, so that all samples lie in one block."""
    return int(time.time()) // _BLOCK_S * _BLOCK_S - SCRAPE_S


def asked_names(texts: Sequence[str]) -> set[str]:
    return {name for text in texts for name in re.findall(r"\b(?:gpuwatch_\w+|up)\b", text)}


def pages() -> tuple[Series, Series]:
    """Return one host's page of eight simulated GPUs, and the page after two more seconds and some verdicts, for the rates."""
    fleet = Fleet("fleet")
    fleet.play(2)
    first = series(fleet.text())
    fleet.play(2)
    for rule, severity in list(fleet.outcomes.findings)[:15]:
        fleet.outcomes.findings[rule, severity] += 1
    for status in fleet.outcomes.statuses:
        fleet.outcomes.statuses[status] += 1
    return first, series(fleet.text())


def write_scrapes(path: Path, names: set[str], until_s: int) -> int:
    """Write every host's scrapes as OpenMetrics; return the number of samples."""
    first, second = pages()
    wanted = {key: value for key, value in first.items() if key[0] in names and key in second}
    times = range(until_s - SPAN_S, until_s + 1, SCRAPE_S)
    count = 0
    with path.open("w") as file:
        for host in range(HOSTS_COUNT):
            lives = times[: len(times) // 2] if host in _DOWN else times
            up = f'up{{job="gpuwatch",instance="{instance(host)}"}}'
            file.writelines(f"{up} {int(at in lives)} {at}\n" for at in times)
            count += len(times) + len(wanted) * len(lives)
            for (name, labels), value in wanted.items():
                head = f"{name}{{{written_labels(labels, host)}}}"
                step = (second[name, labels] - value) / 2 * SCRAPE_S
                values: Iterator[float]
                if not name.endswith(_COUNTED):
                    values = itertools.cycle((value, second[name, labels]))
                elif name == "gpuwatch_gpu_clock_ratio_sum" and host % 50 == 0:
                    values = itertools.count(value, 0.9 * step)  # a host whose GPUs are slower than their siblings
                else:
                    values = itertools.count(value, step)
                file.writelines(f"{head} {at_value:.9g} {at}\n" for at, at_value in zip(lives, values, strict=False))
        file.write("# EOF\n")
    return count


def instance(host: int) -> str:
    return f"node{host:03}:9836"


def written_labels(labels: frozenset[tuple[str, str]], host: int) -> str:
    own = {name: value.replace("0000-0000-0000", f"{host:04}-0000-0000") if name == "uuid" else value for name, value in labels}
    every = {"job": "gpuwatch", "instance": instance(host), **own}
    return ",".join(f'{name}="{value}"' for name, value in every.items())


def add_block(written: Path, store: Path) -> None:
    """Make a block from a file of OpenMetrics with promtool."""
    command = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", "-q", str(written), str(store)]
    subprocess.run(command, check=True, capture_output=True)
    written.unlink()


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """Run Debian's Prometheus over the blocks of a folder, without scrapes."""
    port = free_port()
    config = {"global": {"scrape_interval": f"{SCRAPE_S}s"}, "scrape_configs": []}
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    arguments = [
        program("prometheus"), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with (folder / "prometheus.log").open("ab") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log)
    found = Served(f"http://127.0.0.1:{port}", timeout_s=300.0, pid=process.pid)
    try:
        until(lambda: bool(found.now("vector(1)")), "Prometheus answers")
        yield found
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def rules(path: Path = HERE / "recording.yml") -> list[Rule]:
    """Return the recording rules of a file by ``dashboards.build``, in their order."""
    found = re.findall(r"- record: (\S+)\n\s+expr: \|-\n((?:\s{10,}.*\n)+)", path.read_text())
    return [Rule(name, " ".join(line.strip() for line in expr.splitlines())) for name, expr in found]


def needed(every: Sequence[Rule], exprs: Sequence[str]) -> list[Rule]:
    """Return the rules whose series the expressions query, and the rules that these rules query in turn."""
    wanted: set[str] = set()
    left = list(exprs)
    while left:
        expr = left.pop()
        found = {rule for rule in every if rule.name in expr and rule.name not in wanted}
        wanted |= {rule.name for rule in found}
        left += [rule.expr for rule in found]
    return [rule for rule in every if rule.name in wanted]


def levels(every: Sequence[Rule]) -> list[list[Rule]]:
    """Return the rules in order of evaluation: each level queries only scraped series and series of earlier levels."""
    left, done = list(every), list[list[Rule]]()
    while left:
        unknown = {rule.name for rule in left}
        ready = [rule for rule in left if not any(name in rule.expr for name in unknown)]
        assert ready, f"rules that query each other: {sorted(unknown)}"
        done.append(ready)
        left = [rule for rule in left if rule not in ready]
    return done


def record(rule: Rule, prometheus: Served, until_s: int, path: Path) -> Cost:
    """Append the result of a rule at each scrape interval; return the cost of one evaluation."""
    costs = [prometheus.asked("query", {"query": rule.expr, "time": str(until_s)}) for _ in range(2)]
    with path.open("a") as file:
        for begin_s in range(until_s - 3600, until_s + 1, 600):  # an answer over the whole hour would exceed Prometheus' limit
            last_s = min(begin_s + 600 - SCRAPE_S, until_s)
            for found in prometheus.over(rule.expr, begin_s, last_s, SCRAPE_S):
                labels = {name: value for name, value in found.labels.items() if name != "__name__"}
                file.writelines(f"{rule.name}{_as_text(labels)} {value:.9g} {at:.0f}\n" for at, value in found.points)
    return costs[-1]


def _as_text(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
