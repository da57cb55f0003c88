"""Tests of the long run's accounting: missing alerts, false alerts, and a reason for each alert outside the story."""

from __future__ import annotations

import json
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

from dashboards.alerts import ALERTS, rules
from dashboards.asking import Series
from tests.dashboards.long_run import RECORD, _spells, counted, shortened
from tests.dashboards.run_story import END_S, NOT_PROVOKED, STORY
from tests.gpuwatch.programs import program


def perfect() -> dict[str, Any]:
    """Return the record of a run in which each alert fired ten seconds after its event, for ten seconds."""
    fired = [
        {"labels": one.labels, "begin_s": round(each.at_s + 10), "end_s": round(each.at_s + 20)}
        for each in STORY
        for one in each.raises
    ]
    return {"happened_s": [each.at_s for each in STORY], "fired": fired}


def test_story_and_reasons_name_every_alert_once() -> None:
    told = {one.alert for each in STORY for one in each.raises}
    assert told | set(NOT_PROVOKED) == {alert.name for alert in ALERTS}
    assert not told & set(NOT_PROVOKED)
    assert [each.at_s for each in STORY] == sorted(each.at_s for each in STORY)
    assert STORY[-1].at_s + 150 < END_S


def test_missing_and_false_alerts_are_counted() -> None:
    """An alert that is missing, late, early, on another GPU or too long is counted; a perfect run has no such alert."""
    assert counted(perfect()) == ([], [])
    planned = perfect()
    brake = next(n for n, spell in enumerate(planned["fired"]) if spell["labels"]["alertname"] == "GpuwatchPowerBrake")
    missing, false = counted({**planned, "fired": planned["fired"][:brake] + planned["fired"][brake + 1 :]})
    assert (len(missing), len(false)) == (1, 0)
    assert "GpuwatchPowerBrake" in missing[0]
    for change, counts in (
        ({"begin_s": 300}, (1, 0)),  # inside the alert's period, but after its deadline
        ({"begin_s": 20}, (1, 1)),
        ({"end_s": 1700}, (0, 1)),
        ({"labels": {**planned["fired"][brake]["labels"], "gpu": "3"}}, (1, 1)),
    ):
        changed = deepcopy(planned)
        changed["fired"][brake] |= change
        found = counted(changed)
        assert (len(found[0]), len(found[1])) == counts, change


def test_spells_of_an_alert_are_split_at_breaks() -> None:
    labels = {"__name__": "ALERTS", "alertname": "X", "alertstate": "firing", "uuid": "U", "gpu": "0"}
    series = Series(labels, tuple((100.0 + at_s, 1.0) for at_s in (0, 5, 10, 40, 45)))
    told = {"labels": {"alertname": "X", "gpu": "0"}}
    assert _spells(series, 100.0) == [{**told, "begin_s": 0, "end_s": 10}, {**told, "begin_s": 40, "end_s": 45}]


def test_rules_of_the_run_differ_by_holds_alone(tmp_path: Path) -> None:
    """The run's rules differ from the committed rules only in holds and group intervals, and promtool accepts them."""
    text, changed = shortened(rules())
    (tmp_path / "rules.yml").write_text(text)
    subprocess.run([program("promtool"), "check", "rules", str(tmp_path / "rules.yml")], check=True, capture_output=True)
    pairs = [pair for pair in zip(rules().splitlines(), text.splitlines(), strict=True) if pair[0] != pair[1]]
    assert all(line.split(":")[0].strip() in ("for", "interval") for pair in pairs for line in pair)
    assert len(changed) == sum("for:" in line for line, _ in pairs) == sum(alert.hold not in ("0m", "1m") for alert in ALERTS)


def test_committed_record_is_of_this_story() -> None:
    """The record has a time for every event, and missing and false alerts are less than a tenth of the expected alerts."""
    record = json.loads(RECORD.read_text())
    assert len(record["happened_s"]) == len(STORY)
    missing, false = counted(record)
    assert len(missing) + len(false) < 0.1 * sum(len(each.raises) for each in STORY)
