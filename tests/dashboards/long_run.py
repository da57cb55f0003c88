"""A run of 30 minutes with a real Prometheus and real daemons, which counts the story's missing and false alerts.

``python -m tests.dashboards.long_run`` needs root, to mount a small disk.  The command writes the results to long_run.json and
docs/FLEET.md; ``--render`` writes only the page, ``--check`` reports a stale page.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dashboards.alerts import rules
from dashboards.asking import Series
from tests.dashboards.run_hosts import ROOT, RunFleet
from tests.dashboards.run_story import END_S, NOT_PROVOKED, STORY, Expected, people
from tests.fake_nvml.build import build
from tests.waiting import wait_until

RECORD = Path(__file__).with_name("long_run.json")
PAGE = ROOT / "docs" / "FLEET.md"
BEGIN, END = "<!-- alert-run -->", "<!-- /alert-run -->"
STEP_S = 5.0
LONGEST_HOLD_S = 60
EARLY_S = 6.0  # most time by which an alert may precede the noted time of its event
SETTLE_S = 20.0  # an alert ends with the next evaluation of its group after the last scrape


def shortened(text: str) -> tuple[str, list[str]]:
    """Return the rules with holds and group intervals of at most a minute, and the names of the changed alerts."""
    changed: list[str] = []
    lines, name = [], ""
    for line in text.splitlines():
        if found := re.match(r"      - alert: (\w+)", line):
            name = found[1]
        if (found := re.match(r"        for: (\d+)([mhd])$", line)) and _seconds(found) > LONGEST_HOLD_S:
            changed.append(name)
            line = f"        for: {LONGEST_HOLD_S}s"  # noqa: PLW2901 - a copy with another hold
        lines.append(re.sub("^    interval: 5m$", "    interval: 1m", line))
    return "\n".join(lines) + "\n", changed


def _seconds(found: re.Match[str]) -> int:
    return int(found[1]) * {"m": 60, "h": 3600, "d": 86_400}[found[2]]


def play(folder: Path) -> dict[str, Any]:
    """Run the story; return the events and alerts as JSON values."""
    (folder / "rules.yml").write_text(shortened(rules())[0])
    fleet = RunFleet(folder, build(folder / "library"), folder / "rules.yml")
    people(fleet)
    state = fleet.hosts["store"].folder / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "gw-run", str(state)], check=True)
    happened: list[float] = []
    try:
        fleet.begin()
        begun_s = time.time()
        for each in STORY:
            wait_until(lambda at_s=each.at_s: time.time() - begun_s >= at_s, what=each.says, deadline_s=END_S, every_s=0.5)  # type: ignore[misc]
            happened.append(time.time() - begun_s)
            sys.stderr.write(f"{happened[-1]:6.0f} s  {each.says}\n")
            each.do(fleet)
        wait_until(lambda: time.time() - begun_s >= END_S, deadline_s=END_S, every_s=0.5)
        fired = fleet.prometheus.over('ALERTS{alertstate="firing"}', begun_s, begun_s + END_S, STEP_S)
        scraped = fleet.prometheus.now("sum(count_over_time(up[40m]))")
    finally:
        fleet.end()
        subprocess.run(["umount", "-l", str(state)], check=False)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "prometheus": _version("prometheus"),
        "alertmanager": _version("prometheus-alertmanager"),
        "length_s": END_S,
        "hosts": {name: len(host.scene.gpus) if host.scene else 2 for name, host in fleet.hosts.items()},
        "scrapes_count": int(scraped[0].last) if scraped else 0,
        "happened_s": [round(at_s, 1) for at_s in happened],
        "fired": [spell for series in fired for spell in _spells(series, begun_s)],
        "told": [_told(each, begun_s) for each in fleet.notifications],
    }


def _version(name: str) -> str:
    done = subprocess.run([name, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"version (\S+)", done.stdout + done.stderr)
    return found[1] if found else "unknown"


def _spells(series: Series, begun_s: float) -> list[dict[str, Any]]:
    """Split an alert into periods of firing without a break of more than three steps."""
    spells: list[list[float]] = []
    for at_s, _ in series.points:
        if spells and at_s - spells[-1][1] <= 3 * STEP_S:
            spells[-1][1] = at_s
        else:
            spells.append([at_s, at_s])
    labels = {name: value for name, value in series.labels.items() if name not in ("__name__", "alertstate", "uuid", "name")}
    return [{"labels": labels, "begin_s": round(begin - begun_s), "end_s": round(end - begun_s)} for begin, end in spells]


def _told(each: Mapping[str, Any], begun_s: float) -> dict[str, Any]:
    alerts = [
        " ".join(filter(None, (alert["labels"]["alertname"], alert["labels"].get("instance"), alert["labels"].get("gpu"))))
        for alert in each["alerts"]
        if alert["status"] == "firing"
    ]
    return {"at_s": round(each["at_s"] - begun_s), "receiver": each["receiver"], "alerts": sorted(alerts)}


def counted(record: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the missing alerts and the false alerts: unexpected, too early, or too long."""
    expected = [(begin_s, each, one) for each, begin_s in zip(STORY, record["happened_s"], strict=True) for one in each.raises]
    missing = [
        f"{one.alert} of {one.host or 'all'} {one.gpu or ''}: {each.says}"
        for begin_s, each, one in expected
        if not any(
            _meets(one, spell) and begin_s - EARLY_S <= spell["begin_s"] <= begin_s + one.within_s for spell in record["fired"]
        )
    ]
    false = [
        f"{spell['labels']} from {spell['begin_s']} to {spell['end_s']} s"
        for spell in record["fired"]
        if not any(
            _meets(one, spell) and begin_s - EARLY_S <= spell["begin_s"] and spell["end_s"] <= one.end_s + SETTLE_S
            for begin_s, _, one in expected
        )
    ]
    return missing, false


def _meets(one: Expected, spell: Mapping[str, Any]) -> bool:
    return all(spell["labels"].get(name) == value for name, value in one.labels.items())


def rendered(record: Mapping[str, Any]) -> str:
    """Return the run's section of the page."""
    missing, false = counted(record)
    changed = shortened(rules())[1]
    names = sorted({one.alert for each in STORY for one in each.raises})
    told = [each for each in record["told"] if each["alerts"]]
    pages = [each for each in told if each["receiver"] == "page"]
    lines = [
        f"Run on {record['date']} with Prometheus {record['prometheus']} and Alertmanager {record['alertmanager']}: "
        f"{record['length_s'] / 60:g} minutes, {len(record['hosts'])} daemons with {sum(record['hosts'].values())} GPUs "
        f"(two simulated, the others of the mock driver), {record['scrapes_count']} scrapes, {len(STORY)} events, "
        f"{sum(len(each.raises) for each in STORY)} alerts due of {len(names)} kinds.",
        "",
        f"**Missing alerts: {len(missing)}. False alerts: {len(false)}.** "
        f"{len(record['fired'])} alerts fired; Alertmanager sent {len(told)} notifications of alerts, {len(pages)} of them pages: "
        + "; ".join(f"{', '.join(each['alerts'])} at {each['at_s']} s" for each in pages)
        + ".",
        "",
        *(f"- missing: {each}" for each in missing),
        *(f"- false: {each}" for each in false),
        *(f"- {each}" for each in record.get("remarks", ())),
        *([""] if missing or false or record.get("remarks") else []),
        "| Second | Event | Alerts of the event, with their delay |",
        "|---|---|---|",
    ]  # fmt: skip
    for each, at_s in zip(STORY, record["happened_s"], strict=True):
        delays = {
            f"{one.alert} {spell['begin_s'] - at_s:.0f} s": None
            for one in each.raises
            for spell in record["fired"]
            if _meets(one, spell) and at_s - EARLY_S <= spell["begin_s"] <= at_s + one.within_s
        }
        lines.append(f"| {at_s:.0f} | {each.says} | {', '.join(delays)} |")
    lines += [
        "",
        f"Holds were shortened to {LONGEST_HOLD_S} s for {', '.join(changed)}; groups evaluated every five minutes were evaluated every "
        "minute, and Alertmanager waited 20 s for a group. Ranges and limits were as committed. Tested by promtool only: "
        + "; ".join(f"{name} ({why})" for name, why in NOT_PROVOKED.items()) + ".",
    ]  # fmt: skip
    return "\n".join(lines)


def page(record: Mapping[str, Any], text: str) -> str:
    """Return the page's text with the new section."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{rendered(record)}\n{END}{rest.split(END)[1]}"


def main(arguments: Sequence[str]) -> int:
    """Return 0, or 1 for a stale page or a run with false or missing alerts, or 2 for any other argument."""
    if arguments not in ([], ["--render"], ["--check"]):
        sys.stderr.write("usage: python -m tests.dashboards.long_run [--render | --check]\n")
        return 2
    if not arguments:
        with tempfile.TemporaryDirectory(prefix="gwrun") as folder:
            RECORD.write_text(json.dumps(play(Path(folder)), indent=1) + "\n")
    record = json.loads(RECORD.read_text())
    text = PAGE.read_text(encoding="utf-8")
    if arguments == ["--check"]:
        if page(record, text) != text:
            sys.stderr.write(f"{PAGE.name} is stale; run python -m tests.dashboards.long_run --render\n")
            return 1
        return 0
    PAGE.write_text(page(record, text), encoding="utf-8")
    missing, false = counted(record)
    for kind, found in (("missing", missing), ("false", false)):
        sys.stderr.write("".join(f"{kind}: {each}\n" for each in found))
    return 1 if (missing or false) and not arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
