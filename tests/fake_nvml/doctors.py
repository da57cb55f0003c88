"""Parallel runs of `gpuwatch doctor` with many drivers: one process with all imports, and a forked child for each driver.

The search path for libraries is the child's working folder, so that every child finds its own library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.fake_nvml.scene import Scene
from tests.waiting import PATIENCE_S


@dataclass(frozen=True)
class Report:
    code: int
    text: str


def doctors(folder: Path, cases: Mapping[str, tuple[Scene, Path]]) -> dict[str, Report]:
    """Return doctor's exit code and output for each of these machines, by name."""
    machines = {name: [str(scene.path), str(library)] for name, (scene, library) in cases.items()}
    done = subprocess.run(
        [sys.executable, "-m", "tests.fake_nvml.doctors", str(folder)], input=json.dumps(machines),
        env={**os.environ, "LD_LIBRARY_PATH": "."}, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    codes: dict[str, int] = json.loads(done.stdout)
    return {name: Report(code, (folder / name).read_text()) for name, code in codes.items()}


def main() -> None:
    from gpuwatch import cli
    from gpuwatch.cli import doctor
    from gpuwatch.cli.checks import driver, machine, places
    from gpuwatch.sources import nvml

    _ = doctor, driver, machine, places, nvml  # imported before the fork
    folder = Path(sys.argv[1])
    children = {}
    for name, (scene, library) in json.load(sys.stdin).items():
        child = os.fork()
        if child == 0:
            output = os.open(folder / name, os.O_WRONLY | os.O_CREAT)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(library)
            os.environ["FAKE_NVML_SCENE"] = scene
            options = ["--state", str(folder / f"{name}-state"), "--socket", str(folder / f"{name}-socket")]
            os._exit(cli.main(["--source", "nvml", *options, "doctor"]))
        children[child] = name
    ended = [os.wait() for _ in children]
    print(json.dumps({children[child]: os.waitstatus_to_exitcode(status) for child, status in ended}))


if __name__ == "__main__":
    main()
