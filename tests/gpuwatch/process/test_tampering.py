"""Tests of the detection of replaced timing functions."""

from __future__ import annotations

import functools
import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpuwatch.process.tampering import replaced

STREAMS = """
class Event:
    def record(self): ...
    def synchronize(self): ...
    def wait(self): ...
    def elapsed_time(self, other): return 1.0
    def query(self): ...
class Stream:
    def synchronize(self): ...
    def record_event(self): ...
    def wait_event(self): ...
"""


def load_module(folder: Path, name: str, text: str) -> ModuleType:
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def cuda(tmp_path: Path) -> Iterator[Any]:
    """Yield a stand-in for torch.cuda with the timing functions."""
    streams = load_module(tmp_path, "torch.cuda.streams", STREAMS)
    public: Any = load_module(tmp_path, "torch.cuda", "def synchronize(device=None): ...\n")
    public.Event, public.Stream = streams.Event, streams.Stream
    yield public
    del sys.modules["torch.cuda"], sys.modules["torch.cuda.streams"]


def test_original_functions_are_not_replaced(cuda: Any) -> None:
    assert replaced() == ()


def test_replaced_clock_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock replaced by a function or by another clock is reported."""
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(time, "monotonic_ns", time.time_ns)
    assert replaced() == ("time.monotonic_ns", "time.perf_counter")


def test_disguised_event_method_is_reported(cuda: Any) -> None:
    """A replaced method of an event is reported, although ``functools.wraps`` copied the original's attributes."""

    @functools.wraps(cuda.Event.elapsed_time)
    def faster(self: object, other: object) -> float:
        return 0.1

    cuda.Event.elapsed_time = faster
    assert replaced() == ("torch.cuda.Event.elapsed_time",)


def test_method_swapped_within_its_file_is_reported(cuda: Any) -> None:
    cuda.Event.synchronize = cuda.Event.query
    assert replaced() == ("torch.cuda.Event.synchronize",)


def test_replaced_event_class_is_reported(cuda: Any) -> None:
    class Event(cuda.Event):  # type: ignore[misc]  # the fixture's class has no type
        pass

    cuda.Event = Event
    assert replaced() == ("torch.cuda.Event",)


@pytest.mark.parametrize("stand_in", [lambda device=None: None, functools.partial(print), object()])
def test_replaced_synchronisation_is_reported(cuda: Any, stand_in: object) -> None:
    cuda.synchronize = stand_in
    assert replaced() == ("torch.cuda.synchronize",)


def test_c_replacement_of_torch_function_is_not_reported(cuda: Any) -> None:
    cuda.synchronize = len
    cuda.Event.record = str.upper
    assert replaced() == ()
