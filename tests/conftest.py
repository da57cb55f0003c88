"""Settings of the whole suite: the marker of tests that depend on the load, the order of long modules, and forked workers."""

from __future__ import annotations

import atexit
import gc
import os
import subprocess
import sys
import types
from collections.abc import Generator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import share_of
from tests.gpuwatch.forked import ForkedPopen, ForkServer, server

# Hundreds of test processes import the same modules: without compiled files each process would compile the modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Prometheus and promtool: rarer garbage collection without parallel threads takes two thirds of the CPU time.
os.environ.update(GOGC="800", GOMAXPROCS="1")

# An example's duration depends on the machine's load, not on the code's correctness.
settings.register_profile("suite", deadline=None, max_examples=share_of(100), suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# A test gets the marker ``timing`` if its module imports one of these modules, or a function or class of these helpers, or if
# the test uses one of these fixtures.
TIMED_MODULES = frozenset({"asyncio", "multiprocessing", "socket", "subprocess", "threading", "time"})
TIMED_HELPERS = (
    "tests.dashboards.watched",
    "tests.fake_nvml.running",
    "tests.faults",
    "tests.gpuwatch.live",
    "tests.systemd.manager",
    "tests.waiting",
)
TIMED_FIXTURES = frozenset({"copying", "daemon", "two_gpus"})

# Modules with long waits: each worker begins with its share of these modules, so that no such module ends last.
LONG_MODULES = (
    "tests/test_shown_code.py",
    "tests/fake_nvml/test_faults.py",
    "tests/gpuwatch/daemon/test_handover.py",
    "tests/gpuwatch/client/test_window.py",
    "tests/gpuwatch/client/test_launch.py",
    "tests/gpuwatch/daemon/test_daemon.py",
    "tests/gpuwatch/fleet/test_slurm.py",
    "tests/gpuwatch/cli/test_demo.py",
    "tests/gpuwatch/cli/test_run.py",
    "tests/gpuwatch/libgpuwatch/test_library.py",
    "tests/gpuwatch/exporter/test_on_driver.py",
    "tests/gpuwatch/report/test_browser.py",
    "tests/test_site.py",
    "tests/hardware/test_paired.py",
    "tests/gpuwatch/fleet/test_scraping.py",
    "tests/fake_nvml/test_unsupported.py",
    "tests/gpuwatch/daemon/test_work_records.py",
    "tests/faults/test_descriptors.py",
    "tests/systemd/test_service.py",
    "tests/dashboards/test_interruptions.py",
    "tests/dashboards/test_queries.py",
)


def is_timed(item: pytest.Function) -> bool:
    return bool(TIMED_FIXTURES & set(item.fixturenames)) or is_timed_module(item.module)


@cache
def is_timed_module(module: types.ModuleType) -> bool:
    for value in vars(module).values():
        name = value.__name__ if isinstance(value, types.ModuleType) else str(getattr(value, "__module__", ""))
        if name in TIMED_MODULES if isinstance(value, types.ModuleType) else name.startswith(TIMED_HELPERS):
            return True
    return False


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    for item in items:
        if isinstance(item, pytest.Function) and is_timed(item):
            item.add_marker(pytest.mark.timing)
    yield  # pytest removes deselected tests
    if count := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
        items[:] = long_ones_first(items, int(count))


def long_ones_first(items: list[pytest.Item], workers_count: int) -> list[pytest.Item]:
    """Order tests so that each worker's equal part of the list begins with long modules."""
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
    long = [modules.pop(name) for name in LONG_MODULES if name in modules]
    others = [item for module in modules.values() for item in module]
    ordered: list[pytest.Item] = []
    for number in range(workers_count):
        first = [item for module in long[number::workers_count] for item in module]
        end = (len(items) - len(ordered)) // (workers_count - number) - len(first)
        ordered += first + others[: max(0, end)]
        del others[: max(0, end)]
    return ordered + others


class WorkerPopen(ForkedPopen):
    """A worker of xdist, forked from a process that has collected every test."""

    def forks(self) -> ForkServer:
        return server("tests.worker_server")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Fork the workers, unless the command line names paths."""
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        for spec in specs:
            spec.python = f"{sys.executable} -m tests.forked_worker"
        subprocess.Popen = WorkerPopen  # type: ignore[misc]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collection, then freeze all objects: repeated scans of all objects slow the suite down."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(100_000, 20, 20)  # with the default of 700, collections take 6 % of the suite's CPU time
        atexit.register(gc.unfreeze)  # unfreeze, because some libraries report unfreed objects at the end
