"""The samples for Kubernetes and Slurm: schemas accept them, they name what exists, and the epilog judges a job of a living daemon."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import jsonschema
import pyarrow.parquet as pq
import pytest
import yaml

from gpuwatch.cli import cli
from gpuwatch.client.window import window
from gpuwatch.config import keys
from gpuwatch.config.keys import KEYS
from gpuwatch.config.settings import Settings
from tests.gpuwatch.fleet.manifest_schemas import SCHEMAS
from tests.gpuwatch.fleet.warehouse import PAGE
from tests.waiting import let_pass, sample_for, wait_until

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


def wrongs(path: Path, manifest: object) -> list[str]:
    """List what the published schema of this kind refuses in a manifest."""
    schema = json.loads((SCHEMAS / f"{path.stem}.json").read_text())
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(manifest)]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifest_satisfies_the_published_schema(path: Path) -> None:
    """Each sample satisfies the schema of its kind, which knows every key, and says that no cluster ran it."""
    assert wrongs(path, yaml.safe_load(path.read_text())) == []
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
    (found, *_) = [each for each in wrongs(path, yaml.safe_load(path.read_text().replace(before, after))) if wrong in each]
    assert found


def test_daemonset_refers_to_what_it_defines() -> None:
    """Volumes that are mounted exist, the selector finds the pods, and the monitor's port is one of them."""
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


@pytest.fixture
def node(tmp_path: Path, copying: Settings) -> dict[str, str]:
    """The environment of slurmd's scripts on a node whose only GPU is the simulated one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    with window("inside the job", sync=False, settings=copying) as watched:
        sample_for(0.1)
    assert watched.verdict.device_uuid
    flags = " ".join(copying.flags())
    for name, line in {
        "gpuwatch": f'exec {sys.executable} -m gpuwatch {flags} "$@"',
        "nvidia-smi": f"echo {watched.verdict.device_uuid}",
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(PAGE.parents[1]),
        "GPUWATCH_SLURM_NOTES": str(tmp_path / "notes"),
        "GPUWATCH_SLURM_VERDICTS": str(tmp_path / "verdicts"),
        "GPUWATCH_SLURM_SHARED": str(tmp_path / "shared"),
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_GPUS": "0",
    }


def script(name: str, environment: dict[str, str]) -> None:
    ended = subprocess.run([SAMPLES / "slurm" / name], env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_job_is_judged_after_its_end_and_exported(node: dict[str, str], tmp_path: Path) -> None:
    """A job is judged after it ended, and its windows are handed on."""
    script("prolog.sh", node)
    let_pass(2.6, "a job; what happened within the last second and a half is not judged yet")
    script("epilog.sh", node)
    (verdict,) = json.loads((tmp_path / "verdicts" / "4711.json").read_text())["verdicts"]
    assert verdict["simulated"] is True
    assert [path.name for path in (tmp_path / "verdicts").iterdir()] == ["4711.json"]
    assert list((tmp_path / "notes").iterdir()) == []
    parts = wait_until(lambda: list((tmp_path / "shared").rglob("*.parquet")), what="windows are exported")
    assert "inside the job" in [
        row["label"] for part in parts for row in pq.ParquetFile(part).read(columns=["label"]).to_pylist()
    ]


@pytest.mark.parametrize("wrong", [{"SLURM_JOB_ID": "../x"}, {"SLURM_JOB_ID": ""}, {"SLURM_JOB_GPUS": ""}])
def test_what_is_no_job_with_gpus_is_left_alone(wrong: dict[str, str], tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "GPUWATCH_SLURM_NOTES": str(tmp_path / "notes"), "SLURM_JOB_ID": "1"} | wrong
    script("prolog.sh", environment)
    script("epilog.sh", environment)
    assert list(tmp_path.iterdir()) == []


def test_a_job_runs_and_ends_whatever_is_wrong_with_the_witness(node: dict[str, str], tmp_path: Path) -> None:
    script("prolog.sh", node)
    (tmp_path / "bin" / "gpuwatch").write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    script("epilog.sh", node)
    assert [path.name for path in (tmp_path / "verdicts").iterdir()] == ["4711.log"]
