"""Tests of every query of every panel, annotation and variable on a real Prometheus that scrapes real daemons."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping

import pytest

from dashboards.asking import BOARDS, QUIET, PanelQuery, PrometheusError, Series, asked, choices, fill, panels, variables
from dashboards.queries import STATES
from dashboards.show import TimeAndPlace, looks, main, shown
from tests.dashboards.watched import Fleet, watched
from tests.waiting import wait_until

QUERIES = [query for name in BOARDS for query in asked(name)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with watched(tmp_path_factory.mktemp("fleet")) as found:
        yield found


def filled(fleet: Fleet, host: str = "", position: int = 0) -> dict[str, str]:
    span_s = int(time.time() - fleet.begun_s) + 1
    return {
        "job": "gpuwatch",
        "instance": host or ".*",
        "uuid": f"GPU-51301a7e-0000-0000-0000-{position:012d}",
        "__rate_interval": "4s",
        "__range": f"{span_s}s",
        "__range_s": f"{span_s}",
        "__interval": "1s",
    }


def answered(fleet: Fleet, query: PanelQuery, values: Mapping[str, str]) -> list[Series]:
    expr = fill(query.expr, values)
    if query.instant:
        return fleet.prometheus.now(expr)
    return fleet.prometheus.over(expr, fleet.begun_s, time.time(), 0.5)


# Not parametrized by query, because each pytest worker would start its own fleet.
def test_every_query_has_an_answer_with_the_legend_labels(fleet: Fleet) -> None:
    wrong = []
    for query in QUERIES:
        values = filled(fleet, "busy" if query.board == "gpu" else "")
        series = answered(fleet, query, values)
        if not series and query.key not in QUIET:
            wrong.append(f"{query.key} is empty: {fill(query.expr, values)}")
        named = re.findall(r"\{\{(\w+)\}\}", query.legend)
        wrong += [f"{query.key}: no label {label}" for label in named for found in series if label not in found.labels]
    assert not wrong, "\n".join(wrong)
    assert len(QUERIES) > 80


# No simulated scene locks a clock, and the simulated board has neither VBIOS nor NVLink: the exporter's tests cover these.
NEVER_SIMULATED = {"SM clock against its limit", "vbios_version", "NVLink throughput", "Errors on links"}


def test_quiet_queries_answer_once_something_happens(fleet: Fleet) -> None:
    """A query that is empty in health has an answer after an event."""
    for query in (query for query in QUERIES if query.key in QUIET and query.panel not in NEVER_SIMULATED):
        places = (("busy", 0), ("busy", 3), ("faulty", 0), ("faulty", 1))  # the fourth GPU of host "busy" is partitioned
        assert any(answered(fleet, query, filled(fleet, *place)) for place in places), query.key


def test_every_variable_has_choices(fleet: Fleet) -> None:
    for name in BOARDS:
        found = {variable: choices(fleet.prometheus, asks, filled(fleet)) for variable, asks in variables(name).items()}
        assert found["job"] == ["gpuwatch"]
        assert set(found["instance"]) == set(fleet.hosts)
        assert len(found.get("uuid", ["GPU-51301a7e"] * 8)) == 8
        assert all(uuid.startswith("GPU-51301a7e") for uuid in found.get("uuid", []))


def test_table_columns_are_labels_or_values_of_queries(fleet: Fleet) -> None:
    quiet = {query.panel for query in QUERIES if query.key in QUIET}
    tables = [(name, panel) for name in BOARDS for panel in panels(name) if panel["type"] == "table"]
    for name, panel in tables:
        values = filled(fleet, "busy" if name == "gpu" else "")
        queries = (query for query in asked(name) if query.panel == panel["title"])
        labels = {label for query in queries for series in answered(fleet, query, values) for label in series.labels}
        columns = {column for column in panel["transformations"][1]["options"]["indexByName"] if not column.startswith("Value")}
        assert columns <= labels | NEVER_SIMULATED or panel["title"] in quiet, panel["title"]
    assert len(tables) >= 6


def test_findings_by_rule_show_found_rules_only(fleet: Fleet) -> None:
    """The daemon exports every rule from zero: without a choice the panel's legend would list all of them."""
    query = next(query for query in QUERIES if query.key == ("windows", "Findings, by rule", "A"))
    found = {
        series.labels["rule"]: max(value for _, value in series.points) for series in answered(fleet, query, filled(fleet))
    }
    assert "contention-process" in found
    assert all(found.values())


def test_states_of_gpus_and_hosts_are_distinguished(fleet: Fleet) -> None:
    state = next(query for query in QUERIES if query.key == ("fleet", "State of the GPUs to look at first", "A"))
    seen: dict[tuple[str, str], set[str]] = {}
    for series in answered(fleet, state, filled(fleet)):
        key = (series.labels["instance"], series.labels["gpu"])
        seen[key] = {STATES[int(value)].text for _, value in series.points}
    assert "busy, power-capped" in seen["busy", "0"]
    assert "limited" in seen["busy", "2"]
    assert "idle" in seen["busy", "4"]
    assert "lost" in seen["faulty", "0"]

    def is_idle() -> bool:
        now = fleet.prometheus.now(fill(state.expr, filled(fleet)))
        return any(STATES[int(s.last)].text == "idle" for s in now if (s.labels["instance"], s.labels["gpu"]) == ("busy", "4"))

    # On a busy machine a GPU may count as lost until the first reading.
    wait_until(is_idle, what="the idle GPU is neither lost nor unscraped")
    hosts = {s.labels["instance"]: s.last for s in fleet.prometheus.now("gpuwatch_up")}
    assert hosts == {"busy": 1, "faulty": 1, "bare": 0}


def test_rules_are_loaded_and_evaluated_without_error(fleet: Fleet) -> None:
    due = {"GpuwatchSimulated", "GpuwatchNoDriver", "GpuwatchEccUncorrected", "GpuwatchXid", "GpuwatchThermal"}
    pending: set[str] = set()

    def all_are_pending() -> bool:  # heat counts after six seconds of a reduced clock
        rules = [rule for group in fleet.prometheus.get("rules")["groups"] for rule in group["rules"]]
        assert len(rules) > 60
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}  # unknown: not evaluated yet
        pending.update(rule["name"] for rule in rules if rule["type"] == "alerting" and rule["state"] != "inactive")
        return due <= pending and {rule["health"] for rule in rules} == {"ok"}

    wait_until(all_are_pending, what=lambda: f"pending alerts {due}, found {pending}")
    assert "GpuwatchAbsent" not in pending


def test_panels_are_rendered_as_text(fleet: Fleet) -> None:
    """The rendered text of the main panels shows the fleet's known state."""
    span_s = float(int(time.time() - fleet.begun_s) + 1)
    text = {name: shown(name, look) for name, look in looks(fleet.prometheus, since_s=span_s, instance="busy|faulty")}
    of_host = {name: shown(name, look) for name, look in looks(fleet.prometheus, since_s=span_s, instance="busy")}

    assert re.search(
        r"\| busy \| 0 \| SIMULATED NVIDIA H200 \| GPU-\S+ \| busy, power-capped \| \d+ \| \d\d\.\d% \|", text["fleet"]
    )
    assert re.search(r"\| busy \| 4 \| SIMULATED NVIDIA H200 \| GPU-\S+ \| idle \|.*\| 0\.0% \|.*\| 0 \|", text["fleet"])
    assert re.search(r"faulty GPU 0  .*lost ×\d", text["fleet"])
    assert re.search(r"SM clock  .* MHz, last 1\d\d\d MHz\nlimit: highest  .* last 1980 MHz", of_host["gpu"])
    assert re.search(r"limit: enforced  .* last 700 W", of_host["gpu"])
    assert re.search(r"sw_power_cap  .*limiting ×\d", of_host["gpu"])
    assert re.search(r"### Xids since the daemon started\n\n.*\n\nNO DATA\n", of_host["gpu"])
    assert re.search(r"### Rejected\n\n.*\n\n\*\*[23]\*\*", text["windows"])
    assert "| contention-process | reject | 1 |" in text["windows"]
    assert "a window was rejected on busy" in text["windows"]


def test_gap_in_the_data_keeps_its_place(fleet: Fleet) -> None:
    look = TimeAndPlace(fleet.prometheus, {}, 0.0, 10.0)
    assert look.steps(Series({}, ((3.0, 1.0), (4.0, 2.0), (9.0, 3.0)))) == [None] * 3 + [1.0, 2.0] + [None] * 4 + [3.0, None]


def test_missing_or_refusing_prometheus_is_reported(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["http://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == "http://127.0.0.1:1: expected a Prometheus, found none: Connection refused\n"
    with pytest.raises(PrometheusError, match="parse error"):
        fleet.prometheus.now("gpuwatch_up{")
    assert main([fleet.prometheus.url, "--since", "30"]) == 0
    assert "## gpuwatch / Windows" in capsys.readouterr().out
