"""The source distribution, and the wheel built from it: ``make dist`` writes both to dist/.

    python -m tests.distributions TREE FOLDER

The wheel is built from the source distribution.  A missing file is therefore missing in both, and no leftover of build/
enters the wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_BUILD = "import sys; from setuptools import build_meta; build_meta.build_{}(sys.argv[1])"
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
OFFLINE = ("--no-deps", "--no-index", "--no-cache-dir")


def build(tree: Path, folder: Path) -> tuple[Path, Path]:
    """Build both distributions in a folder without older ones; return the source distribution and the wheel.

    Raises CalledProcessError: when a build fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    run([sys.executable, "-c", _BUILD.format("sdist"), str(folder)], cwd=tree)
    (sources,) = folder.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as unpacked:
        shutil.unpack_archive(sources, unpacked, filter="data")
        (tree,) = Path(unpacked).iterdir()
        run([sys.executable, "-c", _BUILD.format("wheel"), str(folder)], cwd=tree)
    (wheel,) = folder.glob("*.whl")
    return sources, wheel


def run(command: list[str], cwd: Path | None = None) -> str:
    """Run a command without the environment variables of Python, pip and gpuwatch; return its standard output.

    Raises CalledProcessError: when the command fails.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "GPUWATCH_"))}
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.stderr.write(ended.stdout + ended.stderr)
        ended.check_returncode()
    return ended.stdout


def main(arguments: list[str]) -> int:
    """Remove older distributions from a folder, and build new ones there."""
    tree, folder = map(Path, arguments)
    for old in (*folder.glob("*.tar.gz"), *folder.glob("*.whl")):
        old.unlink()
    for file in build(tree, folder.resolve()):
        sys.stdout.write(f"{folder / file.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
