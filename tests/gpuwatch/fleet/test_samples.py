"""Tests of the samples for Kubernetes and Slurm."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import jsonschema
import pytest
import yaml

from gpuwatch.cli import cli
from gpuwatch.config import keys
from gpuwatch.config.keys import KEYS
from tests.gpuwatch.fleet.manifest_schemas import SCHEMAS
from tests.gpuwatch.fleet.warehouse import PAGE

SAMPLES = PAGE.parents[1] / "dashboards"
SCRIPTS = sorted(SAMPLES.glob("slurm/*.sh"))
MANIFESTS = sorted(SAMPLES.glob("kubernetes/*.yaml"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_slurm_script_parses_in_every_shell(script: Path) -> None:
    assert os.access(script, os.X_OK)
    for shell in ("sh", "bash", "dash"):
        if shutil.which(shell):
            subprocess.run([shell, "-n", script], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", script], check=True)


def schema_errors(path: Path, manifest: object) -> list[str]:
    schema = json.loads((SCHEMAS / f"{path.stem}.json").read_text())
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(manifest)]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifest_satisfies_the_published_schema(path: Path) -> None:
    """Each sample satisfies its kind's schema, and states that no cluster ran it."""
    assert schema_errors(path, yaml.safe_load(path.read_text())) == []
    assert path.read_text().startswith("# Not run on a cluster")


@pytest.mark.parametrize(
    ("name", "before", "after", "wrong"),
    [
        ("daemonset", "hostPID:", "hostPid:", "'hostPid' was unexpected"),
        ("daemonset", "containerPort: 9836", "containerPort: metrics", "'metrics' is not of type 'integer'"),
        ("daemonset", "  selector:\n    matchLabels", "  selecting:\n    matchLabels", "'selector' is a required property"),
        ("podmonitor", "interval: 15s", "interval: fast", "'fast' does not match"),
        ("podmonitor", "targetLabel:", "targetlabel:", "'targetlabel' was unexpected"),
    ],
)
def test_schema_finds_a_mistyped_manifest(name: str, before: str, after: str, wrong: str) -> None:
    path = SAMPLES / "kubernetes" / f"{name}.yaml"
    assert before in path.read_text()
    (found, *_) = [
        each for each in schema_errors(path, yaml.safe_load(path.read_text().replace(before, after))) if wrong in each
    ]
    assert found


def test_daemonset_references_exist() -> None:
    """Mounted volumes exist, both selectors match the pods, and probes and monitor use only the pods' ports."""
    daemonset, monitor = (
        yaml.safe_load((SAMPLES / "kubernetes" / name).read_text()) for name in ("daemonset.yaml", "podmonitor.yaml")
    )
    pod = daemonset["spec"]["template"]
    volumes = {each["name"] for each in pod["spec"]["volumes"]}
    ports = {port["name"] for container in pod["spec"]["containers"] for port in container.get("ports", ())}
    for container in pod["spec"]["containers"]:
        assert {each["name"] for each in container["volumeMounts"]} <= volumes
        for probe in ("livenessProbe", "readinessProbe"):
            assert container.get(probe, {}).get("httpGet", {}).get("port", "metrics") in ports
    for selector in (daemonset["spec"]["selector"], monitor["spec"]["selector"]):
        assert selector["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert {each["port"] for each in monitor["spec"]["podMetricsEndpoints"]} <= ports


def test_manifests_use_known_options_settings_and_ports() -> None:
    texts = {path.stem: path.read_text() for path in MANIFESTS}
    daemonset = texts["daemonset"]
    known = {option for name in ("daemon", "export") for option in options(name)}
    assert set(re.findall(r"(?<=[\s\"])(--[a-z-]+)", daemonset)) <= known
    assert len(set(re.findall(r"(?<=[\s\"])(--[a-z-]+)", daemonset))) >= 6
    read = {key.variable for key in KEYS}
    assert set(re.findall(r"name: (GPUWATCH_\w+)", daemonset)) <= read
    port = keys.LISTEN_PORT
    assert f"containerPort: {port}" in daemonset
    assert f"--listen=0.0.0.0:{port}" in daemonset
    assert "port: metrics" in texts["podmonitor"]
    assert "app.kubernetes.io/name: gpuwatch" in texts["podmonitor"]


def options(command: str) -> set[str]:
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    return {option for parameter in found.params for option in parameter.opts}
