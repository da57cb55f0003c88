"""Other watchers, in a separate environment under build/ that is made at first use."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build" / "peers"
PINNED = Path(__file__).with_name("peers.txt")


class MissingError(Exception):
    """Error for a missing environment of other watchers; the message gives the reason in one line."""


def versions() -> dict[str, str]:
    """Return the pinned versions by name."""
    return dict(re.findall(r"^([\w-]+)==(\S+)$", PINNED.read_text(), re.MULTILINE))


def python(place: Path = PLACE) -> Path:
    """Return the interpreter of the other watchers; make the environment if it is missing or other versions are pinned.

    Raises MissingError: when the environment cannot be made, and when pip cannot install the watchers.
    """
    made, stamp = place / "bin" / "python", place / "installed"
    if stamp.exists() and stamp.read_text() == PINNED.read_text():
        return made
    try:
        venv.create(place, with_pip=True, clear=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise MissingError(f"an environment for {', '.join(versions())} could not be made: {error}") from error
    install = [str(made), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", "-r", str(PINNED)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise MissingError(
            f"pip could not install {', '.join(versions())}: {errors[-1] if errors else f'exit code {done.returncode}'}"
        )
    stamp.write_text(PINNED.read_text())
    return made


def packages(place: Path = PLACE) -> Path:
    """Return the folder of the other watchers' modules, for programs that also import gpuwatch."""
    return place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
