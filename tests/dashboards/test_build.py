"""Tests of the committed files: current content, existing metrics and commands, and resolved links."""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from annotate.rules import RULES
from dashboards.alert_files import RUNBOOKS, SEVERITIES, Alert, Recording
from dashboards.alerts import ALERTS, GROUPS
from dashboards.asking import BOARDS, QUIET, asked, board, panels, variables
from dashboards.build import generated, main
from dashboards.panels import NO_DATA
from dashboards.queries import STATUS_COLORS
from dashboards.recording import RECORDINGS
from gpuwatch.cli import cli
from gpuwatch.exporter.metrics import METRICS, MetricKind

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "dashboards"
RULE_FILES = ("alerts.yml", "recording.yml", "dcgm-names.yml")
_SERIES = {
    series
    for metric in METRICS.values()
    for series in (
        [f"{metric.name}_{part}" for part in ("bucket", "sum", "count")]
        if metric.kind is MetricKind.HISTOGRAM
        else [metric.name]
    )
}


def test_committed_files_match_their_sources() -> None:
    for path, text in generated().items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"{path}: python -m dashboards.build"


def test_installed_sdk_has_the_pinned_version() -> None:
    pin = re.search(r'"grafana-foundation-sdk==([^"]+)"', (ROOT / "pyproject.toml").read_text())
    assert pin
    assert version("grafana-foundation-sdk") == pin[1]


def test_stale_files_are_named_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("dashboards", "docs"):
        (tmp_path / folder).mkdir()
    assert main(["--check"], tmp_path) == 1
    assert "dashboards/gpu.json is stale" in capsys.readouterr().err
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0
    assert main(["--nonsense"], tmp_path) == 2


@pytest.mark.parametrize("name", [*(f"{board}.json" for board in BOARDS), *RULE_FILES])
def test_queried_metrics_are_in_the_table_of_metrics(name: str) -> None:
    assert set(re.findall(r"\bgpuwatch_\w+", (FOLDER / name).read_text())) <= _SERIES


@pytest.mark.parametrize("name", [f"{board}.json" for board in BOARDS])
def test_queried_recordings_exist(name: str) -> None:
    recorded = {each.record for each in RECORDINGS}
    assert set(re.findall(r"\bgpuwatch:[\w:]+", (FOLDER / name).read_text())) <= recorded


@pytest.mark.parametrize("name", BOARDS)
def test_panels_have_descriptions_and_a_no_data_text(name: str) -> None:
    for panel in panels(name):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["noValue"] == NO_DATA
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert "vector(0)" not in str(panel)


@pytest.mark.parametrize("name", BOARDS)
def test_panels_do_not_overlap_on_the_grid(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board(name)["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("name", BOARDS)
def test_tables_fit_a_screen_of_1600_pixels(name: str) -> None:
    """Columns have widths whose sum fits the panel: Grafana scrolls a wider table sideways, and hides its last columns."""
    for panel in (panel for panel in panels(name) if panel["type"] == "table"):
        overrides = panel["fieldConfig"]["overrides"]
        widths = [change["value"] for each in overrides for change in each["properties"] if change["id"] == "custom.minWidth"]
        organize = panel["transformations"][1]["options"]
        assert len(widths) == len(set(organize["indexByName"]) - set(organize["excludeByName"])), panel["title"]
        assert sum(widths) <= panel["gridPos"]["w"] * (1600 - 24) / 24 - 26, panel["title"]


def test_a_status_has_one_color_on_every_dashboard() -> None:
    """Statuses have the colours of their figures, not the palette's, in which a flagged window was green."""
    colors = {}
    for panel in (panel for name in BOARDS for panel in panels(name) if panel["type"] == "timeseries"):
        if any(target["legendFormat"] == "{{status}}" for target in panel["targets"]):
            overrides = panel["fieldConfig"]["overrides"]
            colors[panel["title"], panel["id"]] = {
                each["matcher"]["options"]: each["properties"][0]["value"]["fixedColor"] for each in overrides
            }
    assert len(colors) == 3
    assert all(found == STATUS_COLORS for found in colors.values())


def test_dashboards_have_unique_uids_and_valid_links() -> None:
    uids = [board(name)["uid"] for name in BOARDS]
    assert len(set(uids)) == len(BOARDS)
    links = re.findall(r"/d/([\w-]+)\?", "".join((FOLDER / f"{name}.json").read_text() for name in BOARDS))
    assert links
    assert set(links) <= set(uids)


@pytest.mark.parametrize("name", BOARDS)
def test_figures_are_instant_queries(name: str) -> None:
    """A figure or table queries this instant, because the last point of a range may be old; a curve queries a range."""
    assert all(query.instant for query in asked(name) if query.kind in ("stat", "table"))
    assert not any(query.instant for query in asked(name) if query.kind in ("timeseries", "state-timeline"))


@pytest.mark.parametrize("name", BOARDS)
def test_all_hosts_match_any_host_but_all_jobs_are_listed(name: str) -> None:
    found = variables(name)
    assert found["instance"]["allValue"] == ".*"
    assert "allValue" not in found["job"]


def test_quiet_queries_exist() -> None:
    assert set(QUIET) <= {query.key for name in BOARDS for query in asked(name)}


def test_alerts_have_an_action_and_a_page() -> None:
    """Every alert has a known severity, an action, and a section on the page; a rule that it names exists."""
    page = (ROOT / "docs" / "ALERTS.md").read_text()
    rules = {rule.name for rule in RULES}
    for alert in ALERTS:
        assert alert.severity in SEVERITIES
        assert alert.name.startswith("Gpuwatch")
        assert f"\n## {alert.name}\n" in page
        assert alert.rule is None or alert.rule in rules
        assert re.match(r"[A-Zgsn]", alert.do)
        assert alert.do.endswith(".")


def test_every_runbook_link_resolves() -> None:
    """A rule's link names a page of the repository and a heading of that page."""
    links = re.findall(r'runbook_url: "([^"#]+)#([^"]+)"', (FOLDER / "alerts.yml").read_text())
    headings = re.findall(r"^#+ (.+)$", (ROOT / RUNBOOKS).read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert len(links) == len(ALERTS)
    assert {page for page, _ in links} == {RUNBOOKS}
    assert {anchor for _, anchor in links} <= anchors


def test_command_in_rule_file_prepends_an_address_to_links(tmp_path: Path) -> None:
    """The command in the head of alerts.yml puts an address before every link."""
    (tmp_path / "alerts.yml").write_text((FOLDER / "alerts.yml").read_text())
    (command,) = re.findall(r"^#   (sed .+)$", (FOLDER / "alerts.yml").read_text(), re.MULTILINE)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    links = re.findall(r'runbook_url: "([^"]+)"', (tmp_path / "alerts.yml").read_text())
    assert len(links) == len(ALERTS)
    assert all(link.startswith("https://HOST/gpuwatch/blob/main/docs/ALERTS.md#") for link in links)


@pytest.mark.parametrize("rule", [rule for group in GROUPS for rule in group.rules], ids=lambda rule: rule.expr[:40])
def test_series_of_two_jobs_are_never_matched(rule: Alert | Recording) -> None:
    """Joins keep two jobs apart: both may have hosts of one name, and simulated GPUs have equal UUIDs."""
    for words, labels in re.findall(r"\b(on|by) \(([^)]*)\)", rule.expr):
        assert "job" in labels.split(", "), f"{words} ({labels})"
    assert "ignoring" not in rule.expr


@pytest.mark.parametrize(
    ("alert", "words"), [(a.name, words) for a in ALERTS for words in re.findall(r"\bgpuwatch ([a-z ]+)", a.do)]
)
def test_every_command_in_an_alert_exists(alert: str, words: str) -> None:
    found: click.Command = cli
    for name in words.split():
        if not isinstance(found, click.Group):
            break
        below = found.get_command(click.Context(found), name)
        assert below is not None, f"{alert}: gpuwatch {words}"
        found = below
