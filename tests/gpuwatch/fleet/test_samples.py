"""The samples for Kubernetes and Slurm: they parse and name what exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from gpuwatch.cli import cli
from gpuwatch.config import keys
from gpuwatch.config.keys import KEYS
from tests.gpuwatch.fleet.warehouse import PAGE
from tests.gpuwatch.programs import program

SAMPLES = PAGE.parents[1] / "dashboards"
SCRIPTS = sorted(SAMPLES.glob("slurm/*.sh"))
MANIFESTS = sorted(SAMPLES.glob("kubernetes/*.yaml"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_one_for_any_shell(script: Path) -> None:
    assert os.access(script, os.X_OK)
    for shell in ("sh", "bash", "dash"):
        if shutil.which(shell):
            subprocess.run([shell, "-n", script], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", script], check=True)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest_is_yaml(manifest: Path) -> None:
    # There is no parser of YAML among our dependencies, and one in VictoriaMetrics, which is told to let pass what it does not know.
    command = [program("victoria-metrics"), f"-promscrape.config={manifest}", "-promscrape.config.dryRun"]
    ended = subprocess.run([*command, "-promscrape.config.strictParse=false"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_that_check_finds_what_is_no_yaml(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(MANIFESTS[0].read_text() + "  - {a: b\n")
    with pytest.raises(AssertionError):
        test_a_manifest_is_yaml(tmp_path / "bad.yaml")


def test_manifests_name_options_settings_and_ports_that_exist() -> None:
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
