"""Settings of the whole suite, and the marker of tests whose course depends on how busy the machine is."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import types
from collections.abc import Generator
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import share_of

# Hundreds of processes that tests start import the same modules: without compiled files each compiles them again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("suite", deadline=None, max_examples=share_of(100), suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# A test is one of ``timing`` if its module uses one of these, or it uses such a fixture: it cannot be forgotten.
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

# Modules that wait for long: each worker begins with its share of them, so that none of them is the last to end.
LONG_MODULES = (
    "tests/test_shown_code.py",
    "tests/fake_nvml/test_faults.py",
    "tests/gpuwatch/daemon/test_handover.py",
    "tests/gpuwatch/client/test_window.py",
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
    """Tell whether a test, or its module, starts processes or threads, waits, or looks at a clock."""
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
    yield  # tests that are not asked for are taken out
    if count := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
        items[:] = long_ones_first(items, int(count))


def long_ones_first(items: list[pytest.Item], workers_count: int) -> list[pytest.Item]:
    """Order tests so that each worker, which begins with an equal run of them, has long modules first."""
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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without looking for garbage, then or later, among a million objects that stay: it takes each worker seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # so that libraries which count at the end what was never freed find nothing to report
