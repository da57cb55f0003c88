"""gpuwatch's options for pytest; ``--gpuwatch``, ``--gpuwatch-fail-on`` or the ini key ``gpuwatch`` loads the plug-in.

The module is outside the package, because importing any module of the package would slow down each run of pytest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

_MARKER = (
    "gpuwatch(claim='sustained', tolerance=None, precision=None, accept=(), limits=None): "
    "judge this test's windows with these arguments of gpuwatch.window(); a test without windows runs in one window"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpuwatch", "verdicts on GPU benchmarks")
    group.addoption("--gpuwatch", action="store_true", help="Judge each benchmark, and each test with the marker gpuwatch.")
    statuses = "STATUSES"
    fails = "Fail tests whose verdict is one of these: flagged, rejected, unproven; comma-separated."
    group.addoption("--gpuwatch-fail-on", metavar=statuses, help=fails)
    parser.addini("gpuwatch", "True has the effect of --gpuwatch.", type="bool", default=False)
    parser.addini("gpuwatch_fail_on", "STATUSES of --gpuwatch-fail-on.", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    if config.getoption("--gpuwatch") or config.getoption("--gpuwatch-fail-on") or config.getini("gpuwatch"):
        from gpuwatch.harness.pytest_plugin import register

        register(config)


@pytest.fixture
def gpu_window(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return a function that makes windows for this test, judged with the arguments of the test's marker ``gpuwatch``.

    ``gpu_window(label=None)`` makes one window; the default label is the test's id.  Without the plug-in the windows
    watch nothing and have no verdict, so a test needs no branch.

    Provisional: the fixture is new in 0.2.

    Raises pytest.UsageError: when the marker has an argument that ``gpuwatch.window`` refuses.

    Example: ``examples/harness/test_plain.py``
    """
    plugin = request.config.pluginmanager.get_plugin("gpuwatch-windows")
    make: Callable[..., Any] = UnwatchedWindow if plugin is None else plugin.window_maker(request.node)
    return make


class UnwatchedWindow:
    """A window that does nothing, so that a test also works without the plug-in."""

    verdict = None
    run_id = None

    def __init__(self, *_: object) -> None:
        """Accept a label."""

    def __enter__(self) -> UnwatchedWindow:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def iterations(self, count: int) -> Iterator[int]:
        return iter(range(count))

    def iteration(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def other_work(self, _kind: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def record(self, *_: object, **__: object) -> None:
        pass

    inputs = declare = record
