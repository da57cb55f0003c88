"""Tests of gpuwatch dashboards, which lists and writes files."""

from __future__ import annotations

import os
from pathlib import Path

from gpuwatch.cli.dashboards import read_shipped
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.cli.test_schemas import check


def test_dashboards_are_listed_and_written(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """Each file goes to its place in the folder, scripts are executable, and a second run changes nothing."""
    listed = gpuwatch("dashboards").out.split()
    assert listed == list(read_shipped())
    assert {"fleet.json", "alerts.yml", "recording.yml", "slurm/epilog.sh", "kubernetes/daemonset.yaml"} <= set(listed)
    assert not {"compose.yml", "up.sh", "build.py"} & set(listed)
    folder = tmp_path / "new" / "folder"
    first = gpuwatch("dashboards", "--to", str(folder), "--json")
    check(first.data, "urn:gpuwatch:cli:1#/$defs/dashboards")
    assert {each["state"] for each in first.data["files"]} == {"written"}
    assert {name: (folder / name).read_bytes() for name in listed} == read_shipped()
    assert os.access(folder / "slurm" / "prolog.sh", os.X_OK)
    assert not os.access(folder / "alerts.yml", os.X_OK)
    again = gpuwatch("dashboards", "--to", str(folder))
    assert {line.split()[0] for line in again.out.splitlines()} == {"unchanged"}


def test_dashboards_replaces_changed_files_only_with_overwrite(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """The command names a changed file and writes nothing; --overwrite replaces the file."""
    (tmp_path / "alerts.yml").write_text("mine")
    refused = gpuwatch("dashboards", "--to", str(tmp_path))
    assert (refused.code, refused.out) == (2, "")
    assert "found alerts.yml" in refused.err
    assert "--overwrite" in refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["alerts.yml"]
    done = gpuwatch("dashboards", "--to", str(tmp_path), "--overwrite")
    assert f"replaced   {tmp_path / 'alerts.yml'}" in done.out
    assert (tmp_path / "alerts.yml").read_bytes() == read_shipped()["alerts.yml"]


def test_dashboards_refuses_unusable_paths_and_options(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """A file as DIR, a folder in a file's place, and --overwrite without --to are errors."""
    (tmp_path / "file").write_text("")
    (tmp_path / "fleet.json").mkdir()
    assert gpuwatch("dashboards", "--to", str(tmp_path / "file")).code == 2
    assert "fleet.json" in gpuwatch("dashboards", "--to", str(tmp_path)).err
    assert "--overwrite: expected --to DIR" in gpuwatch("dashboards", "--overwrite").err
