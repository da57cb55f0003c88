"""Tests of the wheel and the source distribution: their content, and an installation outside the tree."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.cli.dashboards import read_shipped
from tests import distributions

ROOT = Path(__file__).parents[1]
PACKAGES = ("annotate", "gpuwatch")
SHARED = ("dashboards", "systemd")
# Endings of files of shared folders that only a checkout needs, to build, test, run or describe the shipped files.
NOT_SHARED = (".py", ".md")


@dataclass(frozen=True, slots=True)
class Built:
    """Both distributions, and an environment with the wheel, outside the tree."""

    sources: Path
    wheel: Path
    python: Path


def build_and_install(folder: Path) -> Built:
    """Build from a copy of the tree, and remove the copy before the wheel is installed."""
    tree, made = folder / "tree", folder / "dist"
    left_out = shutil.ignore_patterns("__pycache__", "*.so")
    for name in (*PACKAGES, *SHARED):
        shutil.copytree(ROOT / name, tree / name, ignore=left_out)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    sources, wheel = distributions.build(tree, made)
    shutil.rmtree(tree)
    python = folder / "environment" / "bin" / "python"
    venv.create(python.parents[1], with_pip=False, symlinks=True)
    # A path file adds the installed dependencies.  Python ignores path files in those folders, so no editable installation is added.
    (place,) = (python.parents[1] / "lib").glob("python*/site-packages")
    (place / "dependencies.pth").write_text("".join(f"{each}\n" for each in site.getsitepackages()))
    distributions.run(
        [*distributions.PIP, "--python", str(python), "install", "--no-compile", *distributions.OFFLINE, str(wheel)]
    )
    return Built(sources, wheel, python)


def tracked(*folders: str) -> set[str]:
    """List git's files below these folders; without git, all files."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode == 0:
        return {name for name in ended.stdout.split() if (ROOT / name).is_file()}
    found = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    return {str(path.relative_to(ROOT)) for path in found if path.is_file() and path.suffix not in (".pyc", ".so")}


def shared_files() -> set[str]:
    return {f"dashboards/{name}" for name in read_shipped()} | {
        name for name in tracked("systemd") if not name.endswith(NOT_SHARED)
    }


def check_wheel(built: Built) -> None:
    """Check that the wheel has the packages' files except C sources, every shared file, and no package tests or dashboards."""
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
    data = f"{built.wheel.name.split('-py')[0].split('-cp')[0]}.data/data/share/gpuwatch/"
    held = {name.removeprefix(data) for name in names if name.startswith(data)}
    assert held - {"dashboards/compose.yml"} == shared_files()
    assert {"dashboards/fleet.json", "dashboards/alerts.yml", "dashboards/recording.yml"} <= held
    assert {"dashboards/slurm/epilog.sh", "dashboards/kubernetes/daemonset.yaml"} <= held
    assert {name for name in tracked(*PACKAGES) if not name.endswith(".c")} <= names
    assert not {name.split("/")[0] for name in names} & {"tests", "dashboards"}


def check_sources(built: Built) -> None:
    """Check that the source distribution has the wheel's sources, and that both have the command's version."""
    with tarfile.open(built.sources) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked(*PACKAGES) | shared_files() | {"pyproject.toml", "README.md", "LICENSE"} <= names
    version = distributions.run([str(built.python.with_name("gpuwatch")), "--version"], cwd=built.python.parent).split()[1]
    assert built.sources.name == f"gpuwatch_validity-{version}.tar.gz"
    assert built.wheel.name.startswith(f"gpuwatch_validity-{version}-")


def check_installation(built: Built, tmp_path: Path) -> None:
    """Check an installation of the wheel: the command runs and finds the wheel's files, not the tree's."""
    gpuwatch = built.python.with_name("gpuwatch")
    place = distributions.run([str(built.python), "-c", "import gpuwatch; print(gpuwatch.__file__)"], cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(built.python.parents[1])
    distributions.run([str(gpuwatch), "dashboards", "--to", str(tmp_path / "shared")], cwd=tmp_path)
    written = {
        str(path.relative_to(tmp_path / "shared")): path.read_bytes()
        for path in (tmp_path / "shared").rglob("*")
        if path.is_file()
    }
    assert written == read_shipped()
    assert os.access(tmp_path / "shared" / "slurm" / "epilog.sh", os.X_OK)
    assert "kernel-log" in distributions.run([str(gpuwatch), "daemon", "install", "--list"], cwd=tmp_path)
    loop = "from gpuwatch.sources.nvml import compiled_loop; print(compiled_loop.compiled()[0] is not None)"
    assert distributions.run([str(built.python), "-c", loop], cwd=tmp_path) == "True\n"
    home = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    judged = [str(gpuwatch), "--source=simulated:steady-copy", "selftest", "--qualify", "--json"]
    assert (
        subprocess.run(judged, cwd=tmp_path, env=home, capture_output=True, check=False).returncode == 12
    )  # the installation ships no reference of a simulated card


def test_distributions_are_complete_and_work(tmp_path: Path) -> None:
    """Wheel and source distribution are complete, and an installation of the wheel works outside the tree.

    This is one test, because several tests would build both distributions once per worker.
    """
    built = build_and_install(tmp_path)
    check_wheel(built)
    check_sources(built)
    (tmp_path / "elsewhere").mkdir()
    check_installation(built, tmp_path / "elsewhere")
