"""System programs that tests run, such as chromium, promtool, systemd-analyze and slurmd."""

from __future__ import annotations

import os
import shutil

import pytest

PACKAGES = "tests/system-packages.txt"


def program(name: str) -> str:
    """Return a program's path.  Without the program the test fails on CI, where `make system` ran, and is skipped elsewhere."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")
    if found:
        return found
    why = f"needs the program {name}; install the packages of {PACKAGES}: sudo make system"
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(why, pytrace=False)
    pytest.skip(why)
