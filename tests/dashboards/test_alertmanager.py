"""Tests of the Alertmanager example, with amtool and with Alertmanager itself: routes and inhibitions."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dashboards.alerts import ALERTS
from tests.dashboards.watched import free_port, until
from tests.gpuwatch.programs import program
from tests.waiting import PATIENCE_S

CONFIG = Path(__file__).parents[2] / "dashboards" / "alertmanager.yml"
HOST = {"job": "gpuwatch", "instance": "a"}
GPU = {**HOST, "uuid": "U", "gpu": "0"}
# Alerts that fire together, by cause, with the alerts that remain.
CAUSES: Mapping[str, tuple[list[dict[str, str]], set[str]]] = {
    "no host answers": (
        [{"alertname": "GpuwatchAbsent"}, {"alertname": "GpuwatchDown", **HOST}, {"alertname": "GpuwatchNodeGone", **HOST}],
        {"GpuwatchAbsent"},
    ),
    "a host is down": (
        [{"alertname": "GpuwatchDown", **HOST}, {"alertname": "GpuwatchThermal", **GPU}, {"alertname": "GpuwatchXid", **GPU}],
        {"GpuwatchDown", "GpuwatchXid"},
    ),
    "no driver": (
        [{"alertname": name, **HOST} for name in ("GpuwatchNoDriver", "GpuwatchGpuMissing", "GpuwatchWindowsUnproven")]
        + [{"alertname": "GpuwatchGpuLost", **HOST, "uuid": f"U{n}", "gpu": str(n)} for n in range(8)],
        {"GpuwatchNoDriver"},
    ),
    "a lost GPU": (
        [{"alertname": name, **GPU} for name in ("GpuwatchGpuLost", "GpuwatchStale", "GpuwatchSlowTwin")]
        + [{"alertname": "GpuwatchXid", **GPU, "xid": "79"}],
        {"GpuwatchXid"},
    ),
    "a double-bit error": (
        [
            {"alertname": "GpuwatchEccUncorrected", **GPU},
            {"alertname": "GpuwatchXid", **GPU, "xid": "48"},
            {"alertname": "GpuwatchXidForTicket", **GPU, "xid": "63"},
            {"alertname": "GpuwatchRowRemapPending", **GPU},
        ],
        {"GpuwatchXid"},
    ),
    "a lost GPU whose Xid is an hour old": (
        [{"alertname": name, **GPU} for name in ("GpuwatchGpuLost", "GpuwatchStale")],
        {"GpuwatchGpuLost"},
    ),
    "a double-bit error and a GPU off the bus": (
        [{"alertname": "GpuwatchEccUncorrected", **GPU}, {"alertname": "GpuwatchXid", **GPU, "xid": "79"}],
        {"GpuwatchEccUncorrected", "GpuwatchXid"},
    ),
    "heat": ([{"alertname": name, **GPU} for name in ("GpuwatchThermal", "GpuwatchSlowTwin")], {"GpuwatchThermal"}),
    "heat on another GPU": (
        [{"alertname": "GpuwatchThermal", **GPU}, {"alertname": "GpuwatchSlowTwin", **GPU, "uuid": "V", "gpu": "1"}],
        {"GpuwatchThermal", "GpuwatchSlowTwin"},
    ),
}


def amtool(*arguments: str) -> str:
    done = subprocess.run([program("amtool"), *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ask(url: str, body: object = None) -> Any:
    """Return Alertmanager's JSON answer (hence Any)."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read() or b"null")


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[str]:
    """Run Alertmanager with the example, whose webhooks have no listener; yield the URL of the alerts."""
    port = free_port()
    arguments = [
        program("prometheus-alertmanager"), f"--config.file={CONFIG}", f"--storage.path={tmp_path}", "--log.level=error",
        f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
    ]  # fmt: skip
    process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/api/v2/alerts"
    try:
        until(lambda: ask(url) == [], "Alertmanager answers")
        yield url
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def test_example_is_valid_and_routes_by_severity() -> None:
    assert "SUCCESS" in amtool("check-config", str(CONFIG))
    routes = {
        severity: amtool("config", "routes", "test", f"--config.file={CONFIG}", f"severity={severity}").strip()
        for severity in sorted({alert.severity for alert in ALERTS})
    }
    assert routes == {"critical": "page", "warning": "tickets", "info": "digest"}


def test_one_cause_leaves_one_alert(alertmanager: str) -> None:
    """Redundant alerts of one cause are inhibited; alerts with another cause are not."""
    posted = [
        {**alert, **({"instance": f"{case} {alert['instance']}"} if "instance" in alert else {})}
        for case, (alerts, _) in CAUSES.items()
        for alert in alerts
        if case != "no host answers"  # GpuwatchAbsent would inhibit alerts of every host
    ]
    ask(alertmanager, [{"labels": labels} for labels in posted])
    left: dict[str, set[str]] = {}

    def are_judged() -> bool:
        found = ask(alertmanager)
        left.clear()
        for alert in found:
            if not alert["status"]["inhibitedBy"]:
                left.setdefault(alert["labels"]["instance"].removesuffix(" a"), set()).add(alert["labels"]["alertname"])
        return len(found) == len(posted) and left == {
            case: kept for case, (_, kept) in CAUSES.items() if case != "no host answers"
        }

    until(are_judged, f"inhibitions as {CAUSES}")


def test_absent_fleet_inhibits_alerts_of_each_host(alertmanager: str) -> None:
    alerts, kept = CAUSES["no host answers"]
    ask(alertmanager, [{"labels": labels} for labels in alerts])
    until(
        lambda: {each["labels"]["alertname"] for each in ask(alertmanager) if not each["status"]["inhibitedBy"]} == kept,
        "only GpuwatchAbsent is left",
    )


def test_alert_names_in_the_example_exist() -> None:
    names = {alert.name for alert in ALERTS}
    for operator, pattern in re.findall(r'alertname(!?=~?)"([^"]+)"', CONFIG.read_text()):
        for part in pattern.split("|") if "(" not in pattern else [pattern]:
            assert any(re.fullmatch(part, name) for name in names), (operator, part)
