"""The dashboards without Grafana: the current content of every panel, as text.

``python -m dashboards.show http://127.0.0.1:9090`` queries that Prometheus; ``--instance`` and ``--uuid`` choose a GPU.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from dashboards.asking import (
    BOARDS,
    PanelQuery,
    Prometheus,
    PrometheusError,
    Series,
    asked,
    board,
    choices,
    fill,
    panels,
    variables,
)
from dashboards.panels import NO_DATA

_TICKS = "▁▂▃▄▅▆▇█"
_WIDTH = 40
_BINARY = 1024.0
# Grafana's names of units, as text.
_UNITS: Mapping[str, Callable[[float], str]] = {
    "percentunit": lambda value: f"{value:.1%}",
    "hertz": lambda value: f"{value / 1e6:.0f} MHz",
    "watt": lambda value: f"{value:.0f} W",
    "celsius": lambda value: f"{value:.0f} °C",
    "bytes": lambda value: f"{value / _BINARY**3:.1f} GiB" if value > _BINARY**3 else f"{value / _BINARY**2:.1f} MiB",
    "s": lambda value: f"{value:.2g} s",
    "dtdurations": lambda value: f"{value:.0f} s",
    "kwatth": lambda value: f"{value:.3g} kWh",
    "Bps": lambda value: f"{value / 1e6:.3g} MB/s",
    "ops": lambda value: f"{value:.1f}/s",
}


@dataclass(frozen=True, slots=True)
class TimeAndPlace:
    """The source and time of a rendering: a Prometheus, the variables' values, and the span of the time axis."""

    prometheus: Prometheus
    values: Mapping[str, str]
    begin_s: float
    end_s: float

    @property
    def step_s(self) -> float:
        return max(1.0, (self.end_s - self.begin_s) / _WIDTH)

    def steps(self, series: Series) -> list[float | None]:
        """Return a series on the whole axis of time, one value per step."""
        found = {round((at - self.begin_s) / self.step_s): value for at, value in series.points}
        return [found.get(step) for step in range(round((self.end_s - self.begin_s) / self.step_s) + 1)]

    def answer(self, query: PanelQuery) -> list[Series]:
        """Return the answer to a query.

        Raises PrometheusError: when the server refuses, is missing or is not a Prometheus.
        """
        expr = fill(query.expr, self.values)
        if query.instant:
            return self.prometheus.now(expr, self.end_s)
        return self.prometheus.over(expr, self.begin_s, self.end_s, self.step_s)


def shown(name: str, look: TimeAndPlace) -> str:
    """Render a dashboard's panels as Markdown.

    Raises PrometheusError: when the server refuses, is missing or is not a Prometheus.
    """
    parts = [f"## {board(name)['title']}\n"]
    queries = [query for query in asked(name) if query.ref != "annotation"]
    for panel in panels(name):
        own = [(query, look.answer(query)) for query in queries if query.panel == panel["title"]]
        parts.append(f"### {panel['title']}\n\n{panel['description']}\n\n{_drawn(panel, own, look)}\n")
    for query in (query for query in asked(name) if query.ref == "annotation"):
        marks = "; ".join(f"{_legend(query, series)}, {len(series.points)} points" for series in look.answer(query))
        parts.append(f"**Annotation, {query.panel}:** {marks or 'none'}\n")
    return "\n".join(parts)


def _drawn(panel: Mapping[str, Any], own: Sequence[tuple[PanelQuery, list[Series]]], look: TimeAndPlace) -> str:
    """Render a panel from Grafana's JSON (hence Any) and the answers to its queries."""
    if not any(series for _, series in own):
        return NO_DATA
    if panel["type"] == "stat":
        return ", ".join(f"**{_value(panel, series.last)}**" for _, answer in own for series in answer)
    if panel["type"] == "table":
        return _table(panel, own)
    draw = _states if panel["type"] == "state-timeline" else _spark
    lines = [(_legend(query, series), draw(panel, series, look)) for query, answer in own for series in answer]
    width = max(len(legend) for legend, _ in lines)
    return "```text\n" + "\n".join(f"{legend:{width}}  {line}" for legend, line in lines) + "\n```"


def _spark(panel: Mapping[str, Any], series: Series, look: TimeAndPlace) -> str:
    values = [value for _, value in series.points]
    low, high = min(values), max(values)
    scale = (len(_TICKS) - 1) / (high - low) if high > low else 0.0
    ticks = "".join(" " if value is None else _TICKS[round((value - low) * scale)] for value in look.steps(series))
    return f"{ticks}  {_value(panel, low)} … {_value(panel, high)}, last {_value(panel, series.last)}"


def _states(panel: Mapping[str, Any], series: Series, look: TimeAndPlace) -> str:
    runs = ((value, sum(1 for _ in steps)) for value, steps in groupby(look.steps(series)))
    return " → ".join(f"{'nothing' if value is None else _value(panel, value)} ×{count}" for value, count in runs)


def _table(panel: Mapping[str, Any], own: Sequence[tuple[PanelQuery, list[Series]]]) -> str:
    organize = panel["transformations"][1]["options"]
    columns: dict[str, str] = {
        name: organize["renameByName"][name]
        for name in sorted(organize["indexByName"], key=organize["indexByName"].__getitem__)
        if not organize["excludeByName"].get(name)
    }
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    # As in Grafana's merge, rows with equal common labels become one row.
    keys = [name for name in columns if not name.startswith("Value")]
    joined = [name for name in keys if all(name in series.labels for _, answer in own for series in answer)]
    for query, answer in own:
        value_name = "Value" if len(own) == 1 else f"Value #{query.ref}"
        for series in answer:
            cells = rows.setdefault(tuple(series.labels[name] for name in joined), {})
            cells.update({name: series.labels[name] for name in keys if name in series.labels})
            if value_name in columns:
                cells[value_name] = _value(panel, series.last, columns[value_name])
    head = f"| {' | '.join(columns.values())} |\n|{'---|' * len(columns)}"
    body = (f"| {' | '.join(cells.get(name, '') for name in columns)} |" for _, cells in sorted(rows.items()))
    return "\n".join((head, *body))


def _value(panel: Mapping[str, Any], value: float, column: str | None = None) -> str:
    settings = dict(panel["fieldConfig"]["defaults"])
    for override in panel["fieldConfig"].get("overrides", []):
        if override["matcher"]["options"] == column:
            settings |= {change["id"]: change["value"] for change in override["properties"]}
    for mapping in settings.get("mappings") or []:
        if look := mapping["options"].get(f"{value:g}"):
            return str(look["text"])
    written = _UNITS.get(settings.get("unit", "none"))
    if written:
        return written(value)
    return f"{value:.3g}" if settings.get("decimals") is None else f"{value:.{settings['decimals']:.0f}f}"


def _legend(query: PanelQuery, series: Series) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: series.labels.get(match[1], ""), query.legend) or query.panel


def looks(
    prometheus: Prometheus, *, since_s: float, instance: str = ".*", uuid: str | None = None
) -> Iterator[tuple[str, TimeAndPlace]]:
    """Yield the view of each dashboard: the hosts that match ``instance``, and the given GPU or else the first.

    Raises PrometheusError: when the server refuses, is missing or is not a Prometheus.
    """
    end_s = time.time()
    rate_s = max(4.0 * _scrape_s(prometheus), since_s / _WIDTH)  # Grafana also adds a scrape interval to the second
    values = {
        "instance": instance,
        "__rate_interval": _duration(rate_s),
        "__range": _duration(since_s),
        "__range_s": f"{since_s:.0f}",
    }
    for name in BOARDS:
        found = variables(name)
        filled = dict(values, job="|".join(choices(prometheus, found["job"], values)))
        if "uuid" in found:
            filled["uuid"] = uuid or next(iter(choices(prometheus, found["uuid"], filled)), "")
        yield name, TimeAndPlace(prometheus, filled, end_s - since_s, end_s)


def _duration(amount_s: float) -> str:
    return f"{round(amount_s * 1e3)}ms"  # PromQL has no fractions


def _scrape_s(prometheus: Prometheus) -> float:
    text = prometheus.get("status/config")["yaml"]
    match = re.search(r"scrape_interval: (\d+)(s|m)", text)
    return float(match[1]) * (60.0 if match[2] == "m" else 1.0) if match else 60.0


def main(arguments: Sequence[str]) -> int:
    """Print the panels; return 0, or 1 if Prometheus refuses or is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m dashboards.show", description="Print the current content of every panel as text."
    )
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:9090", help="Prometheus; default %(default)s")
    parser.add_argument("--since", type=float, default=900.0, metavar="SECONDS", help="the axis of time; default %(default)g")
    parser.add_argument("--instance", default=".*", help="a regular expression of hosts")
    parser.add_argument("--uuid", help="the GPU of the GPU dashboard; default the first")
    given = parser.parse_args(arguments)
    try:
        for name, look in looks(
            Prometheus(given.url.rstrip("/")), since_s=given.since, instance=given.instance, uuid=given.uuid
        ):
            sys.stdout.write(shown(name, look) + "\n")
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # drop buffered output too
        return 0
    except (OSError, PrometheusError) as error:
        sys.stderr.write(f"{given.url}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
