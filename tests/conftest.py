"""Settings of the whole suite, and the marker of tests that depend on the machine's load."""

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

# Hundreds of test processes import the same modules: without compiled files each would compile them again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# An example's duration depends on the machine's load, not on the code's correctness.
settings.register_profile("suite", deadline=None, max_examples=share_of(100), suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# A test gets the marker ``timing`` if its module uses one of these, or the test uses such a fixture.
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


def is_timed(item: pytest.Function) -> bool:
    """Return True if a test, or its module, starts processes or threads, waits, or reads a clock."""
    return bool(TIMED_FIXTURES & set(item.fixturenames)) or is_timed_module(item.module)


@cache
def is_timed_module(module: types.ModuleType) -> bool:
    for value in vars(module).values():
        name = value.__name__ if isinstance(value, types.ModuleType) else str(getattr(value, "__module__", ""))
        if name in TIMED_MODULES if isinstance(value, types.ModuleType) else name.startswith(TIMED_HELPERS):
            return True
    return False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and is_timed(item):
            item.add_marker(pytest.mark.timing)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests with a frozen garbage collector: scans of a million permanent objects take each worker seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # unfreeze, because some libraries report unfreed objects at the end
