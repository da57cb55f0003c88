"""The queries of the dashboards, read from the JSON that Grafana imports, with the variables substituted.

The queries need no Grafana: tests run every query, and ``dashboards.show`` prints the content of each panel.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeAlias
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

HERE = Path(__file__).parent
BOARDS = ("fleet", "gpu", "windows")
Labels: TypeAlias = Mapping[str, str]

# Queries that are empty while all is well, or on GPUs without the feature: (dashboard, panel, query) and reason.
QUIET: Mapping[tuple[str, str, str], str] = {
    ("gpu", "SM clock against its limit", "C"): "no clock is locked",
    ("gpu", "Largest processes", "A"): "off unless exporter.processes is set",
    ("gpu", "NVLink throughput", "A"): "no simulated GPU has NVLink",
    ("gpu", "Errors on links", "B"): "no simulated GPU has NVLink",
    ("gpu", "Errors on links", "C"): "no simulated GPU has NVLink",
    **{("gpu", "MIG instances", ref): "the GPU is whole" for ref in "ABCDEF"},
    ("gpu", "Xids since the daemon started", "A"): "the driver reported no error",
    ("gpu", "Xid", "annotation"): "the driver reported no error",
    ("gpu", "Lost", "annotation"): "the GPU answers",
    ("windows", "Xid", "annotation"): "the driver reported no error",
    ("windows", "Windows rejected", "annotation"): "no window was rejected",
    ("windows", "Windows in hand", "annotation"): "no window is open",
    ("gpu", "Windows in hand", "annotation"): "no window is open",
}


class PrometheusError(Exception):
    """A refusal by Prometheus, or a server that is missing or not a Prometheus."""


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """One query of a panel or an annotation."""

    board: str
    panel: str
    ref: str
    expr: str
    legend: str = ""
    instant: bool = False
    kind: str = "timeseries"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.board, self.panel, self.ref


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer: the labels, and the (time, value) pairs without NaN values."""

    labels: Labels
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        return self.points[-1][1]


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A Prometheus server at a URL."""

    url: str
    timeout_s: float = 20.0

    def now(self, expr: str, at_s: float | None = None) -> list[Series]:
        """Return the answer for this instant.

        Raises PrometheusError: when the server refuses, is missing or is not a Prometheus.
        """
        result = self.get("query", query=expr, **({} if at_s is None else {"time": f"{at_s:.3f}"}))["result"]
        return _series((found["metric"], [found["value"]]) for found in result)

    def over(self, expr: str, begin_s: float, end_s: float, step_s: float) -> list[Series]:
        """Return the answer over a span.

        Raises PrometheusError: when the server refuses, is missing or is not a Prometheus.
        """
        span = {"start": f"{begin_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
        return _series((found["metric"], found["values"]) for found in self.get("query_range", query=expr, **span)["result"])

    def get(self, what: str, **parameters: str) -> Any:
        """Return an answer's data as JSON values (hence Any).

        Raises PrometheusError: when the server refuses, is missing or is not a Prometheus.
        """
        try:
            with urlopen(f"{self.url}/api/v1/{what}?{urlencode(parameters)}", timeout=self.timeout_s) as answer:  # noqa: S310 - the user's own
                return json.load(answer)["data"]
        except HTTPError as error:
            raise PrometheusError(f"{_refusal(error)}: {parameters.get('query', what)}") from error
        except (ValueError, LookupError, TypeError, HTTPException) as error:  # no JSON, another form of JSON, or no HTTP at all
            raise PrometheusError("expected a Prometheus, found another server; check the URL") from error
        except OSError as error:  # URLError, or a connection that breaks or stays silent within the answer
            reason = getattr(error, "reason", error)
            raise PrometheusError(
                f"expected a Prometheus, found none: {getattr(reason, 'strerror', None) or reason}"
            ) from error


def _refusal(answer: HTTPError) -> str:
    """Return Prometheus' message, or the HTTP status of an answer without a message, such as a proxy's."""
    try:
        text = answer.read().decode(errors="replace")
        return str(json.loads(text)["error"])
    except (ValueError, LookupError, TypeError, OSError, HTTPException):
        return f"HTTP {answer.code} {answer.reason}"


def board(name: str) -> dict[str, Any]:
    """Return a dashboard in the form that Grafana imports."""
    found: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    return found


def panels(name: str) -> list[dict[str, Any]]:
    """Return the panels of a dashboard in reading order, without rows."""
    return _panels(board(name))


def _panels(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in found["panels"] if panel["type"] != "row"]


def asked(name: str) -> Iterator[PanelQuery]:
    """Yield every query of a dashboard's panels and annotations."""
    return asked_of(name, board(name))


def asked_of(name: str, found: Mapping[str, Any]) -> Iterator[PanelQuery]:
    """Yield every query of a dashboard given in the form that Grafana imports (JSON, hence Any)."""
    for panel in _panels(found):
        for target in panel.get("targets", []):
            instant = bool(target.get("instant"))
            yield PanelQuery(
                name, panel["title"], target["refId"], target["expr"], target.get("legendFormat", ""), instant, panel["type"]
            )
    for annotation in found["annotations"].get("list", []):
        yield PanelQuery(name, annotation["name"], "annotation", annotation["expr"], annotation["titleFormat"])


def variables(name: str) -> dict[str, dict[str, Any]]:
    """Return the variables of a dashboard that Prometheus fills, by name."""
    return {found["name"]: found for found in board(name)["templating"]["list"] if found["type"] == "query"}


def choices(prometheus: Prometheus, variable: Mapping[str, Any], filled: Mapping[str, str]) -> list[str]:
    """List a variable's values.

    Raises PrometheusError: when the server refuses, is missing or is not a Prometheus.
    Raises ValueError: for an unsupported kind of query.
    """
    query = fill(variable["query"]["query"], filled)
    if match := re.fullmatch(r"label_values\((.+), (\w+)\)", query):
        return sorted({series.labels[match[2]] for series in prometheus.now(match[1])})
    if match := re.fullmatch(r"query_result\((.+)\)", query):
        pattern = re.compile(variable["regex"].strip("/").replace("(?<", "(?P<"))
        lines = ("{" + ",".join(f'{k}="{v}"' for k, v in sorted(s.labels.items())) + "}" for s in prometheus.now(match[1]))
        return [found["value"] for line in lines if (found := pattern.search(line))]
    raise ValueError(f"{query}: expected label_values(…) or query_result(…)")


def fill(expr: str, values: Mapping[str, str]) -> str:
    """Substitute variables in an expression.

    Raises KeyError: for a variable without a value.
    """
    return re.sub(r"\$(\w+)", lambda match: values[match[1]], expr)


def _series(found: Any) -> list[Series]:
    """Convert Prometheus' JSON (hence Any), without NaN values and without series of NaN alone, as Grafana does."""
    made = (Series(labels, tuple((at, float(value)) for at, value in points if value != "NaN")) for labels, points in found)
    return [series for series in made if series.points]
