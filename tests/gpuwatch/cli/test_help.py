"""Tests of help, completion and the list of scenes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.cli import TASKS
from gpuwatch.config.settings import Settings
from gpuwatch.sources.simulated import FLEETS, SCENES
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.waiting import PATIENCE_S


def test_help_groups_every_command_by_task(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = gpuwatch("--help").out
    for task, names in TASKS.items():
        section = said.partition(f"{task}:\n")[2].partition("\n\n")[0].splitlines()
        assert [line.split()[0] for line in section] == list(names), "a command takes one line"
    assert all(len(line) <= 80 for line in said.splitlines())


@pytest.mark.parametrize("words", [(), ("run",), ("config", "show"), ("daemon", "stop")])
def test_short_help_option_equals_the_long_one(gpuwatch: Gpuwatch, words: tuple[str, ...]) -> None:
    assert gpuwatch(*words, "-h").out == gpuwatch(*words, "--help").out != ""


def completed(*lines: tuple[str, ...], home: Path) -> list[list[str]]:
    """Return the completions for the last word of each line, from one process with the variables of bash's script."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "_GPUWATCH_COMPLETE": "bash_complete"}
    asked = """
import json, os, sys
from gpuwatch.cli import main
for words in json.loads(sys.argv[1]):
    os.environ |= {"COMP_WORDS": " ".join(["gpuwatch", *words]), "COMP_CWORD": str(len(words))}
    try:
        main([])
    except SystemExit:
        pass
    print("END", flush=True)
"""
    ended = subprocess.run(
        [sys.executable, "-c", asked, json.dumps(lines)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    answers = ended.stdout.split("END\n")[:-1]
    return [[line.partition(",")[2] for line in answer.splitlines() if line] for answer in answers]


def test_completion_offers_rules_scenes_and_commands(tmp_path: Path) -> None:
    due = {
        ("explain", "throttle-"): "throttle-thermal",
        ("explain", "sw_po"): "sw_power_cap",
        ("run", "--accept", "outl"): "outliers",
        ("show", "--limit", "no-work"): "no-work.busy_ratio=",
        ("top", "--source", "simulated:therm"): "simulated:thermal",
        ("demo", "--scenes", "idle,therm"): "idle,thermal",
        ("conf",): "config",
    }
    for (words, wanted), offered in zip(due.items(), completed(*due, home=tmp_path), strict=True):
        assert wanted in offered, words


def test_completion_offers_labels_of_windows(gpuwatch: Gpuwatch, daemon: Settings, tmp_path: Path) -> None:
    assert gpuwatch("run", *daemon.flags(), "--name", "to-complete", "--", "true").code == 0
    kept = ("show", f"--state={daemon.state}", f"--source={daemon.source}", "to-")
    assert completed(kept, ("show", f"--state={tmp_path}/none", "to-"), home=tmp_path) == [["to-complete"], []]


def test_scenes_lists_every_scene_with_its_verdict(gpuwatch: Gpuwatch) -> None:
    ended = gpuwatch("scenes")
    lines = {line.split()[0]: line for line in ended.out.splitlines()}
    assert {"SCENE", *SCENES, *FLEETS} == set(lines)
    assert lines["neighbour"].split()[1] == "rejected"
    assert "a longer or later window can differ" in ended.err
    data = gpuwatch("scenes", "--json").data
    assert {scene["name"]: scene["status"] for scene in data["scenes"]} == {
        scene.name: scene.status for scene in SCENES.values()
    }
    assert data["fleets"]["demo"] == list(FLEETS["demo"])
