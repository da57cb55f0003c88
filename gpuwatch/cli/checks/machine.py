"""Checks of the host: Python, container, visible processes, processors, CPU pressure, and misspelt variables."""

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from annotate import __version__
from annotate.evidence import Visibility
from gpuwatch.cli.checks import Check, passed, warned
from gpuwatch.config import settings
from gpuwatch.host import processes


def checks() -> Iterator[Check]:
    yield passed(
        "gpuwatch",
        f"{__version__}, Python {platform.python_version()} at {sys.executable}",
        version=__version__,
        python=platform.python_version(),
    )
    yield _container()
    yield _visibility(processes.visibility())
    yield _processors()
    yield _pressure(Path("/proc/pressure/cpu"))
    for name in settings.unknown_variables(os.environ):
        yield warned(
            "environment", f"{name} is set, but is not a setting", f"unset {name}; list the settings: gpuwatch config show"
        )


def _container() -> Check:
    kind = processes.container()
    if kind is None:
        return passed("container", "none", container=None)
    if kind == "wsl":
        return warned(
            "container",
            "WSL: the driver omits clocks, process lists and time counters here",
            "for proof, measure on Linux without WSL",
            container=kind,
        )
    return passed("container", kind, container=kind)


def _visibility(seen: Visibility) -> Check:
    name = "processes"
    if seen is Visibility.HOST:
        return passed(name, "every process of the machine is visible", visibility=seen.value)
    fix = "start the daemon on the host, or the container with --pid=host"
    if seen is Visibility.NAMESPACE:
        found = "only processes of this container are visible: neighbours show only as utilisation and memory that no visible process explains"
        return warned(name, found, fix, visibility=seen.value)
    return warned(name, "unknown: /proc is hidden", fix, visibility=seen.value)


def _processors() -> Check:
    allowed, all_of_them = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    facts = {"allowed_count": allowed, "count": all_of_them}
    if allowed == 1:
        return warned(
            "processors",
            f"1 of {all_of_them} may be used: a benchmark shares it with every other process",
            "allow two or more (taskset, cpuset), so that launches do not wait",
            **facts,
        )
    return passed("processors", f"{allowed} of {all_of_them} may be used", **facts)


def _pressure(file: Path) -> Check:
    try:
        file.read_text()
    except OSError as error:
        return warned(
            "cpu pressure",
            f"{file} cannot be read ({error.strerror}): only scheduler delays show late launches",
            "boot with psi=1, or run outside the container",
            available=False,
        )
    return passed("cpu pressure", "the kernel reports how long tasks waited for a processor", available=True)
